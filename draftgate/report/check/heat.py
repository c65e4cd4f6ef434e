"""Which kind of fault the tokens look like and where in the chain: families by scopes.

A cell is the log of the mean e-value of a family's directions in one part of the chain,
at the end of the check: above 0 the family explains the tokens better than the law.
One drawing a condition; the strongest single directions stand in a table.
"""

import math
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from numpy.typing import NDArray

from draftgate.checks.kept import CHECKED, PLAIN
from draftgate.checks.outcome import CheckResult, ConditionEvidence
from draftgate.report.canvas import BAD, FOREGROUND, MUTED, drawing
from draftgate.report.check.evidence import KeptEvidence, Process
from draftgate.report.check.words import (
    SCOPES,
    bound_of,
    family_meaning,
    family_name,
    log_value,
)
from draftgate.report.figures import FigureView, Panel
from draftgate.report.table import Column, Entry, Group, Table

WIDTH_IN = 4.6
ROW_PT, HEAD_PT, LEFT_PT, BOTTOM_PT = 16.5, 32.0, 116.0, 4.0

DEEPEST = 0.42
"""Opacity of a cell at its bound or above: with more, the number in it is hard to read."""

MOST_DIRECTIONS = 8
"""Rows of the table of single directions."""

Floats = NDArray[np.floating[Any]]

Shown = tuple[str, ConditionEvidence, Process]
"""Arm, entry and e-process."""


def heat_figure(result: CheckResult, kept: KeptEvidence | None) -> FigureView:
    """Return a drawing of each condition, and of the A/A arm where that alarmed."""
    shown = [] if kept is None else shown_processes(result, kept)
    caption = (
        "Log e-value of each family of directions in each part of the chain, at the end; the "
        "stronger the colour, the nearer to the condition's bound. A frame marks where the "
        "evidence against the server is strongest, if there is any. A dash: what the family needs "
        "is not known, or there was no such token. What a family's tokens look like is in the "
        "table below."
    )
    return FigureView(
        key="evidence-heat",
        title="Kind of fault and place in the chain",
        caption=caption,
        legend=(),
        panels=() if kept is None else tuple(_panels(shown, kept)),
        missing="The parts of the e-processes were not kept, or no condition has a token.",
        table=None if kept is None or not shown else _heat_table(shown, kept),
    )


def shown_processes(result: CheckResult, kept: KeptEvidence) -> list[Shown]:
    """Return what is drawn: alarms by their evidence a token, then the nearest to its bound."""
    found = [
        (arm, entry, kept.processes[arm, entry.condition])
        for arm, entries in ((CHECKED, result.findings.checked), (PLAIN, result.findings.plain))
        for entry in entries
        if (arm, entry.condition) in kept.processes
        and (arm == CHECKED or entry.alarm_at is not None)
    ]
    return sorted(found, key=_order)


def _order(item: Shown) -> tuple[bool, bool, float]:
    """Return the key that puts the verdict's condition first, the server under test before."""
    arm, entry, _ = item
    if entry.alarm_at is not None:
        return False, arm != CHECKED, -entry.nats_per_token
    return True, arm != CHECKED, bound_of(entry) - entry.peak_log_e


def by_family(process: Process, kept: KeptEvidence) -> dict[str, Floats]:
    """Return the log of the mean e-value of each family's directions; shape (scopes,) each.

    NaN where none of them said anything: their e-values are exactly 1.
    """
    families = np.array(kept.families)
    found = {}
    for name in dict.fromkeys(kept.families):
        parts = process.parts[families == name]
        mean = np.logaddexp.reduce(parts, axis=0) - math.log(len(parts))
        found[name] = np.where((parts == 0).all(axis=0), np.nan, mean)
    return found


def strongest(process: Process, kept: KeptEvidence) -> tuple[int, int] | None:
    """Return (direction, scope) of the part with the largest weighted e-value.

    None if no part's own e-value is above 1, so that nothing speaks against the server.
    """
    weighted = np.where(process.parts > 0, process.parts + kept.weights, -np.inf)
    if np.isneginf(weighted).all():
        return None
    place = np.unravel_index(int(weighted.argmax()), weighted.shape)
    return int(place[0]), int(place[1])


def title_of(arm: str, entry: ConditionEvidence) -> str:
    """Return a condition's name, with its arm where that is not the server under test."""
    return entry.condition if arm == CHECKED else f"A/A arm, {entry.condition}"


def _panels(shown: Sequence[Shown], kept: KeptEvidence) -> Iterator[Panel]:
    for index, (arm, entry, process) in enumerate(shown):
        cells = by_family(process, kept)
        best = strongest(process, kept)
        frame = None if best is None else _framed(cells, kept.families[best[0]], best[1])
        size = (WIDTH_IN, (HEAD_PT + ROW_PT * len(cells) + BOTTOM_PT) / 72.0)
        svg = drawing(
            f"heat{index}",
            size,
            partial(_fill, cells=cells, bound=bound_of(entry), frame=frame, scopes=kept.scopes),
            fitted=False,
        )
        name = title_of(arm, entry)
        yield Panel(name, f"{name}: {_said(process, kept, best)}.", svg, ())


