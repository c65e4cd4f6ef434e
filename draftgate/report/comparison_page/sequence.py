"""Losses of pairs in the order taken, as one small drawing.

Takes numbers; knows no gates. Margins are fixed and marks of one kind are one
path, so that dozens of drawings are quick to make and small to keep.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count, pairwise

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from draftgate.report.canvas import BAD, CARD, FOREGROUND, MUTED, drawing
from draftgate.report.comparison_page.marks import BASE_FIRST, CANDIDATE_FIRST, LEFT_OUT, Mark

WIDTH_PT, HEIGHT_PT = 331.0, 176.0
LEFT_PT, RIGHT_PT, TOP_PT, BOTTOM_PT = 60.0, 8.0, 18.0, 36.0

FEWEST_PLACES, MOST_TICKS = 8, 8
"""The axis has room for so many pairs even if there are fewer, and at most so many ticks."""

TITLE_PT = 48.0
"""Width of a stage's title."""

ROOM = 0.12
"""Free part of the axis above and below the losses."""


@dataclass(frozen=True, slots=True)
class Dot:
    """One pair.

    Attributes:
        number: Place in the order taken.
        loss: Its loss; None without one.
        candidate_first: Which side went first.
        left_out: Whether it counts in nothing.
    """

    number: int
    loss: float | None
    candidate_first: bool
    left_out: bool


@dataclass(frozen=True, slots=True)
class Run:
    """The pairs of one stage, in a row.

    Attributes:
        title: What stands above them.
        dots: In the order taken.
        mean_at: Places at which the mean so far is known.
        mean: The mean so far there.
    """

    title: str
    dots: tuple[Dot, ...]
    mean_at: tuple[int, ...]
    mean: tuple[float, ...]


def sequence_plot(key: str, runs: Sequence[Run], label: str, margin: float) -> str:
    """Return the drawing.

    Args:
        key: Word that no other drawing of the page has.
        runs: Stages from left to right, one dot at least in all.
        label: Of the vertical axis, with its unit.
        margin: Tolerated loss, in the same unit.
    """

    def fill(figure: Figure) -> None:
        box = (
            LEFT_PT / WIDTH_PT,
            BOTTOM_PT / HEIGHT_PT,
            1.0 - (LEFT_PT + RIGHT_PT) / WIDTH_PT,
            1.0 - (TOP_PT + BOTTOM_PT) / HEIGHT_PT,
        )
        axes = figure.add_axes(box)
        _limits(axes, runs, margin)
        axes.axhline(0.0, color=MUTED, linewidth=0.8)
        axes.axhline(margin, color=BAD, linewidth=1.2, linestyle=(0, (4, 2)))
        for run in runs:
            _draw(axes, run)
        for before, after in pairwise(runs):
            edge = (before.dots[-1].number + after.dots[0].number) / 2
            axes.axvline(edge, color=MUTED, linewidth=1.0, linestyle=(0, (1, 2)))
        _dress(axes, label)

    return drawing(key, (WIDTH_PT / 72.0, HEIGHT_PT / 72.0), fill, fitted=False)


def _limits(axes: Axes, runs: Sequence[Run], margin: float) -> None:
    dots = [dot for run in runs for dot in run.dots]
    values = [dot.loss for dot in dots if dot.loss is not None and math.isfinite(dot.loss)]
    low, high = min((*values, -margin, 0.0)), max((*values, 1.5 * margin))
    room = ROOM * (high - low)
    axes.set_ylim(low - room, high + room)
    first = dots[0].number
    axes.set_xlim(first - 0.7, max(dots[-1].number, first + FEWEST_PLACES - 1) + 0.7)


def _draw(axes: Axes, run: Run) -> None:
    bottom = axes.get_ylim()[0]
    for first, mark in ((True, CANDIDATE_FIRST), (False, BASE_FIRST)):
        kept = [d for d in run.dots if d.candidate_first is first and not d.left_out]
        shown = [(d.number, d.loss) for d in kept if d.loss is not None]
        _marks(axes, shown, mark)
    spoilt = [(d.number, bottom if d.loss is None else d.loss) for d in run.dots if d.left_out]
    _marks(axes, spoilt, LEFT_OUT)
    axes.plot(run.mean_at, run.mean, color=FOREGROUND, linewidth=1.4)
    _title(axes, run)


def _title(axes: Axes, run: Run) -> None:
    """Write the stage's title above its first pair, or at the right end if it is close."""
    left, right = axes.get_xlim()
    start = run.dots[0].number - 0.5
    room_pt = (right - start) / (right - left) * (WIDTH_PT - LEFT_PT - RIGHT_PT)
    close = room_pt < TITLE_PT
    axes.annotate(
        run.title,
        (right if close else start, 1.0),
        xycoords=("data", "axes fraction"),
        xytext=(0.0, 4.0),
        textcoords="offset points",
        ha="right" if close else "left",
        fontsize=9.5,
        color=MUTED,
        annotation_clip=False,
    )


def _marks(axes: Axes, where: Sequence[tuple[int, float]], mark: Mark) -> None:
    if not where:
        return
    axes.plot(
        [x for x, _ in where],
        [y for _, y in where],
        linestyle="none",
        marker=mark.marker,
        color=mark.colour,
        markerfacecolor=CARD if mark.hollow else mark.colour,
        markeredgewidth=1.3 if mark.hollow else 0.0,
        markersize=5.0 if mark.hollow else 5.8,
        clip_on=False,
    )


def _dress(axes: Axes, label: str) -> None:
    axes.set_xlabel("Pair of this arm, in the order taken")
    figure = axes.get_figure()
    assert figure is not None
    axes.set_ylabel(label)
    axes.yaxis.set_label_coords(13.0 / WIDTH_PT, 0.5, transform=figure.transFigure)
    axes.grid(visible=False, axis="x")
    axes.tick_params(length=3.0)
    axes.set_xticks(whole_ticks(*axes.get_xlim()))
    axes.yaxis.set_major_locator(MaxNLocator(nbins=5, steps=[1, 2, 2.5, 5, 10]))
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}".replace("-", "\N{MINUS SIGN}"))


def whole_ticks(low: float, high: float) -> tuple[int, ...]:
    """Return at most MOST_TICKS whole multiples of a round step in [low, high]."""
    steps = (digit * 10**power for power in count() for digit in (1, 2, 5))
    multiples = (range(math.ceil(low / s) * s, math.floor(high) + 1, s) for s in steps)
    return tuple(next(ticks for ticks in multiples if len(ticks) <= MOST_TICKS))
