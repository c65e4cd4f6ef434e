"""Bounds on sums over tokens of which only the most likely ones are known.

Logs of powers of probabilities in, logs of bounds out. Knows no servers and no requests
but for their top-k and top-p.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from draftgate.laws.parameters import LawParameters

Floats = NDArray[np.floating[Any]]

MASS_ROUNDING = 1e-5
"""How far a sum of reported probabilities may be off. A float32 log-softmax of logits up to
32 is off by 4e-6 at most (twice half a unit in the last place of 32), and so is each
probability, relatively; doubled."""


@dataclass(frozen=True, slots=True)
class Range:
    """The log of a number that lies between two."""

    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Kept:
    """What top-k and top-p leave, as far as the n most likely tokens tell.

    Attributes:
        known: Whether exactly the first `count` tokens stay.
        count: So many of the most likely tokens stay for sure.
        mass: Of the sum of w over all that stay.
    """

    known: bool
    count: int
    mass: Range


def rest_sum(seen: Floats, cap: float, others: int, power: float) -> Range:
    """Return bounds on the log of the sum of u ** power over tokens that are not known.

    N of them sum to m, and none exceeds c. x ** b = x * x ** (b - 1) is at most
    x * c ** (b - 1) for b >= 1 and at least that for b < 1. It is convex for b >= 1 and
    concave below, so by Jensen's inequality

        N ** (1 - b) * m ** b  <=  sum of x ** b  <=  m * c ** (b - 1)       for b >= 1
        m * c ** (b - 1)       <=  sum of x ** b  <=  N ** (1 - b) * m ** b  for b < 1

    Args:
        seen: Log-probabilities of the tokens that are known; shape (s,).
        cap: Log of c.
        others: N; a larger number is safe.
        power: b > 0.

    Source:
        Own derivation.
    """
    if others <= 0 or cap == -np.inf:
        return Range(-np.inf, -np.inf)
    mass = 1 - float(np.exp(seen).sum())
    low = float(log_of(max(mass - MASS_ROUNDING, 0.0)))
    high = float(log_of(max(mass, 0.0) + MASS_ROUNDING))
    slope = (power - 1) * min(cap, high)
    spread = (1 - power) * float(log_of(others))
    if power >= 1:
        return Range(spread + power * low, slope + high)
    return Range(slope + low, spread + power * high)


def kept(weights: Floats, everything: Range, parameters: LawParameters, *, joint: bool) -> Kept:
    """Return what top-k and top-p leave.

    Args:
        weights: Log w of the most likely tokens, likeliest first; shape (n,), n >= 1.
        everything: Log of the sum of w over all tokens.
        parameters: With top-k and top-p.
        joint: Whether top-p is measured on all tokens and not on what top-k left.
    """
    above = np.concatenate([[-np.inf], np.logaddexp.accumulate(weights)])
    pool = _pool(weights, above, everything, parameters.top_k)
    if parameters.top_p >= 1:
        return pool
    base, limit = everything if joint else pool.mass, float(np.log(parameters.top_p))
    # above[i] is what stands before token i; those before which less than top-p stands stay.
    sure = min(int((above[:-1] - base.low < limit).sum()), pool.count)
    if sure == pool.count and pool.known:
        return pool
    if sure < len(weights) and above[sure] - base.high >= limit and not _tie(weights, sure):
        return Kept(known=True, count=sure, mass=Range(above[sure], above[sure]))
    least = above[sure] if joint else max(above[sure], limit + base.low)
    return Kept(known=False, count=sure, mass=Range(least, pool.mass.high))


def _pool(weights: Floats, above: Floats, everything: Range, top_k: int) -> Kept:
    """Return what top-k alone leaves; tokens tied with the k-th all stay."""
    if not top_k:
        return Kept(known=False, count=len(weights), mass=everything)
    end = top_k
    while end < len(weights) and _tie(weights, end):
        end += 1
    if end < len(weights):
        return Kept(known=True, count=end, mass=Range(above[end], above[end]))
    return Kept(known=False, count=len(weights), mass=Range(above[-1], everything.high))


def _tie(weights: Floats, index: int) -> bool:
    """Return whether the token at an index is as likely as the one before it."""
    return bool(weights[index] == weights[index - 1])


def log_of(value: float) -> Any:
    """Return the natural log, -inf of 0."""
    with np.errstate(divide="ignore"):
        return np.log(value)
