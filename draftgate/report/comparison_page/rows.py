"""Intervals in rows under each other, as one drawing.

Takes numbers, texts and marks; knows no gates. Rows stand in groups with a
heading; what runs off the axis ends in an arrow, with its value beside it.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from draftgate.report.canvas import (
    BAD_AREA,
    CARD,
    FOREGROUND,
    GOOD_AREA,
    MUTED,
    WARN_AREA,
    drawing,
)
from draftgate.report.comparison_page.marks import Mark

WIDTH_PT, LEFT_PT, RIGHT_PT, TOP_PT, BOTTOM_PT = 331.0, 132.0, 12.0, 4.0, 36.0
"""331 points fit a phone of 390 px unscaled."""

ROW_PT, LINE_PT = 18.0, 12.0
HALF_ROW = 0.5

_PLATE = {"facecolor": CARD, "edgecolor": "none", "pad": 1.0}
"""Under words that stand on a zone."""


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the drawing.

    Attributes:
        label: What stands left of it, in one or more lines.
        estimate: Point; None draws `instead` in its place.
        low: Lower end.
        high: Upper end.
        mark: Shape and colour.
        text: The estimate in words, shown where it is off the axis.
        zones: Where tolerated ends and relevant begins; None for no zones.
        earlier: (low, estimate, high) of a stage before it, drawn thin above.
        instead: Words where there is no estimate.
    """

    label: str
    estimate: float | None
    low: float
    high: float
    mark: Mark
    text: str
    zones: tuple[float, float] | None = None
    earlier: tuple[float, float, float] | None = None
    instead: str = ""


@dataclass(frozen=True, slots=True)
class Block:
    """Rows under one heading; an empty title draws none."""

    title: str
    rows: tuple[Row, ...]


def row_plot(key: str, blocks: Sequence[Block], label: str, reach: tuple[float, float]) -> str:
    """Return the drawing.

    Args:
        key: Word that no other drawing of the page has.
        blocks: From top to bottom.
        label: Of the horizontal axis, with its unit.
        reach: Ends of the axis.
    """
    lines = sum(len(block.rows) + bool(block.title) for block in blocks)
    row_pt = max(ROW_PT, *(_height_pt(row) for block in blocks for row in block.rows))
    height = TOP_PT + lines * row_pt + BOTTOM_PT

    def fill(figure: Figure) -> None:
        width = 1.0 - (LEFT_PT + RIGHT_PT) / WIDTH_PT
        axes = figure.add_axes(
            (LEFT_PT / WIDTH_PT, BOTTOM_PT / height, width, lines * row_pt / height)
        )
        axes.set_xlim(*reach)
        axes.set_ylim(lines - HALF_ROW, -HALF_ROW)
        _fill(axes, blocks)
        _dress(axes, label)

    return drawing(key, (WIDTH_PT / 72.0, height / 72.0), fill, fitted=False)


def _height_pt(row: Row) -> float:
    return LINE_PT * (row.label.count("\n") + 1) + 6.0


def reach_of(rows: Sequence[Row], *, lowest: float, highest: float) -> tuple[float, float]:
    """Return the ends of an axis that shows zero, zones and intervals, within bounds.

    Args:
        rows: All rows that share the axis.
        lowest: The left end is not further left than this, whatever an interval does.
        highest: The right end likewise.
    """
    ends = [value for row in rows for value in _ends(row) if math.isfinite(value)]
    low, high = min((0.0, *ends)), max((0.0, *ends))
    room = 0.06 * (high - low)
    return max(lowest, low - room), min(highest, high + room)


def _ends(row: Row) -> tuple[float, ...]:
    margin, limit = row.zones or (0.0, 0.0)
    shown = () if row.estimate is None else (row.low, row.estimate, row.high)
    return (*shown, -margin, limit * 1.1, *(row.earlier or ()))


