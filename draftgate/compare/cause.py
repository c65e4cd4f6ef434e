"""Why a metric changed: which factors moved in the same pairs, by how much, in one line.

A factor is named if its interval excludes "unchanged" and it carries at least a
third of what went the metric's way (`verdict.NAMED_SHARE`). A cause is stated from
the pairs that it is given and decides nothing; factors that were not measured are
said to be unknown, never taken as unchanged.
"""

import math
import re
from collections.abc import Sequence

import numpy as np

from draftgate.compare.factors import (
    STEP_TIME,
    TAIL,
    WAITS,
    Cells,
    Part,
    cells_of,
    change_of,
    first_token_parts,
    moved,
    own_part,
    product_parts,
    speed_parts,
    wait_parts,
    weigh,
)
from draftgate.compare.gates import BY_PROMPT, title
from draftgate.compare.losses import UnusableError, gate_losses
from draftgate.compare.records import Cause, FactorLoss, Gate, Pair
from draftgate.metrics import definition
from draftgate.metrics.acceptance import POSITIONS
from draftgate.metrics.decomposition import FACTORS
from draftgate.stats.compare import FloatArray
from draftgate.verdict import NAMED_SHARE

ACCEPTANCE = "acceptance"

_MEDIAN_GAP = "step_gap_p50_s"
_PERCENTILE = re.compile(r"(ttft|step_gap|per_token|e2e)_p(\d+)_s")


def cause(pairs: Sequence[Pair], gate: Gate) -> Cause | None:
    """Return what explains a change of a gated metric; None for one that has no factors.

    Args:
        pairs: Pairs of server starts; those of other arms and invalid ones are left out.
        gate: Which metric at how many streams.

    Returns:
        Factors with 95 % intervals by t over pairs, or a text that begins "not
        known:" where the pairs do not hold what is needed.

    Raises:
        SpecError: If the gate's metric is not registered.
    """
    if gate.metric != BY_PROMPT and not definition(gate.metric).cause:
        return None
    try:
        cells = cells_of(pairs, gate)
        loss = _loss(pairs, gate)
        parts = _parts(cells, gate, loss)
    except UnusableError as error:
        return Cause(f"not known: {error}", ())
    own = change_of(loss, cells.first)
    whole = own.change if moved(own) else 0.0
    of = 0.0 if _on_other_scale(gate.metric) else whole
    factors = weigh(parts, cells.first, whole=whole, of=of)
    return Cause(_text(factors, gate, loss=whole > 0.0), factors, _positions(cells, factors))


def _on_other_scale(metric: str) -> bool:
    """Whether a metric's own loss says nothing about the size of its factors' effects.

    Those of a wait are seconds, and goodput falls by more than speed once a limit is crossed.
    """
    return metric.startswith("ttft_") or metric in WAITS or metric == "goodput_per_s"


def _loss(pairs: Sequence[Pair], gate: Gate) -> FloatArray:
    """Return the gate's own loss per valid pair."""
    held = gate_losses([p for p in pairs if p.arm == gate.arm and not p.invalid], gate)
    if held is None:
        raise UnusableError(f"{gate.metric} was not measured")
    return held.losses


def _parts(cells: Cells, gate: Gate, loss: FloatArray) -> tuple[Part, ...]:
    """Return the factors of a metric."""
    if gate.metric == BY_PROMPT:
        return (Part(ACCEPTANCE, BY_PROMPT, -loss, loss, "tokens"),)
    explains = definition(gate.metric).cause
    if isinstance(explains, str):
        return _stated(cells, gate.metric, explains)
    named = speed_parts(cells, explains) if set(explains) == set(FACTORS) else None
    parts = named or product_parts(cells, explains)
    return _with_tail(cells, gate.metric, parts)


def _stated(cells: Cells, metric: str, label: str) -> tuple[Part, ...]:
    """Return the factors of a metric that is itself the statement of one cause."""
    if metric in WAITS:
        return wait_parts(cells, (metric,))
    if metric.startswith("ttft_") and cells.has(*WAITS, "ttft_p50_s"):
        return first_token_parts(cells)
    if _tail_of(metric) == metric and cells.has(_MEDIAN_GAP):
        return _gap_parts(cells, metric)
    return (own_part(cells, metric, label),)


def _gap_parts(cells: Cells, metric: str) -> tuple[Part, ...]:
    """Return what a tail of the step gap tells: all steps slower, or some of them."""
    median, tail = own_part(cells, _MEDIAN_GAP, STEP_TIME), own_part(cells, metric, TAIL)
    if not _tail_alone(cells, median, tail):
        return (median,)
    return tail, _median_part(median)


