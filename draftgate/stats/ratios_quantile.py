"""Likelihood ratio of tokens that are drawn by a quantile which was used before.

By inversion in the order of ids a token covers an interval of [0, 1) as wide as its
probability. As in `ratios`, the mean under the stated law is at most one.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from draftgate.stats.ratios_draft import accepted_share
from draftgate.stats.scores import Scores

Floats = NDArray[np.floating[Any]]

NARROW = 1e-9
"""An interval that is narrower may be rounding, and says nothing of a quantile."""


def same_quantile(share: float, *, ends: bool) -> Callable[[Scores], Floats]:
    """Return the ratio of a mixture with tokens drawn by the quantile of earlier ones.

    By inversion in the order of ids a token covers an interval of [0, 1) as wide as its
    probability; those drawn by one number lie where their intervals overlap. With `ends`
    these are the tokens that end steps: recovered ones, with intervals of the rest
    (p - q)+, and bonus tokens. Without it all tokens, with those of the law itself, which
    also stand for the rest where it is not known.
    """

    def ratio(s: Scores) -> Floats:
        low, width, taken, free = _intervals(s, ends=ends)
        left, right = _quantiles_left(s, low, width, ends=ends)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            common = np.minimum(low + width, right) - np.maximum(low, left)
            again = free * np.maximum(common, 0.0) / (right - left) / np.exp(s.logp)
            found = np.log(taken + (1.0 - taken) * (1.0 - share) + share * again)
        return np.where(right - left > NARROW, found, 0.0)

    return ratio


def _intervals(s: Scores, *, ends: bool) -> tuple[Floats, Floats, Floats, Floats]:
    """Return where intervals begin, how wide they are, c = min(1, q / p), and 1 - A.

    Where the rest is not known, or for the bonus token, c is 0 and A too.
    """
    p = np.exp(s.logp)
    rest = ends & ~np.isnan(s.rest_below) & ~s.bonus
    with np.errstate(divide="ignore", invalid="ignore"):
        taken = np.where(rest, accepted_share(s), 0.0)
        free = np.where(rest, -np.expm1(s.overlap), 1.0)
        width = np.nan_to_num(p * (1.0 - taken) / free, posinf=0.0)
    return np.where(rest, s.rest_below, s.below), width, taken, free


def _quantiles_left(s: Scores, low: Floats, width: Floats, *, ends: bool) -> tuple[Floats, Floats]:
    """Return what the intervals of earlier tokens of the request have in common.

    As lower and upper bounds of each row; both NaN before the first of them.
    """
    rows = np.arange(len(s))
    starts = (s.position <= 0) | (not ends)
    begin = np.maximum.accumulate(np.where(starts, rows, 0))
    turn = np.cumsum(np.diff(s.request, prepend=s.request[:1]) != 0)
    counts = np.append(starts[1:], False) & (width > NARROW)
    # Twice the request's turn keeps running maxima of one request apart from the next one's.
    left = np.maximum.accumulate(np.where(counts, low, 0.0) + 2 * turn)
    right = np.maximum.accumulate(np.where(counts, -(low + width), -1.0) + 2 * turn)
    source = np.maximum(begin - 1, 0)
    known = (begin > 0) & (turn[source] == turn)
    shift = 2 * turn
    return (
        np.where(known, left[source] - shift, np.nan),
        np.where(known, shift - right[source], np.nan),
    )
