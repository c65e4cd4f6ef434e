"""A stored run, arranged for reading: cells, ratios, outcome, what is missing.

Computes from `StoredRun` alone, in seconds and plain ratios; turns nothing into
text but the few sentences of the headline. Every page (HTML, Markdown,
terminal) is made from this one `Summary`.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from draftgate.drift.judge import place_of
from draftgate.metrics import compute_all, definition
from draftgate.records import RunSamples
from draftgate.report.format import Scale, count, scale_for
from draftgate.report.ratios import Ratio, ratio_of
from draftgate.runstore import StoredRun
from draftgate.specs import NO_SPECULATION
from draftgate.verdict import Outcome, Verdict, worst

SPEED = "output_tokens_per_s"
"""The metric that speed-up is about."""

READING_ORDER = (
    Outcome.REGRESSION,
    Outcome.INVALID_RUN,
    Outcome.NO_BASELINE,
    Outcome.INCONCLUSIVE,
    Outcome.IMPROVEMENT,
    Outcome.PASS,
)
"""Verdicts in the order a reader needs them: what is not green first."""


@dataclass(frozen=True, slots=True)
class MeasuredRun:
    """One usable run with its metrics.

    Attributes:
        run: The raw samples.
        values: Metrics that apply, by name.
        number: Position in order of measuring among all runs, from 1.
    """

    run: RunSamples
    values: Mapping[str, float]
    number: int


@dataclass(frozen=True, slots=True)
class Spread:
    """One number per run, put together: nothing is assumed of their shape.

    Attributes:
        mean: Arithmetic mean over runs.
        deviation: Sample standard deviation; None for one run.
        low: Smallest run.
        high: Largest run.
        runs: Number of runs.
    """

    mean: float
    deviation: float | None
    low: float
    high: float
    runs: int


@dataclass(frozen=True, slots=True)
class Cell:
    """All runs of one arm at one concurrency.

    Attributes:
        arm: Name of the arm.
        concurrency: Streams c.
        planned: Runs that the profile asked for.
        runs: Runs that can be used, by repeat.
        invalid: Runs that can't; they enter no number.
    """

    arm: str
    concurrency: int
    planned: int
    runs: tuple[MeasuredRun, ...]
    invalid: tuple[RunSamples, ...]

    @property
    def taken(self) -> int:
        """Runs that were taken, usable or not."""
        return len(self.runs) + len(self.invalid)

    def by_repeat(self, metric: str) -> dict[int, float]:
        """Return the metric of each usable run that has it, by repeat."""
        return {
            measured.run.repeat: measured.values[metric]
            for measured in self.runs
            if metric in measured.values
        }

    def spread(self, metric: str) -> Spread | None:
        """Return mean and spread over runs; None if no run has the metric."""
        values = tuple(self.by_repeat(metric).values())
        if not values:
            return None
        mean = math.fsum(values) / len(values)
        deviation = None
        if len(values) > 1:
            squares = math.fsum((value - mean) ** 2 for value in values)
            deviation = math.sqrt(squares / (len(values) - 1))
        return Spread(mean, deviation, min(values), max(values), len(values))


@dataclass(frozen=True, slots=True)
class Summary:
    """What every form of the report is made from.

    Attributes:
        run: The stored run.
        arms: Arms in the profile's order, then any that only the runs name.
        concurrencies: Ascending.
        cells: Every (arm, concurrency), measured or not.
        outcome: Worst verdict; None where no gate applied.
        verdicts: In reading order.
        gaps: What is missing or unusable, one sentence each.
    """

    run: StoredRun
    arms: tuple[str, ...]
    concurrencies: tuple[int, ...]
    cells: Mapping[tuple[str, int], Cell]
    outcome: Outcome | None
    verdicts: tuple[Verdict, ...]
    gaps: tuple[str, ...] = field(default=())

    @property
    def traffic_only(self) -> bool:
        """Whether the run is about acceptance by traffic alone, so no speed is to be shown."""
        return bool(self.run.traffic) and not self.run.samples

    @property
    def has_reference(self) -> bool:
        """Whether any run of the arm without speculation can be used."""
        return any(c.runs for (arm, _), c in self.cells.items() if arm == NO_SPECULATION)

    def cell(self, arm: str, concurrency: int) -> Cell:
        """Return one cell."""
        return self.cells[arm, concurrency]

    def ratio(self, arm: str, concurrency: int, metric: str) -> Ratio | None:
        """Return the arm over `none` at the same concurrency; None if it can't be had."""
        if (NO_SPECULATION, concurrency) not in self.cells or arm == NO_SPECULATION:
            return None
        base = self.cell(NO_SPECULATION, concurrency).by_repeat(metric)
        return ratio_of(base, self.cell(arm, concurrency).by_repeat(metric))

    def verdicts_of(self, arm: str, concurrency: int) -> tuple[Verdict, ...]:
        """Return the verdicts of one cell."""
        return tuple(v for v in self.verdicts if (v.arm, v.concurrency) == (arm, concurrency))

    def metric_names(self) -> tuple[str, ...]:
        """Return every metric that some run has, in order of first sight."""
        seen: dict[str, None] = {}
        for cell in self.cells.values():
            for measured in cell.runs:
                seen.update(dict.fromkeys(measured.values))
        return tuple(seen)


