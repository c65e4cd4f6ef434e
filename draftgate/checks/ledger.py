"""The evidence that one server's answers add up to, one e-process per condition.

Holds answers and their scores in order and judges each e-process anew when it has
grown. Knows no servers; where scores come from is a reference's affair.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from draftgate.checks.conditions import Condition
from draftgate.checks.outcome import ConditionEvidence
from draftgate.laws.answer import Answer
from draftgate.stats.directions import SCOPES, Direction
from draftgate.stats.eprocess import Evidence, detectable_kl, evidence, log_weights
from draftgate.stats.scores import Scores, joined

_Part = tuple[tuple[Answer, ...], Scores]


@dataclass(frozen=True, slots=True)
class Place:
    """One token in the answers of a condition: row of its scores, answer, index in its output."""

    row: int
    answer: Answer
    index: int


class Ledger:
    """Answers and evidence of one server.

    Args:
        conditions: Settings of sampling.
        family: Directions in which evidence is looked for.
        alpha: Bound on false alarms of each condition's e-process.
    """

    def __init__(
        self, conditions: Sequence[Condition], family: Sequence[Direction], alpha: float
    ) -> None:
        self.conditions = tuple(conditions)
        self.family = tuple(family)
        self.alpha = alpha
        self._parts: list[list[_Part]] = [[] for _ in conditions]
        self._known: dict[int, tuple[int, Scores, Evidence]] = {}

    @property
    def tokens(self) -> int:
        """Return the number of tokens looked at, over all conditions."""
        return sum(len(scores) for parts in self._parts for _, scores in parts)

    def add(self, index: int, answers: Sequence[Answer], scores: Scores) -> None:
        """Take further answers of condition `index` with the scores of their tokens."""
        assert len(scores) == sum(map(_rows, answers)), "a row per token but the first"
        if len(scores):
            # One step, so that a Ctrl-C finds both there or neither.
            self._parts[index].append((tuple(answers), scores))

    def scores(self, index: int) -> Scores | None:
        """Return the scores of a condition; None if it has no tokens yet."""
        known = self._judged(index)
        return known[1] if known else None

    def evidence(self, index: int) -> Evidence | None:
        """Return the evidence of a condition; None if it has no tokens yet."""
        known = self._judged(index)
        return known[2] if known else None

    def _judged(self, index: int) -> tuple[int, Scores, Evidence] | None:
        """Return (parts, scores, evidence) of all that is there, worked out once per part."""
        parts = tuple(self._parts[index])
        if not parts:
            return None
        known = self._known.get(index)
        if known is None or known[0] != len(parts):
            scores = joined([part for _, part in parts])
            known = (len(parts), scores, evidence(scores, self.family))
            self._known[index] = known
        return known

    def entry(self, index: int) -> ConditionEvidence:
        """Return what is to be reported about a condition."""
        found = self.evidence(index)
        name = self.conditions[index].name
        if found is None:
            return _nothing(name, self.alpha)
        tokens, (direction, scope) = len(found.path), found.best
        return ConditionEvidence(
            condition=name,
            tokens=tokens,
            alpha=self.alpha,
            log_e=float(found.path[-1]),
            peak_log_e=float(found.path.max()),
            alarm_at=found.alarm_at(self.alpha),
            family=self.family[direction].family,
            direction=self.family[direction].label,
            scope=SCOPES[scope].label,
            nats_per_token=float(found.parts[found.best]) / tokens,
            detectable_kl=detectable_kl(tokens, self.alpha, self._log_weight()),
        )

    def entries(self) -> tuple[ConditionEvidence, ...]:
        """Return what is to be reported, in order of the conditions."""
        return tuple(self.entry(index) for index in range(len(self.conditions)))

    def places(self, index: int) -> tuple[Place, ...]:
        """Return where each row of a condition's scores comes from."""
        tokens = [
            (answer, place)
            for answers, _ in self._parts[index]
            for answer in answers
            for place in range(1, len(answer.token_ids))
        ]
        return tuple(Place(row, *token) for row, token in enumerate(tokens))

    def _log_weight(self) -> float:
        """Return the log prior of the lightest direction, so that the stated size holds for all."""
        return float(log_weights(self.family)[:, 0].min())


def _rows(answer: Answer) -> int:
    return max(len(answer.token_ids) - 1, 0)


def _nothing(name: str, alpha: float) -> ConditionEvidence:
    return ConditionEvidence(
        condition=name,
        tokens=0,
        alpha=alpha,
        log_e=0.0,
        peak_log_e=0.0,
        alarm_at=None,
        family="none",
        direction="no tokens",
        scope="nowhere",
        nats_per_token=0.0,
        detectable_kl=math.inf,
    )
