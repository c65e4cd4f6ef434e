"""Tests of a fixed number of tokens that people use for this, on the same streams.

Each gets the true laws, so that it fails for lack of power only. All reject at level
alpha by their usual reference distribution:

- chi-square on ranks: Pearson's statistic on bins of the token's rank under its law,
  against the summed probabilities of the bins; bins are pooled from the tail until 5
  are expected in each.
- G-test: the likelihood-ratio statistic on the same bins.
- log-likelihood z: summed (log p - its mean under the law) over its standard deviation,
  two-sided normal.
- PIT (KS): Kolmogorov and Smirnov on below + v p with uniform v, Stephens' correction.
- MMD: squared distance of rank bins' counts from their law in the feature space of a
  Gaussian kernel of width 2 bins; a gamma distribution with the exact first two moments.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from benchmarks.correctness.bank import RANK_EDGES, Known

Floats = NDArray[np.floating[Any]]
Ints = NDArray[np.integer[Any]]

BINS = len(RANK_EDGES) + 1
WIDTH = 2.0
LEAST = 5.0
"""Smallest expected count of a bin, Cochran's rule."""


@dataclass(frozen=True, slots=True)
class Sample:
    """Streams as fixed-sample tests see them.

    Attributes:
        bins: Bin of each token's rank; shape (streams, tokens).
        place: Index into `known`; same shape.
        logp: Log-probability of each token; same shape.
        uniform: Randomised quantile of each token; same shape.
        known: What is known of each place.
    """

    bins: Ints
    place: Ints
    logp: Floats
    uniform: Floats
    known: Sequence[Known]


@dataclass(frozen=True, slots=True)
class Tables:
    """The places' laws as arrays, one row a place."""

    laws: Floats
    products: Floats
    mean: Floats
    variance: Floats


Test = Callable[[Sample, Tables, int], Floats]
"""From streams and a number of tokens to the p-value of each stream."""


def tables(known: Sequence[Known]) -> Tables:
    """Return the places' laws of bins and moments."""
    laws = np.stack([one.bins for one in known])
    return Tables(
        laws,
        (laws[:, :, None] * laws[:, None, :]).reshape(len(laws), -1),
        np.array([one.mean for one in known]),
        np.array([one.variance for one in known]),
    )


def _counts(sample: Sample, t: Tables, size: int) -> tuple[Floats, Floats]:
    """Return observed and expected counts of the bins; shape (streams, BINS) each."""
    observed = np.stack([np.bincount(row, minlength=BINS) for row in sample.bins[:, :size]])
    return observed.astype(float), _visits(sample, t, size) @ t.laws


def _visits(sample: Sample, t: Tables, size: int) -> Floats:
    return np.stack(
        [np.bincount(row, minlength=len(t.laws)) for row in sample.place[:, :size]]
    ).astype(float)


def _pooled(observed: Floats, expected: Floats) -> tuple[Floats, Floats]:
    """Pool one stream's bins from the tail until LEAST are expected in each."""
    seen, due = [], []
    o = e = 0.0
    for one, law in zip(observed[::-1], expected[::-1], strict=True):
        o, e = o + one, e + law
        if e >= LEAST:
            seen, due, o, e = [*seen, o], [*due, e], 0.0, 0.0
    if not due:
        return np.array([o]), np.array([e])
    seen[-1], due[-1] = seen[-1] + o, due[-1] + e
    return np.array(seen), np.array(due)


def _of_bins(statistic: Callable[[Floats, Floats], float]) -> Test:
    def test(sample: Sample, t: Tables, size: int) -> Floats:
        found = []
        for row, law in zip(*_counts(sample, t, size), strict=True):
            seen, due = _pooled(row, law)
            freedom = len(due) - 1
            found.append(stats.chi2.sf(statistic(seen, due), freedom) if freedom else 1.0)
        return np.array(found)

    return test


def _pearson(seen: Floats, due: Floats) -> float:
    return float(((seen - due) ** 2 / due).sum())


def _g(seen: Floats, due: Floats) -> float:
    some = seen > 0
    return float(2 * (seen[some] * np.log(seen[some] / due[some])).sum())


def _log_likelihood(sample: Sample, t: Tables, size: int) -> Floats:
    place = sample.place[:, :size]
    moved = (sample.logp[:, :size] - t.mean[place]).sum(axis=1)
    return np.asarray(2 * stats.norm.sf(np.abs(moved) / np.sqrt(t.variance[place].sum(axis=1))))


def _pit(sample: Sample, t: Tables, size: int) -> Floats:
    del t
    ordered = np.sort(sample.uniform[:, :size], axis=1)
    steps = np.arange(size) / size
    gap = np.maximum(ordered - steps, steps + 1 / size - ordered).max(axis=1)
    root = np.sqrt(size)
    return np.asarray(stats.kstwobign.sf(gap * (root + 0.12 + 0.11 / root)))


def _mmd(sample: Sample, t: Tables, size: int) -> Floats:
    bins = np.arange(BINS)
    kernel = np.exp(-((bins[:, None] - bins) ** 2) / (2 * WIDTH**2))
    observed, expected = _counts(sample, t, size)
    moved = observed - expected
    products = (_visits(sample, t, size) @ t.products).reshape(-1, BINS, BINS)
    spread = kernel @ (expected[:, :, None] * np.eye(BINS) - products)
    mean = np.trace(spread, axis1=1, axis2=2)
    variance = 2 * np.einsum("sij,sji->s", spread, spread)
    distance = np.einsum("si,ij,sj->s", moved, kernel, moved)
    return np.asarray(stats.gamma.sf(distance, mean**2 / variance, scale=variance / mean))


TESTS: Mapping[str, Test] = {
    "chi-square on ranks": _of_bins(_pearson),
    "G-test": _of_bins(_g),
    "log-likelihood z": _log_likelihood,
    "PIT (KS)": _pit,
    "MMD": _mmd,
}


def needed(test: Test, sample: Sample, alpha: float, power: float) -> int | None:
    """Return the fewest tokens at which a test rejects in `power` of the streams, by bisection.

    None if it does not with all tokens there are. Power is taken as rising with size.
    """
    t = tables(sample.known)

    def enough(size: int) -> bool:
        return bool((test(sample, t, size) <= alpha).mean() >= power)

    high = 2
    longest = sample.bins.shape[1]
    while not enough(high):
        if high == longest:
            return None
        high = min(2 * high, longest)
    low = high // 2
    while high - low > max(1, low // 100):
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high
