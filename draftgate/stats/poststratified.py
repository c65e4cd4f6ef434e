"""Why the mean of mixed traffic moved: other shares of strata, or other means within them.

Arrays in, numbers out. Knows nothing of kinds of traffic, drafts or verdicts.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from draftgate.stats.beyond import BLOCK_VALUES, checked_positive
from draftgate.stats.compare import FloatArray
from draftgate.stats.confirm import FLIPS, ROUNDING
from draftgate.stats.paired import RESAMPLES, Interval

IntArray = NDArray[np.intp]

METHOD = "post-stratified bootstrap"


@dataclass(frozen=True, slots=True)
class Sample:
    """One period: a value and a stratum per unit.

    Attributes:
        values: One per unit, all > 0; shape (n,), n >= 1.
        strata: Which stratum each is of, from 0; shape (n,).
    """

    values: Sequence[float] | FloatArray
    strata: Sequence[int] | IntArray


@dataclass(frozen=True, slots=True)
class Decomposition:
    """A change of a mean, split in two that add up to it.

    Attributes:
        change: Mean of the candidate - mean of the base.
        mix: What other shares of the strata make of it.
        within: What other means within strata make of it.
        ratio: Post-stratified mean of the candidate over that of the base: both
            with the same weights, of strata that both hold.
        within_strata: Each stratum's part of `within`; 0 where one side lacks it.
    """

    change: float
    mix: Interval
    within: Interval
    ratio: Interval
    within_strata: tuple[float, ...]


def decompose(
    base: Sample,
    candidate: Sample,
    *,
    confidence: float,
    seed: int,
    resamples: int = RESAMPLES,
) -> Decomposition:
    """Return how much of a change of the mean is mix and how much is within strata.

    With shares w and means m of the strata,

        mix    = sum of (w1 - w0) (m0 + m1) / 2
        within = sum of (w0 + w1) / 2 (m1 - m0)

    which add up to the change exactly, whichever period is called the base. A
    stratum that one period lacks has no change within it: it counts to the mix,
    with its mean in the other. The post-stratified ratio weighs the strata of
    both periods by (w0 + w1) / 2 on both sides. Intervals are percentiles of a
    bootstrap over the units of each period, so shares vary in them as means do.

    Args:
        base: The earlier period.
        candidate: The later one, strata numbered alike.
        confidence: Two-sided coverage, in (0, 1).
        seed: Seed of the draws; equal arguments give equal results.
        resamples: Number of bootstrap replicates, >= 1.

    Raises:
        ValueError: If a period is empty or its arrays do not fit, no stratum is
            in both, a value is not a finite number above 0, or a setting is out
            of range.

    Source:
        E. M. Kitagawa, J. Am. Stat. Assoc. 50 (1955) 1168-1194 (components of a
        difference, interaction shared evenly); D. Holt and T. M. F. Smith, J. R.
        Stat. Soc. A 142 (1979) 33-46 (post-stratification); B. Efron, Ann. Stat.
        7 (1979) 1-26.
    """
    if not 0.0 < confidence < 1.0:
        raise ValueError(f"confidence must be in (0, 1), got {confidence}")
    if resamples < 1:
        raise ValueError(f"resamples must be >= 1, got {resamples}")
    sides = _checked(base, "base"), _checked(candidate, "candidate")
    strata = 1 + max(int(strata.max()) for _, strata in sides)
    whole = [_cells(values[None], groups[None], strata) for values, groups in sides]
    found = _parts(*whole)
    if not found.common.any():
        raise ValueError("no stratum is in both periods, so nothing can be compared within one")
    rng = np.random.default_rng(seed)
    drawn = _parts(*(_resampled(*side, strata, resamples, rng) for side in sides))
    mix, within, ratio = (
        _interval(float(one[0]), many, confidence)
        for one, many in (
            (found.mix, drawn.mix),
            (found.within.sum(axis=1), drawn.within.sum(axis=1)),
            (found.ratio, drawn.ratio[np.isfinite(drawn.ratio)]),
        )
    )
    change = float(found.change[0])
    return Decomposition(change, mix, within, ratio, tuple(found.within[0].tolist()))


def mix_p(
    base: Sequence[int] | IntArray,
    candidate: Sequence[int] | IntArray,
    *,
    seed: int,
    draws: int = FLIPS,
) -> float:
    """Return the p-value for "both periods have the same shares of strata".

    Pearson's chi-squared, its law from random exchanges of units between the
    periods, so it is exact for few units and rare strata too.

    Args:
        base: Units of each stratum in one period; shape (k,).
        candidate: The same for the other.
        seed: Seed of the draws.
        draws: Number of exchanges, >= 1.

    Raises:
        ValueError: If the counts do not fit or a period is empty.

    Source:
        K. Pearson, Philos. Mag. 50 (1900) 157-175; B. Phipson and G. K. Smyth,
        Stat. Appl. Genet. Mol. Biol. 9 (2010) 39 (p-value of random draws).
    """
    before, after = np.asarray(base, dtype=np.int64), np.asarray(candidate, dtype=np.int64)
    if before.shape != after.shape or before.ndim != 1 or not (before.sum() and after.sum()):
        raise ValueError(f"expected counts of the same strata, got {base} and {candidate}")
    pooled = before + after
    expected = pooled[pooled > 0] * (after.sum() / pooled.sum())
    drawn = np.random.default_rng(seed).multivariate_hypergeometric(pooled, after.sum(), draws)
    # Margins are fixed, so the other row's part of chi-squared is a constant multiple of this one.
    reach = ((after[pooled > 0] - expected) ** 2 / expected).sum()
    found = ((drawn[:, pooled > 0] - expected) ** 2 / expected).sum(axis=1)
    return float((1 + (found >= reach * (1 - ROUNDING)).sum()) / (1 + draws))


def _checked(sample: Sample, side: str) -> tuple[FloatArray, IntArray]:
    values = checked_positive(sample.values, side)
    strata = np.asarray(sample.strata, dtype=np.intp)
    if values.size == 0 or strata.shape != values.shape or strata.min() < 0:
        raise ValueError(
            f"{side}: expected one stratum, from 0, for each of one or more values, got "
            f"{strata.size} strata for {values.size} values"
        )
    return values, strata


@dataclass(frozen=True, slots=True)
class _Cells:
    """Counts and sums per replicate and stratum; shape (replicates, strata)."""

    counts: FloatArray
    sums: FloatArray

    @property
    def shares(self) -> FloatArray:
        return np.asarray(self.counts / self.counts.sum(axis=1, keepdims=True))

    @property
    def means(self) -> FloatArray:
        """Means of the strata, 0 where there is no unit."""
        return np.asarray(self.sums / np.maximum(self.counts, 1.0))


def _cells(values: FloatArray, strata: IntArray, count: int) -> _Cells:
    """Return the cells of samples that stand in rows."""
    member = strata[..., None] == np.arange(count)
    return _Cells(
        member.sum(axis=1).astype(np.float64),
        np.einsum("ij,ijk->ik", values, member.astype(np.float64)),
    )


def _resampled(
    values: FloatArray, strata: IntArray, count: int, resamples: int, rng: np.random.Generator
) -> _Cells:
    block = max(1, BLOCK_VALUES // (values.size * count))
    drawn = []
    for start in range(0, resamples, block):
        rows = rng.integers(0, values.size, (min(block, resamples - start), values.size))
        drawn.append(_cells(values[rows], strata[rows], count))
    return _Cells(
        np.concatenate([cells.counts for cells in drawn]),
        np.concatenate([cells.sums for cells in drawn]),
    )


@dataclass(frozen=True, slots=True)
class _Parts:
    """The decomposition of each replicate; `within` and `common` by stratum."""

    change: FloatArray
    mix: FloatArray
    within: FloatArray
    ratio: FloatArray
    common: NDArray[np.bool_]


def _parts(base: _Cells, candidate: _Cells) -> _Parts:
    common = (base.counts > 0) & (candidate.counts > 0)
    before = np.where(base.counts > 0, base.means, candidate.means)
    after = np.where(candidate.counts > 0, candidate.means, base.means)
    shares = (base.shares + candidate.shares) / 2
    weights = np.where(common, shares, 0.0)
    with np.errstate(invalid="ignore", divide="ignore"):  # a replicate without a common stratum
        ratio = (weights * after).sum(axis=1) / (weights * before).sum(axis=1)
    return _Parts(
        change=(candidate.shares * after - base.shares * before).sum(axis=1),
        mix=((candidate.shares - base.shares) * (before + after) / 2).sum(axis=1),
        within=shares * (after - before),
        ratio=ratio,
        common=common,
    )


def _interval(estimate: float, replicates: FloatArray, confidence: float) -> Interval:
    low, high = np.quantile(replicates, [(1 - confidence) / 2, (1 + confidence) / 2])
    return Interval(estimate, float(low), float(high))
