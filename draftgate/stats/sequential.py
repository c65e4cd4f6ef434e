"""Stage one of the paired gate: looks at the losses of pairs while they come in.

A metric becomes suspect, passes, or goes on to the next look. Losses in, one
frozen record out; knows nothing of metrics, servers or verdicts. A suspect is
no regression yet: `confirm` judges it on fresh pairs.
"""

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np

from draftgate.stats.compare import FloatArray
from draftgate.stats.losses import checked_losses, mean_and_error, p_above

LOOKS = (8, 12, 16, 20)
"""Pairs at which stage one looks."""

SUSPECT_LEVEL = 0.005
"""Nominal one-sided level of each look."""

PASS_CONFIDENCE = 0.9875
"""1 - 0.05 / 4: by Bonferroni over four looks a loss at the limit passes in at most 5 %."""

MOST_PAIRS = 1_000_000
"""Where the search for a number of pairs stops; nobody starts so many."""

_GRID = 2001
"""Points of the density between two looks; the result is stable to 1e-7 from 500 on."""


class Standing(Enum):
    """What stage one says of a metric."""

    GO_ON = "go_on"
    SUSPECT = "suspect"
    PASS = "pass"  # noqa: S105 - an outcome, not a password
    INCONCLUSIVE = "inconclusive"


@dataclass(frozen=True, slots=True)
class LookPlan:
    """When to look and what to ask.

    Attributes:
        margin: Loss that is tolerated, on the scale of the losses.
        limit: Relevance limit: the loss that must be ruled out to pass; > margin.
        looks: Pairs at each look, rising, first >= 2.
        suspect_level: One-sided level per look, in (0, 0.5).
        pass_confidence: One-sided confidence of the upper bound, in (0.5, 1).

    Raises:
        ValueError: If a setting is out of range.
    """

    margin: float
    limit: float
    looks: tuple[int, ...] = LOOKS
    suspect_level: float = SUSPECT_LEVEL
    pass_confidence: float = PASS_CONFIDENCE

    def __post_init__(self) -> None:
        """Check the settings."""
        if not (math.isfinite(self.margin) and math.isfinite(self.limit)):
            raise ValueError(f"margin and limit must be finite, got {self.margin}, {self.limit}")
        if not self.margin < self.limit:
            raise ValueError(f"limit must be above the margin {self.margin}, got {self.limit}")
        _check_looks(self.looks)
        if not 0.0 < self.suspect_level < 0.5:
            raise ValueError(f"suspect_level must be in (0, 0.5), got {self.suspect_level}")
        if not 0.5 < self.pass_confidence < 1.0:
            raise ValueError(f"pass_confidence must be in (0.5, 1), got {self.pass_confidence}")


@dataclass(frozen=True, slots=True)
class Look:
    """What stage one found, on the scale of the losses.

    Attributes:
        standing: The decision.
        pairs: Pairs that were judged; later ones were not looked at.
        loss: Their mean loss.
        low: Lower bound at 1 - suspect_level; above the margin exactly if suspect.
        high: Upper bound at pass_confidence; under the limit exactly if it could pass.
        p_value: One-sided, for "the loss is at most the margin".
        pairs_needed: About how many further pairs would decide; 0 when decided.
    """

    standing: Standing
    pairs: int
    loss: float
    low: float
    high: float
    p_value: float
    pairs_needed: int


def stage_one(losses: Sequence[float] | FloatArray, plan: LookPlan) -> Look:
    """Return the decision of the first look that decides, else where it stands.

    At a look: SUSPECT if p < suspect_level against the margin; else PASS if
    the upper bound is under the limit. A loss that is shown to exceed the
    margin is never green, even if it is also shown to be under the limit.
    After the last look the metric is INCONCLUSIVE. Between looks nothing is
    decided: GO_ON with the pairs until the next look.

    The four looks are a Pocock-type boundary: a constant nominal level, with
    t quantiles in place of normal ones (the "significance level approach").
    `overall_level` gives the error over all looks together.

    Args:
        losses: In the order in which pairs were taken; shape (n,), n >= 2.
        plan: When to look and what to ask.

    Raises:
        ValueError: If there are fewer than two losses or one is not finite.

    Source:
        S. J. Pocock, Biometrika 64 (1977) 191-199; C. Jennison and
        B. W. Turnbull, Group Sequential Methods (2000), section 4.4.
    """
    array = checked_losses(losses, least=2)
    for pairs in plan.looks:
        if pairs > array.size:
            break
        standing = _at_look(array[:pairs], plan)
        if standing is not Standing.GO_ON:
            return _look(array[:pairs], plan, standing)
    if array.size >= plan.looks[-1]:
        return _look(array[: plan.looks[-1]], plan, Standing.INCONCLUSIVE)
    return _look(array, plan, Standing.GO_ON)


