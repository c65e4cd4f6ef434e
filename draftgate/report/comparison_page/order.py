"""Pairs in time order: a small plot for every gate that needs a look, and all losses as a table.

Chooses what is drawn; `sequence` draws it.
"""

from collections.abc import Sequence

from draftgate.compare.gates import title
from draftgate.compare.records import Gate, GateResult, Pair, Stage, StoredComparison
from draftgate.report.comparison_page.names import (
    STAGES,
    cell_title,
    cells_of,
    loss_scale,
    order_word,
    stage_word,
)
from draftgate.report.comparison_page.points import (
    Point,
    arm_pairs,
    points,
    running_mean,
    stage_numbers,
)
from draftgate.report.comparison_page.sequence import Dot, Run, sequence_plot
from draftgate.report.figures import FigureView, Panel
from draftgate.report.headline import LABELS
from draftgate.report.table import Column, Entry, Group, Table
from draftgate.verdict import Outcome

ALWAYS = "output_tokens_per_s"
"""Metric that is drawn whatever its outcome."""


def order_figure(comparison: StoredComparison) -> FigureView:
    """Return the figure; without panels if no pair has a loss."""
    found = {
        result.gate: points(comparison.pairs, result.gate) for result in comparison.result.gates
    }
    panels = tuple(
        _panel(index, result, found[result.gate])
        for index, result in enumerate(comparison.result.gates)
        if _wanted(result) and any(point.loss is not None for point in found[result.gate])
    )
    return FigureView(
        "order",
        "Pairs in the order taken",
        "Loss of each pair; up is worse. Shown for output tokens/s and for every gate that is not "
        "a plain pass. The line is the mean so far, up to the pair at which the stage was judged; "
        "it starts anew in stage two. A slope is drift, a gap between the two marks is what going "
        "first costs, one far point is one bad start.",
        (),
        panels,
        "No pair has a value on both sides.",
        losses_table(comparison.pairs, found) if panels else None,
    )


def losses_table(pairs: Sequence[Pair], found: dict[Gate, tuple[Point, ...]]) -> Table:
    """Return the loss of every pair: one group per arm and number of streams.

    Args:
        pairs: In the order taken.
        found: Points of every gate.
    """
    scales = {gate.metric: loss_scale(gate.scale) for gate in found}
    groups = []
    for arm, concurrency in cells_of(found):
        mine = {
            gate.metric: at
            for gate, at in found.items()
            if (gate.arm, gate.concurrency) == (arm, concurrency)
        }
        rows = tuple(
            (
                Entry(str(place + 1)),
                Entry(stage_word(pair)),
                Entry(order_word(pair)),
                *(
                    Entry(scale.text(mine[metric][place].loss if metric in mine else None))
                    for metric, scale in scales.items()
                ),
            )
            for place, pair in enumerate(arm_pairs(pairs, arm))
        )
        groups.append(Group(cell_title(arm, concurrency), rows))
    columns = (
        Column("Pair"),
        Column("Stage"),
        Column("First"),
        *(Column(title(m).capitalize(), f"loss, {s.unit}") for m, s in scales.items()),
    )
    return Table("Loss of every pair", columns, tuple(group for group in groups if group.rows))


def any_left_out(comparison: StoredComparison) -> bool:
    """Return whether a pair could not be used."""
    return any(pair.invalid for pair in comparison.pairs)


def _wanted(result: GateResult) -> bool:
    return result.outcome is not Outcome.PASS or result.gate.metric == ALWAYS


def _panel(index: int, result: GateResult, found: Sequence[Point]) -> Panel:
    gate = result.gate
    shown = loss_scale(gate.scale)
    runs = [_run(result, stage, found) for stage in Stage]
    svg = sequence_plot(
        f"order{index}",
        [run for run in runs if run.dots],
        f"Loss ({shown.unit})",
        gate.margin * shown.factor,
    )
    where = f"{cell_title(gate.arm, gate.concurrency)}: {title(gate.metric)}"
    heading = f"{where} ({LABELS[result.outcome].lower()})"
    losses = [point.loss for point in found if point.loss is not None]
    words = (
        f"{len(losses)} pairs, losses from {shown.full(min(losses))} to {shown.full(max(losses))}"
    )
    return Panel(heading, f"{heading}. {words}.", svg, ())


def _run(result: GateResult, stage: Stage, found: Sequence[Point]) -> Run:
    factor = loss_scale(result.gate.scale).factor
    mine = [point for point in found if point.pair.stage is stage]
    used = [point for point in mine if point.raw is not None and not point.pair.invalid]
    numbers = stage_numbers(result, stage)
    if numbers is not None:
        used = used[: numbers.pairs]
    means = running_mean(result.gate, [point.raw for point in used if point.raw is not None])
    return Run(
        f"Stage {STAGES[stage]}",
        tuple(
            Dot(
                point.number,
                None if point.loss is None else point.loss * factor,
                point.pair.candidate_first,
                bool(point.pair.invalid),
            )
            for point in mine
        ),
        tuple(point.number for point in used),
        tuple(mean * factor for mean in means),
    )
