"""Exact checks on the real servers: counts, ends, lengths, seeds, parameters and counters."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import pytest

from draftgate.checks.ask import PARALLEL
from draftgate.checks.completions import PATH, answers_of, own_logprobs, teacher_rows, usage_of
from draftgate.checks.counting import (
    counter_findings,
    fall_findings,
    step_findings,
    total_findings,
)
from draftgate.checks.exact import (
    LOGPROB_TOLERANCE_NATS,
    Findings,
    Terms,
    answer_findings,
    logprob_findings,
    repeat_findings,
)
from draftgate.checks.probes import Behaviour, Reply
from draftgate.checks.probing import probe_server
from draftgate.checks.spelling import ServerSpelling
from draftgate.datasets import load_prompts
from draftgate.engines.counters import CounterSnapshot, difference
from draftgate.engines.running import RunningEngine
from draftgate.laws.answer import Answer
from draftgate.laws.parameters import LawParameters
from draftgate.specs import Arm, Profile
from tests.correctness.conftest import in_float32

pytestmark = pytest.mark.correctness

GREEDY = LawParameters(temperature=0)
TOKENS = 24
ALWAYS_DRAFTS = {"draft_model", "eagle3", "peagle"}
"""Methods that propose K tokens in every step; ngram proposes what it finds."""


@dataclass(frozen=True, slots=True)
class Text:
    """A prompt in token ids, with its greedy answer without speculation."""

    prompt_id: str
    ids: tuple[int, ...]
    greedy: Answer


@pytest.fixture(scope="module")
def texts(reference: RunningEngine) -> list[Text]:
    """Three prompts of each kind with the reference's greedy answers."""
    spelling = ServerSpelling(reference.post, reference.model)

    def of(prompt: Any) -> Text:
        ids = spelling.ids(prompt)
        return Text(prompt.prompt_id, ids, complete(reference, prompt.prompt_id, ids)[0])

    return together(of, load_prompts("mixed", seed=13)[:9])


@pytest.fixture
def arm(
    serve: Callable[[Arm], RunningEngine], profile: Profile, speculative_arm: str
) -> RunningEngine:
    """The server of one speculative arm, in float32."""
    return serve(in_float32(profile.arm(speculative_arm)))


def complete(
    engine: RunningEngine,
    prompt_id: str,
    ids: tuple[int, ...],
    law: LawParameters = GREEDY,
    **fields: Any,
) -> tuple[Answer, ...]:
    """Return the server's choices; `fields` hold what `law` says, in the request's spelling."""
    body = {
        "model": engine.model,
        "prompt": list(ids),
        "max_tokens": TOKENS,
        "temperature": law.temperature,
        "ignore_eos": True,
        "return_token_ids": True,
    }
    document = engine.post(PATH, body | fields)
    answers = answers_of(document, prompt_id, ids, law)
    assert usage_of(document) == sum(len(answer.token_ids) for answer in answers)
    return answers


def together(ask: Callable[[Any], Any], jobs: Sequence[Any]) -> list[Any]:
    """Return the results in the order of the jobs, several requests open at once."""
    with ThreadPoolExecutor(PARALLEL) as pool:
        return list(pool.map(ask, jobs))


def drafts_of(engine: RunningEngine) -> int:
    """Return K, 0 without speculation."""
    config = engine.spec.speculative
    return config.num_speculative_tokens if config else 0


def snapshot(engine: RunningEngine) -> CounterSnapshot:
    """Return the server's totals."""
    return engine.parse_counters(engine.scrape() or "")


def settled(
    engine: RunningEngine, before: CounterSnapshot, answers: list[Answer]
) -> tuple[CounterSnapshot, Findings]:
    """Return the totals once they fit the answers, or what still does not after some scrapes.

    vLLM counts a step after it has sent its tokens, so the last one may be missing at first.
    """
    for _ in range(20):
        after = snapshot(engine)
        found = total_findings(answers, difference(before, after))
        if not found:
            break
    return after, found


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_lengths_counts_and_counters_fit(
    arm: RunningEngine, texts: list[Text], temperature: float
) -> None:
    """Outputs of 1 to K + 2 tokens keep every exact rule, and the counters fit them."""
    k = drafts_of(arm)
    law = LawParameters(temperature=temperature)
    lengths = [*range(1, k + 3), TOKENS]
    jobs = [(text, lengths[i % len(lengths)]) for i, text in enumerate(texts * 2)]
    before = snapshot(arm)

    def ask(job: tuple[Text, int]) -> tuple[Answer, int]:
        text, length = job
        fields = {"max_tokens": length, "logprobs": 1}
        return complete(arm, text.prompt_id, text.ids, law, **fields)[0], length

    got = together(ask, jobs)
    answers = [answer for answer, _ in got]
    after, found = settled(arm, before, answers)

    assert found == ()
    assert [
        finding
        for answer, length in got
        for finding in answer_findings(answer, Terms(max_tokens=length, logprobs=True))
    ] == []
    assert before.speculation is not None
    assert after.speculation is not None
    span = difference(before, after).speculation
    assert span is not None
    config = arm.spec.speculative
    assert config is not None
    always = config.method in ALWAYS_DRAFTS
    assert step_findings(answers, span, k, drafts_in_every_step=always) == ()
    assert counter_findings(after.speculation, k) == ()
    assert fall_findings(before.speculation, after.speculation) == ()