def _framed(cells: dict[str, Floats], family: str, scope: int) -> tuple[int, int] | None:
    """Return (row, column) of the strongest direction's cell; None if its family says nothing."""
    return (list(cells).index(family), scope) if cells[family][scope] > 0 else None


def _said(process: Process, kept: KeptEvidence, best: tuple[int, int] | None) -> str:
    if best is None:
        return "no direction speaks against the server"
    family, scope = family_name(kept.families[best[0]]), kept.scopes[best[1]]
    return f"strongest is {family}, {scope}, log e-value {log_value(float(process.parts[best]))}"


def _fill(
    figure: Figure,
    *,
    cells: dict[str, Floats],
    bound: float,
    frame: tuple[int, int] | None,
    scopes: Sequence[str],
) -> None:
    width_pt, height_pt = (float(side) * 72.0 for side in figure.get_size_inches())
    left, bottom = LEFT_PT / width_pt, BOTTOM_PT / height_pt
    axes = figure.add_axes((left, bottom, 0.995 - left, ROW_PT * len(cells) / height_pt))
    for row, values in enumerate(cells.values()):
        for column, value in enumerate(values):
            _cell(axes, (column, row), float(value), bound)
    if frame is not None:
        corner = (frame[1], frame[0])
        axes.add_patch(Rectangle(corner, 1, 1, fill=False, edgecolor=FOREGROUND, linewidth=1.6))
    _dress(axes, [family_name(name) for name in cells], scopes)


def _cell(axes: Axes, corner: tuple[int, int], value: float, bound: float) -> None:
    share = 0.0 if math.isnan(value) else min(max(value / bound, 0.0), 1.0)
    if share > 0:
        axes.add_patch(Rectangle(corner, 1, 1, facecolor=BAD, alpha=DEEPEST * share, linewidth=0))
    axes.text(
        corner[0] + 0.5,
        corner[1] + 0.53,
        log_value(value),
        ha="center",
        va="center",
        fontsize=9.5,
        color=FOREGROUND if share > 0 else MUTED,
    )


def _dress(axes: Axes, names: Sequence[str], scopes: Sequence[str]) -> None:
    axes.set_xlim(0, len(scopes))
    axes.set_ylim(len(names), 0)
    axes.xaxis.tick_top()
    axes.set_xticks([at + 0.5 for at in range(len(scopes))], [SCOPES.get(s, s) for s in scopes])
    axes.set_yticks([at + 0.5 for at in range(len(names))], names)
    axes.tick_params(length=0.0, labelsize=9.5, pad=3.0)
    axes.grid(visible=False)
    for side in ("left", "bottom"):
        axes.spines[side].set_visible(False)


def _heat_table(shown: Sequence[Shown], kept: KeptEvidence) -> Table:
    columns = (Column("Family"), *(Column(scope, "log e-value") for scope in kept.scopes))
    groups = tuple(
        Group(
            title_of(arm, entry),
            tuple(
                (
                    Entry(family_name(name), family_meaning(name)),
                    *(Entry(log_value(float(value))) for value in values),
                )
                for name, values in by_family(process, kept).items()
            ),
        )
        for arm, entry, process in shown
    )
    return Table("Log e-value of each family in each part of the chain", columns, groups)


def directions_table(result: CheckResult, kept: KeptEvidence | None) -> Table | None:
    """Return the directions with the most evidence in the first condition that is drawn.

    Those that said nothing are left out. None where the parts were not kept, or none said
    anything.
    """
    shown = [] if kept is None else shown_processes(result, kept)
    if kept is None or not shown:
        return None
    arm, entry, process = shown[0]
    weighted = np.where(process.parts == 0, -np.inf, process.parts + kept.weights)
    order = np.argsort(-weighted, axis=None, kind="stable")[:MOST_DIRECTIONS]
    spoke = [int(flat) for flat in order if process.parts.flat[flat] != 0]
    if not spoke:
        return None
    rows = tuple(_direction_row(process, kept, flat) for flat in spoke)
    columns = (
        Column("The tokens look like"),
        Column("Family"),
        Column("Where"),
        Column("Log e-value"),
    )
    return Table(f"Strongest directions, {title_of(arm, entry)}", columns, (Group("", rows),))


def _direction_row(process: Process, kept: KeptEvidence, flat: int) -> tuple[Entry, ...]:
    """Return what stands about one part, by its index in the flattened array of parts."""
    direction, scope = (int(at) for at in np.unravel_index(flat, kept.weights.shape))
    own = float(process.parts[direction, scope])
    weighted = own + float(kept.weights[direction, scope])
    family = kept.families[direction]
    return (
        Entry(kept.labels[direction]),
        Entry(family_name(family), family_meaning(family)),
        Entry(kept.scopes[scope]),
        Entry(log_value(own), f"with its weight {log_value(weighted)}"),
    )
