"""How gates and noise go together: stand-ins, the size of the family, the noise of a start.

Small rules that the study and the questions about power share. Opens no file.
"""

import math
from collections.abc import Sequence
from dataclasses import replace

from draftgate.compare.judge import stage_one_level
from draftgate.compare.losses import on_loss_scale
from draftgate.compare.records import Gate
from draftgate.compare.stages import pass_confidence
from draftgate.noise.records import GateNoise
from draftgate.specs import CompareSpec
from draftgate.stats.confirm import CONFIRM_LEVEL
from draftgate.stats.power import Design, Noise
from draftgate.stats.sequential import LookPlan

_P99, _P95 = "_p99_s", "_p95_s"


def stand_in_of(metric: str) -> str | None:
    """Return the p95 that can stand in for a p99; None where the metric is no p99."""
    return metric.removesuffix(_P99) + _P95 if metric.endswith(_P99) else None


def with_stand_ins(gates: Sequence[Gate]) -> tuple[Gate, ...]:
    """Return the p95 gates, with the margins of their p99, that are not among the gates."""
    asked = {(gate.arm, gate.concurrency, gate.metric) for gate in gates}
    found = []
    for gate in gates:
        metric = stand_in_of(gate.metric)
        if metric is not None and (gate.arm, gate.concurrency, metric) not in asked:
            found.append(replace(gate, metric=metric))
    return tuple(found)


def look_plan(gate: Gate, plan: CompareSpec) -> LookPlan:
    """Return how stage one looks at a gate."""
    margin, limit = on_loss_scale(gate, gate.margin), on_loss_scale(gate, gate.limit)
    return LookPlan(margin, limit, plan.looks, pass_confidence=pass_confidence(plan))


def design_of(plan: CompareSpec, *, gates: int, pairs: int | None = None) -> Design:
    """Return sizes and levels of both stages as a lone true loss meets them.

    Its stage two is judged at Holm's first step, the strictest: power is what
    it is when nothing else has changed.

    Args:
        plan: Looks, pairs of stage two and level of the family.
        gates: Gates of the comparison, >= 1.
        pairs: Of stage one; None for the last look.
    """
    level = min(CONFIRM_LEVEL, plan.family_level / (gates * stage_one_level(plan)))
    return Design(pairs or plan.looks[-1], plan.confirm_pairs, confirm_level=level)


def noise_of(held: GateNoise) -> Noise | None:
    """Return a gate's noise as `stats.power` takes it; None where nothing varied.

    Between and within add up to the measured spread of pairs: where the runs'
    own requests explain more than all of it, the measured spread counts.
    """
    if held.pair_sd.estimate == 0.0:
        return None
    start_sd = held.pair_sd.estimate / math.sqrt(2)
    within = min(held.within_sd, start_sd)
    between = math.sqrt(max(0.0, start_sd**2 - within**2))
    return Noise(between, within, held.requests)
