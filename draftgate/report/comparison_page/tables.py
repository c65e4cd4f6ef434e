"""Tables of the page: what is not green, every number, raw values, pairs left out."""

from collections.abc import Iterable, Iterator, Sequence

from draftgate.compare.gates import BY_PROMPT, title
from draftgate.compare.records import (
    CellValues,
    Gate,
    GateResult,
    Pair,
    ServerStart,
    StageNumbers,
    StoredComparison,
)
from draftgate.report.comparison.answer import not_green
from draftgate.report.comparison.words import (
    change_text,
    p_text,
    place,
    unit,
    values_text,
)
from draftgate.report.comparison_page.names import (
    STAGES,
    cell_title,
    cells_of,
    loss_scale,
    order_word,
    stage_word,
)
from draftgate.report.comparison_page.points import arm_pairs
from draftgate.report.format import MISSING, Scale, count, scale_for, second
from draftgate.report.table import Column, Entry, Group, Table

ARROW = "\N{RIGHTWARDS ARROW}"

OPEN_ROWS = 12
"""Gates that are not green before the rest is folded: what follows must stay in reach."""


def open_tables(comparison: StoredComparison) -> tuple[Table, ...]:
    """Return the gates that are not green, worst first: those to show, then those to fold."""
    found = not_green(comparison)
    parts = (found[:OPEN_ROWS], found[OPEN_ROWS:])
    return tuple(_open_table(part) for part in parts if part)


def _open_table(results: Sequence[GateResult]) -> Table:
    columns = (
        Column("Gate"),
        Column("Outcome"),
        Column("Change", "[interval]"),
        Column("Reason"),
        Column("Cause"),
        Column("Next step"),
    )
    rows = tuple(_open_row(result) for result in results)
    return Table("Gates that are not green", columns, (Group("", rows),))


def _open_row(result: GateResult) -> tuple[Entry, ...]:
    estimate, _, ends = change_text(result).partition(" [")
    return (
        Entry(place(result.gate), title(result.gate.metric)),
        Entry("", outcome=result.outcome, judged=True),
        Entry(estimate, f"[{ends}" if ends else ""),
        Entry(result.reason),
        Entry(result.cause.text if result.cause else MISSING),
        Entry(result.next_step or MISSING),
    )


def numbers_table(comparison: StoredComparison) -> Table:
    """Return every gate with all that was found about it."""
    results = comparison.result.gates
    groups = tuple(
        Group(
            cell_title(arm, concurrency),
            tuple(_numbers_row(r) for r in results if _cell(r.gate) == (arm, concurrency)),
        )
        for arm, concurrency in cells_of(result.gate for result in results)
    )
    columns = (
        Column("Metric"),
        Column("Outcome"),
        Column("Base"),
        Column("Candidate"),
        Column("Margin", "relevance limit"),
        Column("Loss, stage one", "[interval]"),
        Column("p, stage one", "pairs judged"),
        Column("Loss, stage two", "[interval]"),
        Column("p, stage two", "pairs judged"),
        Column("p", "over all gates"),
        Column("Requests", "per side"),
        Column("Pairs", "still needed"),
    )
    return Table("Every number of every gate", columns, groups)


def _numbers_row(result: GateResult) -> tuple[Entry, ...]:
    gate = result.gate
    shown = loss_scale(gate.scale)
    stands_for = f"instead of {title(gate.instead_of)}" if gate.instead_of else ""
    base, candidate = values_text(result)
    return (
        Entry(title(gate.metric), stands_for),
        Entry("", outcome=result.outcome, judged=True),
        Entry(base),
        Entry(candidate),
        Entry(shown.amount(gate.margin), shown.amount(gate.limit)),
        *_stage_entries(gate, result.search),
        *_stage_entries(gate, result.confirm),
        Entry(p_text(result.adjusted_p)),
        Entry(f"{result.requests:,}"),
        Entry(f"{result.pairs_needed:,}" if result.pairs_needed else MISSING),
    )


