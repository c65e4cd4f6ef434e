"""Vocabulary of a paired comparison: what was asked, what was taken, what it says.

Frozen records that `draftgate.codec` writes and reads. A comparison is a header,
pairs of server starts in the order in which they were taken, and a result that
is worked out from both and can be worked out again. Decides and starts nothing.
"""

from dataclasses import dataclass
from enum import Enum

from draftgate.records import Environment
from draftgate.specs import Arm, CompareSpec, Profile
from draftgate.verdict import Outcome

COMPARISON_SCHEMA_VERSION = 1
"""History: 1 first version."""


class Role(Enum):
    """Which side of a pair a server is on."""

    BASE = "base"
    CANDIDATE = "candidate"


class Stage(Enum):
    """What a pair was taken for."""

    SEARCH = 1
    """Stage one: every gate."""
    CONFIRM = 2
    """Stage two: fresh pairs for gates that became suspect."""


class Scale(Enum):
    """How a loss is measured."""

    RATIO = "ratio"
    """Relative: 0.05 is 5 % worse. Statistics work on natural logs of ratios."""
    ABSOLUTE = "absolute"
    """In the metric's own unit, each prompt with itself."""


@dataclass(frozen=True, slots=True)
class SideSpec:
    """One side of a comparison.

    Attributes:
        label: What the caller typed, without secrets; how reports name the side.
        kind: `profile`, `venv`, `image`, `git` or `url`.
        arms: The servers of this side, same names in the same order on both sides.
        restarts: Whether each pair gets a fresh start; False for servers that
            already run.
    """

    label: str
    kind: str
    arms: tuple[Arm, ...]
    restarts: bool = True


@dataclass(frozen=True, slots=True)
class Gate:
    """One question: a metric of an arm at a number of streams.

    Attributes:
        arm: Name of the arm.
        concurrency: Closed-loop streams c.
        metric: Registered metric name, or `tokens_per_step_by_prompt`.
        scale: How its loss is measured.
        margin: Tolerated loss; a share for RATIO, the metric's unit for ABSOLUTE.
        limit: Relevance limit: the loss that must be ruled out to pass; > margin.
        instead_of: Metric that was asked for and could not be judged; None if this one was.
        note: Why it stands instead of that, and what the other would need; else empty.
    """

    arm: str
    concurrency: int
    metric: str
    scale: Scale
    margin: float
    limit: float
    instead_of: str | None = None
    note: str = ""


@dataclass(frozen=True, slots=True)
class CellValues:
    """What one server start showed at one number of streams.

    Attributes:
        concurrency: Streams.
        values: (metric name, value) as from `compute_all`; metrics that do not
            apply are left out.
        requests: Served requests that ended in the window: what stands behind a
            percentile.
        prompts: (prompt id, tokens per step) of every prompt with a whole answer,
            sorted by id; over all served requests, inside the window or not.
        spreads: (metric name, standard deviation of the log of the value from the
            requests of this run alone) for percentiles; `stats.tail.quantile_sd_log`.
        sample: Parquet file of the raw run, relative to the run folder.
        invalid: Why it cannot be used; empty if it can.
        unresolved: (metric, why) of gates that the client's stamps are too coarse for.
    """

    concurrency: int
    values: tuple[tuple[str, float], ...]
    requests: int
    prompts: tuple[tuple[str, float], ...] = ()
    spreads: tuple[tuple[str, float], ...] = ()
    sample: str = ""
    invalid: tuple[str, ...] = ()
    unresolved: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class ServerStart:
    """One server start of one side: the unit of replication.

    Attributes:
        role: Its side.
        started_at: Time of day when its start began, ISO 8601, UTC.
        ready_s: Seconds from there until it served; 0 for one that already ran.
        engine: Name and version as the server reports them.
        cells: One per number of streams, in ascending order.
        invalid: Why nothing of it can be used (did not start, died, the clock
            jumped); empty if it can.
    """

    role: Role
    started_at: str
    ready_s: float
    engine: str
    cells: tuple[CellValues, ...]
    invalid: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Pair:
    """Two starts of one arm, taken next to each other.

    Attributes:
        arm: Name of the arm.
        stage: What it was taken for.
        slot: Place in the stage's order, from 0: says which side went first. A
            pair that could not be used is taken again in the same slot.
        attempt: 0 for the first try at the slot.
        candidate_first: Whether the candidate was started and measured first.
        host: Machine it was taken on.
        base: The base's start.
        candidate: The candidate's start.
    """

    arm: str
    stage: Stage
    slot: int
    attempt: int
    candidate_first: bool
    host: str
    base: ServerStart
    candidate: ServerStart

    @property
    def invalid(self) -> tuple[str, ...]:
        """Why the pair cannot be used, each reason with its side; empty if it can."""
        found = []
        for start in (self.base, self.candidate):
            reasons = [*start.invalid, *(r for cell in start.cells for r in cell.invalid)]
            found += [f"{start.role.value}: {reason}" for reason in dict.fromkeys(reasons)]
        return tuple(found)