def _fill(axes: Axes, blocks: Sequence[Block]) -> None:
    place = 0
    for block in blocks:
        if block.title:
            _words(axes, place, block.title, FOREGROUND, weight="bold")
            place += 1
        for row in block.rows:
            _words(axes, place, row.label, MUTED)
            _zones(axes, place, row)
            _draw(axes, place, row)
            place += 1
    axes.axvline(0.0, color=MUTED, linewidth=0.8, zorder=1.5)


def _words(axes: Axes, place: int, text: str, colour: str, weight: str = "normal") -> None:
    axes.annotate(
        text,
        (0.0, place),
        xycoords=("axes fraction", "data"),
        xytext=(-LEFT_PT + 1.0, 0.0),
        textcoords="offset points",
        ha="left",
        va="center",
        linespacing=1.15,
        fontsize=10.0,
        color=colour,
        weight=weight,
        annotation_clip=False,
    )


def _zones(axes: Axes, place: int, row: Row) -> None:
    if row.zones is None:
        return
    margin, limit = row.zones
    left, right = axes.get_xlim()
    top, bottom = place - HALF_ROW, place + HALF_ROW
    for start, end, colour in (
        (left, margin, GOOD_AREA),
        (margin, limit, WARN_AREA),
        (limit, right, BAD_AREA),
    ):
        axes.fill_between((start, end), top, bottom, color=colour, linewidth=0.0, zorder=0.5)
    axes.vlines(margin, top, bottom, color=MUTED, linewidth=1.0, linestyle=(0, (4, 2)), zorder=1)
    axes.vlines(limit, top, bottom, color=MUTED, linewidth=1.0, zorder=1)


def _draw(axes: Axes, place: int, row: Row) -> None:
    if row.estimate is None:
        axes.text(
            0.03,
            place,
            row.instead,
            transform=axes.get_yaxis_transform(),
            va="center_baseline",
            fontsize=9.5,
            color=FOREGROUND,
            bbox=_PLATE,
        )
        return
    shift = 0.0
    if row.earlier is not None:
        low, middle, high = row.earlier
        shift = 0.16
        axes.hlines(place - 0.22, low, high, color=MUTED, linewidth=1.0)
        axes.plot(middle, place - 0.22, "|", color=MUTED, markersize=5.0, markeredgewidth=1.0)
    _interval(axes, place + shift, row)


def _interval(axes: Axes, place: float, row: Row) -> None:
    assert row.estimate is not None
    left, right = axes.get_xlim()
    colour = row.mark.colour
    axes.hlines(place, max(row.low, left), min(row.high, right), color=colour, linewidth=1.8)
    if row.low < left:
        axes.plot(left, place, marker="<", color=colour, markersize=6.0, clip_on=False)
    if row.high > right:
        axes.plot(right, place, marker=">", color=colour, markersize=6.0, clip_on=False)
    if left <= row.estimate <= right:
        axes.plot(
            row.estimate,
            place,
            marker=row.mark.marker,
            color=colour,
            markerfacecolor=CARD if row.mark.hollow else colour,
            markersize=6.5,
            markeredgewidth=1.4 if row.mark.hollow else 0.0,
        )
        return
    off_right = row.estimate > right
    axes.annotate(
        row.text,
        (right if off_right else left, place),
        xytext=(-9.0 if off_right else 9.0, 0.0),
        textcoords="offset points",
        ha="right" if off_right else "left",
        va="center_baseline",
        fontsize=9.5,
        color=FOREGROUND,
        bbox=_PLATE,
    )


def _dress(axes: Axes, label: str) -> None:
    axes.set_xlabel(label)
    axes.set_yticks([])
    axes.spines["left"].set_visible(False)
    axes.grid(visible=False)
    axes.tick_params(length=3.0)
    axes.xaxis.set_major_locator(MaxNLocator(nbins=6, steps=[1, 2, 2.5, 5, 10]))
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}".replace("-", "\N{MINUS SIGN}"))
