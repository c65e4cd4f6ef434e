"""Lines, points and distributions of arms as small plots.

Takes plain numbers, knows nothing of runs. One idea and one axes per plot,
sized for a phone; the page sets them side by side. `draftgate.report.canvas`
makes them fit for a page.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import MaxNLocator, NullLocator

from draftgate.report.canvas import FOREGROUND, MUTED, SERIES, drawing
from draftgate.report.format import number

WIDTH_IN, HEIGHT_IN = 4.6, 3.05
"""331 by 220 points: fits a phone of 390 px unscaled, so its type of 10 pt stays readable."""

ROOM_FOR_LABEL = 3.0
"""The axis of concurrencies ends at this many times the last one: the label of
the break-even line stands there, clear of the data."""

ROW_IN = 0.33
"""Height of a row of a heat map: a line of its type with room above and below."""

SHADES = (0.04, 0.55)
"""Opacity of a cell at 0 and at 100 %: text stays readable on the darkest in both themes."""

DASHES = ("0", "6 2.5", "1.5 2", "7 2 1.5 2", "4 2", "9 3", "3 1.5 1 1.5")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")


@dataclass(frozen=True, slots=True)
class Series:
    """One arm's line.

    Attributes:
        name: The arm.
        style: Index of its colour, dash and marker, equal in every plot.
        x: Horizontal values, ascending.
        y: Vertical values, as many.
        low: Lower ends of intervals; empty for none, NaN where one is missing.
        high: Upper ends likewise.
    """

    name: str
    style: int
    x: tuple[float, ...]
    y: tuple[float, ...]
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Axis:
    """Axis labels with units; set ticks, whether x is logarithmic or counts, y's limits."""

    x_label: str
    y_label: str
    x_ticks: tuple[float, ...] = ()
    x_log: bool = False
    x_whole: bool = False
    y_range: tuple[float, float] | None = None


def speed_up_plot(key: str, series: Sequence[Series], axis: Axis) -> str:
    """Return speed-up against concurrency, intervals as bars, break-even as a line at 1."""

    def draw(axes: Axes) -> None:
        axes.axhline(1.0, color=FOREGROUND, linewidth=1.0, linestyle=(0, (4, 3)))
        for line in series:
            _line(axes, line, marker=True)
            _bars(axes, line)
        left, right = axes.get_xlim()
        last = max(line.x[-1] for line in series)
        axes.set_xlim(left, max(right, last * ROOM_FOR_LABEL))
        axes.annotate(
            "break-even",
            (1.0, 1.0),
            xycoords=("axes fraction", "data"),
            xytext=(0, 3),
            textcoords="offset points",
            ha="right",
            va="bottom",
            fontsize=9.5,
            color=MUTED,
        )

    return _render(key, axis, draw)


def line_plot(key: str, series: Sequence[Series], axis: Axis) -> str:
    """Return lines with markers: one value per position or run."""

    def draw(axes: Axes) -> None:
        for line in series:
            _line(axes, line, marker=True)
            _bars(axes, line)

    return _render(key, axis, draw)


def cdf_plot(key: str, series: Sequence[Series], axis: Axis) -> str:
    """Return empirical distribution functions, share of samples at or below x."""

    def draw(axes: Axes) -> None:
        for line in series:
            _line(axes, line, marker=False, steps=True)

    return _render(key, axis, draw)


def heat_map(key: str, rows: Sequence[str], values: Sequence[Sequence[float]], x_label: str) -> str:
    """Return percentages as a grid of shaded cells, each with its number.

    The shade is one colour's opacity, so that it works on light and dark pages.

    Args:
        key: Word that no other drawing of the page has.
        rows: Names, top to bottom.
        values: In [0, 100], one sequence per row, equally long.
        x_label: What columns, numbered from 0, are.
    """
    width = len(values[0])

    def fill(figure: Figure) -> None:
        axes = figure.add_subplot()
        axes.grid(visible=False)
        for y, row in enumerate(values):
            for x, value in enumerate(row):
                shade = SHADES[0] + (SHADES[1] - SHADES[0]) * value / 100.0
                cell = Rectangle((x - 0.48, y - 0.46), 0.96, 0.92, color=SERIES[1], alpha=shade)
                axes.add_patch(cell)
                axes.text(x, y, f"{value:.0f}", ha="center", va="center", fontsize=10.5)
        axes.set_xlim(-0.5, width - 0.5)
        axes.set_ylim(len(rows) - 0.5, -0.5)
        axes.set_xticks(range(width))
        axes.set_yticks(range(len(rows)), list(rows))
        axes.set_xlabel(x_label)
        axes.tick_params(length=0)
        axes.spines[:].set_visible(False)

    return drawing(key, (WIDTH_IN, 0.75 + ROW_IN * len(rows)), fill)


def _line(axes: Axes, line: Series, *, marker: bool, steps: bool = False) -> None:
    style = line.style % len(SERIES)
    dash = [float(part) for part in DASHES[style].split()]
    axes.plot(
        line.x,
        line.y,
        color=SERIES[style],
        linestyle="-" if dash == [0.0] else (0, tuple(part / 1.8 for part in dash)),
        marker=MARKERS[style] if marker else None,
        drawstyle="steps-post" if steps else "default",
    )


def _bars(axes: Axes, line: Series) -> None:
    if not line.low:
        return
    below = [value - low for value, low in zip(line.y, line.low, strict=True)]
    above = [high - value for value, high in zip(line.y, line.high, strict=True)]
    axes.errorbar(
        line.x,
        line.y,
        yerr=(below, above),
        fmt="none",
        color=SERIES[line.style % len(SERIES)],
        elinewidth=1.2,
        capsize=3.0,
    )


def _render(key: str, axis: Axis, draw: Callable[[Axes], None]) -> str:
    def fill(figure: Figure) -> None:
        axes = figure.add_subplot(xscale="log" if axis.x_log else "linear")
        draw(axes)
        _dress(axes, axis)

    return drawing(key, (WIDTH_IN, HEIGHT_IN), fill)


def _dress(axes: Axes, axis: Axis) -> None:
    axes.set_xlabel(axis.x_label)
    axes.set_ylabel(axis.y_label)
    axes.grid(visible=False, axis="x")
    axes.tick_params(length=3.0)
    ticks = axis.x_ticks
    if axis.x_log and not ticks:
        ticks = log_ticks(*axes.get_xlim())
    if ticks:
        axes.set_xticks(ticks, [_tick(value) for value in ticks])
        axes.xaxis.set_minor_locator(NullLocator())
    elif axis.x_whole:
        axes.xaxis.set_major_locator(MaxNLocator(integer=True, steps=[1, 2, 5, 10]))
    if axis.y_range is not None:
        axes.set_ylim(*axis.y_range)


def log_ticks(low: float, high: float) -> tuple[float, ...]:
    """Return round numbers in [low, high], four or more where there are so many.

    Matplotlib's own ticks leave a span of less than a decade almost bare.
    """
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    ticks: tuple[float, ...] = ()
    for steps in (
        (1,),
        (1, 3),
        (1, 2, 5),
        (1, 1.5, 2, 3, 5, 7),
        (1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8),
    ):
        found = (step * 10.0**decade for decade in decades for step in steps)
        ticks = tuple(tick for tick in found if low <= tick <= high)
        if len(ticks) >= 4:
            break
    return ticks


def _tick(value: float) -> str:
    return f"{value:,.0f}" if value == round(value) else number(value)