def test_greedy_cut_at_any_length_is_the_same_text(arm: RunningEngine, texts: list[Text]) -> None:
    """A shorter `max_tokens` gives the beginning of the longer answer, to the token."""
    lengths = range(1, drafts_of(arm) + 3)
    text = texts[0]

    def cut_at(length: int) -> tuple[int, ...]:
        return complete(arm, text.prompt_id, text.ids, max_tokens=length)[0].token_ids

    assert together(cut_at, lengths) == [text.greedy.token_ids[:n] for n in lengths]


def test_stop_token_anywhere_in_a_chain_ends_the_output(
    arm: RunningEngine, texts: list[Text]
) -> None:
    """A stop token at index 0 to K + 1 ends the output there, whatever was accepted behind it."""
    text = texts[1]
    ids = text.greedy.token_ids

    def stopped(stop: int) -> Answer:
        law = LawParameters(temperature=0, stop_token_ids=(stop,))
        return complete(arm, text.prompt_id, text.ids, law, stop_token_ids=[stop])[0]

    stops = ids[: drafts_of(arm) + 2]
    for stop, answer in zip(stops, together(stopped, stops), strict=True):
        assert answer_findings(answer, Terms(max_tokens=TOKENS)) == ()
        assert answer.token_ids == ids[: ids.index(stop) + 1]


def test_min_tokens_holds_a_stop_token_off(arm: RunningEngine, texts: list[Text]) -> None:
    """Below `min_tokens` the stop token does not come, also inside a chain."""
    least = drafts_of(arm) + 3

    def held_off(text: Text) -> Answer:
        stop = text.greedy.token_ids[2]
        law = LawParameters(temperature=0, stop_token_ids=(stop,), min_tokens=least)
        fields = {"stop_token_ids": [stop], "min_tokens": least}
        return complete(arm, text.prompt_id, text.ids, law, **fields)[0]

    for answer in together(held_off, texts[:4]):
        assert answer_findings(answer, Terms(max_tokens=TOKENS)) == ()


def test_own_eos_ends_the_output_as_without_speculation(
    arm: RunningEngine, reference: RunningEngine, texts: list[Text]
) -> None:
    """Answers that end by themselves end at the same token with and without speculation."""
    fields = {"max_tokens": 64, "ignore_eos": False}

    def both(text: Text) -> tuple[Answer, Answer]:
        want, got = (complete(e, text.prompt_id, text.ids, **fields)[0] for e in (reference, arm))
        return want, got

    pairs = together(both, texts[:6])

    assert [got.token_ids for _, got in pairs] == [want.token_ids for want, _ in pairs]
    assert [got.finish_reason for _, got in pairs] == [want.finish_reason for want, _ in pairs]
    assert any(want.finish_reason == "stop" for want, _ in pairs)


def test_stop_string_ends_the_text_as_without_speculation(
    arm: RunningEngine, reference: RunningEngine, texts: list[Text]
) -> None:
    """A stop string that begins inside a token and ends in another cuts the same text."""
    spelling = ServerSpelling(reference.post, reference.model)

    def both(text: Text) -> tuple[str, Any, Any]:
        whole = spelling.text(text.greedy.token_ids) or ""
        middle = len(whole) // 2
        stop = whole[middle : middle + 4]
        body = {
            "model": reference.model,
            "prompt": list(text.ids),
            "max_tokens": TOKENS,
            "temperature": 0,
            "ignore_eos": True,
            "stop": [stop],
            "return_token_ids": True,
        }
        want, got = (engine.post(PATH, body)["choices"][0] for engine in (reference, arm))
        return stop, want, got

    for stop, want, got in together(both, texts[:3]):
        assert (got["text"], got["finish_reason"]) == (want["text"], "stop")
        assert stop not in got["text"]
        assert got["token_ids"] == want["token_ids"]


