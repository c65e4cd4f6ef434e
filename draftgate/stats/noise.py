"""What unchanged builds show: spread, drift, order, symmetry, and false suspects.

Losses and levels of paired starts in, numbers out. Knows nothing of metrics or
runners, and calls nothing good or bad: that is done in `draftgate.noise`.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from draftgate.stats.compare import FloatArray
from draftgate.stats.confirm import FLIPS, sign_flip_p
from draftgate.stats.losses import BLOCK_PAIRS, candidate_first, checked_losses, estimate
from draftgate.stats.paired import Interval
from draftgate.stats.sequential import LookPlan, Standing, stage_one

CONFIDENCE = 0.95
"""Two-sided coverage of every interval here."""


@dataclass(frozen=True, slots=True)
class Spread:
    """Mean and spread of the losses of pairs, the order's effect taken out of both.

    Attributes:
        mean: Mean loss with its t interval.
        sd: Standard deviation of one pair's loss, with its interval.
        effect: What the first place costs whoever has it, with its t interval.
        adjusted: Losses without that effect; shape (n,).
    """

    mean: Interval
    sd: Interval
    effect: Interval
    adjusted: FloatArray


def pair_spread(losses: FloatArray, first: Sequence[bool]) -> Spread:
    """Return mean, spread and order effect of the losses of pairs.

    The interval of the spread is that of a variance of normal losses: with
    heavier tails it is too short. Without any spread all are points.

    Args:
        losses: Finite; shape (n,), n >= 3.
        first: Whether the candidate went first, per pair; both orders occur.

    Raises:
        ValueError: As `losses.estimate`.

    Source:
        G. W. Snedecor and W. G. Cochran, Statistical Methods (1980), sections
        5.11 (chi-square interval) and 9.4 (regression); the model is that of
        `losses.estimate`.
    """
    found = estimate(losses, first)
    tail = (1 + CONFIDENCE) / 2
    mean = Interval(found.mean, found.bound(1 - tail), found.bound(tail))
    order = np.where(np.asarray(first, dtype=bool), 1.0, -1.0)
    centred = order - order.mean()
    square = float(centred @ centred)
    effect = float(centred @ losses) / square
    if found.error == 0.0:
        return Spread(mean, Interval(0.0, 0.0, 0.0), _point(effect), found.adjusted)
    rest = found.adjusted - found.mean
    sum_squares = float(rest @ rest)
    sd = math.sqrt(sum_squares / found.degrees)
    half = _t_quantile(tail, found.degrees) * sd / math.sqrt(square)
    return Spread(
        mean=mean,
        sd=Interval(sd, *_sd_ends(sum_squares, found.degrees)),
        effect=Interval(effect, effect - half, effect + half),
        adjusted=found.adjusted,
    )


def _sd_ends(sum_squares: float, degrees: int) -> tuple[float, float]:
    from scipy import special  # noqa: PLC0415 - its import is slow, and pytest loads us everywhere

    tail = (1 - CONFIDENCE) / 2
    low, high = (special.chdtri(degrees, share) for share in (tail, 1 - tail))
    return math.sqrt(sum_squares / float(low)), math.sqrt(sum_squares / float(high))


def lag_one(values: FloatArray) -> float:
    """Return the correlation of neighbouring values; 0 where nothing varies.

    Without any dependence it scatters about -1 / n with a standard deviation of
    1 / sqrt(n).

    Args:
        values: In the order of time; shape (n,), n >= 3.

    Raises:
        ValueError: If there are too few, or one is not finite.

    Source:
        G. E. P. Box and G. M. Jenkins, Time Series Analysis (1976), section 2.1.
    """
    array = checked_losses(values, least=3, what="values")
    if array.min() == array.max():
        return 0.0
    centred = array - array.mean()
    return float(centred[1:] @ centred[:-1]) / float(centred @ centred)


def trend(levels: FloatArray, times: FloatArray) -> Interval:
    """Return the slope of levels over time with its interval.

    Least squares. Neighbours that are alike carry less than n values' worth of
    knowledge: n is replaced by n (1 - r) / (1 + r), r the lag-one correlation
    of the residuals where it is positive, and never taken below 3.

    Args:
        levels: Shape (n,), n >= 3, finite.
        times: Same shape, rising, not all equal.

    Returns:
        Per unit of time.

    Raises:
        ValueError: If shapes differ, there are too few, one is not finite, or
            all times are equal.

    Source:
        B. D. Santer et al., J. Geophys. Res. 105 (2000) 7337-7356.
    """
    y, t = checked_losses(levels, least=3), checked_losses(times, least=3)
    if y.size != t.size or t.min() == t.max():
        raise ValueError(f"got {y.size} levels at {t.size} times, expected as many, not all at one")
    t = t - t.mean()
    slope = float(t @ y) / float(t @ t)
    rest = y - y.mean() - slope * t
    alike = max(0.0, lag_one(rest))
    effective = max(3.0, y.size * (1 - alike) / (1 + alike))
    error = math.sqrt(float(rest @ rest) / (effective - 2) / float(t @ t))
    half = _t_quantile((1 + CONFIDENCE) / 2, effective - 2) * error
    return Interval(slope, slope - half, slope + half)


def symmetry_p(losses: FloatArray, *, seed: int, flips: int = FLIPS) -> float:
    """Return the two-sided p-value of sign flips for "losses are symmetric about 0".

    Sees a mean that is off, for any law of the noise. Does not see a spread
    that is large, nor a bias that changes its sign half-way. With n pairs it
    never falls under 2^(1 - n).

    Args:
        losses: Shape (n,), n >= 1, the order's effect taken out.
        seed: Of random flips, used beyond 16 pairs.
        flips: Random sign vectors.

    Raises:
        ValueError: As `confirm.sign_flip_p`.

    Source:
        `confirm.sign_flip_p`; the distribution over flips is symmetric, so the
        two-sided value is twice the one-sided one.
    """
    array = checked_losses(losses, least=1)
    turned = array if array.sum() >= 0.0 else -array
    return min(1.0, 2 * sign_flip_p(turned, margin=0.0, seed=seed, flips=flips))


def serial_p(losses: FloatArray, *, seed: int, flips: int = FLIPS) -> float:
    """Return the one-sided p-value for "neighbouring losses are not alike".

    If losses are independent and symmetric about 0, whatever the law of each,
    the products of neighbours have independent random signs. Sees losses that
    keep their sign over some pairs; a steady bias as well, so look at
    `symmetry_p` first. Times of large noise with random signs do not disturb it.

    Args:
        losses: In the order of time; shape (n,), n >= 2, the order's effect taken out.
        seed: Of random flips.
        flips: Random sign vectors.

    Raises:
        ValueError: As `confirm.sign_flip_p`.

    Source:
        J.-M. Dufour, J. Time Ser. Anal. 2 (1981) 117-128, with the products
        themselves in place of their ranks.
    """
    array = checked_losses(losses, least=2)
    return sign_flip_p(array[1:] * array[:-1], margin=0.0, seed=seed, flips=flips)


def holm(p_values: Sequence[float]) -> tuple[float, ...]:
    """Return the p-values corrected over all of them, at most 1, in the order given.

    Args:
        p_values: Each in [0, 1]; may be empty.

    Raises:
        ValueError: If one is out of range.

    Source:
        S. Holm, Scand. J. Stat. 6 (1979) 65-70.
    """
    values = np.asarray(p_values, dtype=np.float64)
    if not ((values >= 0.0) & (values <= 1.0)).all():
        raise ValueError(f"p-values must be in [0, 1], got {values.tolist()}")
    order = np.argsort(values, kind="stable")
    adjusted = np.empty_like(values)
    steps = values[order] * (values.size - np.arange(values.size))
    adjusted[order] = np.minimum(1.0, np.maximum.accumulate(steps))
    return tuple(adjusted.tolist())


def share_interval(hits: int, trials: int) -> Interval:
    """Return a share with its exact interval.

    Args:
        hits: In [0, trials].
        trials: >= 1.

    Raises:
        ValueError: If a number is out of range.

    Source:
        C. J. Clopper and E. S. Pearson, Biometrika 26 (1934) 404-413.
    """
    from scipy import special  # noqa: PLC0415 - as above

    if not 0 <= hits <= trials or trials < 1:
        raise ValueError(f"expected 0 <= hits <= trials and a trial, got {hits} of {trials}")
    tail = (1 - CONFIDENCE) / 2
    low = special.betaincinv(hits, trials - hits + 1, tail) if hits else 0.0
    high = special.betaincinv(hits + 1, trials - hits, 1 - tail) if hits < trials else 1.0
    return Interval(hits / trials, float(low), float(high))


def redrawn_suspects(
    losses: FloatArray, first: Sequence[bool], plan: LookPlan, *, trials: int, seed: int
) -> int:
    """Return how many of `trials` redrawn comparisons of unchanged builds become suspect.

    What a pair knows of the machine is d, first place minus second place; the
    side's names are an accident of the order that was drawn. Each trial puts
    runs of four neighbouring pairs in a random sequence, draws a new order as
    the gate does (`losses.candidate_first`) and looks at d or -d by
    `stage_one`, at the edge of the null hypothesis: margin 0, and the limit as
    far above it as in `plan`. So tails, an effect of the place and dependence
    between near neighbours stay as they were measured; a bias of a side cannot
    be seen, since the names are drawn anew: `symmetry_p` is for that.

    Args:
        losses: In the order of time; shape (n,), n >= the last look.
        first: Whether the candidate went first, per pair.
        plan: Looks and levels; margin and limit in the losses' unit.
        trials: Comparisons, >= 1.
        seed: Equal seeds give equal draws.

    Raises:
        ValueError: If there are fewer pairs than the last look needs, in whole
            runs of four, or an argument is out of range.

    Source:
        Randomization as it was carried out: R. A. Fisher, The Design of
        Experiments (1935), section 21; runs of neighbours kept whole: H. R.
        Künsch, Ann. Stat. 17 (1989) 1217-1241, here without replacement.
    """
    last = plan.looks[-1]
    array = checked_losses(losses, least=last)
    runs = array.size // BLOCK_PAIRS
    if runs * BLOCK_PAIRS < last or trials < 1:
        raise ValueError(f"expected {last} pairs in runs of {BLOCK_PAIRS} and a trial")
    by_place = np.where(np.asarray(first, dtype=bool), array, -array)
    edge = replace(plan, margin=0.0, limit=plan.limit - plan.margin)
    rng = np.random.default_rng(seed)
    suspects = 0
    for _ in range(trials):
        skipped = int(rng.integers(array.size % BLOCK_PAIRS + 1))
        held = by_place[skipped : skipped + runs * BLOCK_PAIRS].reshape(runs, BLOCK_PAIRS)
        drawn = rng.permutation(held).ravel()[:last]
        order = candidate_first(last, seed=int(rng.integers(2**32)))
        look = stage_one(np.where(order, drawn, -drawn), edge, first=order)
        suspects += look.standing is Standing.SUSPECT
    return suspects


def _t_quantile(share: float, degrees: float) -> float:
    from scipy import special  # noqa: PLC0415 - as above

    return float(special.stdtrit(degrees, share))


def _point(value: float) -> Interval:
    return Interval(value, value, value)
