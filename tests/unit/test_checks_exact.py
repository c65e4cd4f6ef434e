"""Each exact rule lets a right answer through and finds the answer that breaks it."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from draftgate.checks.exact import (
    SEED_PROMISES,
    Terms,
    answer_findings,
    logprob_findings,
    occurrence,
    repeat_findings,
)
from draftgate.errors import SpecError
from draftgate.laws.answer import Answer
from draftgate.laws.parameters import LawParameters, Structure

EOS = 2
TERMS = Terms(max_tokens=5, logprobs=True, k=3)
RIGHT = Answer(
    request=7,
    prompt_id="chat-001",
    prompt_token_ids=(1, 9),
    token_ids=(11, 12, 13, 14, 15),
    chunks=(1, 4),
    finish_reason="length",
    parameters=LawParameters(stop_token_ids=(EOS,)),
    logprobs=(-0.5, -1.0, -0.0, -3.0, -0.25),
    usage_tokens=5,
)
SHORT = replace(
    RIGHT,
    token_ids=(11, 12, EOS),
    chunks=(1, 2),
    finish_reason="stop",
    logprobs=(-0.5, -1.0, -0.1),
    usage_tokens=3,
)


def rules(answer: Answer, terms: Terms = TERMS) -> list[str]:
    """Return the rules that an answer breaks."""
    return [finding.what for finding in answer_findings(answer, terms)]


def with_law(answer: Answer, **parameters: object) -> Answer:
    """Return the answer to a request with other parameters."""
    return replace(answer, parameters=replace(answer.parameters, **parameters))


@pytest.mark.parametrize(
    "answer",
    [
        RIGHT,
        SHORT,
        replace(RIGHT, chunks=(), usage_tokens=None),
        replace(RIGHT, finish_reason=None),
        with_law(RIGHT, min_tokens=5),
        with_law(SHORT, min_tokens=2),
        with_law(RIGHT, bad_words=((12, 14), (99,))),
        with_law(RIGHT, allowed_token_ids=(11, 12, 13, 14, 15, 16)),
    ],
)
def test_right_answer_has_no_finding(answer: Answer) -> None:
    """An answer that keeps every rule is let through."""
    assert answer_findings(answer, TERMS) == ()


@pytest.mark.parametrize(
    ("answer", "rule"),
    [
        (replace(RIGHT, logprobs=RIGHT.logprobs[:4]), "log-probability entries must equal"),
        (replace(RIGHT, logprobs=()), "log-probability entries must equal token ids"),
        (replace(RIGHT, usage_tokens=6), "usage.completion_tokens must equal token ids"),
        (with_law(SHORT, min_tokens=3), "no stop token below min_tokens"),
        (with_law(SHORT, min_tokens=4), "at least min_tokens tokens"),
        (
            replace(SHORT, token_ids=(11, EOS, 13), finish_reason=None),
            "no tokens after EOS or a stop token",
        ),
        (
            replace(SHORT, token_ids=(EOS, 12, EOS)),
            "no tokens after EOS or a stop token",
        ),
        (replace(SHORT, finish_reason="length"), "finish_reason 'length' only at max_tokens"),
        (
            replace(RIGHT, token_ids=(11, 12, 13, 14, EOS)),
            "finish_reason of an output that ends in a stop token",
        ),
        (replace(RIGHT, finish_reason="stop"), "finish_reason 'stop' only at a stop token"),
        (replace(RIGHT, chunks=(0, 5)), "chunk 1 holds at most K + 1 tokens"),
        (
            replace(RIGHT, logprobs=(-0.5, 0.1, -1.0, -1.0, -1.0)),
            "log-probability of token 1 is finite and at most 0",
        ),
        (
            replace(RIGHT, logprobs=(-0.5, -1.0, float("-inf"), -1.0, -1.0)),
            "log-probability of token 2 is finite and at most 0",
        ),
        (with_law(RIGHT, allowed_token_ids=(11, 12, 13, 14)), "only allowed_token_ids"),
        (with_law(RIGHT, bad_words=((13, 14),)), "no bad word"),
    ],
)
def test_broken_rule_is_found(answer: Answer, rule: str) -> None:
    """Each planted fault is named by the rule that it breaks."""
    found = rules(answer)

    assert any(what.startswith(rule) for what in found), found


def test_one_token_too_many_is_found_with_its_numbers() -> None:
    """A last chain that is not cut at max_tokens shows as one token too many."""
    answer = replace(RIGHT, token_ids=(*RIGHT.token_ids, 16), chunks=(1, 4, 1), logprobs=())

    found = answer_findings(replace(answer, usage_tokens=6), replace(TERMS, logprobs=False))

    assert [str(f) for f in found] == [
        "request 7 (chat-001): no more tokens than max_tokens: got 6, expected at most 5"
    ]


def test_end_elsewhere_is_allowed_where_the_request_allows_it() -> None:
    """Stop strings and structure end an output anywhere; some engines drop the stop token."""
    answer = replace(SHORT, token_ids=(11, 12, 13))

    assert rules(answer) == ["finish_reason 'stop' only at a stop token"]
    assert rules(answer, replace(TERMS, stop_strings=True)) == []
    assert rules(answer, replace(TERMS, keeps_stop=False)) == []
    assert rules(with_law(answer, structure=Structure(kind="json_object"))) == []


def test_chunks_of_unknown_steps_are_not_judged() -> None:
    """Without K, or behind a stream interval, chunks may hold any number of tokens."""
    assert rules(replace(RIGHT, chunks=(0, 5)), replace(TERMS, k=None)) == []


@settings(deadline=None)
@given(
    tokens=st.lists(st.integers(3, 9), min_size=1, max_size=12),
    stop_at=st.integers(0, 11),
    k=st.integers(0, 4),
)
def test_cutting_at_the_stop_is_right_and_later_is_wrong(
    tokens: list[int], stop_at: int, k: int
) -> None:
    """Whatever the text, an output cut right after EOS passes and one that runs on does not."""
    at = min(stop_at, len(tokens))
    ids = (*tokens[:at], EOS)
    terms = Terms(max_tokens=20, k=k)
    answer = replace(
        RIGHT,
        token_ids=ids,
        chunks=(1,) * len(ids),
        finish_reason="stop",
        logprobs=(),
        usage_tokens=len(ids),
    )
    longer = replace(answer, token_ids=(*ids, 5), chunks=(1,) * (len(ids) + 1), usage_tokens=None)

    assert answer_findings(answer, terms) == ()
    assert "no tokens after EOS or a stop token" in rules(longer, terms)


def test_log_probabilities_are_held_against_the_reference() -> None:
    """The worst token is named; differences within the tolerance are let through."""
    reference = [value + 0.001 for value in RIGHT.logprobs]

    assert logprob_findings(RIGHT, reference, 0.002) == ()
    (found,) = logprob_findings(RIGHT, [*reference[:3], -2.5, reference[4]], 0.002)
    assert (found.got, found.expected) == ("-3.00000", "-2.50000 within 0.002")
    assert "token 3 (id 14)" in found.what


def test_unequal_numbers_of_log_probabilities_are_an_error() -> None:
    """A reference of another length is our own mistake, not a finding."""
    with pytest.raises(ValueError, match="4 reference log-probabilities for 5"):
        logprob_findings(RIGHT, (-1.0,) * 4, 0.1)


def test_same_seed_must_give_the_same_ids_where_that_is_promised() -> None:
    """For vLLM that is so, SGLang promises nothing; equal outputs always pass."""
    other = replace(RIGHT, request=8, token_ids=(11, 12, 99, 14, 15))
    shorter = replace(SHORT, token_ids=(11, 12), chunks=(), request=9)

    (found,) = repeat_findings(RIGHT, other, "vllm")
    assert (found.got, found.expected) == ("[99]", "[13] as in request 7")
    (cut,) = repeat_findings(RIGHT, shorter, "vllm")
    assert (cut.got, cut.what) == ("[]", "same ids for the same seed (index 2)")
    assert repeat_findings(RIGHT, other, "sglang") == ()
    assert repeat_findings(RIGHT, replace(RIGHT, request=8), "vllm") == ()


def test_unknown_engine_has_no_promise() -> None:
    """An engine that nobody looked up is an error that lists the known ones."""
    with pytest.raises(SpecError, match="'other', expected one of vllm, sglang"):
        repeat_findings(RIGHT, RIGHT, "other")


def test_every_promise_says_where_it_stands() -> None:
    """The table names a source for each engine."""
    assert all(len(promise.source) > 40 for promise in SEED_PROMISES.values())


@pytest.mark.parametrize(
    ("word", "at"), [((1, 2), 0), ((2, 3), 1), ((3,), 2), ((3, 1), None), ((1, 2, 3, 4), None)]
)
def test_occurrence_is_of_the_whole_word(word: tuple[int, ...], at: int | None) -> None:
    """A word of several tokens counts where all of them stand in a row."""
    assert occurrence((1, 2, 3), word) == at