def test_several_choices_are_each_whole(arm: RunningEngine, texts: list[Text]) -> None:
    """With n = 3 each choice keeps the rules, usage counts all, and they differ."""
    law = LawParameters(temperature=1.0)

    answers = complete(arm, texts[2].prompt_id, texts[2].ids, law, n=3, seed=5, logprobs=1)

    terms = Terms(max_tokens=TOKENS, logprobs=True)
    assert [f for answer in answers for f in answer_findings(answer, terms)] == []
    assert len({answer.token_ids for answer in answers}) == 3


def test_same_seed_gives_the_same_ids(arm: RunningEngine, texts: list[Text]) -> None:
    """Alone on the server, a seeded request repeats itself; another seed does not."""
    law = LawParameters(temperature=1.0)
    for text in texts[:2]:
        first, second, other = (
            complete(arm, text.prompt_id, text.ids, law, seed=seed)[0] for seed in (21, 21, 22)
        )

        assert repeat_findings(first, second, arm.spec.engine) == ()
        assert first.token_ids != other.token_ids


def test_reported_log_probabilities_are_the_targets(
    arm: RunningEngine,
    reference: RunningEngine,
    texts: list[Text],
    record_property: Callable[[str, object], None],
) -> None:
    """What the server reports of sampled tokens is what the target gives when it reads them."""
    law = LawParameters(temperature=0.8)
    dtype = arm.spec.dtype

    def ask(text: Text) -> tuple[Answer, tuple[float, ...]]:
        answer = complete(arm, text.prompt_id, text.ids, law, logprobs=1)[0]
        rows = teacher_rows(reference.post, reference.model, answer)
        return answer, own_logprobs(answer, rows)

    got = together(ask, texts)
    gaps = [abs(a - b) for x, want in got for a, b in zip(x.logprobs, want, strict=True)]
    record_property("largest_gap_nats", max(gaps))

    tolerance = LOGPROB_TOLERANCE_NATS[dtype]
    assert [f for answer, want in got for f in logprob_findings(answer, want, tolerance)] == []


def behaviours(engine: RunningEngine, texts: list[Text]) -> dict[str, Behaviour]:
    """Return what the server does with each probed field; silence and crashes fail here."""
    report = probe_server(
        lambda path, body: Reply(*engine.answer(path, body)),
        engine.spec.engine,
        engine.model,
        [(text.prompt_id, text.ids) for text in texts],
        ServerSpelling(engine.post, engine.model).text,
        engine.spec.dtype,
    )
    assert report.left_out == ()
    assert [str(finding) for finding in report.findings] == []
    return {p.probe.name: p.behaviour for p in report.probed}


def test_parameters_are_honoured_or_refused(arm: RunningEngine, texts: list[Text]) -> None:
    """Under speculation no parameter is dropped in silence; vLLM refuses two by name."""
    found = behaviours(arm, texts)

    refused = {name for name, behaviour in found.items() if behaviour is Behaviour.REFUSED}
    assert refused == {"min_p", "logit_bias"}
    assert {found[name] for name in found if name not in refused} == {Behaviour.HONOURED}


def test_reference_honours_every_parameter(reference: RunningEngine, texts: list[Text]) -> None:
    """Without speculation each probe passes (same-versus-same run of the probes)."""
    found = behaviours(reference, texts)

    assert {name for name in found if found[name] is not Behaviour.HONOURED} == set()


def test_altered_answers_are_found(reference: RunningEngine, texts: list[Text]) -> None:
    """A real answer with one token more, one less or one swapped breaks a rule (planted)."""
    honest = complete(reference, texts[0].prompt_id, texts[0].ids, logprobs=1)[0]
    ids, terms = honest.token_ids, Terms(max_tokens=TOKENS, logprobs=True)
    want = own_logprobs(honest, teacher_rows(reference.post, reference.model, honest))
    wrong = tuple(value - 0.005 * (i == 4) for i, value in enumerate(honest.logprobs))

    assert answer_findings(honest, terms) == ()
    assert logprob_findings(honest, want, LOGPROB_TOLERANCE_NATS["float32"]) == ()
    for fault in (
        replace(honest, token_ids=(*ids, ids[0])),
        replace(honest, token_ids=ids[:-1]),
        replace(honest, usage_tokens=TOKENS + 1),
        replace(honest, parameters=replace(GREEDY, stop_token_ids=(ids[3],))),
    ):
        assert answer_findings(fault, terms) != ()
    assert (
        logprob_findings(replace(honest, logprobs=wrong), want, LOGPROB_TOLERANCE_NATS["float32"])
        != ()
    )
