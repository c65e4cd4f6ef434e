"""What is kept of a draft's law: against literal sums, and in the directions that use it."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftgate.stats.directions import directions
from draftgate.stats.draft_columns import certain_columns, sampled_columns
from draftgate.stats.eprocess import log_ratios
from draftgate.stats.scores import score_many

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


@given(st.integers(0, 2**32 - 1))
def test_sampled_columns_are_the_literal_sums(seed: int) -> None:
    """Overlap, over-proposed tokens and the rest are what their definitions say."""
    target, draft = laws(seed)
    p, q = np.exp(target), np.exp(draft)
    found = sampled_columns(every(target), every(draft), np.arange(VOCABULARY))

    rest = [max(a - b, 0.0) for a, b in zip(p, q, strict=True)]
    over = sum(a for a, b in zip(p, q, strict=True) if b > a)
    assert np.allclose(np.exp(found["overlap"]), sum(map(min, p, q)))
    assert np.allclose(np.exp(found["over"]), over)
    assert set(found["top_over"]) == {q[p.argmax()] > p.max()}
    assert np.array_equal(found["draft_law"], draft)
    if sum(rest) > 1e-12:
        assert np.allclose(found["rest_below"], [sum(rest[:i]) / sum(rest) for i in range(7)])
        assert np.flatnonzero(found["rest_top"]).tolist() == [rest.index(max(rest))]


@given(st.integers(0, 2**32 - 1), st.integers(0, VOCABULARY - 1))
def test_certain_columns_are_those_of_a_law_of_one_token(seed: int, draft: int) -> None:
    """A certain proposal gives what sampling from a law of that one token gives."""
    target, _ = laws(seed)
    one = np.where(np.arange(VOCABULARY) == draft, 0.0, -np.inf)

    found = certain_columns(every(target), np.full(VOCABULARY, draft), np.arange(VOCABULARY))
    expected = sampled_columns(every(target), every(one), np.arange(VOCABULARY))

    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, atol=1e-12, err_msg=name)


def test_nothing_is_known_where_nothing_was_proposed() -> None:
    """Without a proposal no direction about drafts says anything."""
    target, _ = laws(3)
    none, tokens = np.full(VOCABULARY, -1), np.arange(VOCABULARY)
    columns = certain_columns(every(target), none, tokens)
    scores = score_many(every(target), tokens, **columns).take(np.isfinite(target))

    about = [d for d in FAMILY if d.family in ("draft", "acceptance", "cells", "rest")]
    assert about
    assert not log_ratios(scores, about).any()


@pytest.mark.parametrize("certain", [True, False])
@given(seed=st.integers(0, 2**32 - 1))
def test_directions_have_mean_one(*, certain: bool, seed: int) -> None:
    """Under the law the mean ratio of each direction is at most one, by enumeration."""
    target, draft = laws(seed)
    tokens = np.arange(VOCABULARY)
    columns = (
        certain_columns(every(target), np.full(VOCABULARY, int(draft.argmax())), tokens)
        if certain
        else sampled_columns(every(target), every(draft), tokens)
    )
    possible = np.isfinite(target)
    scores = score_many(every(target), tokens, **columns).take(possible)

    means = np.exp(log_ratios(scores, FAMILY)) @ np.exp(target[possible])

    assert means.max() <= 1 + 1e-9
