"""Margins, limits and pairs that a measured noise allows, by normal theory.

Spread in, settings out. Says nothing of whether the noise can be believed:
that is `quarantine`. All numbers go by the point estimate of the spread.
"""

import math

from draftgate.compare.losses import on_gate_scale, on_loss_scale
from draftgate.compare.stages import pass_confidence, tail_requests
from draftgate.noise.gates import design_of, noise_of
from draftgate.noise.records import Advice, GateNoise
from draftgate.specs import CompareSpec
from draftgate.stats.power import POWER, pairs_needed, t_power
from draftgate.stats.sequential import SUSPECT_LEVEL, smallest

UNCHANGED_SUSPECTS = 0.005
"""Largest chance that an unchanged gate calls for a second stage under the advised margin: one
in 200, so that a comparison of 48 gates pays for stage two in at most a quarter of cases."""

_STEP = 1e-4
"""Grid of advised margins and limits: 0.01 %, or a ten-thousandth of the unit."""

_MOST_STEPS = 100_000


def advise(held: GateNoise, plan: CompareSpec, *, gates: int) -> Advice:
    """Return what the noise of one gate allows.

    Args:
        held: The noise; its own `advice` is not looked at.
        plan: Looks, pairs of stage two and level of the family.
        gates: Gates of a comparison, >= 1.
    """
    sd = held.pair_sd.estimate
    margin = smallest_margin(sd, plan.looks)
    limits = (
        (pairs, smallest_limit(sd, pairs, confidence=pass_confidence(plan)))
        for pairs in plan.looks[:2]
    )
    return Advice(
        margin=on_gate_scale(held.gate, margin),
        limits=tuple((n, on_gate_scale(held.gate, max(low, margin + _STEP))) for n, low in limits),
        pairs_needed=pairs_for(
            held, loss=held.gate.limit, plan=plan, gates=gates, requests=held.requests
        ),
    )


def smallest_limit(pair_sd: float, pairs: int, *, confidence: float) -> float:
    """Return the smallest limit under which unchanged builds pass at a look with 80 %.

    The chance that the upper bound of a mean whose truth is 0 lies under the
    limit. Earlier looks only add to it.

    Args:
        pair_sd: Of one pair's loss, >= 0.
        pairs: At the look, >= 2.
        confidence: One-sided, of the upper bound.

    Returns:
        In the unit of `pair_sd`, rounded up to 1e-4.
    """
    if pair_sd == 0.0:
        return _STEP

    def passes(steps: int) -> bool:
        return t_power(steps * _STEP, pair_sd, pairs, 1 - confidence) >= POWER

    return (smallest(passes, 1, _MOST_STEPS) or _MOST_STEPS) * _STEP


def smallest_margin(pair_sd: float, looks: tuple[int, ...]) -> float:
    """Return the smallest margin under which unchanged builds rarely become suspect.

    The sum over looks of the chance that t rejects at a true loss of 0 is at
    most `UNCHANGED_SUSPECTS`; by Boole's inequality so is the chance that any does.

    Args:
        pair_sd: Of one pair's loss, >= 0.
        looks: Pairs at each look, each >= 2.

    Returns:
        In the unit of `pair_sd`, rounded up to 1e-4.
    """
    if pair_sd == 0.0:
        return 0.0

    def rare(steps: int) -> bool:
        chances = (t_power(-steps * _STEP, pair_sd, pairs, SUSPECT_LEVEL) for pairs in looks)
        return sum(chances) <= UNCHANGED_SUSPECTS

    return (smallest(rare, 0, _MOST_STEPS) or 0) * _STEP


def pairs_for(
    held: GateNoise, *, loss: float, plan: CompareSpec, gates: int, requests: int
) -> int | None:
    """Return the pairs of stage one that find a loss with 80 % power; None if none do.

    Never under the first look, nor under what a percentile needs to be judged at all.

    Args:
        held: The noise, with the gate's margin.
        loss: To be found; a share for RATIO, else the metric's unit.
        plan: Sizes and level of the family.
        gates: Gates of a comparison.
        requests: Per start, >= 1.
    """
    gate = held.gate
    if loss <= gate.margin:
        return None
    noise = noise_of(held)
    found: int | None = plan.looks[0]
    if noise is not None:
        found = pairs_needed(
            noise,
            loss_log=on_loss_scale(gate, loss),
            margin_log=on_loss_scale(gate, gate.margin),
            requests=requests,
            design=design_of(plan, gates=gates),
        )
    for_tail = math.ceil(tail_requests(gate) / requests)
    return None if found is None else max(found, plan.looks[0], for_tail)
