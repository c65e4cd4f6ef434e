"""What a study needs of the pairs of one gate beside their losses: levels, times, spreads.

Losses are those of `draftgate.compare.losses`, so that a study and a comparison
count alike. Knows what a start holds, no statistics.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

import numpy as np

from draftgate.compare.losses import GateLosses, centre, gate_losses, usable_pairs
from draftgate.compare.records import CellValues, Gate, Pair, Scale, Stage
from draftgate.errors import MeasurementError
from draftgate.stats.compare import FloatArray


@dataclass(frozen=True, slots=True)
class GateSeries:
    """One gate's numbers, in the order in which pairs were taken.

    Attributes:
        held: Losses, values of both sides and who went first, n pairs.
        value: Geometric mean of all starts; for ABSOLUTE the mean.
        base: Level of the base's starts (log of the value; the value for
            ABSOLUTE); shape (n,).
        candidate: Of the candidate's.
        hours: Since the first pair of the arm; shape (n,).
        within: Spread of each start's log value from its own requests, shape
            (2 n,), or empty where a start has none.
        requests: Requests of each start; shape (2 n,).
    """

    held: GateLosses
    value: float
    base: FloatArray
    candidate: FloatArray
    hours: FloatArray
    within: FloatArray
    requests: FloatArray


def gate_series(pairs: Sequence[Pair], gate: Gate) -> GateSeries | None:
    """Return the numbers of one gate; None if no start has the metric.

    Args:
        pairs: Of any arm, valid or not, in the order taken.
        gate: The question.

    Raises:
        UnusableError: As `compare.losses.gate_losses`.
        MeasurementError: If the starts' times go backwards.
    """
    used = usable_pairs(pairs, gate.arm, Stage.SEARCH)
    held = gate_losses(used, gate)
    if held is None:
        return None
    cells = [_cell(p, gate, side) for side in ("base", "candidate") for p in used]
    spreads = [dict(cell.spreads).get(gate.metric) for cell in cells]
    known = [spread for spread in spreads if spread is not None]
    absolute = gate.scale is Scale.ABSOLUTE
    return GateSeries(
        held=held,
        value=centre(gate, np.concatenate([held.base, held.candidate])),
        base=held.base if absolute else np.log(held.base),
        candidate=held.candidate if absolute else np.log(held.candidate),
        hours=_hours(used),
        within=np.array(known if len(known) == len(cells) else [], dtype=np.float64),
        requests=np.array([max(1, cell.requests) for cell in cells], dtype=np.float64),
    )


def _cell(pair: Pair, gate: Gate, side: str) -> CellValues:
    start = pair.base if side == "base" else pair.candidate
    return next(cell for cell in start.cells if cell.concurrency == gate.concurrency)


def _hours(pairs: Sequence[Pair]) -> FloatArray:
    """Return when each pair was taken: halfway between its two starts."""
    times_s = [
        [datetime.fromisoformat(start.started_at).timestamp() for start in (p.base, p.candidate)]
        for p in pairs
    ]
    middle_s = np.array(times_s).mean(axis=1)
    back_s = -float(np.diff(middle_s).min())
    if back_s > 0.0:
        raise MeasurementError(
            f"noise study: a pair of {pairs[0].arm} began {back_s:.0f} s before the one taken "
            "before it: the clock jumped. Set the clock, then run again: draftgate calibrate --gate"
        )
    return np.asarray((middle_s - middle_s[0]) / 3600.0, dtype=np.float64)
