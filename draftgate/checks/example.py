"""The token that says most against a server: where it stands and what was likely instead.

Points at a row of the evidence that fired; texts and likely tokens come from functions
that are handed in. Knows no servers.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from draftgate.checks.distribution import Gathered
from draftgate.checks.ledger import Ledger, Place
from draftgate.checks.outcome import ConditionEvidence, LikelyToken, WorstExample
from draftgate.laws.answer import Answer
from draftgate.stats.directions import SCOPES

PREFIX_TOKENS = 40
"""Tokens of the prefix that are shown: two or three lines of text."""

Likely = Callable[[Answer, int], tuple[tuple[int, float], ...]]
"""From an answer and a place in its output to (token, probability), the likeliest first."""


@dataclass(frozen=True, slots=True)
class Witness:
    """Who can tell more about a token than its scores do.

    Attributes:
        text: From ids to their text; None where it can't be told.
        likely: What was likely at some place under the request's own law, after temperature
            and filters; () where it can't be told.
        curl: A command that sends an answer's request again.
    """

    text: Callable[[tuple[int, ...]], str | None]
    likely: Likely
    curl: Callable[[Answer], str]


def worst_of(gathered: Gathered, checked: Witness, plain: Witness) -> WorstExample | None:
    """Return the worst example of the arm that alarmed, the server under test first.

    Args:
        gathered: What the check brought together.
        checked: Tells of the server under test.
        plain: Tells of the A/A arm, to which its own example has to point.
    """
    found = gathered.findings
    for ledger, entries, witness in (
        (gathered.checked, found.checked, checked),
        (gathered.plain, found.plain, plain),
    ):
        fired = [i for i, entry in enumerate(entries) if entry.alarm_at is not None]
        if ledger is not None and fired:
            return worst_example(ledger, max(fired, key=_size_in(entries)), witness)
    return None


def _size_in(entries: tuple[ConditionEvidence, ...]) -> Callable[[int], float]:
    return lambda index: entries[index].nats_per_token


def worst_example(ledger: Ledger, index: int, witness: Witness) -> WorstExample | None:
    """Return the token that speaks most for the best direction of condition `index`.

    Of equal ones it is the least likely. None if the condition has no tokens.
    """
    found = _worst_row(ledger, index)
    scores = ledger.scores(index)
    if found is None or scores is None:
        return None
    place, log_ratio = found
    answer, at = place.answer, place.index
    prefix = (*answer.prompt_token_ids, *answer.token_ids[:at])[-PREFIX_TOKENS:]
    token = answer.token_ids[at]
    return WorstExample(
        condition=ledger.conditions[index].name,
        prompt_id=answer.prompt_id,
        request=answer.request,
        index=at,
        position=int(scores.position[place.row]),
        prefix=witness.text(prefix),
        token=token,
        text=witness.text((token,)),
        probability=float(np.exp(scores.logp[place.row])),
        log_ratio=log_ratio,
        likely=tuple(
            LikelyToken(other, witness.text((other,)), probability)
            for other, probability in witness.likely(answer, at)
        ),
        curl=witness.curl(answer),
    )


def _worst_row(ledger: Ledger, index: int) -> tuple[Place, float] | None:
    """Return the row with the largest log ratio of the best direction, in its scope."""
    scores, found = ledger.scores(index), ledger.evidence(index)
    if scores is None or found is None:
        return None
    direction, scope = ledger.family[found.best[0]], SCOPES[found.best[1]]
    ratios = np.nan_to_num(direction.log_ratio(scores), nan=0.0, posinf=np.inf, neginf=-np.inf)
    ratios = np.where(scope.holds(scores), ratios, -np.inf)
    row = int(np.lexsort((-scores.logp, ratios))[-1])
    return ledger.places(index)[row], float(ratios[row])
