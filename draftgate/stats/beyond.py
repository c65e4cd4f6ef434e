"""Whether a mean changed by more than a margin, either way, at a level that holds exactly.

Two answers must agree: Student's t, and random sign flips of pairs or
exchanges between two samples. Arrays in, one record out; knows nothing of
prompts or of how many questions are asked at once.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from draftgate.stats.compare import FloatArray
from draftgate.stats.confirm import FLIPS, ROUNDING, sign_flip_p
from draftgate.stats.losses import estimate

METHOD = "t and sign flips"
EXCHANGE_METHOD = "Welch t and exchanges within strata"

FINENESS = 10
"""Draws are at least so many over the one-sided level: the least p-value is a tenth of it."""

BLOCK_VALUES = 1_000_000
"""Values drawn at once; bounds memory to some tens of megabytes."""


@dataclass(frozen=True, slots=True)
class Beyond:
    """What is known about a change beyond the margin.

    Attributes:
        p_value: Two-sided, for "the change is at most the margin, up or down".
        worse: Whether the candidate is lower by more than the margin.
        better: Whether it is higher by more than the margin.
    """

    p_value: float
    worse: bool
    better: bool


@dataclass(frozen=True, slots=True)
class _Test:
    """How both ways are tested; `level` is one-sided."""

    level: float
    seed: int
    draws: int


def pairs_beyond(
    base: Sequence[float] | FloatArray,
    candidate: Sequence[float] | FloatArray,
    *,
    margin_ratio: float,
    level: float,
    seed: int,
) -> Beyond:
    """Return whether paired values changed by more than a share of the base's mean.

    Each way is tested at half the level on e = (1 - margin) base - candidate,
    and on candidate - (1 + margin) base. Its p-value is the larger of Student's
    t and sign flips, so it holds its level wherever one of both does. For
    unchanged values the flips do, whatever their law and the margin: with
    x = base - candidate symmetric and e <= x, a flip of the set A reaches if the
    sum of e over A is <= 0, which it is whenever that of x is. Flips are only
    drawn where t rejects; elsewhere the p-value is that of t.

    Args:
        base: One value per pair, all > 0; shape (n,), n >= 2.
        candidate: The same pairs in the same order, all > 0; shape (n,).
        margin_ratio: Change that is tolerated, in [0, 1).
        level: Two-sided, in (0, 1).
        seed: Seed of the flips; equal arguments give equal results.

    Raises:
        ValueError: If the sides differ in length or have fewer than two values,
            a value is not a finite number above 0, or a setting is out of range.

    Source:
        Student, Biometrika 6 (1908) 1-25; R. A. Fisher, The Design of
        Experiments (1935), section 21; the argument about margins is our own.
    """
    below, above = checked_positive(base, "base"), checked_positive(candidate, "candidate")
    if below.size != above.size or below.size < 2:
        raise ValueError(
            f"expected two or more pairs, got {below.size} base and {above.size} candidate values"
        )
    test = _test_of(margin_ratio, level, seed)
    p_worse, p_better = (
        _flipped_p(excess, test)
        for excess in (below * (1 - margin_ratio) - above, above - below * (1 + margin_ratio))
    )
    return _beyond(p_worse, p_better, test)


def strata_beyond(
    base: Sequence[FloatArray],
    candidate: Sequence[FloatArray],
    weights: Sequence[float],
    *,
    margin_ratio: float,
    level: float,
    seed: int,
) -> Beyond:
    """Return whether a weighted mean over strata changed by more than a share of the base's.

    As `pairs_beyond`, for values that are not paired: Welch's t of sum over
    strata of weight * (mean of base - mean of candidate), and random exchanges
    of values between both sides within each stratum. For unchanged values
    these are exact, and a margin makes them conservative as it does flips.

    Args:
        base: One array of values > 0 per stratum, each of two or more.
        candidate: The same for the other side, same strata.
        weights: Of the strata, > 0, the same for both sides.
        margin_ratio: Change that is tolerated, in [0, 1).
        level: Two-sided, in (0, 1).
        seed: Seed of the exchanges; equal arguments give equal results.

    Raises:
        ValueError: If strata do not fit together, one has fewer than two values
            a side, a value is not a finite number above 0, or a setting is out
            of range.

    Source:
        B. L. Welch, Biometrika 34 (1947) 28-35; E. J. G. Pitman, Suppl. J. R.
        Stat. Soc. 4 (1937) 119-130 (exchanges).
    """
    if not base or len(base) != len(candidate) or len(base) != len(weights):
        raise ValueError(
            f"expected the same strata, at least one, got {len(base)} base, {len(candidate)} "
            f"candidate and {len(weights)} weights"
        )
    below = [checked_positive(values, "base") for values in base]
    above = [checked_positive(values, "candidate") for values in candidate]
    if min(values.size for values in (*below, *above)) < 2:
        raise ValueError("expected two or more values in every stratum of both sides")
    shares = checked_positive(weights, "weights")
    test = _test_of(margin_ratio, level, seed)
    p_worse = _exchanged_p([b * (1 - margin_ratio) for b in below], above, shares, test)
    p_better = _exchanged_p(above, [b * (1 + margin_ratio) for b in below], shares, test)
    return _beyond(p_worse, p_better, test)


def checked_positive(values: Sequence[float] | FloatArray, side: str) -> FloatArray:
    """Return the values as an array of shape (n,).

    Raises:
        ValueError: If the shape is another or a value is not a finite number above 0.
    """
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 1:
        raise ValueError(f"{side}: expected values in a row, got shape {array.shape}")
    if not (np.isfinite(array) & (array > 0.0)).all():
        raise ValueError(f"{side}: expected finite numbers above 0, got {array.tolist()}")
    return array


def _test_of(margin_ratio: float, level: float, seed: int) -> _Test:
    if not 0.0 <= margin_ratio < 1.0:
        raise ValueError(f"margin_ratio must be in [0, 1), got {margin_ratio}")
    if not 0.0 < level < 1.0:
        raise ValueError(f"level must be in (0, 1), got {level}")
    return _Test(level / 2, seed, max(FLIPS, math.ceil(FINENESS / (level / 2))))


def _beyond(p_worse: float, p_better: float, test: _Test) -> Beyond:
    return Beyond(
        p_value=min(1.0, 2 * min(p_worse, p_better)),
        worse=p_worse <= test.level,
        better=p_better <= test.level,
    )


def _flipped_p(excess: FloatArray, test: _Test) -> float:
    t_p = estimate(excess).p_above(0.0)
    if t_p > test.level:
        return t_p
    return max(t_p, sign_flip_p(excess, margin=0.0, seed=test.seed, flips=test.draws))


def _exchanged_p(
    larger: Sequence[FloatArray], smaller: Sequence[FloatArray], weights: FloatArray, test: _Test
) -> float:
    """Return the one-sided p-value for "the weighted mean of `larger` is no larger"."""
    t_p = _welch_p(larger, smaller, weights)
    if t_p > test.level:
        return t_p
    return max(t_p, _exchange_p(larger, smaller, weights, test))


def _welch_p(
    larger: Sequence[FloatArray], smaller: Sequence[FloatArray], weights: FloatArray
) -> float:
    from scipy import special  # noqa: PLC0415 - its import is slow, and pytest loads us everywhere

    sides = [*zip(larger, weights, strict=True), *zip(smaller, weights, strict=True)]
    parts = np.array([w**2 * _mean_variance(values) for values, w in sides])
    degrees = np.array([values.size - 1 for values, _ in sides])
    change = _difference(larger, smaller, weights)
    total = float(parts.sum())
    if total == 0.0:
        return 0.0 if change > 0.0 else 1.0
    shares = parts / total
    return float(special.stdtr(1.0 / (shares**2 / degrees).sum(), -change / math.sqrt(total)))


def _mean_variance(values: FloatArray) -> float:
    """Return the squared standard error of the mean; exactly 0 for equal values."""
    if float(values.min()) == float(values.max()):
        return 0.0
    return float(values.var(ddof=1)) / values.size


def _difference(
    larger: Sequence[FloatArray], smaller: Sequence[FloatArray], weights: FloatArray
) -> float:
    means = [float(a.mean() - b.mean()) for a, b in zip(larger, smaller, strict=True)]
    return float(weights @ np.array(means))


def _exchange_p(
    larger: Sequence[FloatArray], smaller: Sequence[FloatArray], weights: FloatArray, test: _Test
) -> float:
    rng = np.random.default_rng(test.seed)
    pooled = [np.concatenate(both) for both in zip(larger, smaller, strict=True)]
    size = sum(w * float(np.abs(p).mean()) for p, w in zip(pooled, weights, strict=True))
    reach = _difference(larger, smaller, weights) - ROUNDING * size
    block = max(1, BLOCK_VALUES // max(p.size for p in pooled))
    reached = 0
    for start in range(0, test.draws, block):
        rows = min(block, test.draws - start)
        drawn = np.zeros(rows)
        for values, side, weight in zip(pooled, larger, weights, strict=True):
            mixed = rng.permuted(np.broadcast_to(values, (rows, values.size)), axis=1)
            first = mixed[:, : side.size].sum(axis=1)
            rest = values.sum() - first
            drawn += weight * (first / side.size - rest / (values.size - side.size))
        reached += int((drawn >= reach).sum())
    return (1 + reached) / (1 + test.draws)
