"""Which plots a report shows, each with its words and its numbers as a table.

Turns the arranged run into series for `draftgate.report.plots`. A figure that
has no data says so in place of its panels.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from draftgate.report.distributions import DISTRIBUTIONS, Distribution, pooled
from draftgate.report.format import MISSING, TIMES, Scale, number, scale_for, second, times
from draftgate.report.headline import interval
from draftgate.report.plots import Axis, Series, cdf_plot, line_plot, speed_up_plot
from draftgate.report.ratios import Ratio
from draftgate.report.summary import SPEED, Cell, Summary
from draftgate.report.table import AGAINST_NONE, Column, Entry, Group, Table, streams
from draftgate.specs import NO_SPECULATION

CURVE_POINTS = 160
"""Quantiles a distribution is drawn through: finer than a plot 290 points wide can show."""

QUANTILES = (0.1, 0.25, 0.5, 0.75, 0.9, 0.99)

CALM = 5.0
"""Least reach of the axis of drift, percent: runs closer than that should look close."""

WIDE = 3.0
"""A distribution whose 99th percentile is this many times its first is drawn on
a logarithmic axis; below that a linear one reads better."""


@dataclass(frozen=True, slots=True)
class Panel:
    """One drawing: heading, words for who can't see it, SVG text, its arms."""

    title: str
    label: str
    svg: str
    series: tuple[Series, ...]


@dataclass(frozen=True, slots=True)
class FigureView:
    """One idea: panels side by side, what to see in them, the numbers.

    Attributes:
        key: Word for anchors, unique on the page.
        title: Heading.
        caption: What is drawn and what to look for.
        legend: (arm, style) in order.
        panels: Empty where there is nothing to draw.
        missing: Why there would be no panels.
        table: The numbers; None without panels.
    """

    key: str
    title: str
    caption: str
    legend: tuple[tuple[str, int], ...]
    panels: tuple[Panel, ...]
    missing: str
    table: Table | None


def figures(summary: Summary) -> tuple[FigureView, ...]:
    """Return all figures in the order of the page."""
    return (
        _speed_up(summary),
        _acceptance(summary),
        *(_distribution(summary, kind) for kind in DISTRIBUTIONS),
        _drift(summary),
    )


def style_of(summary: Summary, arm: str) -> int:
    """Return the arm's style: 0 is kept for `none`, others count from 1."""
    if arm == NO_SPECULATION:
        return 0
    return 1 + [name for name in summary.arms if name != NO_SPECULATION].index(arm)


def _legend(summary: Summary, panels: Iterable[Panel]) -> tuple[tuple[str, int], ...]:
    drawn = {line.name for panel in panels for line in panel.series}
    return tuple((arm, style_of(summary, arm)) for arm in summary.arms if arm in drawn)


def _per_concurrency(
    summary: Summary,
    series_of: Callable[[Cell], Series | None],
    draw: Callable[[int, Sequence[Series]], str],
    say: Callable[[Series], str],
) -> tuple[Panel, ...]:
    """Return one panel for each concurrency at which some arm has a series."""
    panels = []
    for c in summary.concurrencies:
        found = (series_of(summary.cell(arm, c)) for arm in summary.arms)
        series = tuple(line for line in found if line is not None)
        if series:
            words = "; ".join(f"{line.name}: {say(line)}" for line in series)
            panels.append(Panel(streams(c), f"At {streams(c)}. {words}.", draw(c, series), series))
    return tuple(panels)


def _speed_up(summary: Summary) -> FigureView:
    found = (_speed_up_series(summary, arm) for arm in summary.arms)
    series = tuple(line for line in found if line is not None)
    panels: tuple[Panel, ...] = ()
    if series:
        ticks = tuple(float(c) for c in summary.concurrencies)
        axis = Axis("Concurrent streams (log scale)", f"Speed-up ({TIMES})", ticks, x_log=True)
        words = "; ".join(f"{line.name}: {_speed_up_words(line)}" for line in series)
        svg = speed_up_plot("speedup", series, axis)
        panels = (Panel("", f"{words}.", svg, series),)
    return FigureView(
        "speedup",
        "Speed-up against concurrency",
        "Output tokens/s of an arm over none, with its 95 % interval. Below the dashed line "
        "speculation costs more than it saves.",
        _legend(summary, panels),
        panels,
        "No arm could be compared with none.",
        _speed_up_table(summary) if panels else None,
    )