@dataclass(frozen=True, slots=True)
class ComparisonHeader:
    """What was asked for; fixed before the first pair.

    Attributes:
        schema: COMPARISON_SCHEMA_VERSION.
        definitions: Version of the metrics' definitions.
        id: Name of the run folder.
        started_at: Time of day, ISO 8601, UTC.
        argv: Command line.
        profile: What is sent, and the settings of the gate.
        base: One side.
        candidate: The other.
        gates: Every question; their number is the size of the family.
        plan: Looks, levels and budget, as used (overrides of the command line included).
        environment: Where stage one takes place.
        confirms: Run folder id of the stage one that this run confirms; None otherwise.
    """

    schema: int
    definitions: int
    id: str
    started_at: str
    argv: tuple[str, ...]
    profile: Profile
    base: SideSpec
    candidate: SideSpec
    gates: tuple[Gate, ...]
    plan: CompareSpec
    environment: Environment
    confirms: str | None = None


@dataclass(frozen=True, slots=True)
class FactorLoss:
    """How one factor of speed changed, from the pairs of one arm and concurrency.

    Attributes:
        label: `acceptance`, `step time`, `queueing`, `prefill`, ...
        metric: The metric that measures it.
        change: Candidate / base - 1 (RATIO), or candidate - base in `unit`.
        low: Lower end of its interval, same scale.
        high: Upper end.
        unit: "" for a relative change, else the metric's unit ("s").
        share: Its part of the loss that is explained; 0 where none is stated.
        named: Whether it is named as a cause.
    """

    label: str
    metric: str
    change: float
    low: float
    high: float
    unit: str
    share: float
    named: bool


@dataclass(frozen=True, slots=True)
class Cause:
    """What explains a changed metric.

    Attributes:
        text: One line, as in "step time +8 % [6, 10] at 32 streams; acceptance unchanged".
        factors: Every factor with its interval, named ones first.
        positions: Acceptance by draft position where acceptance moved: (position
            from 0, base, candidate, low and high end of the difference).
    """

    text: str
    factors: tuple[FactorLoss, ...]
    positions: tuple[tuple[int, float, float, float, float], ...] = ()

    @property
    def named(self) -> tuple[str, ...]:
        """Labels of the factors that are named, largest part first."""
        return tuple(factor.label for factor in self.factors if factor.named)


@dataclass(frozen=True, slots=True)
class StageNumbers:
    """What one stage found about one gate, on the gate's own scale.

    Attributes:
        pairs: Pairs that were judged.
        loss: Mean loss; positive is worse. A share for RATIO.
        low: Lower bound (one-sided, at 1 - level of the stage).
        high: Upper bound at the confidence needed to pass.
        p_value: One-sided, for "the loss is at most the margin"; in stage two the
            larger one of t and sign flips.
        losses: Loss per valid pair in the order taken, also those after the decision.
    """

    pairs: int
    loss: float
    low: float
    high: float
    p_value: float
    losses: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class GateResult:
    """The verdict on one gate.

    Attributes:
        gate: The question.
        outcome: The decision.
        reason: Why, in one sentence.
        next_step: What to do now; empty where nothing is to be done.
        base_value: Geometric mean of the base's starts (mean for ABSOLUTE); None without one.
        value: The same of the candidate's.
        search: Stage one; None while there are too few pairs to say anything.
        confirm: Stage two; None where it was not needed or not taken.
        adjusted_p: p-value of both stages, corrected over all gates; None without stage two.
        pairs_needed: About how many further pairs would decide; 0 when decided.
        requests: Requests behind the value, per side, over all pairs judged.
        cause: What explains the change; None where none is stated.
    """

    gate: Gate
    outcome: Outcome
    reason: str
    next_step: str
    base_value: float | None
    value: float | None
    search: StageNumbers | None
    confirm: StageNumbers | None
    adjusted_p: float | None
    pairs_needed: int
    requests: int
    cause: Cause | None


@dataclass(frozen=True, slots=True)
class ComparisonResult:
    """What a comparison says so far.

    Attributes:
        outcome: The one that decides for all gates.
        gates: One result per gate, in the order of the header.
        family_level: Largest chance of any false REGRESSION that was kept.
        minutes: Time spent measuring, over all sessions of the run.
        ended: `decided`, `budget`, `running` or `interrupted`.
        notes: What a reader has to know: engines' versions that differ, servers
            that were not restarted, pairs left out with the reason.
    """

    outcome: Outcome
    gates: tuple[GateResult, ...]
    family_level: float
    minutes: float
    ended: str
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class StoredComparison:
    """Everything that a comparison's folder holds, read back.

    Attributes:
        header: What was asked for.
        pairs: In the order in which they were taken.
        result: What they say.
    """

    header: ComparisonHeader
    pairs: tuple[Pair, ...]
    result: ComparisonResult
