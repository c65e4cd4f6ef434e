"""Probes of parameters: obedience and refusal pass, silence is found."""

from collections.abc import Callable
from typing import Any

import pytest

from draftgate.checks.greedy import GreedyAnswer
from draftgate.checks.probes import (
    PROBE_TOKENS,
    Behaviour,
    Probe,
    Reply,
    probes,
    run_probe,
)
from tests.support.obedient import obeyed, without

GREEDY_IDS = (4, 4, 7, 5, 4, 9, 8, 7, 6, 5, 4, 3)
GREEDY = GreedyAnswer("p1", GREEDY_IDS, (5.0,) + (1.5,) + (2.5,) * 10, (1,) * 12)
FREE = (31, 32, 33, 34, 35, 36, 37, 38, 39, 40, 41, 42)

Server = Callable[[dict[str, Any]], Reply]


def reply(*ids: int) -> Reply:
    """Return a served answer."""
    return Reply(200, {"choices": [{"token_ids": list(ids)}]})


def obedient(fields: dict[str, Any]) -> Reply:
    """Answer as an engine that honours everything and has a text of its own for each request."""
    return reply(*obeyed(fields, GREEDY_IDS, FREE))


def deaf(name: str) -> Server:
    """Return a server that drops one field and honours the others."""
    return lambda fields: obedient(without(fields, name))


def all_probes() -> tuple[Probe, ...]:
    """Return the probes of one prompt."""
    return probes(GREEDY, " word")


NAMES = [probe.name for probe in all_probes()]


def probe(name: str) -> Probe:
    """Return the probe of one field."""
    return next(p for p in all_probes() if p.name == name)


def test_each_field_is_probed_once() -> None:
    """The list of fields is the one the documentation names."""
    assert NAMES == [
        "top_k",
        "top_p",
        "min_p",
        "presence_penalty",
        "frequency_penalty",
        "logit_bias",
        "bad_words",
        "allowed_token_ids",
        "stop_token_ids",
        "min_tokens",
    ]


@pytest.mark.parametrize("name", NAMES)
def test_obedience_passes(name: str) -> None:
    """A server that honours the field has no finding."""
    found = run_probe(obedient, probe(name))

    assert (found.behaviour, found.finding) == (Behaviour.HONOURED, None)


@pytest.mark.parametrize("name", NAMES)
def test_silence_is_found(name: str) -> None:
    """A server that accepts the field and drops it is found out (planted)."""
    found = run_probe(deaf(name), probe(name))

    assert found.behaviour is Behaviour.IGNORED
    assert found.finding is not None
    assert found.finding.where == name


@pytest.mark.parametrize(
    "document",
    [
        {"error": {"message": "min_p is not yet supported"}},
        {"message": "1 validation error: min_p: extra fields not permitted", "code": 400},
    ],
)
def test_clean_refusal_passes(document: Any) -> None:
    """A 4xx that names the field is as good as obedience, in either form of error."""
    found = run_probe(lambda _: Reply(400, document), probe("min_p"))

    assert (found.behaviour, found.finding) == (Behaviour.REFUSED, None)


def test_refusal_of_a_field_that_the_probe_needs_tells_nothing() -> None:
    """A server without stop tokens can't be asked whether min_tokens holds one off."""
    refusal = Reply(400, {"error": {"message": "stop_token_ids is not supported"}})

    found = run_probe(lambda _: refusal, probe("min_tokens"))

    assert (found.behaviour, found.finding) == (Behaviour.UNTOLD, None)


