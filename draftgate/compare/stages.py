"""What each stage says of one gate, from the pairs that can be used.

Binds losses to the tests of `draftgate.stats`. Corrects nothing over gates and
names no outcome: that is `judge`.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from draftgate.compare.losses import (
    GateLosses,
    UnusableError,
    gate_losses,
    on_gate_scale,
    on_loss_scale,
    usable_pairs,
)
from draftgate.compare.records import Gate, Pair, Stage, StageNumbers
from draftgate.specs import CompareSpec
from draftgate.stats.confirm import CONFIRM_LEVEL, Confirmation, stage_two
from draftgate.stats.family import evidence_needed
from draftgate.stats.losses import Estimate, estimate
from draftgate.stats.sequential import LookPlan, Standing, stage_one
from draftgate.stats.sign_process import CAP_PAIRS, STOP_AT, SignPlan, sign_stage
from draftgate.stats.tail import requests_for_bound

FIRST_NUMBERS = 4
"""Pairs from which a gate has numbers: one whole block of the order."""

FALSE_PASS = 0.05
"""Largest chance that a loss at the limit passes, over all looks together."""


@dataclass(frozen=True, slots=True)
class Search:
    """What stage one says of a gate.

    Attributes:
        gate: The question.
        standing: PASS, SUSPECT, INCONCLUSIVE, or GO_ON.
        pairs_needed: About how many further pairs would decide; 0 when decided.
        held: The losses; None while there are too few pairs, or where none can be had.
        numbers: What they say; None likewise.
        p_value: Of the sign process, 1 / evidence; None in the two-stage gate.
        unusable: Why there are no losses; empty if there are or may be.
    """

    gate: Gate
    standing: Standing
    pairs_needed: int
    held: GateLosses | None = None
    numbers: StageNumbers | None = None
    p_value: float | None = None
    unusable: str = ""


@dataclass(frozen=True, slots=True)
class Fresh:
    """What stage two says of a suspect.

    Attributes:
        pairs_needed: Fresh pairs that are still missing.
        held: The losses so far; None before the first block, or where none can be had.
        numbers: What they say so far; None likewise.
        found: The decision; None until all pairs are there.
        unusable: Why there are no losses; empty if there are or may be.
    """

    pairs_needed: int
    held: GateLosses | None = None
    numbers: StageNumbers | None = None
    found: Confirmation | None = None
    unusable: str = ""


def search_gate(gate: Gate, pairs: Sequence[Pair], plan: CompareSpec, family: int) -> Search:
    """Return where stage one stands for one gate.

    Args:
        gate: The question.
        pairs: All pairs taken; the usable ones of its arm are picked.
        plan: Looks and levels.
        family: Gates of the comparison; only the sign process needs it.
    """
    cap = CAP_PAIRS if plan.single_stage else plan.looks[-1]
    usable = usable_pairs(pairs, gate.arm, Stage.SEARCH)[:cap]
    first_decision = FIRST_NUMBERS if plan.single_stage else plan.looks[0]
    try:
        held = gate_losses(usable, gate)
    except UnusableError as error:
        return Search(gate, Standing.INCONCLUSIVE, 0, unusable=str(error))
    if held is None and usable:
        return Search(gate, Standing.INCONCLUSIVE, 0, unusable="neither side has the metric")
    if held is None or held.losses.size < FIRST_NUMBERS:
        return Search(gate, Standing.GO_ON, first_decision - len(usable))
    if plan.single_stage:
        return _by_signs(gate, held, plan, family)
    return _by_looks(gate, held, plan)


def confirm_gate(gate: Gate, pairs: Sequence[Pair], plan: CompareSpec) -> Fresh:
    """Return where stage two stands for a suspect; arguments as for `search_gate`."""
    usable = usable_pairs(pairs, gate.arm, Stage.CONFIRM)[: plan.confirm_pairs]
    needed = plan.confirm_pairs - len(usable)
    try:
        held = gate_losses(usable, gate)
    except UnusableError as error:
        return Fresh(0, unusable=str(error))
    if held is None and usable:
        return Fresh(0, unusable="neither side has the metric")
    if held is None or held.losses.size < FIRST_NUMBERS:
        return Fresh(needed)
    margin = on_loss_scale(gate, gate.margin)
    fit = estimate(held.losses, held.first)
    numbers = _numbers(gate, fit, held, level=CONFIRM_LEVEL, plan=plan)
    if needed > 0:
        return Fresh(needed, held, numbers)
    found = stage_two(held.losses, margin=margin, seed=plan.seed, first=held.first)
    return Fresh(0, held, numbers, found)


def pass_confidence(plan: CompareSpec) -> float:
    """Return the confidence of an upper bound: Bonferroni over the looks."""
    return 1 - FALSE_PASS / len(plan.looks)


def upper_bound(gate: Gate, held: GateLosses, plan: CompareSpec) -> float:
    """Return the upper bound of a gate's mean loss, as people read it."""
    fit = estimate(held.losses, held.first)
    return on_gate_scale(gate, fit.bound(pass_confidence(plan)))


