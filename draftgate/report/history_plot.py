"""One series of nights as a small plot: values, levels, changes and gaps.

Takes a judged series, returns SVG text for a page. A year of nights is drawn as
one path, so that a page with hundreds of plots stays small.
"""

from collections.abc import Sequence
from datetime import UTC, datetime

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import PathPatch
from matplotlib.path import Path as Outline

from draftgate.history.items import Judged
from draftgate.history.records import Item
from draftgate.report.canvas import BAD, FOREGROUND, GOOD, MUTED, SERIES, drawing
from draftgate.report.format import Scale, change, scale_for
from draftgate.report.plots import WIDTH_IN

HEIGHT_IN = 2.5

_DAY_S = 86_400

LABEL_WIDTH = 0.18
"""Of a change's size, as a share of the plot's width."""

TONES = {"worse": BAD, "better": GOOD, "changed": FOREGROUND}


def history_plot(key: str, judged: Judged) -> str:
    """Return the series as SVG text.

    Args:
        key: Word that no other drawing of the page has.
        judged: The series, with at least one night.
    """
    return drawing(key, (WIDTH_IN, HEIGHT_IN), lambda figure: _draw(figure, judged), fitted=False)


def shown_in(judged: Judged) -> Scale:
    """Return the unit that the values of a series are shown in."""
    return scale_for(judged.series.unit, judged.series.values)


def _draw(figure: Figure, judged: Judged) -> None:
    axes = figure.add_axes((0.125, 0.12, 0.86, 0.73))
    scale = shown_in(judged)
    times = [_day(time) for time in judged.series.times]
    values = [value * scale.factor for value in judged.series.values]
    _levels(axes, judged, times, scale)
    _points(axes, times, values)
    _limits(axes, times, values)
    _changes(axes, judged.items, times)
    gaps = [gap.time for gap in judged.series.gaps if gap.is_whole]
    _gaps(axes, list(map(_day, gaps)))
    _dress(axes, scale)


def _day(time: datetime) -> float:
    """Return a time as days since 1970."""
    return time.timestamp() / _DAY_S


def _points(axes: Axes, times: Sequence[float], values: Sequence[float]) -> None:
    """Draw all values as one path of round dots: lines without length."""
    corners = np.repeat(np.column_stack([times, values]), 2, axis=0)
    codes = np.tile([Outline.MOVETO, Outline.LINETO], len(times))
    outline = Outline(corners, codes)
    outline.should_simplify = False  # it would drop lines without length
    dots = PathPatch(
        outline,
        facecolor="none",
        edgecolor=SERIES[1],
        linewidth=2.6 if len(times) > 120 else 3.6,
        capstyle="round",
        snap=False,
    )
    axes.add_patch(dots)


def _levels(axes: Axes, judged: Judged, times: Sequence[float], scale: Scale) -> None:
    for low, high, level in judged.levels:
        axes.hlines(
            level * scale.factor, times[low], times[high - 1], color=FOREGROUND, linewidth=1.6
        )


def _limits(axes: Axes, times: Sequence[float], values: Sequence[float]) -> None:
    """Leave room around the values, and a night or more on both sides."""
    low, high = min(values), max(values)
    room = 0.1 * (high - low) or 0.05 * abs(high) or 1.0
    axes.set_ylim(low - room, high + room)
    days = max(0.02 * (times[-1] - times[0]), 0.5)
    axes.set_xlim(times[0] - days, times[-1] + days)


def _changes(axes: Axes, items: Sequence[Item], times: Sequence[float]) -> None:
    """Draw a line per change with its size above; close ones one above the other."""
    left, right = axes.get_xlim()
    row, last = 0, -1.0
    for item in items:
        colour = TONES[item.direction] if item.is_open else MUTED
        dashes = "-" if item.is_open else (0, (3, 3))
        axes.axvline(times[item.index], color=colour, linewidth=1.2, linestyle=dashes)
        place = (times[item.index] - left) / (right - left)
        row = 1 - row if place - last < LABEL_WIDTH else 0
        last = place
        axes.annotate(
            change_text(item),
            (place, 1.0),
            xycoords="axes fraction",
            xytext=(0, 3 + 11 * row),
            textcoords="offset points",
            ha="left" if place < 0.1 else "right" if place > 0.9 else "center",
            va="bottom",
            fontsize=9.5,
            color=colour,
        )


def change_text(item: Item) -> str:
    """Return the change as a signed percentage, or in the unit of the series."""
    return in_words(item, item.change)


def in_words(item: Item, moved: float) -> str:
    """Return a change of an item, or an end of its interval, with sign and unit."""
    if item.series.is_log:
        return change(1.0 + moved)
    scale = scale_for(item.series.unit, (item.level_before, item.level_after))
    return ("+" if moved > 0.0 else "") + scale.full(moved)


def _gaps(axes: Axes, times: Sequence[float]) -> None:
    """Mark nights without a value at the lower edge."""
    if times:
        axes.plot(
            times,
            np.zeros(len(times)),
            linestyle="none",
            marker="x",
            markersize=4.5,
            color=BAD,
            transform=axes.get_xaxis_transform(),
            clip_on=False,
        )


def _dress(axes: Axes, scale: Scale) -> None:
    days = _ticks(*axes.get_xlim())
    axes.set_xticks(days, [f"{datetime.fromtimestamp(day * _DAY_S, UTC):%Y-%m-%d}" for day in days])
    axes.grid(visible=False, axis="x")
    axes.tick_params(length=3.0)
    axes.set_title(scale.unit, loc="left", fontsize=9.5, color=MUTED, x=-0.12)


def _ticks(left: float, right: float) -> list[int]:
    """Return whole days to name on the time axis, as far apart as their names are wide."""
    found: list[int] = []
    for share in (0.125, 0.375, 0.625, 0.875):
        day = round(left + (right - left) * share)
        if left <= day <= right and (not found or day - found[-1] > 0.22 * (right - left)):
            found.append(day)
    return found
