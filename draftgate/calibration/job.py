"""A whole calibration: four fixed cells, then rising loads until one is too much.

Decides what is run and in which order; how a cell runs is `cell`'s affair.
Stores and prints nothing.
"""

import os
from collections.abc import Callable

from draftgate import __version__
from draftgate.calibration.cell import CellPlan, Cores, run_cell, streams_for
from draftgate.calibration.record import (
    CALIBRATION_SCHEMA_VERSION,
    MOST_CPU_RATIO,
    Calibration,
    CalibrationCell,
)
from draftgate.clock import SYSTEM_CLOCK, Clock
from draftgate.environment import describe
from draftgate.errors import SpecError
from draftgate.load.sockets import most_streams

STREAMS = (1, 8, 32, 256)
"""Those of benchmarks/loadgen."""

DEFAULT_SECONDS = 32.0
"""Four seconds a cell: 128 tokens three times over. With starting engines and parsing the whole
stays under a minute."""

_LOADS = (0.5, 0.7, 0.85, 1.0)
"""Rising loads, as shares of what the CPU per token of the last fixed cell lets expect."""

_SECONDS_RANGE = (3.0, 3600.0)

Tell = Callable[[str], None]


def calibrate(
    *,
    seconds: float = DEFAULT_SECONDS,
    tell: Tell = lambda _line: None,
    on_cell: Callable[[CalibrationCell], None] = lambda _cell: None,
    clock: Clock = SYSTEM_CLOCK,
) -> Calibration:
    """Measure this machine's client error and CPU per token; return what was found.

    The client runs in this process, on one core; the null engine on another if
    there is one. Nothing else should run meanwhile.

    Args:
        seconds: Time for measuring, from 3 to 3600 seconds; starting engines
            and parsing come on top, about half of it again.
        tell: Takes a line before each cell.
        on_cell: Takes each cell as it ends.
        clock: Source of the time of day.

    Raises:
        SpecError: If `seconds` is out of range.
        EngineError: If the null engine could not be run.
        MeasurementError: If a cell cannot be used.
        KeyboardInterrupt: On Ctrl-C, once the engine has ended.
    """
    low, high = _SECONDS_RANGE
    if not low <= seconds <= high:
        raise SpecError(
            f"calibrate: seconds must be from {low:g} to {high:g}, got {seconds:g}. The default "
            f"is {DEFAULT_SECONDS:g}."
        )
    load_average = os.getloadavg()[0]
    cores = Cores.of_this_process()
    cell_s = seconds / (len(STREAMS) + len(_LOADS))

    def run(streams: int) -> CalibrationCell:
        tell(f"{streams} streams, {cell_s:.1f} s")
        cell = run_cell(CellPlan(streams, cell_s, cores))
        on_cell(cell)
        return cell

    cells = tuple(run(streams) for streams in STREAMS)
    environment = describe(f"null engine {__version__}")
    return Calibration(
        schema=CALIBRATION_SCHEMA_VERSION,
        draftgate=environment.draftgate,
        taken_at=clock.wall().isoformat(timespec="seconds"),
        environment=environment,
        seconds=seconds,
        load_average=load_average,
        shared_core=cores.are_shared,
        cells=cells,
        probes=_probe(cells[-1], CellPlan(1, cell_s, cores), run),
    )


def _probe(
    last: CalibrationCell, plan: CellPlan, run: Callable[[int], CalibrationCell]
) -> tuple[CalibrationCell, ...]:
    """Raise the load until a cell is not carried, twice; return these cells.

    Other programs only ever make a client worse, so one good cell of two shows what it can do.
    """
    expected_per_s = MOST_CPU_RATIO / last.cpu_per_token_s
    probes: list[CalibrationCell] = []
    for share in _LOADS:
        streams = streams_for(share * expected_per_s, plan)
        if streams > most_streams():
            break
        probes.append(run(streams))
        if not probes[-1].is_carried:
            probes.append(run(streams))
        if not probes[-1].is_carried:
            break
    return tuple(probes)
