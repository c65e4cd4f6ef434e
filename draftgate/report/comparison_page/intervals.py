"""The interval plot: every gate's estimated loss against its margin and limit.

One panel per arm for relative losses, all on one axis, and one for losses in
tokens. Chooses what is drawn; `rows` draws it.
"""

from collections.abc import Sequence

from draftgate.compare.gates import title
from draftgate.compare.records import GateResult, Scale
from draftgate.report.comparison.words import decisive
from draftgate.report.comparison_page.marks import OUTCOMES
from draftgate.report.comparison_page.names import (
    arms_of,
    cell_title,
    cells_of,
    loss_scale,
)
from draftgate.report.comparison_page.rows import Block, Row, reach_of, row_plot
from draftgate.report.figures import FigureView, Panel
from draftgate.report.format import MISSING
from draftgate.report.headline import LABELS
from draftgate.report.table import Column, Entry, Group, Table, streams

WORST_LIMITS, BEST_LIMITS = 2.0, 1.0
"""The axis ends at these many times the largest limit, on the side of losses and of
gains: a wild interval must not squeeze those that decide."""


def interval_figure(results: Sequence[GateResult]) -> FigureView:
    """Return the figure; without panels if no gate has an estimate."""
    panels = (*_relative_panels(results), *_absolute_panel(results))
    return FigureView(
        "intervals",
        "Loss of every gate against its margin",
        "Estimated loss with its interval against what is tolerated; further right is worse, "
        "left of 0 is a gain. The upper end is the one that must stay left of the relevance "
        "limit to pass. Where stage two decided it is shown, with stage one thin above it.",
        (),
        panels,
        "No gate has an estimate yet.",
        interval_table(results) if panels else None,
    )


def interval_table(results: Sequence[GateResult]) -> Table:
    """Return the numbers of the plot."""
    groups = tuple(
        Group(cell_title(*cell), tuple(_table_row(r) for r in results if _cell(r) == cell))
        for cell in cells_of(result.gate for result in results)
    )
    columns = (
        Column("Metric"),
        Column("Outcome"),
        Column("Loss"),
        Column("Interval"),
        Column("Margin"),
        Column("Limit"),
        Column("Stage"),
    )
    return Table("Estimated losses and intervals", columns, groups)


def _table_row(result: GateResult) -> tuple[Entry, ...]:
    gate, numbers = result.gate, decisive(result)
    shown = loss_scale(gate.scale)
    estimate = (
        (Entry(MISSING), Entry(MISSING))
        if numbers is None
        else (Entry(shown.full(numbers.loss)), Entry(shown.interval(numbers.low, numbers.high)))
    )
    stage = MISSING if numbers is None else "two" if result.confirm else "one"
    return (
        Entry(title(gate.metric)),
        Entry("", outcome=result.outcome, judged=True),
        *estimate,
        Entry(shown.amount(gate.margin)),
        Entry(shown.amount(gate.limit)),
        Entry(stage),
    )


def _cell(result: GateResult) -> tuple[str, int]:
    return result.gate.arm, result.gate.concurrency


def _relative_panels(results: Sequence[GateResult]) -> tuple[Panel, ...]:
    relative = [result for result in results if result.gate.scale is Scale.RATIO]
    if not any(decisive(result) for result in relative):
        return ()
    reach = _reach(relative)
    panels = []
    for index, arm in enumerate(arms_of(result.gate for result in relative)):
        mine = [result for result in relative if result.gate.arm == arm]
        blocks = [
            Block(streams(c), tuple(_row(r) for r in mine if r.gate.concurrency == c))
            for _, c in cells_of(result.gate for result in mine)
        ]
        svg = row_plot(f"loss{index}", blocks, "Loss (%), worse to the right", reach)
        panels.append(Panel(f"Arm {arm}", f"Arm {arm}. {_said(mine)}.", svg, ()))
    return tuple(panels)


def _absolute_panel(results: Sequence[GateResult]) -> tuple[Panel, ...]:
    absolute = [result for result in results if result.gate.scale is Scale.ABSOLUTE]
    if not any(decisive(result) for result in absolute):
        return ()
    blocks = []
    for arm in arms_of(result.gate for result in absolute):
        mine = [result for result in absolute if result.gate.arm == arm]
        rows = tuple(_row(result, streams(result.gate.concurrency)) for result in mine)
        blocks.append(Block(arm, rows))
    metrics = dict.fromkeys(title(result.gate.metric) for result in absolute)
    label = "Loss (tokens), worse to the right"
    svg = row_plot("losstokens", blocks, label, _reach(absolute))
    heading = ", ".join(metrics).capitalize() + ", all arms"
    return (Panel(heading, f"{heading}. {_said(absolute)}.", svg, ()),)


def _reach(results: Sequence[GateResult]) -> tuple[float, float]:
    largest = max(result.gate.limit for result in results)
    largest *= loss_scale(results[0].gate.scale).factor
    return reach_of(
        [_row(result) for result in results],
        lowest=-BEST_LIMITS * largest,
        highest=WORST_LIMITS * largest,
    )


def _row(result: GateResult, label: str = "") -> Row:
    gate, numbers = result.gate, decisive(result)
    shown = loss_scale(gate.scale)
    zones = gate.margin * shown.factor, gate.limit * shown.factor
    label, mark = label or title(gate.metric), OUTCOMES[result.outcome]
    if numbers is None:
        words = f"{LABELS[result.outcome].lower()}: no estimate"
        return Row(label, None, 0.0, 0.0, mark, "", zones, instead=words)
    earlier = None
    if result.confirm is not None and result.search is not None:
        first = result.search
        earlier = (first.low * shown.factor, first.loss * shown.factor, first.high * shown.factor)
    low, loss, high = (v * shown.factor for v in (numbers.low, numbers.loss, numbers.high))
    return Row(label, loss, low, high, mark, shown.full(numbers.loss), zones, earlier)


def _said(results: Sequence[GateResult]) -> str:
    """Return every gate of a panel in words, for who can't see it."""
    return "; ".join(_said_of(result) for result in results)


def _said_of(result: GateResult) -> str:
    numbers, shown = decisive(result), loss_scale(result.gate.scale)
    where = f"{title(result.gate.metric)} at {streams(result.gate.concurrency)}"
    loss = "no estimate" if numbers is None else f"loss {shown.full(numbers.loss)}"
    return f"{where}: {LABELS[result.outcome].lower()}, {loss}"
