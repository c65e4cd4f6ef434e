"""Likelihood ratios of other laws of a token, made of its law or of other tokens.

Numbers in, numbers out. Each function returns one that takes scored tokens to log
likelihood ratios, shape (n,), whose mean under the stated law is at most one given
all that came before. NaN says that a number it needs is not known.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from draftgate.stats.scores import POWERS, Scores

Floats = NDArray[np.floating[Any]]
Ints = NDArray[np.integer[Any]]
Bools = NDArray[np.bool_]

RARE = 1e-3
"""A token of less probability counts as a surprise that a fault may repeat."""


def mixed(share: float, alternative: Floats, logp: Floats) -> Floats:
    """Return log((1 - share) + share * alternative / p) from log-probabilities."""
    with np.errstate(invalid="ignore"):
        ratio = np.logaddexp(np.log1p(-share), np.log(share) + alternative - logp)
    # Neither law can draw the token: it says nothing for or against this direction.
    return np.where(np.isneginf(alternative) & np.isneginf(logp), 0.0, ratio)


def blended(share: float, law: Callable[[Scores], Floats]) -> Callable[[Scores], Floats]:
    """Return the ratio of a mixture with a law, given as log-probabilities of the tokens."""
    return lambda s: mixed(share, law(s), s.logp)


def powered(index: int) -> Callable[[Scores], Floats]:
    """Return the ratio of the law raised to POWERS[index] and normalised again."""

    def ratio(s: Scores) -> Floats:
        with np.errstate(invalid="ignore"):
            return (POWERS[index] - 1) * s.logp - s.log_norm[:, index]

    return ratio


def heated(share: float, index: int) -> Callable[[Scores], Floats]:
    """Return the ratio of a mixture with the law raised to POWERS[index]."""
    return lambda s: mixed(share, POWERS[index] * s.logp - s.log_norm[:, index], s.logp)


def point(share: float, where: Callable[[Scores], tuple[Bools, Bools]]) -> Callable[..., Floats]:
    """Return the ratio of a mixture with one token; `where` says (is it that one, is one known)."""

    def ratio(s: Scores) -> Floats:
        hit, known = where(s)
        return np.where(known, mixed(share, np.where(hit, 0.0, -np.inf), s.logp), 0.0)

    return ratio


def column(share: float, name: str) -> Callable[[Scores], Floats]:
    """Return the ratio of a mixture with the law whose log-probabilities are the column `name`."""
    return lambda s: mixed(share, getattr(s, name), s.logp)


def by_rank(share: float, vocabulary: int) -> Callable[[Scores], Floats]:
    """Return the ratio of a mixture with Zipf's law of ranks, 1 / (1 + rank) normalised.

    It gives plausible but unlikely tokens far more weight than a uniform law does.
    """
    total = np.log(np.euler_gamma + np.log(vocabulary) + 0.5 / vocabulary)
    return lambda s: mixed(share, -np.log1p(s.rank) - total, s.logp)


def repeated_surprise(share: float) -> Callable[[Scores], Floats]:
    """Return the ratio of a mixture with the surprising tokens seen so far, by their counts."""

    def ratio(s: Scores) -> Floats:
        rare = s.logp < np.log(RARE)
        before = np.cumsum(rare) - rare
        with np.errstate(divide="ignore", invalid="ignore"):
            law = np.log(_earlier(s.token, rare) / before)
        return np.where(before > 0, mixed(share, law, s.logp), 0.0)

    return ratio


def _earlier(token: Ints, counted: Bools) -> Ints:
    """Return how many counted rows before each row hold its token."""
    order = np.argsort(token, kind="stable")
    counts = counted[order].astype(int)
    upto = np.cumsum(counts) - counts
    begins = np.flatnonzero(np.diff(token[order], prepend=-2))
    sizes = np.diff(begins, append=len(token))
    found = np.empty(len(token), dtype=int)
    found[order] = upto - np.repeat(upto[begins], sizes)
    return found
