"""The evidence behind the main table: every metric, failures, the client itself."""

from collections import Counter
from collections.abc import Iterable, Sequence

from draftgate.metrics import Direction, definition
from draftgate.metrics.latency import sample_counts
from draftgate.report.format import MISSING, TO, Scale, number
from draftgate.report.summary import Cell, Summary, scale_of
from draftgate.report.table import Column, Entry, Group, Table, streams

ENOUGH_FOR_P99 = 100
"""Below it the smallest value that 99 % do not exceed is the largest of all."""

LATENCIES = ("ttft", "step_gap", "per_token", "e2e")
"""Families of percentiles, as `sample_counts` names them."""


def metric_tables(summary: Summary) -> tuple[Table, ...]:
    """Return every metric, one table per concurrency, arms side by side."""
    measured = {c for (_, c), cell in summary.cells.items() if cell.taken}
    return tuple(_metric_table(summary, c) for c in summary.concurrencies if c in measured)


def _metric_table(summary: Summary, concurrency: int) -> Table:
    cells = [summary.cell(arm, concurrency) for arm in summary.arms]
    names = [name for name in summary.metric_names() if any(cell.spread(name) for cell in cells)]
    return Table(
        f"All metrics at {streams(concurrency)}: mean over runs, smallest to largest run below",
        (Column("Metric"), Column("Unit"), *(Column(arm) for arm in summary.arms)),
        (
            Group("Samples", tuple(_sample_rows(cells))),
            Group("Metrics", tuple(_metric_row(summary, cells, name) for name in names)),
        ),
    )


def _sample_rows(cells: Sequence[Cell]) -> Iterable[tuple[Entry, ...]]:
    yield (Entry("Runs used"), Entry(""), *(Entry(str(len(cell.runs))) for cell in cells))
    yield (
        Entry("Requests sent, all runs"),
        Entry(""),
        *(Entry(f"{sum(len(m.run.records) for m in cell.runs):,}") for cell in cells),
    )
    for family in LATENCIES:
        title = definition(f"{family}_p50_s").title.rsplit(",", 1)[0]
        yield (
            Entry(f"{title}: samples", "smallest run"),
            Entry(""),
            *(_fewest_entry(cell, family) for cell in cells),
        )


def _fewest_entry(cell: Cell, family: str) -> Entry:
    fewest = fewest_samples(cell, family)
    return Entry(MISSING, tone="quiet") if fewest is None else Entry(f"{fewest:,}")


def fewest_samples(cell: Cell, family: str) -> int | None:
    """Return how many samples the percentiles of a latency have in the smallest run."""
    return min((sample_counts(m.run)[family] for m in cell.runs), default=None)


def few_samples_note(summary: Summary) -> str:
    """Return which p99 of the main table are mere maxima; empty if none is."""
    thin = {
        definition(f"{family}_p50_s").title.rsplit(",", 1)[0]: min(counts)
        for family in ("step_gap", "per_token", "ttft")
        if (counts := _counts(summary, family)) and min(counts) < ENOUGH_FOR_P99
    }
    if not thin:
        return ""
    words = ", ".join(f"{title} ({fewest})" for title, fewest in thin.items())
    return (
        f"A p99 of fewer than {ENOUGH_FOR_P99} samples in a run is their largest value. "
        f"Fewest in a run: {words}."
    )


def _counts(summary: Summary, family: str) -> list[int]:
    counts = (fewest_samples(cell, family) for cell in summary.cells.values())
    return [fewest for fewest in counts if fewest]


def _metric_row(summary: Summary, cells: Sequence[Cell], metric: str) -> tuple[Entry, ...]:
    scale = scale_of(summary, metric)
    about = definition(metric)
    better = {Direction.HIGHER: "higher is better", Direction.LOWER: "lower is better"}
    return (
        Entry(about.title, better.get(about.direction, "")),
        Entry(scale.unit),
        *(_spread_entry(cell, metric, scale) for cell in cells),
    )


def _spread_entry(cell: Cell, metric: str, scale: Scale) -> Entry:
    spread = cell.spread(metric)
    if spread is None:
        return Entry(MISSING, tone="quiet")
    if spread.runs == 1:
        return Entry(scale.show(spread.mean), "one run")
    return Entry(scale.show(spread.mean), f"{scale.show(spread.low)}{TO}{scale.show(spread.high)}")


def failure_table(summary: Summary) -> Table | None:
    """Return failed requests by class per cell, invalid runs included; None if there are none."""
    rows = []
    for sample_cell in summary.cells.values():
        samples = [*(m.run for m in sample_cell.runs), *sample_cell.invalid]
        failures = [r.failure for s in samples for r in s.records if r.failure is not None]
        sent = sum(len(sample.records) for sample in samples)
        for kind, amount in sorted(Counter(f.kind.value for f in failures).items()):
            example = next(f.message for f in failures if f.kind.value == kind)
            rows.append(
                (
                    Entry(sample_cell.arm, streams(sample_cell.concurrency)),
                    Entry(kind.replace("_", " ")),
                    Entry(f"{amount:,}", f"of {sent:,}"),
                    Entry(example),
                )
            )
    if not rows:
        return None
    columns = (Column("Arm"), Column("Class"), Column("Requests"), Column("Example"))
    return Table("Failed requests, warm-up and drain included", columns, (Group("", tuple(rows)),))


def client_table(summary: Summary) -> Table:
    """Return how busy and how late the load generator itself was, per cell."""
    return Table(
        "Load generator: largest over the runs of a cell",
        (
            Column("Arm"),
            Column("CPU", "% of one core"),
            Column("Lag p99", "ms"),
            Column("Lag max", "ms"),
            Column("Read delay p99", "ms"),
            Column("Send delay p99", "ms"),
            Column("Coalesced", "% of reads"),
        ),
        tuple(Group(streams(c), tuple(_client_rows(summary, c))) for c in summary.concurrencies),
    )


def _client_rows(summary: Summary, concurrency: int) -> Iterable[tuple[Entry, ...]]:
    for arm in summary.arms:
        cell = summary.cell(arm, concurrency)
        health = [*(m.run.client for m in cell.runs), *(run.client for run in cell.invalid)]
        if not health:
            continue
        busy = [h.cpu_s / h.wall_s for h in health if h.wall_s > 0]
        yield (
            Entry(arm),
            Entry(number(max(busy) * 100.0) if busy else MISSING),
            Entry(number(max(h.lag_p99_s for h in health) * 1e3)),
            Entry(number(max(h.lag_max_s for h in health) * 1e3)),
            _largest((h.read_delay_p99_s for h in health), 1e3),
            _largest((h.send_delay_p99_s for h in health), 1e3),
            _largest((h.coalesced_reads / h.reads for h in health if h.reads), 1e2),
        )


def _largest(values: Iterable[float | None], factor: float) -> Entry:
    known = [value for value in values if value is not None]
    return Entry(number(max(known) * factor) if known else MISSING)
