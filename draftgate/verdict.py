"""From two sets of runs and a gate to a decision with a reason.

Holds the outcomes and the rule that picks one. Knows nothing of files or
servers; the numbers come in as one mapping per run, how uncertain a change is
comes from `draftgate.stats`, directions and names from `draftgate.metrics`.
"""

from dataclasses import dataclass
from enum import Enum

from draftgate.specs import GateSpec
from draftgate.stats.compare import Comparison


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
