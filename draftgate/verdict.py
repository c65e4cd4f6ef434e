"""From two sets of runs and a gate to a decision with a reason.

Holds the outcomes and the rule that picks one. Knows nothing of files or
servers; the numbers come in as one mapping per run, how uncertain a change is
comes from `draftgate.stats`, directions and names from `draftgate.metrics`.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from types import MappingProxyType
from typing import Protocol

from draftgate.errors import SpecError
from draftgate.metrics import Direction, MetricDefinition, definition
from draftgate.metrics.decomposition import FactorChange, compare_factors
from draftgate.specs import GateSpec
from draftgate.stats.compare import Comparison, compare_runs

Values = Mapping[str, float]

NAMED_SHARE = 1 / 3
"""Part of the whole change that a factor must carry to be named as its cause:
with three factors, at least an even part."""

RECORD_COMMAND = 'draftgate baseline accept --reason "..."'


class Outcome(Enum):
    """What a gate says; only the first two are green."""

    PASS = "pass"  # noqa: S105 - an outcome, not a password
    IMPROVEMENT = "improvement"
    REGRESSION = "regression"
    INCONCLUSIVE = "inconclusive"
    NO_BASELINE = "no_baseline"
    INVALID_RUN = "invalid_run"

    @property
    def green(self) -> bool:
        """Whether the outcome lets a change through."""
        return self in (Outcome.PASS, Outcome.IMPROVEMENT)


@dataclass(frozen=True, slots=True)
class Verdict:
    """A statement about a decision: one gate at one arm and concurrency.

    Attributes:
        arm: Name of the arm.
        concurrency: Closed-loop streams c.
        metric: Registered name of the metric.
        outcome: The decision.
        comparison: The numbers behind it; None where nothing could be compared.
        gate: The gate that was applied; None where none was.
        base_value: Geometric mean of the base runs; None without one.
        value: Geometric mean of the candidate runs; None without one.
        cause: Which factors of speed moved, by how much; None where no cause
            is stated.
        reason: Why this outcome, in one sentence.
        next_step: What to do now; empty where nothing is to be done.
        causes: Labels of the factors that `cause` names, largest part first:
            "acceptance", "step time", "prefill or queueing".
    """

    arm: str
    concurrency: int
    metric: str
    outcome: Outcome
    comparison: Comparison | None
    gate: GateSpec | None
    base_value: float | None
    value: float | None
    cause: str | None
    reason: str
    next_step: str
    causes: tuple[str, ...] = ()


_SEVERITY = (
    Outcome.REGRESSION,
    Outcome.INVALID_RUN,
    Outcome.NO_BASELINE,
    Outcome.INCONCLUSIVE,
    Outcome.PASS,
    Outcome.IMPROVEMENT,
)


class HasOutcome(Protocol):
    """Anything that was judged."""

    @property
    def outcome(self) -> Outcome:
        """The decision."""


def worst(verdicts: Iterable[HasOutcome]) -> Outcome:
    """Return the outcome that decides for all of them.

    A regression that was found outranks runs that could not be used, those
    outrank a missing baseline, that outranks an open question; IMPROVEMENT
    needs every verdict to be one. No verdict at all is INCONCLUSIVE, because
    nothing judged is no pass.
    """
    found = {verdict.outcome for verdict in verdicts}
    return next((outcome for outcome in _SEVERITY if outcome in found), Outcome.INCONCLUSIVE)


def judge_cell(  # noqa: PLR0913 - each argument is a part of one question
    arm: str,
    concurrency: int,
    *,
    base: Sequence[Values],
    candidate: Sequence[Values],
    gates: Sequence[GateSpec],
    invalid: Sequence[str] = (),
    unresolved: Mapping[str, str] = MappingProxyType({}),
    paired: bool = False,
) -> tuple[Verdict, ...]:
    """Judge one arm at one concurrency, one verdict per gate that applies.

    With the loss as the relative change in the bad direction and its interval
    [low, high]: REGRESSION if low > margin, IMPROVEMENT if high < -margin,
    PASS if high <= margin, else INCONCLUSIVE. A gate whose metric neither side
    has (acceptance without speculation, say) does not apply.

    Args:
        arm: Name of the arm.
        concurrency: Streams.
        base: Metric values by name, one mapping per run.
        candidate: The same for the side that is judged.
        gates: What to tolerate.
        invalid: Why runs of the candidate cannot be used; any reason makes
            every verdict INVALID_RUN.
        unresolved: Why single metrics of the candidate cannot be used, by name.
        paired: Whether run i of both sides were taken next to each other, in
            turn; runs against a stored baseline never were.

    Raises:
        SpecError: If a gate names an unknown metric or one without a better
            direction.
    """
    cells = (_Cell(arm, concurrency, base, candidate, gate, paired) for gate in gates)
    judged = (_judge(cell, [*invalid, *_named(unresolved, cell.gate.metric)]) for cell in cells)
    return tuple(verdict for verdict in judged if verdict is not None)


@dataclass(frozen=True, slots=True)
class _Cell:
    """One question: one gate at one arm and concurrency, with both sides' runs."""

    arm: str
    concurrency: int
    base: Sequence[Values]
    candidate: Sequence[Values]
    gate: GateSpec
    paired: bool

    @property
    def place(self) -> str:
        """How messages name the cell."""
        return f"arm {self.arm!r} at {self.concurrency} {_streams(self.concurrency)}"

    def column(self, runs: Sequence[Values]) -> list[float]:
        """Return the gated metric of those runs that have it."""
        return [run[self.gate.metric] for run in runs if self.gate.metric in run]

    def verdict(
        self, outcome: Outcome, reason: str, next_step: str, found: Comparison | None = None
    ) -> Verdict:
        """Return a verdict without a cause."""
        return Verdict(
            arm=self.arm,
            concurrency=self.concurrency,
            metric=self.gate.metric,
            outcome=outcome,
            comparison=found,
            gate=self.gate,
            base_value=_geometric_mean(self.column(self.base)),
            value=_geometric_mean(self.column(self.candidate)),
            cause=None,
            reason=reason,
            next_step=next_step,
        )


