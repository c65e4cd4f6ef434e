"""Evidence that verify steps do not follow their rejection rule, looked at after every token.

Numbers in, numbers out. Given what was proposed, the rule fixes the joint law of
(accepted or not, token) at every place of a chain. Likelihood ratios against the
family of `conformity_family` are multiplied and averaged as in `eprocess`, with the
same bound: P(the e-value ever reaches 1/alpha) <= alpha under the rule (Ville 1939).
What the rule excludes altogether is infinite evidence, and is counted.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from draftgate.stats.conformity_family import (
    FAMILIES,
    PARTS,
    Departure,
    impossible,
    log_ratios,
)
from draftgate.stats.conformity_rows import Places
from draftgate.stats.eprocess import Evidence, gather

Floats = NDArray[np.floating[Any]]


@dataclass(frozen=True, slots=True)
class Conformity:
    """What verify steps say against their rule.

    Attributes:
        evidence: Log e-value after each place and the parts of it, over the departures
            and PARTS; `best` names the possible departure with the largest e-value.
        impossible: Number of places that the rule excludes.
        first_impossible: Row of the first of them; None if there is none.
    """

    evidence: Evidence
    impossible: int
    first_impossible: int | None

    def alarm_at(self, alpha: float) -> int | None:
        """Return the number of tokens after which the e-value reached 1/alpha; None if never."""
        return self.evidence.alarm_at(alpha)


def conformity(rows: Places, departures: tuple[Departure, ...]) -> Conformity:
    """Return the evidence of places in the order in which they were emitted.

    Raises:
        ValueError: If there are no places.
    """
    if not len(rows):
        raise ValueError("no places to look at")
    return gathered(rows, log_ratios(rows, departures), departure_weights(departures))


def gathered(rows: Places, ratios: Floats, weights: Floats) -> Conformity:
    """Return the evidence of log ratios (departures, n) that were taken before."""
    parts = np.stack([part.holds(rows) for part in PARTS])
    evidence = gather(ratios, parts, weights)
    never = np.flatnonzero(impossible(rows))
    first = int(never[0]) if never.size else None
    if first is not None:
        evidence.path[first:] = np.inf
    return Conformity(evidence, int(never.size), first)


def departure_weights(departures: tuple[Departure, ...]) -> Floats:
    """Return log prior weights; shape (departures, PARTS), adding up to 1.

    A family's weight is shared by its departures; that of families without one is
    spread over the others.
    """
    sizes = {name: sum(d.family == name for d in departures) for name in FAMILIES}
    own = np.array([FAMILIES[d.family] / sizes[d.family] for d in departures])
    parts = np.array([part.weight for part in PARTS])
    weights: Floats = np.log(own / own.sum())[:, None] + np.log(parts / parts.sum())[None, :]
    return weights
