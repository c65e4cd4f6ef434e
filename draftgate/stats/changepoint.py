"""Where the level of a series changed for good, despite outliers and dependence.

Arrays in, plain records out. The exact minimum of a robust penalised cost says
how the series splits; a local test then drops the splits that only follow a
drift. Knows nothing of nights, metrics or what is done about a change.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]

METHOD = "penalised biweight segmentation, local Welch t"

PENALTY = 6.0
"""Cost of a change in units of log(n) noise variances: the least even number with at most one
false alarm in 100 series of noise with rho up to 0.3 (docs/decisions/0010-change-points.md)."""

CLIP_SD = 4.0
"""Where the loss stops growing. A week off the level then pays for its two changes in a year of
nights, rho 0.2 included: 7 * 4^2 > 2 * PENALTY * log(365) * 1.5."""

MIN_SEGMENT = 5
"""Values from which a level is told: so few pass the local test if they are far enough off."""

WINDOW = 25
"""Values on each side that the local test sees: half of Otava's window of 50."""

ALPHA = 1e-3
"""Otava's default limit of the p-value."""

_MAX_RHO = 0.8
"""More cannot be told from a drift on a few hundred values."""

_REACH_SD = 2.5
"""Beyond it a difference counts as that many standard deviations: 1 % of normal ones are cut, and a
level's change or an outlier weighs no more than they. 3 does as well (docs/decisions/0010)."""

_MAX_FACTOR = 9.0
"""Long-run variance over variance at rho 0.8: (1 + 0.8) / (1 - 0.8)."""

_STEP_SD = 0.1
"""Distance of the levels tried; the best one is off by at most half of it: 0.0025 a value."""

_MAX_LEVELS = 2000
"""Bounds time and memory; 2,000 levels span 200 standard deviations."""

_RESOLUTION = 1e-9
"""Least noise, relative to the largest value: below it lies the rounding of sums in float64."""

_NORMAL_MAD = 0.6744897501960817
"""Median of |z| for a standard normal z."""


@dataclass(frozen=True, slots=True)
class Noise:
    """How the values scatter around their level.

    Attributes:
        sd: Standard deviation, in the unit of the values; 0 for a constant series.
        rho: Correlation of neighbours, in [0, 0.8].
    """

    sd: float
    rho: float

    @property
    def inflation(self) -> float:
        """Long-run variance over variance, of a first-order autoregression."""
        return (1.0 + self.rho) / (1.0 - self.rho)


@dataclass(frozen=True, slots=True)
class ChangePoint:
    """One lasting change of level.

    Attributes:
        index: Position of the first value at the new level.
        before: Median of the segment that ends there, in the unit of the values.
        after: Median of the segment that starts there.
        ratio: after / before; None where before is 0.
        shift_sd: after - before in standard deviations of the noise.
        p_value: Of the local test, two-sided. The place was chosen by looking at
            the same values, so this ranks changes; it is no error rate.
    """

    index: int
    before: float
    after: float
    ratio: float | None
    shift_sd: float
    p_value: float


def change_points(
    values: Sequence[float] | FloatArray,
    *,
    penalty: float = PENALTY,
    min_segment: int = MIN_SEGMENT,
    clip_sd: float = CLIP_SD,
    window: int = WINDOW,
    alpha: float = ALPHA,
) -> tuple[ChangePoint, ...]:
    """Return the lasting changes of level of a series, in order.

    A change is told once its values have paid for it: one of d standard
    deviations at the end of the series needs about penalty * log(n) *
    (1 + rho) / (1 - rho) / d^2 values. A value further off than `clip_sd`
    costs no more than one at that distance, so single outliers make no change.

    Args:
        values: One per night or run, in time order, equally spaced; shape (n,),
            n >= 2 * min_segment.
        penalty: Cost of a change per log(n), in noise variances, > 0; it is
            raised by the long-run variance of dependent noise.
        min_segment: Fewest values between changes and at both ends, >= 2.
        clip_sd: In standard deviations of the noise, > 0.
        window: Most values on each side that the local test uses, >= 2.
        alpha: Largest p-value of a change that is kept, in (0, 1].

    Raises:
        ValueError: If a value is NaN or infinite, there are fewer than two
            segments' worth of values, or a setting is out of range.

    Source:
        Loss and penalty: P. Fearnhead and G. Rigaill, J. Am. Stat. Assoc. 114
        (2019) 169-183, solved on a grid of levels, see `segment`; noise: see
        `noise_of`; local test: B. L. Welch, Biometrika 34 (1947) 28-35, of
        clipped values, variances times `long_run_factor`, on windows as in M.
        Fleming et al., "Hunter", ICPE 2023.
    """
    _check_settings(penalty, min_segment, clip_sd, window, alpha)
    array = _checked(values, 2 * min_segment)
    noise = noise_of(array)
    if noise.sd == 0.0:
        return ()
    scaled = (array - np.median(array)) / noise.sd
    cost = penalty * math.log(array.size) * noise.inflation
    cuts = segment(scaled, levels_of(scaled, clip_sd), cost, clip_sd, min_segment)
    test = _LocalTest(clip_sd * noise.sd, window, alpha)
    kept, p_values = _locally_visible(array, cuts, test)
    return _records(array, kept, p_values, noise.sd)