def _named(reasons: Mapping[str, str], metric: str) -> tuple[str, ...]:
    return (reasons[metric],) if metric in reasons else ()


def _streams(amount: int) -> str:
    return "stream" if amount == 1 else "streams"


def _judge(cell: _Cell, invalid: Sequence[str]) -> Verdict | None:
    metric = definition(cell.gate.metric)
    if metric.direction is Direction.NEITHER:
        raise SpecError(
            f"gate on {metric.name!r}: the metric has no better direction, so it has no loss to "
            "limit. Gate another metric."
        )
    some_runs = bool(cell.base or cell.candidate)
    if some_runs and not cell.column(cell.base) and not cell.column(cell.candidate):
        return None
    return _unusable(cell, invalid) or _unready(cell) or _decide(cell, metric)


def _unusable(cell: _Cell, invalid: Sequence[str]) -> Verdict | None:
    """Return INVALID_RUN if the candidate's numbers must not be looked at."""
    values = cell.column(cell.candidate)
    if invalid:
        reason = "; ".join(invalid)
    elif not cell.candidate:
        reason = f"{cell.place} was not measured"
    elif len(values) < len(cell.candidate):
        missing = len(cell.candidate) - len(values)
        reason = f"{cell.gate.metric} is missing in {missing} of {len(cell.candidate)} runs"
    elif not all(math.isfinite(value) for value in values):
        reason = f"{cell.gate.metric} is not a finite number in every run: {values}"
    else:
        return None
    return cell.verdict(
        Outcome.INVALID_RUN,
        reason,
        "Mend what this names, or look in the run's logs for it; then measure again.",
    )


