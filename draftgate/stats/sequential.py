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
from draftgate.stats.losses import Estimate, checked_losses, estimate

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


def stage_one(
    losses: Sequence[float] | FloatArray, plan: LookPlan, *, first: Sequence[bool] | None = None
) -> Look:
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
        losses: In the order in which pairs were taken; shape (n,), n >= 2, and
            n >= 3 with `first`.
        plan: When to look and what to ask.
        first: Whether the candidate went first, per pair: takes the order's
            effect out, see `losses.estimate`.

    Raises:
        ValueError: If there are too few losses, one is not finite, or `first`
            does not fit.

    Source:
        S. J. Pocock, Biometrika 64 (1977) 191-199; C. Jennison and
        B. W. Turnbull, Group Sequential Methods (2000), section 4.4.
    """
    array = checked_losses(losses, least=2)
    if first is not None and len(first) != array.size:
        raise ValueError(f"got an order of {len(first)} pairs for {array.size} losses")

    def upto(pairs: int) -> Estimate:
        return estimate(array[:pairs], None if first is None else first[:pairs])

    for pairs in plan.looks:
        if pairs > array.size:
            break
        found = upto(pairs)
        standing = _at_look(found, plan)
        if standing is not Standing.GO_ON:
            return _record(found, plan, standing, 0)
    if array.size >= plan.looks[-1]:
        found = upto(plan.looks[-1])
        needed = _pairs_to_decide(found, plan) - plan.looks[-1]
        return _record(found, plan, Standing.INCONCLUSIVE, needed)
    needed = next(look for look in plan.looks if look > array.size) - array.size
    return _record(upto(array.size), plan, Standing.GO_ON, needed)


def _at_look(found: Estimate, plan: LookPlan) -> Standing:
    if found.p_above(plan.margin) < plan.suspect_level:
        return Standing.SUSPECT
    return Standing.PASS if found.bound(plan.pass_confidence) < plan.limit else Standing.GO_ON


def _record(found: Estimate, plan: LookPlan, standing: Standing, needed: int) -> Look:
    return Look(
        standing=standing,
        pairs=found.adjusted.size,
        loss=found.mean,
        low=found.bound(plan.suspect_level),
        high=found.bound(plan.pass_confidence),
        p_value=found.p_above(plan.margin),
        pairs_needed=needed,
    )


def pairs_to_decide(
    losses: Sequence[float] | FloatArray, plan: LookPlan, *, first: Sequence[bool] | None = None
) -> int:
    """Return about how many pairs in all would decide, were mean and spread to stay.

    The smaller of the numbers at which the upper bound falls under the limit
    and at which the lower bound rises over the margin; more than there are now.
    For a comparison that its budget cut short between looks.

    Args:
        losses: Shape (n,), n >= 2, and n >= 3 with `first`.
        plan: Levels, margin and limit.
        first: As for `stage_one`.

    Raises:
        ValueError: As `stage_one`.

    Source:
        Own: the standard error is scaled with the square root of the number.
    """
    return _pairs_to_decide(estimate(checked_losses(losses, least=2), first), plan)


def _pairs_to_decide(found: Estimate, plan: LookPlan) -> int:
    now = found.adjusted.size
    lost = now - found.degrees
    spread = found.error * math.sqrt(now)
    ways = (
        (plan.limit - found.mean, plan.pass_confidence),
        (found.mean - plan.margin, 1 - plan.suspect_level),
    )

    def decides(pairs: int) -> bool:
        error = spread / math.sqrt(pairs)
        return any(
            distance > _quantile(confidence, pairs - lost) * error for distance, confidence in ways
        )

    return smallest(decides, now + 1, MOST_PAIRS) or MOST_PAIRS


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


def _quantile(confidence: float, degrees: int) -> float:
    from scipy import special  # noqa: PLC0415 - as in `losses`

    return float(special.stdtrit(degrees, confidence))


def _check_looks(looks: tuple[int, ...]) -> None:
    rises = all(a < b for a, b in itertools.pairwise(looks))
    if not looks or looks[0] < 2 or not rises:
        raise ValueError(f"looks must rise from at least 2 pairs, got {looks}")
