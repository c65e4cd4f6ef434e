"""The reference by the server's own log-probabilities: what it sees and what it cannot."""

from typing import Any

import numpy as np
import pytest

from draftgate.errors import EngineError, MeasurementError, SpecError
from draftgate.laws.answer import Answer
from draftgate.laws.own import OwnReference, own_entries
from draftgate.laws.parameters import LawParameters
from draftgate.laws.partial import LogprobEntry
from draftgate.stats.directions import directions
from draftgate.stats.eprocess import evidence

VOCABULARY = 40
ALPHA = 1e-4
N = 300


def drawn(reported_at: float, drawn_at: float, parameters: LawParameters) -> tuple[Answer, Any]:
    """Return an answer drawn at one temperature with log-probabilities of another, top 5."""
    rng = np.random.default_rng(9)
    tokens, entries = [], []
    for _ in range(N):
        logits = rng.normal(size=VOCABULARY) * 2
        probs = np.exp(logits / drawn_at)
        token = int(rng.choice(VOCABULARY, p=probs / probs.sum()))
        law = logits / reported_at - np.logaddexp.reduce(logits / reported_at)
        order = np.argsort(-law)[:5]
        tokens.append(token)
        entries.append(LogprobEntry(token, law[token], tuple((int(i), law[i]) for i in order)))
    answer = Answer(
        request=4,
        prompt_id="p",
        prompt_token_ids=(1,),
        token_ids=tuple(tokens),
        chunks=(1,) * N,
        finish_reason="length",
        parameters=parameters,
        logprobs=tuple(float(entry.logprob) for entry in entries),
    )
    return answer, {4: entries}


def alarm(reference: OwnReference, answer: Answer) -> int | None:
    """Return where an answer alarms by the generic family."""
    scores = reference.score([answer], 2)
    return evidence(scores, directions(VOCABULARY, 0)).alarm_at(ALPHA)


def test_tokens_that_follow_the_reported_law_pass() -> None:
    """Same-versus-same: reported at temperature 1, drawn at the one that was asked for."""
    answer, entries = drawn(1.0, 0.8, LawParameters(temperature=0.8))

    assert alarm(OwnReference(VOCABULARY, entries), answer) is None


def test_tokens_that_do_not_follow_the_reported_law_alarm() -> None:
    """A verification that ignores the temperature is found by the reported law."""
    answer, entries = drawn(1.0, 1.0, LawParameters(temperature=0.5))

    assert alarm(OwnReference(VOCABULARY, entries), answer) is not None


def test_a_fault_in_both_passes_and_is_named() -> None:
    """A fault shared by verification and report is not seen, which the blind spots say."""
    answer, entries = drawn(1.5, 1.5, LawParameters())
    reference = OwnReference(VOCABULARY, entries)

    assert alarm(reference, answer) is None
    assert "share" in "; ".join(reference.blind_to)


def test_log_probabilities_of_the_tokens_alone_find_a_gross_fault() -> None:
    """Without any list of likely tokens garbage is still found."""
    answer, _ = drawn(1.0, 50.0, LawParameters())

    assert alarm(OwnReference(VOCABULARY), answer) is not None


def test_processed_log_probabilities_are_the_law_itself() -> None:
    """Reported after temperature and penalties, they need nothing applied to them."""
    parameters = LawParameters(temperature=0.8, presence_penalty=1.0)
    answer, entries = drawn(0.8, 0.8, parameters)

    scores = OwnReference(VOCABULARY, entries, processed=True).score([answer], 2)

    np.testing.assert_allclose(scores.logp, answer.logprobs[1:])


def test_processed_law_that_excludes_tokens_gives_no_nan() -> None:
    """Listed tokens of probability 0, as filters leave them, keep all numbers in order."""
    cut = ((1, np.log(0.5)), (2, np.log(0.5)), (3, -np.inf))
    entries = {4: [LogprobEntry(1, np.log(0.5), cut), LogprobEntry(3, -np.inf, cut)]}
    answer = Answer(
        request=4,
        prompt_id="p",
        prompt_token_ids=(1,),
        token_ids=(1, 3),
        chunks=(),
        finish_reason="length",
        parameters=LawParameters(top_k=2),
    )

    scores = OwnReference(VOCABULARY, entries, processed=True).score([answer], None)

    assert scores.logp.tolist() == [-np.inf]
    assert evidence(scores, directions(VOCABULARY, 0)).path[-1] == np.inf


@pytest.mark.parametrize("processed", [False, True])
def test_filters_of_rounded_logits_need_the_processed_law(*, processed: bool) -> None:
    """In bfloat16 a law before the filters is refused under them; one after them is the law."""
    answer, entries = drawn(1.0, 1.0, LawParameters(top_p=0.9))
    reference = OwnReference(VOCABULARY, entries, processed=processed, numerics="bfloat16")

    assert ("refused: rounding" in "; ".join(reference.blind_to)) is not processed
    if processed:
        assert len(reference.score([answer], 2)) == N - 1
    else:
        with pytest.raises(SpecError, match="in bfloat16"):
            reference.score([answer], 2)


def test_missing_log_probabilities_are_an_error() -> None:
    """An answer without log-probabilities cannot be rated and is not passed over."""
    answer, _ = drawn(1.0, 1.0, LawParameters())
    bare = Answer(
        request=5,
        prompt_id="p",
        prompt_token_ids=(1,),
        token_ids=answer.token_ids,
        chunks=(),
        finish_reason=None,
        parameters=LawParameters(),
    )

    with pytest.raises(MeasurementError, match="request 5"):
        OwnReference(VOCABULARY).score([bare], None)


def test_a_vocabulary_of_one_is_refused() -> None:
    """A law needs two tokens at least."""
    with pytest.raises(SpecError, match="vocabulary"):
        OwnReference(1)


def test_entries_are_read_from_a_completion() -> None:
    """The likeliest tokens come first, and the drawn one only if it is among them."""
    choice = {
        "logprobs": {
            "tokens": ["token_id:5", "token_id:7"],
            "token_logprobs": [-3.0, -0.5],
            "top_logprobs": [
                {"token_id:5": -3.0, "token_id:2": -1.5, "token_id:1": -0.4},
                {"token_id:8": -2.0, "token_id:7": -0.5},
            ],
        }
    }

    assert own_entries(choice, 2) == (
        LogprobEntry(5, -3.0, ((1, -0.4), (2, -1.5))),
        LogprobEntry(7, -0.5, ((7, -0.5), (8, -2.0))),
    )


@pytest.mark.parametrize(
    "choice", [{}, {"logprobs": None}, {"logprobs": {"tokens": ["a"], "top_logprobs": [{}]}}]
)
def test_a_completion_without_them_is_the_server_s_fault(choice: Any) -> None:
    """Log-probabilities that are missing or by text are refused."""
    with pytest.raises(EngineError, match="log-probabilities by token id"):
        own_entries(choice, 2)
