"""The path of each condition's e-process: log e-value against tokens, with its bound.

One drawing a condition, the A/A arm beside the server under test. Paths that leave the
drawing are cut; headings and the table say where they end.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from draftgate.checks.kept import CHECKED, PLAIN
from draftgate.checks.outcome import CheckResult, ConditionEvidence
from draftgate.report.canvas import BAD, MUTED, SERIES, drawing
from draftgate.report.check.evidence import KeptEvidence
from draftgate.report.check.tables import conditions_table
from draftgate.report.check.words import bound_of, log_value
from draftgate.report.figures import FigureView, Panel

WIDTH_PT, HEIGHT_PT = 331.0, 190.0
LEFT_PT, RIGHT_PT, TOP_PT, BOTTOM_PT = 48.0, 14.0, 8.0, 36.0

MOST_POINTS = 400
"""Points of a path: more than a drawing of 331 points can show."""

REACH = 2.0
"""A drawing reaches so many bounds up and down at most: an alarm's end can lie hundreds
above, and the path up to the bound is what decides."""

ARMS = {
    CHECKED: ("server under test", SERIES[1], "-"),
    PLAIN: ("A/A arm", SERIES[2], (0, (5, 2))),
}
"""Name, colour and dashes of an arm's path."""

BOUNDS = {CHECKED: (BAD, (0, (4, 2))), PLAIN: (MUTED, (0, (2, 2)))}
"""Colour and dashes of an arm's bound."""

Floats = NDArray[np.floating[Any]]


@dataclass(frozen=True, slots=True)
class Line:
    """One arm's e-process in a drawing."""

    arm: str
    path: Floats
    entry: ConditionEvidence


def path_figure(result: CheckResult, kept: KeptEvidence | None) -> FigureView:
    """Return a drawing of each condition that has tokens, and the numbers."""
    caption = (
        "Natural log of the e-value after each token. Reaching the bound is an alarm; on a "
        "faultless server it happens with the stated chance at most, however long one looks. A "
        "path that falls or stays flat says nothing against the server."
    )
    return FigureView(
        key="evidence-paths",
        title="Evidence as tokens came in",
        caption=caption,
        legend=(),
        panels=() if kept is None else tuple(_panels(result, kept)),
        missing=(
            "The paths of this check were not kept. Its numbers are below; a check taken with this "
            "version of draftgate has them."
            if kept is None
            else "No condition has a token."
        ),
        table=conditions_table(result),
    )


def _panels(result: CheckResult, kept: KeptEvidence) -> Iterator[Panel]:
    plain = {entry.condition: entry for entry in result.findings.plain}
    for index, entry in enumerate(result.findings.checked):
        entries = {CHECKED: entry, PLAIN: plain.get(entry.condition)}
        lines = [
            Line(arm, kept.processes[arm, entry.condition].path, of_arm)
            for arm, of_arm in entries.items()
            if of_arm is not None and (arm, entry.condition) in kept.processes
        ]
        if lines:
            size = (WIDTH_PT / 72.0, HEIGHT_PT / 72.0)
            svg = drawing(f"path{index}", size, partial(_fill, lines=lines), fitted=False)
            yield Panel(_heading(entry), "; ".join(map(_said, lines)) + ".", svg, ())


def _heading(entry: ConditionEvidence) -> str:
    end = f"peak {log_value(entry.peak_log_e)}, bound {log_value(bound_of(entry))}"
    alarm = "" if entry.alarm_at is None else f"; alarm after {entry.alarm_at:,}"
    return f"{entry.condition}: {end}{alarm}"


def _said(line: Line) -> str:
    entry = line.entry
    alarm = "no alarm" if entry.alarm_at is None else f"alarm after {entry.alarm_at} tokens"
    return (
        f"{entry.condition}, {ARMS[line.arm][0]}: log e-value {log_value(entry.log_e)} after "
        f"{entry.tokens} tokens, bound {log_value(bound_of(entry))}, {alarm}"
    )


def _fill(figure: Figure, lines: list[Line]) -> None:
    box = (
        LEFT_PT / WIDTH_PT,
        BOTTOM_PT / HEIGHT_PT,
        1.0 - (LEFT_PT + RIGHT_PT) / WIDTH_PT,
        1.0 - (TOP_PT + BOTTOM_PT) / HEIGHT_PT,
    )
    axes = figure.add_axes(box)
    low, high = reach(lines)
    for line in lines:
        _, colour, dashes = ARMS[line.arm]
        x, y = thinned(line.path)
        axes.plot(x, np.clip(y, low - 1, high + 1), color=colour, linestyle=dashes, linewidth=1.6)
        bound_colour, bound_dashes = BOUNDS[line.arm]
        axes.axhline(
            bound_of(line.entry), color=bound_colour, linestyle=bound_dashes, linewidth=1.2
        )
        _mark_alarm(axes, line, high)
    axes.set_ylim(low, high)
    axes.set_xlim(0, max(len(line.path) for line in lines))
    _dress(axes)


def _dress(axes: Axes) -> None:
    axes.set_xlabel("Tokens")
    axes.set_ylabel("Log e-value")
    figure = axes.get_figure()
    assert figure is not None
    axes.yaxis.set_label_coords(13.0 / WIDTH_PT, 0.55, transform=figure.transFigure)
    axes.tick_params(length=3.0)
    axes.xaxis.set_major_locator(MaxNLocator(nbins=4, integer=True))
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axes.yaxis.set_major_locator(MaxNLocator(nbins=5, integer=True))
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}".replace("-", "\N{MINUS SIGN}"))


def _mark_alarm(axes: Axes, line: Line, high: float) -> None:
    at = line.entry.alarm_at
    if at is not None:
        where = min(float(line.path[at - 1]), high)
        axes.plot([at], [where], marker="X", markersize=8, color=BAD, clip_on=False, zorder=5)


def reach(lines: list[Line]) -> tuple[float, float]:
    """Return the ends of the vertical axis: all bounds and the paths, within REACH bounds."""
    top = max(bound_of(line.entry) for line in lines)
    seen = np.concatenate([np.clip(line.path, -REACH * top, REACH * top) for line in lines])
    low, high = min(float(seen.min()), 0.0), max(float(seen.max()), top)
    room = 0.08 * (high - low)
    return low - room, high + room


def thinned(path: Floats) -> tuple[Floats, Floats]:
    """Return (tokens, log e-values) to draw a path through, from (0, 0).

    Of neighbouring tokens the one with the highest value is kept, so that no crossing of
    the bound is lost; the last is always kept.
    """
    count = len(path)
    edges = np.unique(np.linspace(0, count, min(count, MOST_POINTS) + 1).astype(int))
    rows = [a + int(path[a:b].argmax()) for a, b in pairwise(edges)]
    kept = np.unique([*rows, count - 1])
    return np.concatenate([[0], kept + 1]), np.concatenate([[0.0], path[kept]])