def tail_requests(gate: Gate) -> int:
    """Return the requests a side needs in all before a tail may be judged; 0 where any will do."""
    percent = gate.metric.removesuffix("_s").rpartition("_p")[2]
    share = {"95": 0.95, "99": 0.99}.get(percent)
    return requests_for_bound(share) if share else 0


def _by_looks(gate: Gate, held: GateLosses, plan: CompareSpec) -> Search:
    so_far, needed = np.cumsum(held.requests), tail_requests(gate)
    known = [look for look in plan.looks if look <= so_far.size and so_far[look - 1] >= needed]
    ahead = [look for look in plan.looks if look > so_far.size]
    asked = LookPlan(
        margin=on_loss_scale(gate, gate.margin),
        limit=on_loss_scale(gate, gate.limit),
        # A tail with too few requests so far is looked at later, or never.
        looks=tuple(known + ahead) or (plan.looks[-1] + 1,),
        pass_confidence=pass_confidence(plan),
    )
    look = stage_one(held.losses, asked, first=held.first)
    standing = look.standing
    if standing is Standing.GO_ON and not ahead:
        standing = Standing.INCONCLUSIVE
    fit = estimate(held.losses[: look.pairs], held.first[: look.pairs])
    numbers = _numbers(gate, fit, held, level=asked.suspect_level, plan=plan)
    return Search(gate, standing, look.pairs_needed, held, numbers)


def _by_signs(gate: Gate, held: GateLosses, plan: CompareSpec, family: int) -> Search:
    found = sign_stage(
        held.losses,
        SignPlan(
            margin=on_loss_scale(gate, gate.margin),
            limit=on_loss_scale(gate, gate.limit),
            stop_at=max(STOP_AT, evidence_needed(family, family_level=plan.family_level)),
        ),
    )
    standing = found.standing
    if standing is not Standing.GO_ON and sum(held.requests[: found.pairs]) < tail_requests(gate):
        standing = Standing.INCONCLUSIVE
    even = found.pairs - found.pairs % 2
    fit = estimate(held.losses[:even], held.first[:even])
    numbers = _numbers(gate, fit, held, level=CONFIRM_LEVEL, plan=plan)
    needed = CAP_PAIRS - found.pairs if standing is Standing.GO_ON else 0
    p_value = min(1.0, float(np.exp(-found.log_evidence)))
    return Search(gate, standing, needed, held, numbers, p_value)


def _numbers(
    gate: Gate, fit: Estimate, held: GateLosses, *, level: float, plan: CompareSpec
) -> StageNumbers:
    return StageNumbers(
        pairs=fit.adjusted.size,
        loss=on_gate_scale(gate, fit.mean),
        low=on_gate_scale(gate, fit.bound(level)),
        high=on_gate_scale(gate, fit.bound(pass_confidence(plan))),
        p_value=fit.p_above(on_loss_scale(gate, gate.margin)),
        losses=tuple(on_gate_scale(gate, float(loss)) for loss in held.losses),
    )
