"""Which questions a comparison asks: metrics by arms by numbers of streams.

Fixed before the first pair, because their number is what the error rate is
divided by. Knows no pairs.
"""

import math
from collections.abc import Iterable, Sequence

from draftgate.compare.records import Gate, Scale
from draftgate.errors import SpecError
from draftgate.metrics import Direction, definition
from draftgate.specs import Arm, CompareSpec, PairedGateSpec, WorkloadSpec

BY_PROMPT = "tokens_per_step_by_prompt"
"""Acceptance as tokens per step, every prompt with itself; no metric of one run."""


def title(metric: str) -> str:
    """Return what people call a gated metric, wherever it is named.

    Raises:
        SpecError: If there is no such metric.
    """
    return "tokens per step by prompt" if metric == BY_PROMPT else definition(metric).title


def gates_of(
    arms: Sequence[Arm], concurrencies: Sequence[int], spec: CompareSpec
) -> tuple[Gate, ...]:
    """Return one gate per arm, number of streams and metric that can apply.

    Acceptance is asked of arms that speculate only.

    Args:
        arms: Arms of one side; the other side's have the same names.
        concurrencies: Numbers of streams.
        spec: Metrics with margin and limit.

    Raises:
        SpecError: If a metric is unknown, has no better direction, or no gate is left.
    """
    for entry in spec.gates:
        _check(entry)
    found = tuple(
        Gate(arm.name, streams, entry.metric, scale_of(entry.metric), entry.margin, entry.limit)
        for arm in arms
        for streams in sorted(concurrencies)
        for entry in spec.gates
        if entry.metric != BY_PROMPT or arm.engine.speculative is not None
    )
    if not found:
        raise SpecError(
            "compare: no gate applies: got acceptance alone and no arm that speculates, expected "
            "at least one gate. Add a [[compare.gate]] or choose another arm."
        )
    return found


def scale_of(metric: str) -> Scale:
    """Return how a metric's loss is measured."""
    return Scale.ABSOLUTE if metric == BY_PROMPT else Scale.RATIO


def higher_is_better(metric: str) -> bool:
    """Return the direction of a gated metric."""
    return metric == BY_PROMPT or definition(metric).direction is Direction.HIGHER


def requests_per_start(workload: WorkloadSpec, concurrency: int) -> int:
    """Return how many requests end in a window at least: whole rounds of all streams."""
    rounds = max(1, math.ceil(workload.min_requests / concurrency))
    return rounds * concurrency


def limits(gates: Iterable[Gate]) -> dict[str, float]:
    """Return the limit of each relative metric; what the client's own error is held against."""
    return {gate.metric: gate.limit for gate in gates if gate.scale is Scale.RATIO}


def _check(entry: PairedGateSpec) -> None:
    if entry.metric == BY_PROMPT:
        return
    if definition(entry.metric).direction is Direction.NEITHER:
        raise SpecError(
            f"compare: gate on {entry.metric!r}: the metric has no better direction, so it has no "
            "loss to limit. Gate another metric."
        )
    if entry.limit >= 1.0:
        raise SpecError(
            f"compare: gate on {entry.metric!r}: got limit {entry.limit:g}, expected a share below "
            "1, such as 0.05 for 5 %."
        )