def _at_look(losses: FloatArray, plan: LookPlan) -> Standing:
    if p_above(losses, plan.margin) < plan.suspect_level:
        return Standing.SUSPECT
    mean, error = mean_and_error(losses)
    if mean + _quantile(plan.pass_confidence, losses.size) * error < plan.limit:
        return Standing.PASS
    return Standing.GO_ON


def _look(losses: FloatArray, plan: LookPlan, standing: Standing) -> Look:
    mean, error = mean_and_error(losses)
    pairs = losses.size
    needed = 0
    if standing is Standing.INCONCLUSIVE:
        needed = pairs_to_decide(losses, plan) - pairs
    elif standing is Standing.GO_ON:
        needed = next(look for look in plan.looks if look > pairs) - pairs
    return Look(
        standing=standing,
        pairs=pairs,
        loss=mean,
        low=mean - _quantile(1 - plan.suspect_level, pairs) * error,
        high=mean + _quantile(plan.pass_confidence, pairs) * error,
        p_value=p_above(losses, plan.margin),
        pairs_needed=needed,
    )


def pairs_to_decide(losses: Sequence[float] | FloatArray, plan: LookPlan) -> int:
    """Return about how many pairs in all would decide, were mean and spread to stay.

    The smaller of the numbers at which the upper bound falls under the limit
    and at which the lower bound rises over the margin; more than there are now.

    Args:
        losses: Shape (n,), n >= 2.
        plan: Levels, margin and limit.

    Raises:
        ValueError: If there are fewer than two losses or one is not finite.

    Source:
        Own: the standard error is scaled with the square root of the number.
    """
    array = checked_losses(losses, least=2)
    mean, error = mean_and_error(array)
    spread = error * math.sqrt(array.size)
    ways = ((plan.limit - mean, plan.pass_confidence), (mean - plan.margin, 1 - plan.suspect_level))

    def decides(pairs: int) -> bool:
        return any(
            distance > _quantile(confidence, pairs) * spread / math.sqrt(pairs)
            for distance, confidence in ways
        )

    return max(array.size + 1, smallest(decides, 2, MOST_PAIRS) or MOST_PAIRS)


def smallest(holds: Callable[[int], bool], low: int, high: int) -> int | None:
    """Return the smallest number in [low, high] from which on `holds`; None if none.

    `holds` must be false up to some number and true from there on.
    """
    if not holds(high):
        return None
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle + 1, high)
    return low


def overall_level(looks: Sequence[int] = LOOKS, level: float = SUSPECT_LEVEL) -> float:
    """Return the chance that any look rejects at the boundary of the null hypothesis.

    Normal theory, by recursive numerical integration of the density of the
    partial sum that no look has stopped yet. With t tests at the same nominal
    levels the result is a little different (`benchmarks/gate` simulates it);
    len(looks) * level bounds both.

    Args:
        looks: Pairs at each look, rising, first >= 2.
        level: One-sided nominal level per look, in (0, 0.5).

    Raises:
        ValueError: If looks do not rise or the level is out of range.

    Source:
        P. Armitage, C. K. McPherson and B. C. Rowe, J. R. Stat. Soc. A 132
        (1969) 235-244; one-sided, groups of unequal size.
    """
    from scipy import special  # noqa: PLC0415 - as in `losses`

    _check_looks(tuple(looks))
    if not 0.0 < level < 0.5:
        raise ValueError(f"level must be in (0, 0.5), got {level}")
    bound = -float(special.ndtri(level))
    low = -8.0  # in standard errors; what lies below has a chance of 1e-15
    grid = np.linspace(low, bound, _GRID) * math.sqrt(looks[0])
    density = _normal(grid / math.sqrt(looks[0])) / math.sqrt(looks[0])
    rejected = level
    for before, pairs in itertools.pairwise(looks):
        step = math.sqrt(pairs - before)
        mass = density * _trapezoid(grid)
        rejected += float(mass @ special.ndtr((grid - bound * math.sqrt(pairs)) / step))
        further = np.linspace(low, bound, _GRID) * math.sqrt(pairs)
        density = _normal((further[:, None] - grid) / step) @ mass / step
        grid = further
    return rejected


def _normal(z: FloatArray) -> FloatArray:
    return np.asarray(np.exp(-(z**2) / 2) / math.sqrt(2 * math.pi), dtype=np.float64)


def _trapezoid(grid: FloatArray) -> FloatArray:
    weights = np.full(grid.size, grid[1] - grid[0])
    weights[[0, -1]] /= 2
    return weights


def _quantile(confidence: float, pairs: int) -> float:
    """Return Student's quantile for the mean of `pairs` losses."""
    from scipy import special  # noqa: PLC0415 - as in `losses`

    return float(special.stdtrit(pairs - 1, confidence))


def _check_looks(looks: tuple[int, ...]) -> None:
    rises = all(a < b for a, b in itertools.pairwise(looks))
    if not looks or looks[0] < 2 or not rises:
        raise ValueError(f"looks must rise from at least 2 pairs, got {looks}")