def _speed_up_series(summary: Summary, arm: str) -> Series | None:
    points = [(c, summary.ratio(arm, c, SPEED)) for c in summary.concurrencies]
    known = [(float(c), ratio) for c, ratio in points if ratio is not None]
    if not known:
        return None
    return Series(
        arm,
        style_of(summary, arm),
        x=tuple(c for c, _ in known),
        y=tuple(ratio.estimate for _, ratio in known),
        low=tuple(math.nan if ratio.low is None else ratio.low for _, ratio in known),
        high=tuple(math.nan if ratio.high is None else ratio.high for _, ratio in known),
    )


def _speed_up_words(line: Series) -> str:
    pairs = zip(line.x, line.y, strict=True)
    return ", ".join(f"{times(y)} at {streams(int(x))}" for x, y in pairs)


def _speed_up_table(summary: Summary) -> Table:
    arms = [arm for arm in summary.arms if arm != NO_SPECULATION]
    rows = tuple(
        (Entry(streams(c)), *(_ratio_entry(summary.ratio(arm, c, SPEED)) for arm in arms))
        for c in summary.concurrencies
    )
    columns = (Column("Concurrency"), *(Column(arm, AGAINST_NONE) for arm in arms))
    return Table("Speed-up against none", columns, (Group("", rows),))


def _ratio_entry(ratio: Ratio | None) -> Entry:
    return Entry(MISSING) if ratio is None else Entry(times(ratio.estimate), interval(ratio))


def _acceptance(summary: Summary) -> FigureView:
    panels = _per_concurrency(
        summary,
        lambda cell: _by_position(summary, cell),
        lambda concurrency, series: position_plot(f"acceptance{concurrency}", series),
        position_words,
    )
    return FigureView(
        "acceptance",
        "Acceptance by draft position",
        "Share of drafts whose token at this position was accepted; mean over runs.",
        _legend(summary, panels),
        panels,
        "No arm reported speculation counters.",
        position_table("Acceptance by draft position", "Arm", panels) if panels else None,
    )


def _by_position(summary: Summary, cell: Cell) -> Series | None:
    shares: list[float] = []
    while (spread := cell.spread(f"acceptance_pos_{len(shares)}_ratio")) is not None:
        shares.append(spread.mean * 100.0)
    if not shares:
        return None
    positions = tuple(float(position) for position in range(len(shares)))
    return Series(cell.arm, style_of(summary, cell.arm), positions, tuple(shares))


def position_plot(key: str, series: Sequence[Series]) -> str:
    """Return the drawing of percentages accepted by draft position."""
    last = max(int(line.x[-1]) for line in series)
    ticks = tuple(float(position) for position in range(last + 1))
    axis = Axis("Draft position, 0 is the first", "Accepted (%)", ticks, y_range=(0.0, 104.0))
    return line_plot(key, series, axis)


def position_words(line: Series) -> str:
    """Return the percentages of one line for who can't see it."""
    return ", ".join(f"{number(y)} %" for y in line.y)


def position_table(caption: str, heading: str, panels: Sequence[Panel]) -> Table:
    """Return the percentages by draft position, one group per panel, one row per line."""
    width = max(len(line.x) for panel in panels for line in panel.series)
    groups = tuple(
        Group(panel.title, tuple(_padded(line, width) for line in panel.series)) for panel in panels
    )
    columns = (Column(heading), *(Column(f"Position {i}", "%") for i in range(width)))
    return Table(caption, columns, groups)


def _padded(line: Series, width: int) -> tuple[Entry, ...]:
    gap = (Entry(MISSING),) * (width - len(line.y))
    return (Entry(line.name), *(Entry(number(y)) for y in line.y), *gap)


