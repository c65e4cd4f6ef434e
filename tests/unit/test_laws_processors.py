"""Sampling rules against literal versions on small vocabularies."""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from draftgate.laws import processors

Row = NDArray[np.float64]

WEIGHTS = st.lists(st.integers(1, 6), min_size=2, max_size=9)
"""Unnormalised probabilities: small whole numbers, so that ties are common and sums exact."""


def row(weights: Sequence[float]) -> Row:
    """The logits of unnormalised probabilities."""
    return np.log(np.array(weights, dtype=float))


def kept(logits: Row) -> set[int]:
    """The tokens that can be drawn."""
    return set(np.flatnonzero(np.isfinite(logits)).tolist())


def test_log_softmax_is_normalised_and_keeps_what_cannot_be_drawn() -> None:
    """Large logits do not overflow, and -inf stays."""
    found = processors.log_softmax(np.array([1000.0, 1000.0 + np.log(3), -np.inf]))

    assert found == pytest.approx([np.log(0.25), np.log(0.75), -np.inf])


@pytest.mark.parametrize("value", [-np.inf, np.nan])
def test_a_law_needs_a_token(value: float) -> None:
    """A row without a token that can be drawn, or with NaN, is no law."""
    with pytest.raises(ValueError, match="no token can be drawn"):
        processors.log_softmax(np.full(3, value))


def test_counts_leave_out_ids_beyond_the_row() -> None:
    """Padding and placeholder ids are not counted."""
    assert processors.counts([1, 1, 3, 4, -1], 4).tolist() == [0, 2, 0, 1]
    assert processors.counts([], 2).tolist() == [0, 0]


@given(
    st.lists(st.floats(-5, 5), min_size=4, max_size=4),
    st.lists(st.integers(0, 3), max_size=6),
    st.floats(0.5, 2),
    st.floats(-2, 2),
    st.floats(-2, 2),
)
def test_penalties_are_their_definitions(
    logits: list[float], tokens: list[int], penalty: float, presence: float, frequency: float
) -> None:
    """Repetition scales seen tokens by sign, presence counts once, frequency every time."""
    counted = processors.counts(tokens, 4)
    scaled = processors.repetition(np.array(logits), counted > 0, penalty)
    lowered = processors.occurrence(
        np.array(logits), counted, presence=presence, frequency=frequency
    )

    for token, logit in enumerate(logits):
        times = tokens.count(token)
        away = logit / penalty if logit > 0 else logit * penalty
        assert scaled[token] == pytest.approx(away if times else logit)
        assert lowered[token] == pytest.approx(logit - frequency * times - presence * (times > 0))


def test_bias_adds_up() -> None:
    """A bias of -100 and one of +1 on one token both count, and the input stays as it was."""
    logits = np.zeros(3)
    found = processors.bias(logits, ((1, -100.0), (1, 1.0), (2, 2.0)))

    assert found.tolist() == [0, -99, 2]
    assert logits.tolist() == [0, 0, 0]


IDS = st.integers(0, 3)


@given(st.lists(st.lists(IDS, min_size=1, max_size=3), max_size=3), st.lists(IDS, max_size=5))
def test_bad_words_forbid_what_would_complete_them(
    words: list[list[int]], before: list[int]
) -> None:
    """A token is forbidden if and only if the text with it would end in a bad word."""
    found = processors.bad_words(np.zeros(4), words, before)
    texts = {token: [*before, token] for token in range(4)}
    completing = {t for t, text in texts.items() if any(text[-len(w) :] == w for w in words)}

    assert kept(found) == set(range(4)) - completing


def test_bad_words_as_vllm_tokenises_them() -> None:
    """The form with a space counts too if it has as many tokens and another first one."""
    ids = {"cat": [5], " cat": [6], "no go": [1, 2], " no go": [1, 2], "x": [3], " x": [4, 3]}
    found = processors.bad_word_ids(("cat", " no go", "x"), ids.__getitem__)

    assert found == ((5,), (6,), (1, 2), (3,))


