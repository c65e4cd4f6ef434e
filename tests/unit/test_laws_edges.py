"""Filters averaged over rounding: against simulated rounding, and against the exact filters."""

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from draftgate.laws import edges, processors

Row = NDArray[np.float64]
Soft = Callable[[Row, float], Row]
Exact = Callable[[Row], Row]

RULES: dict[str, tuple[Soft, Exact]] = {
    "min-p": (
        lambda row, noise: edges.min_p(row, 0.1, noise),
        lambda row: processors.min_p(row, 0.1),
    ),
    "top-k": (lambda row, noise: edges.top_k(row, 4, noise), lambda row: processors.top_k(row, 4)),
    "top-p": (
        lambda row, noise: edges.top_p(row, 0.8, noise),
        lambda row: processors.top_p(row, 0.8),
    ),
}


@pytest.mark.parametrize(("soft", "exact"), RULES.values(), ids=RULES)
@pytest.mark.parametrize("seed", range(3))
def test_without_noise_they_are_the_exact_filters(soft: Soft, exact: Exact, seed: int) -> None:
    """With a noise of 1e-9 the same tokens stay, with the same logits."""
    logits = np.random.default_rng(seed).normal(0, 2, 700)

    assert soft(logits, 1e-9) == pytest.approx(exact(logits))


@pytest.mark.parametrize(("soft", "exact"), RULES.values(), ids=RULES)
@pytest.mark.parametrize("seed", range(3))
def test_shares_are_those_of_simulated_rounding(soft: Soft, exact: Exact, seed: int) -> None:
    """Each token is kept about as often as in 4,000 simulated roundings, at most .2 off."""
    rng = np.random.default_rng(seed)
    logits, noise = rng.normal(0, 1.5, 12), 0.1
    often = np.mean(
        [np.isfinite(exact(logits + rng.normal(0, noise, 12))) for _ in range(4_000)], axis=0
    )
    shares = np.exp(soft(logits, noise) - logits)

    assert np.abs(shares - often).max() < 0.2
    assert shares[often == 1] == pytest.approx(np.ones((often == 1).sum()), abs=0.02)


@pytest.mark.parametrize(
    "found",
    [
        edges.min_p(np.zeros(3), 0.0, 0.1),
        edges.top_k(np.zeros(3), 0, 0.1),
        edges.top_k(np.zeros(3), 3, 0.1),
        edges.top_p(np.zeros(3), 1.0, 0.1),
    ],
    ids=["min-p", "top-k", "top-k of all", "top-p"],
)
def test_rules_that_are_off_change_nothing(found: Row) -> None:
    """A filter that is switched off has no edge."""
    assert found.tolist() == [0, 0, 0]


def test_what_cannot_be_drawn_stays_so() -> None:
    """A token with logit -inf gets no weight, and an edge next to it is none."""
    logits = np.array([1.0, 0.5, -np.inf])

    assert np.isneginf(edges.min_p(logits, 0.1, 0.1)[2])
    assert np.isneginf(edges.top_p(logits, 0.9, 0.1)[2])
    assert edges.top_k(logits, 2, 0.1).tolist() == logits.tolist()


def test_the_most_likely_token_always_stays() -> None:
    """However small p is, top-p keeps the first token whole."""
    found = edges.top_p(np.log(np.array([0.6, 0.3, 0.1])), 0.01, 0.1)

    assert found[0] == pytest.approx(np.log(0.6))
    assert found[1] < np.log(0.3) - 8
