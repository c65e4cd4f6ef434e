"""Were drafts accepted by the stated rule? Evidence from chunks, where proposals are known.

For drafters that look at token ids alone, so that what they proposed is known without
asking anybody. A draft model's proposals are not: a near tie may fall the other way on
another machine, and one such token would be infinite evidence. Knows no servers.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from draftgate.checks.conditions import Condition
from draftgate.checks.outcome import JointEvidence
from draftgate.laws.answer import Answer
from draftgate.laws.proposals import Drafter
from draftgate.laws.rows import Step, steps_of
from draftgate.stats.conformity import Conformity, conformity
from draftgate.stats.conformity_family import family
from draftgate.stats.conformity_rows import Places, Steps, joined_places, places

Floats = NDArray[np.floating[Any]]

Laws = Callable[[Answer], Floats]
"""From an answer to the probabilities of all tokens at each of its places; shape (n, V)."""

BLOCK_STEPS = 16
"""Steps whose laws are held at once: 31 MB with K = 4 and 49,152 tokens."""


class RuleEvidence:
    """Evidence of accept flags and tokens of one server, an e-process per condition.

    Args:
        conditions: Settings of sampling.
        alpha: Bound on false alarms of each e-process.
        laws: The reference's laws.
        drafter: What is proposed after a text.
        k: Most draft tokens of a step.
        vocabulary: Number of tokens, or more.
    """

    def __init__(
        self,
        conditions: Sequence[Condition],
        alpha: float,
        laws: Laws,
        *,
        drafter: Drafter,
        k: int,
        vocabulary: int,
    ) -> None:
        self._conditions = tuple(conditions)
        self._alpha = alpha
        self._laws = laws
        self._drafter = drafter
        self._k = k
        self._family = family(vocabulary)
        self._parts: list[list[Places]] = [[] for _ in conditions]
        self._unclear = [0] * len(self._conditions)
        self._known: dict[int, tuple[int, Conformity]] = {}

    def add(self, index: int, answers: Sequence[Answer]) -> None:
        """Take further answers of condition `index`."""
        for answer in answers:
            found, unclear = self._places(answer)
            self._unclear[index] += unclear
            self._parts[index] += found

    def entries(self) -> tuple[JointEvidence, ...]:
        """Return what is to be reported of the conditions in which drafts were verified."""
        return tuple(self._entry(i) for i in range(len(self._conditions)) if self._parts[i])

    def _entry(self, index: int) -> JointEvidence:
        parts = self._parts[index]
        known = self._known.get(index)
        if known is None or known[0] != len(parts):
            known = (len(parts), conformity(joined_places(parts), self._family))
            self._known[index] = known
        found = known[1]
        return JointEvidence(
            condition=self._conditions[index].name,
            places=len(found.evidence.path),
            alpha=self._alpha,
            log_e=float(found.evidence.path[-1]),
            alarm_at=found.alarm_at(self._alpha),
            direction=self._family[found.evidence.best[0]].label,
            impossible=found.impossible,
            unclear=self._unclear[index],
        )

    def _places(self, answer: Answer) -> tuple[list[Places], int]:
        """Return the places of an answer's verify steps, and the number of unclear chunks."""
        ids = [*answer.prompt_token_ids, *answer.token_ids]
        shift = len(answer.prompt_token_ids)
        verified: list[tuple[Step, tuple[int, ...]]] = []
        unclear = 0
        for step in steps_of(answer, self._k):
            drafts = self._drafter(ids[: shift + step.start])
            emitted = answer.token_ids[step.start : step.start + step.tokens]
            if step.drafts is None or not is_one_step(emitted, drafts):
                unclear += 1
            elif drafts:
                verified.append((step, drafts))
        if not verified:
            return [], unclear
        laws = self._laws(answer)
        blocks = (verified[i : i + BLOCK_STEPS] for i in range(0, len(verified), BLOCK_STEPS))
        return [places(_steps(answer, block, laws, self._k)) for block in blocks], unclear


def is_one_step(emitted: Sequence[int], drafts: Sequence[int]) -> bool:
    """Return whether a chunk can be the yield of one step that had these proposals.

    A server merges the chunks of two steps when its client is late. Between the two then
    stands a token that is no proposal, or the chunk is too long. Steps by the rule never
    look so, and when chunks are merged does not depend on what the tokens are, so leaving
    such chunks out is fair to a server that keeps the rule.
    """
    accepted = len(emitted) - 1
    return accepted <= len(drafts) and tuple(emitted[:accepted]) == tuple(drafts[:accepted])


def _steps(
    answer: Answer, verified: Sequence[tuple[Step, tuple[int, ...]]], laws: Floats, k: int
) -> Steps:
    """Return verify steps with the laws of the places that each reached; NaN past them."""
    count, end = len(verified), len(answer.token_ids)
    proposals = np.full((count, k), -1)
    emitted = np.full((count, k + 1), -1)
    target = np.full((count, k + 1, laws.shape[1]), np.nan)
    for row, (step, drafts) in enumerate(verified):
        here = slice(step.start, step.start + step.tokens)
        proposals[row, : len(drafts)] = drafts
        emitted[row, : step.tokens] = answer.token_ids[here]
        target[row, : step.tokens] = laws[here]
    return Steps(
        proposals=proposals,
        emitted=emitted,
        target=target,
        ahead=False,
        draft=None,
        cut=np.array([step.start + step.tokens == end for step, _ in verified]),
        request=np.full(count, answer.request),
        twin=np.full(count, -1),
    )
