"""Filters by an engine that rounds its logits, averaged over the rounding.

A token near the edge of top-k, top-p or min-p is in for some roundings and out for
others. These rules weigh each token by the share of roundings that keep it, instead of
keeping or forbidding it. Exact filters stand in `draftgate.laws.processors`. Knows no
engines, no models and no servers.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_ndtr

from draftgate.laws.processors import Row, log_softmax

# Beyond so many standard deviations a share is taken for 0 or 1; 6e-16 of a normal law lies there.
_FAR = 8.0

_SMALLEST = 1e-12

# Mean of P (1 - P) over P uniform in (0, 1): the variance of one swap, over tokens in reach.
_SWAP = 1 / 6

# So many most likely tokens are looked at before a whole row is sorted; as in `processors`.
_CANDIDATES = 512


def min_p(logits: Row, share: float, noise: float) -> Row:
    """Weigh tokens by how often they have the share of the most likely one.

    Args:
        logits: Row after the temperature; shape (V,).
        share: As in `processors.min_p`; 0 switches it off.
        noise: Standard deviation of a logit's error after the temperature, nats, above 0.
    """
    if share <= 0:
        return logits
    # Both the token's and the top token's logit err.
    margin = logits - logits.max() - np.log(share)
    return np.asarray(logits + _log_share(margin, noise * np.sqrt(2)))


def top_k(logits: Row, k: int, noise: float) -> Row:
    """Weigh tokens by how often they are above the first one out, or above the last one in.

    Args:
        logits: Row after the temperature; shape (V,).
        k: As in `processors.top_k`; 0 and V or more switch it off.
        noise: Standard deviation of a logit's error after the temperature, nats, above 0.
    """
    if not 0 < k < len(logits):
        return logits
    parts = np.partition(logits, [-k - 1, -k])
    first_out, last_in = parts[-k - 1], parts[-k]
    if not np.isfinite(first_out):
        return logits
    margin = logits - np.where(logits >= last_in, first_out, last_in)
    return np.asarray(logits + _log_share(margin, noise * np.sqrt(2)))


def top_p(logits: Row, p: float, noise: float) -> Row:
    """Weigh tokens by how often the more likely ones hold less than p; the top one stays.

    Args:
        logits: Row after the temperature; shape (V,).
        p: As in `processors.top_p`; 1 switches it off.
        noise: Standard deviation of a logit's error after the temperature, nats, above 0.

    Source:
        Own derivation. Let q be the probabilities and A the sum of those above a token. Errors of
        the logits move A in two ways. They change the probabilities: independent errors e add
        (1 - A) sum of q e over those above, less A sum of q e over the others. And they
        swap the token with those near it: then A is on average the sum of q times the
        probability to be above, for which a uniform error of the same variance is taken, with a
        variance of about that of one swap each plus that of the token's own error.
    """
    if p >= 1:
        return logits
    probs = np.exp(log_softmax(logits))
    order = _from_most_likely(probs, p)
    above, sd = _mass_above(logits[order], probs[order], noise)
    weights = _log_share(p - above, sd)
    weights[0] = 0.0
    found = np.full_like(logits, -np.inf)
    found[order] = logits[order] + weights
    return found


def _mass_above(values: Row, probs: Row, noise: float) -> tuple[Row, Row]:
    """Return mean and standard deviation of what is above each token; values descending."""
    reach = noise * np.sqrt(6)  # a difference of two errors, as a uniform one
    mass, squares, moment = (_sums(x) for x in (probs, probs**2, probs * values))
    starts = np.searchsorted(-values, -reach - values, side="left")
    ends = np.searchsorted(-values, reach - values, side="right")
    near = mass[ends] - mass[starts]
    # Of a token in reach, the share (its value - lowest in reach) / (2 reach) counts as above.
    shared = (moment[ends] - moment[starts] - (values - reach) * near) / (2 * reach)
    mean = mass[starts] + shared - probs / 2
    changed = (1 - mean) ** 2 * squares[:-1] + mean**2 * (squares[-1] - squares[:-1])
    swapped = (squares[ends] - squares[starts] - probs**2) * _SWAP
    own = (near - probs) * noise / (2 * reach)
    return mean, np.sqrt(np.maximum(noise**2 * changed + swapped + own**2, 0))


def _sums(values: Row) -> Row:
    return np.concatenate(([0.0], np.cumsum(values)))


def _from_most_likely(probs: NDArray[np.float64], p: float) -> NDArray[np.intp]:
    """Return ids from most to least likely, past p by at least half of what is left there."""
    possible = np.flatnonzero(probs)
    if len(possible) > _CANDIDATES:
        some = possible[np.argpartition(probs[possible], -_CANDIDATES)[-_CANDIDATES:]]
        if probs[some].sum() > (1 + p) / 2:
            possible = some
    return possible[np.argsort(probs[possible])[::-1]]


def _log_share(margin: NDArray[Any], sd: Any) -> NDArray[np.float64]:
    """Return the log of the probability that a normal error leaves a margin above 0."""
    # Without an error, as of a token that holds all probability, only the sign counts.
    z = margin / np.maximum(sd, _SMALLEST)
    shares = np.where(z > 0, 0.0, -np.inf)
    near = np.abs(z) < _FAR
    shares[near] = log_ndtr(z[near])
    return shares