def _distribution(summary: Summary, kind: Distribution) -> FigureView:
    data = {key: pooled(cell, kind) for key, cell in summary.cells.items()}
    everything = [float(value) for values in data.values() for value in values]
    scale = scale_for("s", everything)

    def draw(concurrency: int, series: Sequence[Series]) -> str:
        low = min(line.x[0] for line in series)
        high = max(line.x[-1] for line in series)
        log = low > 0 and high / low > WIDE
        note = ", log scale" if log else ""
        axis = Axis(
            f"{kind.title} ({scale.unit}{note})",
            "Samples at or below (%)",
            x_log=log,
            y_range=(0.0, 104.0),
        )
        return cdf_plot(f"{kind.key}{concurrency}", series, axis)

    def series_of(cell: Cell) -> Series | None:
        values = data[cell.arm, cell.concurrency]
        return _curve(cell.arm, style_of(summary, cell.arm), values, scale) if values.size else None

    def say(line: Series) -> str:
        middle = next(x for x, y in zip(line.x, line.y, strict=True) if y >= 50.0)
        return f"median {number(middle)} {scale.unit}, largest {number(line.x[-1])} {scale.unit}"

    panels = _per_concurrency(summary, series_of, draw, say)
    return FigureView(
        kind.key,
        kind.title,
        kind.caption,
        _legend(summary, panels),
        panels,
        f"No samples of {kind.title.lower()}.",
        _quantile_table(summary, kind, data, scale) if panels else None,
    )


def _curve(arm: str, style: int, values: np.ndarray, scale: Scale) -> Series:
    """Return the empirical distribution: every sample, or that many quantiles of them."""
    size = min(CURVE_POINTS, values.size)
    shares = np.arange(1, size + 1) / size
    x = np.quantile(values, shares, method="inverted_cdf") * scale.factor
    lowest = float(values.min()) * scale.factor
    return Series(
        arm,
        style,
        (lowest, *(float(value) for value in x)),
        (0.0, *(float(share) * 100.0 for share in shares)),
    )


def _quantile_table(
    summary: Summary, kind: Distribution, data: dict[tuple[str, int], np.ndarray], scale: Scale
) -> Table:
    groups = []
    for c in summary.concurrencies:
        rows = tuple(
            _quantile_row(arm, data[arm, c], scale) for arm in summary.arms if data[arm, c].size
        )
        groups.append(Group(streams(c), rows))
    columns = (
        Column("Arm"),
        *(Column(f"p{share * 100:.0f}", scale.unit) for share in QUANTILES),
        Column("Samples"),
    )
    return Table(f"{kind.title}: quantiles of all runs together", columns, tuple(groups))


def _quantile_row(arm: str, values: np.ndarray, scale: Scale) -> tuple[Entry, ...]:
    quantiles = np.quantile(values, QUANTILES)
    return (
        Entry(arm),
        *(Entry(scale.show(float(q))) for q in quantiles),
        Entry(f"{values.size:,}"),
    )


def _drift(summary: Summary) -> FigureView:
    def series_of(cell: Cell) -> Series | None:
        points = sorted((m.number, m.values[SPEED]) for m in cell.runs if m.values.get(SPEED))
        if len(points) < 2:
            return None
        mean = math.fsum(value for _, value in points) / len(points)
        x = tuple(float(number) for number, _ in points)
        y = tuple((value / mean - 1.0) * 100.0 for _, value in points)
        return Series(cell.arm, style_of(summary, cell.arm), x, y)

    def draw(concurrency: int, series: Sequence[Series]) -> str:
        largest = max(abs(y) for line in series for y in line.y)
        reach = max(CALM, largest * 1.15)
        axis = Axis(
            "Run, in order of measuring",
            "Off the arm's mean (%)",
            x_whole=True,
            y_range=(-reach, reach),
        )
        return line_plot(f"drift{concurrency}", series, axis)

    panels = _per_concurrency(
        summary, series_of, draw, lambda line: ", ".join(f"{number(y)} %" for y in line.y)
    )
    return FigureView(
        "drift",
        "Tokens/s in order of measuring",
        "Output tokens/s of each run, as distance from the mean of its arm. A slope that all arms "
        "share is drift of the machine.",
        _legend(summary, panels),
        panels,
        "No arm has two runs at one concurrency, so no drift can be seen.",
        _drift_table(summary) if panels else None,
    )


def _drift_table(summary: Summary) -> Table:
    everything = sorted(
        (m for cell in summary.cells.values() for m in cell.runs), key=lambda m: m.number
    )
    rows = tuple(
        (
            Entry(str(m.number)),
            Entry(m.run.arm),
            Entry(str(m.run.concurrency)),
            Entry(second(m.run.started_at)),
            Entry(number(m.values.get(SPEED))),
        )
        for m in everything
    )
    columns = (
        Column("Run"),
        Column("Arm"),
        Column("Streams"),
        Column("Started", "UTC"),
        Column("Output", "tokens/s"),
    )
    return Table("Output tokens/s per run", columns, (Group("", rows),))