def _unready(cell: _Cell) -> Verdict | None:
    """Return NO_BASELINE or INCONCLUSIVE if there is too little to compare."""
    held, got = len(cell.column(cell.base)), len(cell.candidate)
    if not held:
        what = "no runs" if not cell.base else f"runs, but none with {cell.gate.metric},"
        return cell.verdict(
            Outcome.NO_BASELINE,
            f"the baseline has {what} for {cell.place}",
            f"Record one with this command: {RECORD_COMMAND}",
        )
    needed = max(2, cell.gate.min_runs)
    if min(held, got) < needed:
        return cell.verdict(
            Outcome.INCONCLUSIVE,
            f"too few runs: {held} in the baseline, {got} now, {needed} needed on each side",
            _more_runs(cell, needed),
        )
    return None


def _decide(cell: _Cell, metric: MetricDefinition) -> Verdict:
    higher = metric.direction is Direction.HIGHER
    try:
        found = compare_runs(
            cell.column(cell.base),
            cell.column(cell.candidate),
            higher_is_better=higher,
            margin_ratio=cell.gate.margin_ratio,
            confidence=cell.gate.confidence,
            paired=cell.paired,
        )
    except ValueError as error:
        return cell.verdict(
            Outcome.INCONCLUSIVE,
            f"{metric.title} cannot be compared: {error}",
            "Gate a metric that is above 0 in every run, for example mean_acceptance_length "
            "instead of acceptance_ratio.",
        )
    outcome = outcome_of(found, cell.gate.margin_ratio, higher_is_better=higher)
    verdict = cell.verdict(outcome, _reason(cell, metric, found, outcome), "", found)
    text, causes = _cause(cell, metric, outcome, found)
    return replace(
        verdict, cause=text, causes=causes, next_step=_next_step(cell, found, outcome, higher)
    )


def _loss(found: Comparison, *, higher_is_better: bool) -> tuple[float, float, float]:
    """Return the relative loss and the lower and upper end of its interval."""
    if higher_is_better:
        return 1 - found.estimate_ratio, 1 - found.high_ratio, 1 - found.low_ratio
    return found.estimate_ratio - 1, found.low_ratio - 1, found.high_ratio - 1


def outcome_of(found: Comparison, margin: float, *, higher_is_better: bool) -> Outcome:
    """Return what an interval of the change says about a margin, by the rule of `judge_cell`."""
    _, low, high = _loss(found, higher_is_better=higher_is_better)
    if low > margin:
        return Outcome.REGRESSION
    if high < -margin:
        return Outcome.IMPROVEMENT
    return Outcome.PASS if high <= margin else Outcome.INCONCLUSIVE


def _reason(cell: _Cell, metric: MetricDefinition, found: Comparison, outcome: Outcome) -> str:
    margin = f"{cell.gate.margin_ratio * 100:g} %"
    says = {
        Outcome.PASS: f"a loss above the margin of {margin} is ruled out",
        Outcome.IMPROVEMENT: f"better by more than the margin of {margin}",
        Outcome.REGRESSION: f"worse by more than the margin of {margin}",
        Outcome.INCONCLUSIVE: f"the interval reaches across the margin of {margin}",
    }
    return (
        f"{metric.title} {change_text(found)} over {found.n_base} and {found.n_candidate} runs: "
        f"{says[outcome]}"
    )


def _next_step(cell: _Cell, found: Comparison, outcome: Outcome, higher: bool) -> str:  # noqa: FBT001 - passed on from one caller
    if outcome is Outcome.REGRESSION:
        return f"Find the cause, or if the loss is meant, accept it: {RECORD_COMMAND}"
    if outcome is not Outcome.INCONCLUSIVE:
        return ""
    return _more_runs(cell, _runs_needed(cell.gate, found, higher_is_better=higher))


def _more_runs(cell: _Cell, needed: int | None) -> str:
    if needed is None:
        return (
            "The runs differ too much, or the change is too close to the margin, for more runs "
            "alone to settle it: make runs longer (workload.window_s) or change the gate's "
            "margin_ratio."
        )
    parts = []
    if len(cell.candidate) < needed:
        parts.append(f"measure with workload.repeats = {needed}")
    if len(cell.column(cell.base)) < needed:
        parts.append(f"extend the baseline to {needed} runs")
    return f"About {needed} runs on each side decide this: {' and '.join(parts)}."