def test_masks_forbid_what_they_name() -> None:
    """Allowed ids forbid all others, forbidden ids only themselves."""
    assert kept(processors.allowed_ids(np.zeros(4), (1, 3))) == {1, 3}
    assert kept(processors.forbid(np.zeros(4), (1, 3))) == {0, 2}
    assert kept(processors.forbid(np.zeros(4), ())) == {0, 1, 2, 3}


def test_greedy_takes_the_smallest_of_tied_ids() -> None:
    """Of equally likely top tokens the first one is taken."""
    assert kept(processors.greedy(np.array([0.0, 2.0, 2.0]))) == {1}


@given(WEIGHTS, st.sampled_from([0.0, 0.3, 0.45, 0.7, 1.0]))
def test_min_p_keeps_a_share_of_the_top(weights: list[int], share: float) -> None:
    """A token stays if and only if it has the share of the most likely one."""
    found = kept(processors.min_p(row(weights), share))

    assert found == {t for t, w in enumerate(weights) if w >= share * max(weights)}


@given(WEIGHTS, st.integers(0, 10))
def test_top_k_keeps_ties(weights: list[int], k: int) -> None:
    """A token stays if and only if fewer than k tokens are more likely than it."""
    found = kept(processors.top_k(row(weights), k))
    expected = {t for t, w in enumerate(weights) if sum(v > w for v in weights) < k}

    assert found == (expected if 0 < k < len(weights) else set(range(len(weights))))


@given(WEIGHTS, st.floats(0, 1, exclude_max=True))
def test_top_p_measures_what_is_more_likely(weights: list[int], place: float) -> None:
    """A token stays if and only if the more likely ones hold less than p; by id among ties."""
    p = (int(place * sum(weights)) + 0.5) / sum(weights)
    order = sorted(range(len(weights)), key=lambda t: (weights[t], t), reverse=True)
    before = {t: sum(weights[o] for o in order[:rank]) for rank, t in enumerate(order)}
    above = {t: sum(w for w in weights if w > weights[t]) for t in order}

    by_id = kept(processors.top_p(row(weights), p))
    together = kept(processors.top_p(row(weights), p, ties_together=True))

    assert by_id == {t for t, mass in before.items() if mass / sum(weights) < p}
    assert together == {t for t, mass in above.items() if mass / sum(weights) < p}


@pytest.mark.parametrize("p", [0.01, 0.5, 0.9, 0.999])
@pytest.mark.parametrize("width", [0.1, 3.0])
@settings(deadline=None, max_examples=20)
@given(st.integers(0, 2**32 - 1))
def test_top_p_of_long_rows_is_that_of_sorted_ones(p: float, width: float, seed: int) -> None:
    """Looking at the most likely tokens first changes nothing, in flat and in peaked rows."""
    logits = np.random.default_rng(seed).normal(0, width, 1200)
    order = np.argsort(logits)[::-1]
    probs = np.exp(processors.log_softmax(logits))[order]
    size = int((np.concatenate(([0.0], np.cumsum(probs)[:-1])) < p).sum())

    assert kept(processors.top_p(logits, p)) == set(order[:size].tolist())


def test_top_p_after_top_k_measures_what_is_left() -> None:
    """Of .4, .3, .2, .1 with k = 2 and p = .5: both keep two tokens, one after the other one."""
    logits = row([0.4, 0.3, 0.2, 0.1])

    assert kept(processors.top_k_and_top_p(logits, 2, 0.5)) == {0, 1}
    assert kept(processors.top_p(processors.top_k(logits, 2), 0.5)) == {0}


@given(WEIGHTS, st.integers(0, 10), st.floats(0.05, 1))
def test_both_filters_at_once_keep_what_each_keeps(weights: list[int], k: int, p: float) -> None:
    """The joint filter is the intersection of the two on the same row."""
    logits = row(weights)
    each = kept(processors.top_k(logits, k)) & kept(processors.top_p(logits, p, ties_together=True))

    assert kept(processors.top_k_and_top_p(logits, k, p)) == each
