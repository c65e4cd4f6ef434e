"""What comparisons can show, as a table of at most 80 columns on standard output.

Percent here, shares in the JSON file. Computes nothing.
"""

import sys
from collections.abc import Sequence
from itertools import groupby

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from draftgate.compare.records import Scale
from draftgate.noise.power import PowerRow
from draftgate.noise.records import NoiseStudy
from draftgate.stats.power import POWER

_NARROW = 80


def print_power(
    study: NoiseStudy, rows: Sequence[PowerRow], console: Console | None = None
) -> None:
    """Print a study's rows.

    Args:
        study: Where and when the noise was measured.
        rows: As from `power_table`; at least one.
        console: Where; standard output by default.
    """
    console = console or Console(highlight=False, width=_width())
    for line in _heading(study, rows):
        console.print(escape(line))
    for (arm, streams), group in groupby(rows, lambda r: (r.gate.arm, r.gate.concurrency)):
        held = list(group)
        console.print(escape(f"\n{arm}, {streams} stream{'s' if streams > 1 else ''}"))
        console.print(_table(held))
        for line in (line for row in held for line in _tail(row)):
            console.print(escape(f"  {line}"))
    if any(row.gate.scale is Scale.ABSOLUTE for row in rows):
        console.print("\n* tokens per step, each prompt with itself; in tokens")
    for note in study.notes:
        console.print(escape(f"note: {note}"))


def _width() -> int | None:
    """Return the width of a page that is no terminal, and None for a terminal's own."""
    return None if sys.stdout.isatty() else _NARROW


def _heading(study: NoiseStudy, rows: Sequence[PowerRow]) -> list[str]:
    environment, plan = study.environment, study.plan
    place = f"{study.profile} on {environment.hardware} ({environment.host})"
    stages = f"{rows[0].pairs} pairs of stage one, {plan.confirm_pairs} to confirm"
    lines = [
        place,
        f"noise of {study.started_at[:10]}, {environment.engine}",
        f"{stages}; what is found or needed: at {POWER:.0%} power",
    ]
    lines += [f"QUARANTINED, do not believe: {reason}" for reason in study.quarantine]
    return lines


def _table(rows: Sequence[PowerRow]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("metric", no_wrap=True)
    for title in ("noise", "finds", "loss", "power", "pairs", "req./start"):
        table.add_column(title, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(*_cells(row))
    return table


def _cells(row: PowerRow) -> tuple[str, ...]:
    return (
        row.gate.metric.replace("tokens_per_step_by_prompt", "tokens_per_step*"),
        _amount(row, row.pair_sd),
        "nothing" if row.smallest_loss is None else _amount(row, row.smallest_loss),
        _amount(row, row.loss),
        f"{row.power:.0%}" if row.possible else "none",
        "never" if row.pairs_needed is None else f"{row.pairs_needed:,}",
        _requests(row),
    )


def _amount(row: PowerRow, value: float) -> str:
    return f"{value:.3f}" if row.gate.scale is Scale.ABSOLUTE else f"{value:.1%}"


def _requests(row: PowerRow) -> str:
    if not row.within_known:
        return "-"
    return "more pairs" if row.requests_needed is None else f"{row.requests_needed:,}"


def _tail(row: PowerRow) -> list[str]:
    """Return what a reader has to know of a tail."""
    lines = []
    if not row.possible:
        lines.append(
            f"{row.gate.metric}: no verdict: {row.requests_total:,} requests a side in all "
            f"({row.requests:,} per start), {row.tail_requests:,} needed"
        )
    lower = row.instead
    if lower is not None and not (row.possible and row.power >= POWER):
        found = "nothing" if lower.smallest_loss is None else _amount(lower, lower.smallest_loss)
        verdict = f"finds {found}" if lower.possible else f"needs {lower.tail_requests} requests"
        lines.append(f"{lower.gate.metric} in its place {verdict}")
    return lines