MOST_RUNS = 100
"""Runs per side beyond which more runs are no advice: at the default window of
8 s that is a quarter of an hour for one cell alone."""


def _runs_needed(gate: GateSpec, found: Comparison, *, higher_is_better: bool) -> int | None:
    """Return the runs per side at which the interval would clear the margin.

    The width on the log scale falls with the square root of the number of runs;
    the spread and the estimate are taken to stay as they are. None if that is
    hopeless.
    """
    limit = 1 - gate.margin_ratio if higher_is_better else 1 + gate.margin_ratio
    if limit <= 0 or found.estimate_ratio <= 0 or not math.isfinite(found.high_ratio):
        return None
    half = math.log(found.high_ratio / found.estimate_ratio)
    distance = abs(math.log(limit / found.estimate_ratio))
    if not half < MOST_RUNS * distance:
        return None
    now = min(found.n_base, found.n_candidate)
    needed = max(now + 1, math.ceil(now * (half / distance) ** 2))
    return needed if needed <= MOST_RUNS else None


def _cause(
    cell: _Cell, metric: MetricDefinition, outcome: Outcome, found: Comparison
) -> tuple[str | None, tuple[str, ...]]:
    """Return what explains a change, in words and as labels."""
    if outcome not in (Outcome.REGRESSION, Outcome.IMPROVEMENT) or not metric.cause:
        return None, ()
    if isinstance(metric.cause, str):
        return _moved_text(metric.cause, metric, found), (metric.cause,)
    try:
        changes = compare_factors(
            cell.base,
            cell.candidate,
            confidence=cell.gate.confidence,
            factors=metric.cause,
            paired=cell.paired,
        )
    except ValueError as error:
        return f"not known: {error}", ()
    named = sorted(filter(_is_named, changes), key=lambda change: -change.share)
    others = [change for change in changes if not _is_named(change)]
    texts = [_factor_text(change) for change in (*named, *others)]
    head = "" if named else "no factor stands out: "
    return head + "; ".join(texts), tuple(change.label for change in named)


def _is_named(change: FactorChange) -> bool:
    return _moved(change.comparison) and change.share >= NAMED_SHARE


def _moved(found: Comparison) -> bool:
    return not found.low_ratio <= 1.0 <= found.high_ratio


def _factor_text(change: FactorChange) -> str:
    if _moved(change.comparison):
        return _moved_text(change.label, definition(change.metric), change.comparison)
    low, high = _interval(change.comparison)
    return f"{change.label} unchanged [{low}, {high}]"


def _moved_text(label: str, metric: MetricDefinition, found: Comparison) -> str:
    if label == metric.title:
        return f"{label} {change_text(found)}"
    return f"{label} ({metric.title} {change_text(found)})"


def change_text(found: Comparison) -> str:
    """Return a change in percent with its interval, as in "+8 % [6, 10]"."""
    low, high = _interval(found)
    sign = "+" if found.estimate_ratio > 1 else ""
    return f"{sign}{_percent(found.estimate_ratio)} % [{low}, {high}]"


def _interval(found: Comparison) -> tuple[str, str]:
    return _percent(found.low_ratio), _percent(found.high_ratio)


def _percent(ratio: float) -> str:
    change = (ratio - 1) * 100
    if not math.isfinite(change):
        return str(change)
    rounded = round(change, 1 if abs(change) < 10 else None)
    return f"{rounded + 0.0:.10g}"  # adding 0.0 turns -0.0 into 0.0


def _geometric_mean(values: Sequence[float]) -> float | None:
    if not values or not all(math.isfinite(value) and value > 0 for value in values):
        return None
    return math.exp(sum(map(math.log, values)) / len(values))
