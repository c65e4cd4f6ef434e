"""Pairs of an arm in the order taken, each with the loss it shows for a gate.

Unlike the judge, which needs every start, it takes each pair that has a value,
so that a plot shows what there is. Draws nothing.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from draftgate.compare.losses import (
    UnusableError,
    gate_losses,
    on_gate_scale,
    usable_pairs,
)
from draftgate.compare.records import Gate, GateResult, Pair, Stage, StageNumbers


@dataclass(frozen=True, slots=True)
class Point:
    """One pair.

    Attributes:
        number: Place in the order in which the arm's pairs were taken, from 1.
        pair: The pair.
        raw: As pairs are averaged: log of a ratio, or the metric's unit; None
            without a value on both sides.
        loss: The same on the gate's own scale.
    """

    number: int
    pair: Pair
    raw: float | None
    loss: float | None


def arm_pairs(pairs: Sequence[Pair], arm: str) -> tuple[Pair, ...]:
    """Return the arm's pairs in the order taken, invalid ones included."""
    return tuple(pair for pair in pairs if pair.arm == arm)


def points(pairs: Sequence[Pair], gate: Gate) -> tuple[Point, ...]:
    """Return every pair of the gate's arm with its loss.

    A loss is the one that was judged where all usable starts of a stage have
    the metric, and that of the pair alone otherwise.

    Args:
        pairs: All pairs of the comparison in the order taken.
        gate: The question.
    """
    mine = arm_pairs(pairs, gate.arm)
    known: dict[int, float] = {}
    for stage in Stage:
        known |= _judged(usable_pairs(mine, gate.arm, stage), gate)
    found = []
    for number, pair in enumerate(mine, start=1):
        raw = known[id(pair)] if id(pair) in known else _alone(pair, gate)
        found.append(Point(number, pair, raw, None if raw is None else on_gate_scale(gate, raw)))
    return tuple(found)


def stage_numbers(result: GateResult, stage: Stage) -> StageNumbers | None:
    """Return what a stage found about a gate."""
    return result.search if stage is Stage.SEARCH else result.confirm


def running_mean(gate: Gate, raw: Sequence[float]) -> tuple[float, ...]:
    """Return the mean of the first 1, 2, ... losses on the gate's own scale.

    Args:
        gate: The question.
        raw: Losses as pairs are averaged; shape (n,).
    """
    return tuple(
        on_gate_scale(gate, math.fsum(raw[:count]) / count) for count in range(1, len(raw) + 1)
    )


def _judged(usable: Sequence[Pair], gate: Gate) -> dict[int, float]:
    try:
        found = gate_losses(usable, gate)
    except UnusableError:
        return {}
    if found is None:
        return {}
    return {id(pair): float(loss) for pair, loss in zip(usable, found.losses, strict=True)}


def _alone(pair: Pair, gate: Gate) -> float | None:
    try:
        found = gate_losses((pair,), gate)
    except UnusableError:
        return None
    return None if found is None else float(found.losses[0])
