"""The paired gate over many simulated comparisons at once, in numpy.

Written apart from `draftgate.stats`, and compared with it case by case in
`agree` and `agree_single`: the rates are those of the product only if both say the same.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import special

from draftgate.stats.confirm import CONFIRM_LEVEL, STAGE_TWO_PAIRS, stage_two
from draftgate.stats.sequential import (
    LOOKS,
    PASS_CONFIDENCE,
    SUSPECT_LEVEL,
    LookPlan,
    Standing,
    stage_one,
)
from draftgate.stats.sign_process import (
    CAP_PAIRS,
    DECIDE_EVERY,
    PASS_AT,
    STOP_AT,
    SignPlan,
    sign_evidence,
    sign_stage,
)

Floats = NDArray[np.float64]

SUSPECT, PASS, INCONCLUSIVE = 1, 2, 3
STANDINGS = {SUSPECT: Standing.SUSPECT, PASS: Standing.PASS, INCONCLUSIVE: Standing.INCONCLUSIVE}


@dataclass(frozen=True, slots=True)
class StageOne:
    """Per comparison: one of the codes above, and the pairs used."""

    standing: NDArray[np.int64]
    pairs: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Rule:
    """Looks and levels of stage one; what remedies change.

    Attributes:
        looks: Pairs at each look.
        suspect_level: Nominal level per look.
        pass_confidence: Of the upper bound.
        known_sd: Spread of a pair from a noise study; weighed in with `known_degrees`.
        known_degrees: Degrees of freedom of that study; 0 for none.
    """

    looks: tuple[int, ...] = LOOKS
    suspect_level: float = SUSPECT_LEVEL
    pass_confidence: float = PASS_CONFIDENCE
    known_sd: float = 0.0
    known_degrees: int = 0


RULE = Rule()


def fit(losses: Floats, first: NDArray[np.bool_] | None) -> tuple[Floats, Floats, int, Floats]:
    """Return mean, variance, degrees of freedom and losses without the order's effect."""
    if first is None:
        return losses.mean(axis=-1), losses.var(axis=-1, ddof=1), losses.shape[-1] - 1, losses
    sign = np.where(first, 1.0, -1.0)  # balanced at every look: orthogonal to the mean
    effect = (losses * sign).mean(axis=-1, keepdims=True)
    adjusted = losses - effect * sign
    mean = adjusted.mean(axis=-1)
    degrees = losses.shape[-1] - 2
    variance = ((adjusted - mean[..., None]) ** 2).sum(axis=-1) / degrees
    return mean, variance, degrees, adjusted


def first_stage(
    losses: Floats,
    margin: float,
    limit: float,
    first: NDArray[np.bool_] | None = None,
    rule: Rule = RULE,
) -> StageOne:
    """Return the decisions over the last axis of losses, shape (..., >= last look)."""
    standing = np.full(losses.shape[:-1], INCONCLUSIVE)
    pairs = np.full(losses.shape[:-1], rule.looks[-1])
    is_open = np.ones(losses.shape[:-1], dtype=bool)
    for look in rule.looks:
        head = None if first is None else first[..., :look]
        mean, variance, degrees, _ = fit(losses[..., :look], head)
        total = degrees + rule.known_degrees
        variance = (degrees * variance + rule.known_degrees * rule.known_sd**2) / total
        error = np.sqrt(variance / look)
        suspect = mean - margin > special.stdtrit(total, 1 - rule.suspect_level) * error
        passed = mean + special.stdtrit(total, rule.pass_confidence) * error < limit
        for code, hit in ((SUSPECT, suspect), (PASS, passed)):
            now = is_open & hit
            standing[now], pairs[now] = code, look
            is_open &= ~hit
    return StageOne(standing, pairs)