@pytest.mark.parametrize(
    "answer",
    [
        Reply(500, {"error": {"message": "EngineDeadError in top_k"}}),
        Reply(400, {"error": {"message": "temperature must be in [0, 2]"}}),
        Reply(400, {}),
        Reply(400, "no"),
        Reply(200, {"choices": []}),
        Reply(200, {"choices": [{"token_ids": None}]}),
        Reply(200, None),
    ],
)
def test_crash_or_nonsense_is_found(answer: Reply) -> None:
    """Server errors, refusals for another reason or none, and answers without ids are findings."""
    found = run_probe(lambda _: answer, probe("top_k"))

    assert found.behaviour is Behaviour.BROKEN
    assert found.finding is not None
    assert found.finding.got.startswith(f"status {answer.status}")


@pytest.mark.parametrize("name", ["top_k", "top_p", "min_p"])
def test_server_that_never_samples_tells_nothing(name: str) -> None:
    """Where the answer is greedy without the filter too, obedience is not concluded."""
    found = run_probe(
        lambda fields: reply(*obeyed({**fields, "temperature": 0}, GREEDY_IDS, FREE)), probe(name)
    )

    assert found.behaviour is Behaviour.UNTOLD


def test_control_is_the_same_request_without_the_field() -> None:
    """Two requests are sent, which differ in the field alone; a refusal needs no second."""
    sent: list[dict[str, Any]] = []

    def keep(fields: dict[str, Any]) -> Reply:
        sent.append(dict(fields))
        return obedient(fields)

    run_probe(keep, probe("min_p"))

    assert sent[0] == {**sent[1], "min_p": 1.0}


def test_no_tokens_are_not_obedience() -> None:
    """An empty answer keeps no rule that asks for tokens."""
    forced = ("logit_bias", "allowed_token_ids", "frequency_penalty", "top_k", "min_tokens")

    assert [run_probe(lambda _: reply(), probe(name)).behaviour for name in forced] == [
        Behaviour.IGNORED
    ] * len(forced)


@pytest.mark.parametrize(
    ("gaps", "runner_up", "found"),
    [
        ((9, 9, 9), 1, []),
        ((9, 1.5, 9), 1, [("presence_penalty", 2), ("frequency_penalty", 2)]),
        ((9, 1.95, 3.5), 1, [("frequency_penalty", 3)]),
        ((9, 1.5, 9), 7, []),
    ],
    ids=["far", "once", "twice", "runner-up-penalised-too"],
)
def test_penalties_are_probed_where_they_must_show(
    gaps: tuple[float, ...], runner_up: int, found: list[tuple[str, int]]
) -> None:
    """A repeated token must go if the penalty exceeds its lead; else nothing is asked."""
    ids = (7, 7, 7, *range(20, 29)) if runner_up == 1 else (7, 7, *range(20, 30))
    second = (1, runner_up, runner_up, *(1,) * 9)
    answer = GreedyAnswer("p", ids, (*gaps, *(9.0,) * 9), second)

    penalties = [p for p in probes(answer, "w") if p.name.endswith("_penalty")]

    assert [(p.name, dict(p.fields)["max_tokens"]) for p in penalties] == found


def test_near_tie_is_roundings() -> None:
    """Another greedy token within the given gap is not held against the server."""
    flipped = (*GREEDY_IDS[:5], 1, *FREE[6:])

    def server(fields: dict[str, Any]) -> Reply:
        return reply(*(flipped if "top_k" in fields else FREE))

    strict = next(p for p in probes(GREEDY, "w") if p.name == "top_k")
    lax = next(p for p in probes(GREEDY, "w", near_tie_logits=2.5) if p.name == "top_k")

    assert run_probe(server, strict).behaviour is Behaviour.IGNORED
    assert run_probe(server, lax).behaviour is Behaviour.HONOURED


@pytest.mark.parametrize("ids", [(1, 2, 3), (5,) * PROBE_TOKENS])
def test_prompt_that_cannot_tell_is_refused(ids: tuple[int, ...]) -> None:
    """Short answers and those of one token alone would let silence pass."""
    with pytest.raises(ValueError, match="Take another prompt"):
        probes(GreedyAnswer("p", ids, (1.0,) * len(ids), (0,) * len(ids)), "w")
