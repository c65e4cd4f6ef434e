"""A calibration as a table and plain sentences on standard output.

Microseconds in the table, milliseconds in the sentences, seconds in the record.
Measures and stores nothing.
"""

from collections.abc import Callable

from rich import box
from rich.console import Console
from rich.table import Table

from draftgate.calibration.compare import ErrorStats
from draftgate.calibration.record import (
    MOST_CPU_RATIO,
    MOST_GAP_ERROR_S,
    Calibration,
    CalibrationCell,
)
from draftgate.report.format import Scale

_COLUMNS = (
    "streams",
    "tokens/s",
    "CPU per\ntoken",
    "and to\nparse",
    "core",
    "TTFT\nerror",
    "step-gap\nerror",
    "read\ndelay",
    "carried",
)


def print_calibration(
    calibration: Calibration, last: Calibration | None, console: Console | None = None
) -> None:
    """Print what was found and what it means for gates.

    Args:
        calibration: What was found.
        last: What was found before on the same hardware; None for nothing.
        console: Where; standard output by default.
    """
    console = console or Console(highlight=False, soft_wrap=True)
    console.print(_table(calibration))
    for line in (*_meaning(calibration), *_caveats(calibration), *_changes(last, calibration)):
        console.print(line)


def _table(calibration: Calibration) -> Table:
    title = f"{calibration.environment.hardware}: times in µs, errors as p50/p99, delay as p99"
    table = Table(title=title, box=box.SIMPLE_HEAD, title_justify="left", padding=0)
    for head in _COLUMNS:
        table.add_column(head, justify="right", no_wrap=True)
    for cells in (calibration.cells, calibration.probes):
        for cell in cells:
            table.add_row(*_row(cell))
        table.add_section()
    return table


def _row(cell: CalibrationCell) -> tuple[str, ...]:
    return (
        f"{cell.streams}",
        f"{cell.tokens_per_s:,.0f}",
        f"{cell.cpu_per_token_s * 1e6:.1f}",
        f"{cell.parse_cpu_per_token_s * 1e6:.1f}",
        f"{cell.cpu_ratio:.0%}",
        _error(cell.errors.ttft),
        _error(cell.errors.step_gap),
        _us(cell.read_delay_p99_s),
        "yes" if cell.is_carried else "no",
    )


def _error(error: ErrorStats | None) -> str:
    return "-" if error is None else f"{_us(error.p50_s)}/{_us(error.p99_s)}"


def _us(value_s: float | None) -> str:
    return "-" if value_s is None else f"{value_s * 1e6:,.0f}"


def _ms(value_s: float | None) -> str:
    return Scale(1e3, "ms").full(value_s)


def _meaning(calibration: Calibration) -> list[str]:
    """Return what the numbers mean for gates and for the size of a run."""
    ttft = _by_streams(calibration, lambda cell: cell.ttft_margin_s)
    gap = _by_streams(calibration, lambda cell: cell.gap_margin_s)
    return [
        f"Margins of TTFT p99 below {ttft} can't be judged with this client here.",
        f"Margins of step-gap p99 below {gap} can't be judged either.",
        "Each is ten times the client's own p99 error; in that of TTFT is the null engine's delay.",
        *_carried(calibration),
    ]


def _by_streams(
    calibration: Calibration, value_s: Callable[[CalibrationCell], float | None]
) -> str:
    """Return one value per fixed cell as a list in words."""
    parts = [f"{_ms(value_s(cell))} at {_streams(cell)}" for cell in calibration.cells]
    return f"{', '.join(parts[:-1])} and {parts[-1]}" if len(parts) > 1 else parts[0]


def _streams(cell: CalibrationCell) -> str:
    return f"{cell.streams} stream{'' if cell.streams == 1 else 's'}"


def _carried(calibration: Calibration) -> list[str]:
    most = calibration.most_tokens_per_s
    lines = ["No load was carried."]
    if most is not None:
        lines = [f"One process carried {most:,.0f} tokens/s, the most that was seen to work."]
    if calibration.is_most_exceeded:
        cell = calibration.probes[-1]
        gap = cell.errors.step_gap
        lines.append(
            f"{cell.tokens_per_s:,.0f} tokens/s were too many, twice: step-gap error p99 "
            f"{_ms(None if gap is None else gap.p99_s)}, {cell.cpu_ratio:.0%} of a core. Carried "
            f"means below {_ms(MOST_GAP_ERROR_S)} and at most {MOST_CPU_RATIO:.0%}."
        )
    else:
        lines.append("No larger load was tried.")
    return lines


def _caveats(calibration: Calibration) -> list[str]:
    stamps = (
        "Kernel receive stamps work here; they lie within "
        f"{_ms(calibration.stamp_error_p99_s)} of the true send (p99, worst cell)."
        if calibration.kernel_stamps
        else "Kernel receive stamps don't work here: arrivals are late by the delay of the read."
    )
    lines = [stamps]
    if calibration.shared_core:
        lines.append(
            "Client and null engine shared the only core, so each held up the other: errors are "
            "upper bounds."
        )
    if calibration.was_busy:
        lines.append(
            f"The machine was busy before (load average {calibration.load_average:.1f}): errors "
            "are upper bounds. Calibrate again when it is idle."
        )
    return lines


def _changes(last: Calibration | None, now: Calibration) -> list[str]:
    """Return how the CPU per token has changed since the last calibration."""
    before = {cell.streams: cell.cpu_per_token_s for cell in last.cells} if last else {}
    parts = [
        f"{cell.cpu_per_token_s * 1e6:.1f} µs (was {before[cell.streams] * 1e6:.1f}) at "
        f"{_streams(cell)}"
        for cell in now.cells
        if cell.streams in before
    ]
    return [f"CPU per token since {last.taken_at}: {', '.join(parts)}."] if last and parts else []