def second_stage(
    losses: Floats, margin: float, signs: Floats, first: NDArray[np.bool_] | None = None
) -> Floats:
    """Return the larger p-value of t and sign flips; losses of shape (trials, pairs)."""
    mean, variance, degrees, adjusted = fit(losses, first)
    error = np.sqrt(variance / losses.shape[-1])
    t_p = np.asarray(special.stdtr(degrees, -(mean - margin) / error))
    flip_p = np.ones_like(t_p)
    likely = np.flatnonzero(t_p < CONFIRM_LEVEL)  # the larger p-value decides anyway
    for chunk in np.array_split(likely, likely.size // 500 + 1):
        rows = adjusted[chunk] - margin
        reached = (rows @ signs.T >= rows.sum(axis=1, keepdims=True) - 1e-12).sum(axis=1)
        flip_p[chunk] = (1 + reached) / (1 + signs.shape[0])
    return np.asarray(np.maximum(t_p, flip_p))


def draw_signs(rng: np.random.Generator, flips: int, pairs: int = STAGE_TWO_PAIRS) -> Floats:
    """Return random sign vectors; shape (flips, pairs)."""
    return np.asarray(rng.integers(0, 2, (flips, pairs)) * 2.0 - 1.0, dtype=np.float64)


def single_stage(losses: Floats, margin: float, limit: float) -> StageOne:
    """Return the decisions of the sign process; losses of shape (trials, CAP_PAIRS)."""
    table = np.full((CAP_PAIRS + 1, CAP_PAIRS + 1), -np.inf)
    for hits in range(CAP_PAIRS + 1):
        for pairs in range(max(hits, 1), CAP_PAIRS + 1):
            table[pairs, hits] = sign_evidence(np.arange(pairs) < hits)[-1]
    n = np.arange(1, CAP_PAIRS + 1)
    may_decide = n % DECIDE_EVERY == 0
    worse = table[n, np.cumsum(losses > margin, axis=1)] >= np.log(STOP_AT)
    fine = table[n, np.cumsum(losses < limit, axis=1)] >= np.log(PASS_AT)
    decided = (worse | fine) & may_decide
    at = np.where(decided.any(axis=1), decided.argmax(axis=1), CAP_PAIRS - 1)
    row = np.arange(losses.shape[0])
    standing = np.where(worse[row, at], SUSPECT, np.where(fine[row, at], PASS, INCONCLUSIVE))
    return StageOne(standing, at + 1)


def agree(losses: Floats, first: NDArray[np.bool_], margin: float, limit: float) -> None:
    """Compare this module with `draftgate.stats`, with and without order; all cases.

    Raises:
        AssertionError: If a decision or a number of pairs differs, or a p-value of stage
            two by more than four standard errors of its flips.
    """
    plan = LookPlan(margin, limit)
    signs = draw_signs(np.random.default_rng(1), 9_999)
    for order in (None, first):
        fast = first_stage(losses, margin, limit, order)
        heads = [None if order is None else row[: LOOKS[-1]].tolist() for row in first]
        slow = [
            stage_one(row[: LOOKS[-1]], plan, first=head)
            for row, head in zip(losses, heads, strict=True)
        ]
        assert [look.standing for look in slow] == [STANDINGS[code] for code in fast.standing]
        assert [look.pairs for look in slow] == fast.pairs.tolist()
        fresh = losses[:20, :STAGE_TWO_PAIRS]
        part = None if order is None else order[:20, :STAGE_TWO_PAIRS]
        values = second_stage(fresh, margin, signs, part)
        for k, value in enumerate(values):
            head = None if part is None else part[k].tolist()
            found = stage_two(fresh[k], margin=margin, seed=1, first=head).p_value
            if found < CONFIRM_LEVEL:
                assert abs(found - value) < 4 * np.sqrt(found / 9_999) + 2e-4


def agree_single(losses: Floats, margin: float, limit: float) -> None:
    """Compare `single_stage` with `draftgate.stats`; all cases.

    Raises:
        AssertionError: If a decision or a number of pairs differs.
    """
    fast = single_stage(losses, margin, limit)
    found = [sign_stage(row, SignPlan(margin, limit)) for row in losses]
    assert [result.standing for result in found] == [STANDINGS[code] for code in fast.standing]
    assert [result.pairs for result in found] == fast.pairs.tolist()
