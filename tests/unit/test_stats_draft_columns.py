"""What is kept of a draft's law: against literal sums, and in the directions that use it."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from draftgate.stats.directions import directions
from draftgate.stats.eprocess import log_ratios
from draftgate.stats.scores import draft_columns, score_many

VOCABULARY = 7
# "repeat" and "quantile" look at other rows, which here are other draws of the same token.
FAMILY = [d for d in directions(VOCABULARY, 0) if d.family not in ("repeat", "quantile")]


def laws(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return log-probabilities of a target and of a draft, some of them -inf."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=(2, VOCABULARY)) * rng.uniform(0.2, 4)
    logits[rng.random(logits.shape) < 0.2] = -np.inf
    logits[:, 0] = 0.0
    target, draft = logits - np.logaddexp.reduce(logits, axis=1, keepdims=True)
    return target, draft


def every(law: np.ndarray) -> np.ndarray:
    """Return the law once for each token."""
    return np.tile(law, (VOCABULARY, 1))


@settings(deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_columns_are_the_literal_sums(seed: int) -> None:
    """Overlap, over-proposed tokens and the rest are what their definitions say."""
    target, draft = laws(seed)
    p, q = np.exp(target), np.exp(draft)
    found = draft_columns(every(target), every(draft), np.arange(VOCABULARY))

    rest = [max(a - b, 0.0) for a, b in zip(p, q, strict=True)]
    over = [sum(a for a, b in zip(p, q, strict=True) if b > times * a) for times in (1, 2)]
    assert np.allclose(np.exp(found["overlap"]), sum(map(min, p, q)))
    assert np.allclose(np.exp(found["over"]), over[0])
    assert np.allclose(np.exp(found["far_over"]), over[1])
    assert np.array_equal(found["draft_law"], draft)
    if sum(rest) > 1e-12:
        assert np.allclose(found["rest_below"], [sum(rest[:i]) / sum(rest) for i in range(7)])
        assert np.flatnonzero(found["rest_top"]).tolist() == [rest.index(max(rest))]


@pytest.mark.parametrize("certain", [True, False])
@settings(deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_directions_have_mean_one(*, certain: bool, seed: int) -> None:
    """Under the law the mean ratio of each direction is at most one, by enumeration."""
    target, draft = laws(seed)
    tokens, best = np.arange(VOCABULARY), int(draft.argmax())
    draft = np.where(tokens == best, 0.0, -np.inf) if certain else draft
    columns = draft_columns(every(target), every(draft), tokens)
    columns["draft"] = np.full(VOCABULARY, best)
    possible = np.isfinite(target)
    scores = score_many(every(target), tokens, **columns).take(possible)

    means = np.exp(log_ratios(scores, FAMILY)) @ np.exp(target[possible])

    assert means.max() <= 1 + 1e-9


def test_tied_tokens_leave_the_mean_at_one() -> None:
    """In a flat law no direction counts the tied tokens as if each were the first of them."""
    flat, tokens = np.full(VOCABULARY, -np.log(VOCABULARY)), np.arange(VOCABULARY)
    scores = score_many(every(flat), tokens)

    assert scores.rank.tolist() == tokens.tolist()
    assert np.exp(log_ratios(scores, FAMILY)).mean(axis=1).max() <= 1 + 1e-9