def summarise(run: StoredRun) -> Summary:
    """Return `run` arranged for reading; never fails for want of data."""
    arms = _unique(
        [*(arm.name for arm in run.profile.arms), *(sample.arm for sample in run.samples)]
    )
    concurrencies = tuple(
        sorted(
            {*run.profile.workload.concurrencies, *(sample.concurrency for sample in run.samples)}
        )
    )
    measured = tuple(
        MeasuredRun(sample, {} if sample.invalid else compute_all(sample, run.profile.slo), number)
        for number, sample in enumerate(run.samples, start=1)
    )
    cells = {
        (arm, c): _cell(arm, c, run.profile.workload.repeats, measured)
        for c in concurrencies
        for arm in arms
    }
    return Summary(
        run=run,
        arms=arms,
        concurrencies=concurrencies,
        cells=cells,
        outcome=worst(run.verdicts) if run.verdicts else None,
        verdicts=tuple(sorted(run.verdicts, key=lambda v: READING_ORDER.index(v.outcome))),
        gaps=tuple(_gaps(run, tuple(cells.values()))),
    )


def _unique(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(names))


def _cell(arm: str, concurrency: int, planned: int, runs: Iterable[MeasuredRun]) -> Cell:
    own = sorted(
        (m for m in runs if (m.run.arm, m.run.concurrency) == (arm, concurrency)),
        key=lambda m: m.run.repeat,
    )
    return Cell(
        arm=arm,
        concurrency=concurrency,
        planned=planned,
        runs=tuple(m for m in own if not m.run.invalid),
        invalid=tuple(m.run for m in own if m.run.invalid),
    )


def _gaps(run: StoredRun, cells: Sequence[Cell]) -> Iterator[str]:
    """Yield one sentence for each thing a reader would look for in vain."""
    if run.samples or not run.traffic:
        yield from _speed_gaps(run, cells)
    yield from _traffic_gaps(run)


def _speed_gaps(run: StoredRun, cells: Sequence[Cell]) -> Iterator[str]:
    if all(arm.name != NO_SPECULATION for arm in run.profile.arms):
        yield (
            f"The profile has no arm {NO_SPECULATION!r}: speed-up and changes against "
            "decoding without speculation can't be stated."
        )
    if not run.samples:
        yield "Nothing was measured: the run holds no samples."
        return
    if all(sample.invalid for sample in run.samples):
        yield "No run can be used: every one was found invalid."
    short = [cell for cell in cells if cell.taken < cell.planned]
    for taken, planned in sorted({(cell.taken, cell.planned) for cell in short}):
        where = _places(c for c in short if (c.taken, c.planned) == (taken, planned))
        yield f"Not measured: {where}." if not taken else f"{taken} of {planned} runs: {where}."
    for cell in cells:
        if cell.invalid:
            unusable = f"{len(cell.invalid)} of {count(cell.taken, 'run')}"
            yield f"Invalid and in no number: {unusable} of {_places([cell])}."
    silent = [cell for cell in cells if cell.runs and cell.spread(SPEED) is None]
    if silent:
        yield f"Without output tokens in the window: {_places(silent)}."


def _traffic_gaps(run: StoredRun) -> Iterator[str]:
    got = {(found.arm, found.kind) for found in run.traffic}
    arms = [arm.name for arm in run.profile.arms if arm.engine.speculative is not None]
    for kind in dict.fromkeys(found.kind for found in run.traffic):
        missing = [arm for arm in arms if (arm, kind) not in got]
        if missing:
            yield f"Acceptance not measured: {', '.join(missing)} on {kind}."
    for found in run.traffic:
        if found.invalid:
            reasons = "; ".join(reason.splitlines()[0].rstrip(".") for reason in found.invalid)
            yield f"Invalid acceptance, in no number: {place_of(found)}: {reasons}."


def _places(cells: Iterable[Cell]) -> str:
    """Return `none, ngram at 1 stream; none at 8 streams`."""
    arms: dict[int, list[str]] = {}
    for cell in cells:
        arms.setdefault(cell.concurrency, []).append(cell.arm)
    return "; ".join(f"{', '.join(names)} at {count(c, 'stream')}" for c, names in arms.items())


def scale_of(summary: Summary, metric: str) -> Scale:
    """Return how to show a metric, the same on the whole page."""
    values = [value for cell in summary.cells.values() for value in cell.by_repeat(metric).values()]
    return scale_for(definition(metric).unit, values)
