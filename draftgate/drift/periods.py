"""Two periods of mixed traffic side by side: requests by kind, their shares and means.

Arranges requests for `draftgate.stats`; the decision is in `mixed`.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from draftgate.drift.family import Family
from draftgate.drift.judge import BOOTSTRAP_SEED
from draftgate.specs import GateSpec
from draftgate.stats.beyond import Beyond, strata_beyond
from draftgate.stats.compare import FloatArray

FEWEST_OF_KIND = 8
"""Requests of a kind on either side below which it is not judged: two sides of 7 can be exchanged
in 3,432 ways, so no p-value of theirs gets under 0.06 %, and a family of two asks for 0.05 %."""


@dataclass(frozen=True, slots=True)
class RequestSteps:
    """What one request says: its kind of traffic, and the tokens that a step gave for it."""

    kind: str
    tokens_per_step: float


@dataclass(frozen=True, slots=True)
class KindChange:
    """One kind in both periods.

    Attributes:
        kind: Its name.
        share: Of the requests; before and after.
        mean: Tokens per step; before and after, None in a period without the kind.
        within: Its part of the change within kinds, tokens per step.
        beyond: What is known about a change beyond the margin; None where there
            are too few requests to judge it.
    """

    kind: str
    share: tuple[float, float]
    mean: tuple[float | None, float | None]
    within: float
    beyond: Beyond | None


@dataclass(frozen=True, slots=True)
class Periods:
    """Both periods and what is asked of them.

    Attributes:
        base: The earlier period.
        candidate: The later one.
        gate: Margin and confidence.
        family_level: Largest chance of any false alarm.
    """

    base: Sequence[RequestSteps]
    candidate: Sequence[RequestSteps]
    gate: GateSpec
    family_level: float

    @property
    def kinds(self) -> tuple[str, ...]:
        """All kinds of both periods, sorted."""
        return tuple(sorted({one.kind for one in (*self.base, *self.candidate)}))

    @property
    def judged(self) -> tuple[str, ...]:
        """Kinds with enough requests on both sides."""
        return tuple(
            kind
            for kind in self.kinds
            if min(len(self.values(side, kind)) for side in self.sides) >= FEWEST_OF_KIND
        )

    @property
    def sides(self) -> tuple[Sequence[RequestSteps], Sequence[RequestSteps]]:
        """The earlier and the later period."""
        return self.base, self.candidate

    @property
    def family(self) -> Family:
        """The kinds that are judged, and all of them together."""
        questions = len(self.judged) + 1
        return Family(questions, "verdicts by kind and over all", self.family_level)

    def values(self, side: Sequence[RequestSteps], kind: str) -> FloatArray:
        """Return tokens per step of one kind's requests."""
        return np.array([one.tokens_per_step for one in side if one.kind == kind])

    def share(self, side: Sequence[RequestSteps], kind: str) -> float:
        """Return a kind's share of the requests of one period."""
        return len(self.values(side, kind)) / len(side) if side else 0.0

    def weight(self, kind: str) -> float:
        """Mean share of a kind, the same for both sides."""
        return sum(self.share(side, kind) for side in self.sides) / 2

    def beyond(self, kinds: Sequence[str]) -> Beyond:
        """Return what is known of a change of these kinds at equal weights on both sides."""
        return strata_beyond(
            [self.values(self.base, kind) for kind in kinds],
            [self.values(self.candidate, kind) for kind in kinds],
            [self.weight(kind) for kind in kinds],
            margin_ratio=self.gate.margin_ratio,
            level=self.family.each,
            seed=BOOTSTRAP_SEED,
        )


def mean_of(values: Sequence[float] | FloatArray) -> float | None:
    """Return the mean; None of no values."""
    return float(np.mean(values)) if len(values) else None
