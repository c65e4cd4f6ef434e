"""Evidence that tokens were not drawn from their laws, looked at after every token.

Numbers in, numbers out. Each direction in each part of the chain is a martingale
with mean one under the stated laws, whatever came before; so is their weighted
mean. P(it ever reaches 1/alpha) <= alpha under the laws (Ville 1939; method of
mixtures, Robbins 1970; Ramdas, Grunwald, Vovk and Shafer 2023), at whatever time
one stops. What the parts of a mixture cost is the log of one over their weight.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from draftgate.stats.directions import FAMILIES, SCOPES, Direction, groups
from draftgate.stats.scores import Scores

DETECTED = 0.9
"""Probability with which a fault of the stated size would have been found."""

_Z = 1.2815515655446004
"""Standard normal quantile of DETECTED."""

Floats = NDArray[np.floating[Any]]


@dataclass(frozen=True, slots=True)
class Evidence:
    """What tokens say against their laws.

    Attributes:
        path: Log e-value after each token; shape (n,).
        parts: Log of each part's own e-value at the end; shape (directions, scopes).
        best: Index (direction, scope) of the part with the largest weighted e-value.
    """

    path: Floats
    parts: Floats
    best: tuple[int, int]

    def alarm_at(self, alpha: float) -> int | None:
        """Return the number of tokens after which the e-value reached 1/alpha; None if never."""
        over = np.flatnonzero(self.path >= -np.log(alpha))
        return int(over[0]) + 1 if over.size else None


def log_weights(family: Sequence[Direction]) -> Floats:
    """Return log prior weights of all parts; shape (directions, scopes), adding up to 1.

    A family's weight is shared by its directions; that of families without a
    direction is spread over the others. The scopes' weights depend on the family.
    """
    sums = {name: sum(d.weight for d in family if d.family == name) for name in FAMILIES}
    own = np.array([FAMILIES[d.family] * d.weight / sums[d.family] for d in family])
    scopes = np.array([(scope.weight, scope.draft_weight, scope.other_weight) for scope in SCOPES])
    scopes /= scopes.sum(axis=0)
    weights: Floats = np.log(own / own.sum())[:, None] + np.log(scopes.T[groups(family)])
    return weights


def log_ratios(scores: Scores, family: Sequence[Direction]) -> Floats:
    """Return each direction's log likelihood ratio of each token; shape (directions, n).

    What is not known says nothing: NaN becomes 0. A token that its law excludes
    gives +inf in every direction that allows it.
    """
    rows = np.stack([direction.log_ratio(scores) for direction in family])
    return np.where(np.isnan(rows), 0.0, rows)


def evidence(scores: Scores, family: Sequence[Direction]) -> Evidence:
    """Return the evidence of tokens in the order in which they were drawn.

    Raises:
        ValueError: If there are no tokens, a log-probability is positive, or a token
            is more likely than the most likely one.
    """
    check(scores)
    return gather(log_ratios(scores, family), scopes_of(scores), log_weights(family))


def scopes_of(scores: Scores) -> NDArray[np.bool_]:
    """Return which tokens belong to which part of the chain; shape (scopes, n)."""
    return np.stack([scope.holds(scores) for scope in SCOPES])


def gather(ratios: Floats, scopes: NDArray[np.bool_], weights: Floats) -> Evidence:
    """Return the evidence of log ratios (directions, n) confined to scopes (scopes, n)."""
    paths = np.cumsum(np.where(scopes[None], ratios[:, None, :], 0.0), axis=2)
    weighted = paths + weights[:, :, None]
    path = np.logaddexp.reduce(weighted.reshape(-1, ratios.shape[1]), axis=0)
    place = np.unravel_index(int(weighted[:, :, -1].argmax()), weights.shape)
    return Evidence(path, paths[:, :, -1], (int(place[0]), int(place[1])))


def detectable_kl(tokens: int, alpha: float, log_weight: float) -> float:
    """Return the smallest fault, in nats a token, that would have been found with P >= DETECTED.

    A fault along a direction of the family whose Kullback-Leibler divergence from
    the law is d nats a token moves that direction's log e-value like a random walk
    with drift d and variance 2 d a token (small d). It has to rise by c = log(1/alpha) -
    log_weight; n d - z sqrt(2 n d) >= c gives sqrt(n d) = (z + sqrt(z^2 + 2 c)) / sqrt(2).

    Args:
        tokens: Tokens looked at, n >= 1.
        alpha: Bound on the share of false alarms, in (0, 1).
        log_weight: Log prior weight of the direction, <= 0.

    Source:
        Own derivation: sequential probability ratio test with a normal approximation
        of the log likelihood ratio (Wald 1945), z the normal quantile of DETECTED.
    """
    if tokens < 1 or not 0 < alpha < 1 or log_weight > 0:
        raise ValueError(
            f"got {tokens} tokens, alpha {alpha}, log weight {log_weight}; expected at least "
            "1 token, alpha in (0, 1) and a log weight of at most 0"
        )
    needed = -np.log(alpha) - log_weight
    return float((_Z + np.sqrt(_Z**2 + 2 * needed)) ** 2 / 2 / tokens)


def check(scores: Scores) -> None:
    """Refuse rows that make no sense.

    Raises:
        ValueError: As said in `evidence`.
    """
    if not len(scores):
        raise ValueError("no tokens to look at")
    if np.isnan(scores.logp).any() or np.isnan(scores.top).any():
        raise ValueError("a token's log-probability or that of the most likely token is missing")
    if (scores.logp > 1e-6).any() or (scores.top > 1e-6).any():
        raise ValueError("log-probabilities must be at most 0")
    if (scores.logp > scores.top + 1e-6).any():
        raise ValueError("a token is more likely than the most likely one; check the inputs")