def noise_of(values: Sequence[float] | FloatArray) -> Noise:
    """Return the noise of a series whose level may change now and then.

    Differences of neighbours hold almost no change, and medians of them no
    outlier. Where over half of them are equal (counts, coarse units) the median
    says 0, and the root mean square of the differences takes its place. For rho
    clipped mean squares stand instead of medians: on 60 independent values the
    ratio of medians said 0.6 or more for one series in ten, which hid plain steps.

    Args:
        values: Shape (n,), n >= 3.

    Raises:
        ValueError: If a value is NaN or infinite or there are fewer than three.

    Source:
        S. Chakar et al., Bernoulli 23 (2017) 1408-1447, for rho: the square of the
        scale of x[i+2] - x[i] over that of x[i+1] - x[i], minus 1; they take
        medians for scales. The sd follows from var(x[i+1] - x[i]) =
        2 sd^2 (1 - rho).
    """
    array = _checked(values, 3)
    steps = np.diff(array)
    typical = float(np.median(np.abs(steps)))
    if typical > 0.0:
        apart = np.abs(array[2:] - array[:-2])
        rho = min(max(_mean_square(apart) / _mean_square(np.abs(steps)) - 1.0, 0.0), _MAX_RHO)
        step_sd = typical / _NORMAL_MAD
    else:
        rho, step_sd = 0.0, math.sqrt(float(np.mean(steps**2)))
    if step_sd == 0.0:
        return Noise(0.0, 0.0)
    least = _RESOLUTION * float(np.max(np.abs(array)))
    return Noise(max(step_sd / math.sqrt(2.0 * (1.0 - rho)), least), rho)


def _mean_square(distances: FloatArray) -> float:
    """Return the mean square of distances, those far beyond the typical one cut to `_REACH_SD`."""
    reach = _REACH_SD * float(np.median(distances)) / _NORMAL_MAD
    return float(np.mean(np.minimum(distances, reach) ** 2))


def levels_of(scaled: FloatArray, clip_sd: float) -> FloatArray:
    """Return the levels to try, ascending, in standard deviations.

    All multiples of 0.1 that are within reach of a value, as the best level of
    a segment is within `clip_sd` of some value of it; if these are too many
    (a drift over hundreds of standard deviations), only those next to a value.
    """
    near = np.unique(np.rint(scaled / _STEP_SD))
    reach = math.ceil(clip_sd / _STEP_SD)
    around = np.unique(near[:, None] + np.arange(-reach, reach + 1.0))
    around = around[(around >= near[0]) & (around <= near[-1])]
    if around.size <= _MAX_LEVELS:
        near = around
    elif near.size > _MAX_LEVELS:
        near = near[np.linspace(0, near.size - 1, _MAX_LEVELS).astype(np.intp)]
    return near * _STEP_SD


def segment(
    scaled: FloatArray, levels: FloatArray, penalty: float, clip_sd: float, min_segment: int
) -> tuple[int, ...]:
    """Return the first positions of all segments but the first: the cheapest split.

    A split costs `penalty` per change and, per segment of at least
    `min_segment` values, the least sum over its values of min((value - level)^2,
    clip_sd^2), over all levels. The minimum is exact; of equal ones the split
    whose last segment is longest is taken.

    Args:
        scaled: In standard deviations of the noise; shape (n,), n >= min_segment.
        levels: Levels to try; shape (n_levels,), not empty.
        penalty: In variances of the noise.
        clip_sd: Distance at which the loss stops growing.
        min_segment: At least 1.

    Source:
        Recursion of R. Maidstone et al., Stat. Comput. 27 (2017) 519-533, with
        a table over levels for the function of the level, and
        a new segment entering once it is `min_segment` values long.
    """
    count = scaled.size
    best = np.full(count + 1, np.inf)  # of the first t values
    best[0] = -penalty
    starts = np.zeros(count + 1, dtype=np.intp)
    running = np.full(levels.size, np.inf)  # by the level of the last segment
    since = np.zeros(levels.size, dtype=np.intp)
    losses = np.zeros((min_segment, levels.size))  # of the latest values, a ring
    for end in range(1, count + 1):
        loss = np.minimum((scaled[end - 1] - levels) ** 2, clip_sd * clip_sd)
        losses[end % min_segment] = loss
        running += loss
        start = end - min_segment
        if start < 0:
            continue
        entering = losses.sum(axis=0) + (best[start] + penalty)
        cheaper = entering < running
        running[cheaper] = entering[cheaper]
        since[cheaper] = start
        cheapest = int(np.argmin(running))
        best[end], starts[end] = running[cheapest], since[cheapest]
    return _traced(starts)


