"""From pairs to losses: which pairs count, and one number per gate and pair.

Knows records and metrics; how losses are judged is in `draftgate.stats` and
`judge`.
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from draftgate.compare.gates import BY_PROMPT, higher_is_better
from draftgate.compare.records import (
    CellValues,
    Gate,
    Pair,
    Scale,
    ServerStart,
    Stage,
    StageNumbers,
)
from draftgate.stats.compare import FloatArray
from draftgate.stats.losses import absolute_losses, log_loss, loss_ratio, relative_losses


@dataclass(frozen=True, slots=True)
class GateLosses:
    """The losses of one gate in one stage.

    Attributes:
        losses: Positive is worse; logs of ratios, or the metric's unit. Shape (n,).
        first: Whether the candidate went first, per pair.
        base: The base's values; shape (n,).
        candidate: The candidate's values.
        requests: Requests behind them per pair, the smaller side's.
    """

    losses: FloatArray
    first: tuple[bool, ...]
    base: FloatArray
    candidate: FloatArray
    requests: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Change:
    """A metric's change from base to candidate, in the metric's own direction.

    Attributes:
        estimate: Candidate / base - 1 (RATIO), or candidate - base in the metric's unit.
        low: Lower end, same scale; minus infinity where nothing bounds it.
        high: Upper end.
    """

    estimate: float
    low: float
    high: float


class UnusableError(ValueError):
    """The values of a gate cannot be compared; the message says why."""


def usable_pairs(pairs: Sequence[Pair], arm: str, stage: Stage) -> tuple[Pair, ...]:
    """Return the valid pairs of an arm's stage in the order of their slots.

    Stops at the first slot that has none: order and blocks then hold.
    """
    by_slot = {
        pair.slot: pair
        for pair in pairs
        if (pair.arm, pair.stage) == (arm, stage) and not pair.invalid
    }
    found: list[Pair] = []
    while len(found) in by_slot:
        found.append(by_slot[len(found)])
    return tuple(found)


def gate_losses(pairs: Sequence[Pair], gate: Gate) -> GateLosses | None:
    """Return the losses of a gate over usable pairs; None if neither side has the metric.

    Args:
        pairs: As from `usable_pairs`.
        gate: The question.

    Raises:
        UnusableError: If a value is missing in some starts only, is zero or not finite,
            or no prompt was answered in all starts, or if it is too small for the client's
            stamps.
    """
    cells = [(_cell(p.base, gate), _cell(p.candidate, gate)) for p in pairs]
    if not cells:
        return None
    first = tuple(pair.candidate_first for pair in pairs)
    requests = tuple(min(base.requests, other.requests) for base, other in cells)
    if gate.metric == BY_PROMPT:
        base, candidate = _prompts(cells)
        losses = absolute_losses(base, candidate)
        return GateLosses(losses, first, base.mean(axis=1), candidate.mean(axis=1), requests)
    found = [(_value(b, gate.metric), _value(c, gate.metric)) for b, c in cells]
    if all(b is None and c is None for b, c in found):
        return None
    for cell in itertools.chain.from_iterable(cells):
        if why := dict(cell.unresolved).get(gate.metric):
            raise UnusableError(why)
    sides = _whole([b for b, _ in found], "base"), _whole([c for _, c in found], "candidate")
    try:
        losses = relative_losses(*sides, higher_is_better=higher_is_better(gate.metric))
    except ValueError as error:
        raise UnusableError(f"{gate.metric}: {error}") from error
    return GateLosses(losses, first, *sides, requests)


def on_loss_scale(gate: Gate, value: float) -> float:
    """Return a margin or limit as the losses of pairs have it."""
    if gate.scale is Scale.ABSOLUTE:
        return value
    return log_loss(value, higher_is_better=higher_is_better(gate.metric))


def on_gate_scale(gate: Gate, loss: float) -> float:
    """Return a mean loss or bound as people read it: a share, or the metric's unit."""
    if gate.scale is Scale.ABSOLUTE or not math.isfinite(loss):
        return loss
    return loss_ratio(loss, higher_is_better=higher_is_better(gate.metric))


def change_of(gate: Gate, numbers: StageNumbers) -> Change:
    """Return a stage's loss as a change of the metric, low end first."""
    if higher_is_better(gate.metric):
        return Change(-numbers.loss, -numbers.high, -numbers.low)
    return Change(numbers.loss, numbers.low, numbers.high)


def centre(gate: Gate, values: FloatArray) -> float:
    """Return the geometric mean (RATIO) or the mean (ABSOLUTE) of starts."""
    if gate.scale is Scale.ABSOLUTE:
        return float(values.mean())
    return float(np.exp(np.log(values).mean()))


def _cell(start: ServerStart, gate: Gate) -> CellValues:
    for cell in start.cells:
        if cell.concurrency == gate.concurrency:
            return cell
    raise UnusableError(
        f"{start.role.value}: a start holds no run at {gate.concurrency} streams; it holds "
        f"{[cell.concurrency for cell in start.cells]}"
    )


def _value(cell: CellValues, metric: str) -> float | None:
    return next((value for name, value in cell.values if name == metric), None)


def _whole(values: Sequence[float | None], side: str) -> FloatArray:
    missing = sum(value is None for value in values)
    if missing:
        raise UnusableError(f"missing in {missing} of {len(values)} starts of the {side}")
    return np.array(values, dtype=np.float64)


def _prompts(cells: Sequence[tuple[CellValues, CellValues]]) -> tuple[FloatArray, FloatArray]:
    """Return tokens per step by pair and prompt, of prompts that every start answered."""
    held = [(dict(base.prompts), dict(other.prompts)) for base, other in cells]
    common = sorted(set.intersection(*(set(side) for pair in held for side in pair)))
    if not common:
        raise UnusableError("no prompt has a whole answer of two chunks or more in every start")
    base = np.array([[side[name] for name in common] for side, _ in held])
    candidate = np.array([[side[name] for name in common] for _, side in held])
    return base, candidate
