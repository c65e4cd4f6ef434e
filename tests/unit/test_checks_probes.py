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

GREEDY_IDS = (4, 4, 7, 5, 4, 9, 8, 7, 6, 5, 4, 3)
GREEDY = GreedyAnswer("p1", GREEDY_IDS, (2.0,) * 12, (1,) * 12)
FREE = (31, 32, 33, 34, 35, 36, 37, 38, 39, 40, 41, 42)

Server = Callable[[dict[str, Any]], Reply]


def reply(*ids: int) -> Reply:
    """Return a served answer."""
    return Reply(200, {"choices": [{"token_ids": list(ids)}]})


def text_of(ids: tuple[int, ...], fields: dict[str, Any]) -> tuple[int, ...]:
    """Return ids cut where the request's stop tokens and length say."""
    least = fields.get("min_tokens", 0)
    stops = fields.get("stop_token_ids", ())
    end = next((i + 1 for i, t in enumerate(ids) if t in stops and i >= least), len(ids))
    return ids[: min(end, fields["max_tokens"])]


def obedient(fields: dict[str, Any]) -> Reply:
    """Answer as an engine that honours everything."""
    if "logit_bias" in fields:
        return reply(*[int(token) for token in fields["logit_bias"]] * fields["max_tokens"])
    if "allowed_token_ids" in fields:
        allowed = fields["allowed_token_ids"]
        turns = "frequency_penalty" in fields
        return reply(*[allowed[i % 2 if turns else 0] for i in range(fields["max_tokens"])])
    if "bad_words" in fields:
        return reply(*[t for t in GREEDY_IDS if t != GREEDY_IDS[0]])
    return reply(*text_of(GREEDY_IDS, fields))


def deaf(name: str) -> Server:
    """Return a server that drops one field and honours the others."""

    def answer(fields: dict[str, Any]) -> Reply:
        if name not in fields:
            return obedient(fields)
        rest = {key: value for key, value in fields.items() if key != name}
        if name in {"top_k", "top_p", "min_p"}:
            return reply(*FREE)
        if name == "frequency_penalty":
            return reply(*[fields["allowed_token_ids"][0]] * fields["max_tokens"])
        if name == "allowed_token_ids":
            return reply(*FREE)
        return reply(*text_of(GREEDY_IDS, rest))

    return answer


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
        "logit_bias",
        "bad_words",
        "allowed_token_ids",
        "frequency_penalty",
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
    [{"error": {"message": "not yet supported"}}, {"message": "not supported", "code": 400}],
)
def test_clean_refusal_passes(document: Any) -> None:
    """A 4xx that says why is as good as obedience, in either form of error."""
    found = run_probe(lambda _: Reply(400, document), probe("min_p"))

    assert (found.behaviour, found.finding) == (Behaviour.REFUSED, None)


@pytest.mark.parametrize(
    "answer",
    [
        Reply(500, {"error": {"message": "EngineDeadError"}}),
        Reply(400, {}),
        Reply(400, "no"),
        Reply(200, {"choices": []}),
        Reply(200, {"choices": [{"token_ids": None}]}),
        Reply(200, None),
    ],
)
def test_crash_or_nonsense_is_found(answer: Reply) -> None:
    """A server error, a refusal without a reason and an answer without ids are findings."""
    found = run_probe(lambda _: answer, probe("top_k"))

    assert found.behaviour is Behaviour.BROKEN
    assert found.finding is not None
    assert found.finding.got.startswith(f"status {answer.status}")


def test_no_tokens_are_not_obedience() -> None:
    """An empty answer keeps no rule that asks for tokens."""
    forced = ("logit_bias", "allowed_token_ids", "frequency_penalty", "top_k", "min_tokens")

    assert [run_probe(lambda _: reply(), probe(name)).behaviour for name in forced] == [
        Behaviour.IGNORED
    ] * len(forced)


def test_near_tie_is_roundings() -> None:
    """Another greedy token within the given gap is not held against the server."""
    flipped = (*GREEDY_IDS[:5], 1, *FREE[6:])

    strict = next(p for p in probes(GREEDY, "w") if p.name == "top_k")
    lax = next(p for p in probes(GREEDY, "w", near_tie_logits=2.0) if p.name == "top_k")

    assert run_probe(lambda _: reply(*flipped), strict).behaviour is Behaviour.IGNORED
    assert run_probe(lambda _: reply(*flipped), lax).behaviour is Behaviour.HONOURED


@pytest.mark.parametrize("ids", [(1, 2, 3), (5,) * PROBE_TOKENS])
def test_prompt_that_cannot_tell_is_refused(ids: tuple[int, ...]) -> None:
    """Short answers and those of one token alone would let silence pass."""
    with pytest.raises(ValueError, match="Take another prompt"):
        probes(GreedyAnswer("p", ids, (1.0,) * len(ids), (0,) * len(ids)), "w")