def _traced(starts: NDArray[np.intp]) -> tuple[int, ...]:
    """Return the cuts, from the start of the last segment of each prefix."""
    cuts = []
    end = int(starts[-1])
    while end > 0:
        cuts.append(end)
        end = int(starts[end])
    return tuple(reversed(cuts))


@dataclass(frozen=True, slots=True)
class _LocalTest:
    """What a cut must pass; `clip` is in the unit of the values."""

    clip: float
    window: int
    alpha: float


def _locally_visible(
    array: FloatArray, cuts: Sequence[int], test: _LocalTest
) -> tuple[list[int], list[float]]:
    """Return the cuts that differ locally, with p-values; the least visible goes first."""
    kept = list(cuts)
    while kept:
        p_values = _p_values(array, kept, test)
        worst = int(np.argmax(p_values))
        if p_values[worst] <= test.alpha:
            return kept, p_values
        del kept[worst]
    return [], []


def _p_values(array: FloatArray, cuts: Sequence[int], test: _LocalTest) -> list[float]:
    edges = [0, *cuts, array.size]
    medians = _medians(array, cuts)
    levels = np.repeat(medians, np.diff(edges))
    clipped = np.clip(array, levels - test.clip, levels + test.clip)
    factor = long_run_factor(clipped - levels)
    return [
        _welch_p(
            clipped[max(low, cut - test.window) : cut],
            clipped[cut : min(high, cut + test.window)],
            factor,
        )
        for low, cut, high in zip(edges, cuts, edges[2:], strict=False)
    ]


def long_run_factor(residuals: FloatArray) -> float:
    """Return by how much dependence widens the variance of a mean, in [1, 9].

    Bartlett's weights up to lag n^(1/3), rounded up; 9 is the factor of a
    first-order autoregression with the largest rho that `noise_of` returns.

    Args:
        residuals: Deviations from the level, in time order; shape (n,), n >= 1.

    Source:
        W. Newey and K. West, Econometrica 55 (1987) 703-708.
    """
    variance = float(np.mean(residuals**2))
    if variance == 0.0:
        return 1.0
    lags = min(math.ceil(residuals.size ** (1.0 / 3.0)), residuals.size - 1)
    total = 1.0
    for lag in range(1, lags + 1):
        product = float(np.sum(residuals[lag:] * residuals[:-lag])) / residuals.size
        total += 2.0 * (1.0 - lag / (lags + 1.0)) * product / variance
    return min(max(total, 1.0), _MAX_FACTOR)


def _welch_p(left: FloatArray, right: FloatArray, factor: float) -> float:
    from scipy import special  # noqa: PLC0415 - its import is slow, and pytest loads us everywhere

    change = abs(float(right.mean() - left.mean()))
    parts = [factor * float(side.var(ddof=1)) / side.size for side in (left, right)]
    variance = sum(parts)
    if variance == 0.0:
        return 0.0 if change > 0.0 else 1.0
    degrees = variance**2 / sum(
        part**2 / (side.size - 1) for part, side in zip(parts, (left, right), strict=True)
    )
    return float(2.0 * special.stdtr(degrees, -change / math.sqrt(variance)))


def _medians(array: FloatArray, cuts: Sequence[int]) -> list[float]:
    return [float(np.median(part)) for part in np.split(array, cuts)]


def _records(
    array: FloatArray, cuts: Sequence[int], p_values: Sequence[float], noise_sd: float
) -> tuple[ChangePoint, ...]:
    medians = _medians(array, cuts)
    return tuple(
        ChangePoint(
            index=cut,
            before=before,
            after=after,
            ratio=after / before if before != 0.0 else None,
            shift_sd=(after - before) / noise_sd,
            p_value=p_value,
        )
        for cut, before, after, p_value in zip(cuts, medians, medians[1:], p_values, strict=False)
    )


def _checked(values: Sequence[float] | FloatArray, least: int) -> FloatArray:
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 1:
        raise ValueError(f"expected one value per run, got shape {array.shape}")
    if array.size < least:
        raise ValueError(f"expected at least {least} values, got {array.size}; collect more runs")
    if not np.isfinite(array).all():
        place = int(np.flatnonzero(~np.isfinite(array))[0])
        raise ValueError(
            f"expected finite numbers, got {array[place]} at position {place}; "
            "leave out runs without a value"
        )
    return array


def _check_settings(
    penalty: float, min_segment: int, clip_sd: float, window: int, alpha: float
) -> None:
    if not 0.0 < penalty < math.inf:
        raise ValueError(f"penalty must be above 0 and finite, got {penalty}")
    if not 0.0 < clip_sd < math.inf:
        raise ValueError(f"clip_sd must be above 0 and finite, got {clip_sd}")
    if min_segment < 2:
        raise ValueError(f"min_segment must be >= 2, got {min_segment}")
    if window < 2:
        raise ValueError(f"window must be >= 2, got {window}")
    if not 0.0 < alpha <= 1.0:
        raise ValueError(f"alpha must be in (0, 1], got {alpha}")