def _stage_entries(gate: Gate, numbers: StageNumbers | None) -> tuple[Entry, Entry]:
    if numbers is None:
        return Entry(MISSING), Entry(MISSING)
    shown = loss_scale(gate.scale)
    return (
        Entry(shown.full(numbers.loss), shown.interval(numbers.low, numbers.high)),
        Entry(p_text(numbers.p_value), count(numbers.pairs, "pair")),
    )


def raw_tables(comparison: StoredComparison) -> tuple[Table, ...]:
    """Return base and candidate of every pair: one table per arm and number of streams."""
    gates = comparison.header.gates
    shown = [
        _raw_table(comparison, arm, concurrency, _shown_metrics(comparison, arm, concurrency))
        for arm, concurrency in cells_of(gates)
    ]
    return tuple(table for table in shown if table.rows)


def _shown_metrics(comparison: StoredComparison, arm: str, concurrency: int) -> tuple[str, ...]:
    """Return the metrics that are gated or that a cause rests on."""
    mine = [r for r in comparison.result.gates if _cell(r.gate) == (arm, concurrency)]
    factors = (factor.metric for r in mine if r.cause for factor in r.cause.factors)
    return tuple(dict.fromkeys((*(r.gate.metric for r in mine), *factors)))


def _raw_table(
    comparison: StoredComparison, arm: str, concurrency: int, metrics: Sequence[str]
) -> Table:
    pairs = arm_pairs(comparison.pairs, arm)
    scales = [scale_for(unit(m), _known(pairs, concurrency, m)) for m in metrics]
    rows = tuple(
        (
            Entry(str(at)),
            Entry(stage_word(pair)),
            Entry(order_word(pair)),
            Entry(second(min(pair.base.started_at, pair.candidate.started_at))),
            *(
                _both(pair, concurrency, metric, scale)
                for metric, scale in zip(metrics, scales, strict=True)
            ),
        )
        for at, pair in enumerate(pairs, start=1)
    )
    columns = (
        Column("Pair"),
        Column("Stage"),
        Column("First"),
        Column("Started", "UTC"),
        *(
            Column(title(metric).capitalize(), f"base {ARROW} candidate, {scale.unit}")
            for metric, scale in zip(metrics, scales, strict=True)
        ),
    )
    return Table(cell_title(arm, concurrency), columns, (Group("", rows),))


def _known(pairs: Iterable[Pair], concurrency: int, metric: str) -> Iterator[float]:
    for pair in pairs:
        for start in (pair.base, pair.candidate):
            value = _value(start, concurrency, metric)
            if value is not None:
                yield value


def _both(pair: Pair, concurrency: int, metric: str, scale: Scale) -> Entry:
    sides = [_value(start, concurrency, metric) for start in (pair.base, pair.candidate)]
    if sides == [None, None]:
        return Entry(MISSING)
    return Entry(f"{scale.show(sides[0])} {ARROW} {scale.show(sides[1])}")


def _value(start: ServerStart, concurrency: int, metric: str) -> float | None:
    cell = next((cell for cell in start.cells if cell.concurrency == concurrency), None)
    return None if cell is None else _cell_value(cell, metric)


def _cell_value(cell: CellValues, metric: str) -> float | None:
    if metric != BY_PROMPT:
        return dict(cell.values).get(metric)
    values = [value for _, value in cell.prompts]
    return sum(values) / len(values) if values else None


def left_out_table(comparison: StoredComparison) -> Table | None:
    """Return the pairs that could not be used, each with its reasons; None if all could."""
    rows = tuple(
        (
            Entry(f"{pair.arm}, pair {at}"),
            Entry("; ".join(pair.invalid)),
            Entry(STAGES[pair.stage]),
            Entry(f"{pair.slot + 1}", f"try {pair.attempt + 1}"),
        )
        for arm in dict.fromkeys(pair.arm for pair in comparison.pairs)
        for at, pair in enumerate(arm_pairs(comparison.pairs, arm), start=1)
        if pair.invalid
    )
    columns = (Column("Pair"), Column("Reason"), Column("Stage"), Column("Slot"))
    return Table("Pairs left out", columns, (Group("", rows),)) if rows else None


def _cell(gate: Gate) -> tuple[str, int]:
    return gate.arm, gate.concurrency