def _with_tail(cells: Cells, metric: str, parts: tuple[Part, ...]) -> tuple[Part, ...]:
    """Return the factors with step time given by its tail where only that is slower.

    A tail is then held against a tail: the mean of all steps hardly moves.
    """
    gap = _tail_of(metric)
    if gap is None or not cells.has(_MEDIAN_GAP, gap):
        return parts
    median, tail = own_part(cells, _MEDIAN_GAP, STEP_TIME), own_part(cells, gap, TAIL)
    if not _tail_alone(cells, median, tail):
        return parts
    tails = [tail if part.label == STEP_TIME else part for part in parts]
    return (*tails, _median_part(median))


def _median_part(median: Part) -> Part:
    """Return the median gap as something to state and not to share the loss with."""
    return Part("median step gap", _MEDIAN_GAP, median.changes, np.zeros_like(median.changes))


def _tail_of(metric: str) -> str | None:
    """Return the step gap's percentile that goes with a tail metric; None for others."""
    found = _PERCENTILE.fullmatch(metric)
    if found is None or found[1] == "ttft" or int(found[2]) <= 50:
        return None
    return f"step_gap_p{found[2]}_s"


def _tail_alone(cells: Cells, median: Part, tail: Part) -> bool:
    """Whether the tail moved and the median did not, or by less than a third of it."""
    middle, far = (change_of(part.effects, cells.first) for part in (median, tail))
    along = middle.change * math.copysign(1.0, far.change)
    return moved(far) and not (moved(middle) and along >= NAMED_SHARE * abs(far.change))


def _positions(
    cells: Cells, factors: Sequence[FactorLoss]
) -> tuple[tuple[int, float, float, float, float], ...]:
    """Return acceptance by draft position, if acceptance moved."""
    if not any(factor.label == ACCEPTANCE and moved(factor) for factor in factors):
        return ()
    found = []
    for position in range(POSITIONS):
        name = f"acceptance_pos_{position}_ratio"
        if cells.has(name):
            base, candidate = cells.values(name)
            change = change_of(candidate - base, cells.first)
            ends = (change.low, change.high)
            found.append((position, float(base.mean()), float(candidate.mean()), *ends))
    return tuple(found)


def _text(factors: Sequence[FactorLoss], gate: Gate, *, loss: bool) -> str:
    place = f"at {gate.concurrency} stream{'' if gate.concurrency == 1 else 's'}"
    words = [_words(factor, loss=loss) for factor in factors]
    if not any(factor.named for factor in factors):
        return f"no factor stands out {place}: {'; '.join(words)}"
    return "; ".join((f"{words[0]} {place}", *words[1:]))


def _words(factor: FactorLoss, *, loss: bool) -> str:
    low, high = _ends(factor)
    if not moved(factor):
        return f"{factor.label} unchanged [{low}, {high}]{_unit(factor, plain='')}"
    sign = "+" if factor.change > 0.0 else ""
    change = f"{sign}{_number(factor.change, factor)}{_unit(factor, plain=' %')} [{low}, {high}]"
    if factor.unit == "s":
        part = f" ({factor.share * 100:.0f} % of the {'loss' if loss else 'gain'})"
        return f"{factor.label} {change}{part if factor.named else ''}"
    measured = title(factor.metric)
    if factor.label == measured:
        return f"{factor.label} {change}"
    return f"{factor.label} ({measured} {change})"


def _ends(factor: FactorLoss) -> tuple[str, str]:
    return _number(factor.low, factor), _number(factor.high, factor)


def _number(value: float, factor: FactorLoss) -> str:
    """Return percent, milliseconds below a second, or the metric's own unit."""
    scaled = value * (100 if factor.unit == "" else 1000 if _in_ms(factor) else 1)
    if not math.isfinite(scaled):
        return str(scaled)
    size = abs(scaled)
    if factor.unit == "":
        places = 1 if size < 10 else 0
    else:
        places = next((p for limit, p in ((100, 0), (10, 1), (1, 2)) if size >= limit), 3)
    return f"{round(scaled, places) + 0.0:.10g}"  # adding 0.0 turns -0.0 into 0.0


def _unit(factor: FactorLoss, *, plain: str) -> str:
    if factor.unit == "":
        return plain
    return " ms" if _in_ms(factor) else f" {factor.unit}"


def _in_ms(factor: FactorLoss) -> bool:
    return factor.unit == "s" and abs(factor.change) < 1.0
