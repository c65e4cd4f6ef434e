"""Evidence that tokens were not drawn from a stated law, one token at a time.

Numbers in, numbers out. The law of each token is given by its prefix, so the
product of likelihood ratios against any alternative is a martingale with mean
one under the law, however tokens depend on each other; an average of such
products is one too, and may be looked at after every token (Ville 1939;
Ramdas, Grunwald, Vovk and Shafer 2023, "Game-theoretic statistics and safe
anytime-valid inference").
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

SHARES = (0.01, 0.1, 0.5)
"""Shares of wrong tokens in the alternatives, from rare to half."""

Floats = NDArray[np.floating[Any]]


def log_evidence(token: Floats, leading: Floats, is_leading: Any, vocabulary: int) -> Floats:
    """Return the log e-value after each token against tokens drawn from the law.

    The alternatives mix the law with share s of tokens drawn uniformly from
    the vocabulary (garbage: far too unlikely tokens), or with share s of the
    most likely token (greedy: far too likely ones). Per token, with p the
    law's probability of it, the ratios are (1 - s) + s / (V p) and
    (1 - s) + s [it is the most likely] / p. The e-value is the plain average
    over all alternatives of the products. P(it ever reaches 1/alpha) <= alpha
    under the law (Ville's inequality), at whatever time one stops.

    Args:
        token: Log-probability of each token under the law, nats; shape (n,).
        leading: Log-probability of the most likely token there; shape (n,).
        is_leading: Whether the token is that one; shape (n,).
        vocabulary: Number of tokens V; a larger number is safe and weaker.

    Returns:
        Natural log of the e-value after 1, 2, ... n tokens; shape (n,).

    Raises:
        ValueError: If shapes differ, a log-probability is positive or not a
            number, a token beats the leading one, or V < 1.

    Source:
        Likelihood-ratio martingale and the average of several (method of
        mixtures); the two alternatives are our own choice.
    """
    logp = np.asarray(token, dtype=float)
    top = np.asarray(leading, dtype=float)
    hit = np.asarray(is_leading, dtype=bool)
    _check(logp, top, hit, vocabulary)
    shares = np.log(np.asarray(SHARES))[:, None]
    rest = np.log1p(-np.asarray(SHARES))[:, None]
    uniform = np.logaddexp(rest, shares - np.log(vocabulary) - logp)
    greedy = np.where(hit, np.logaddexp(rest, shares - top), rest)
    paths = np.cumsum(np.concatenate([uniform, greedy]), axis=1)
    mean: Floats = np.logaddexp.reduce(paths, axis=0) - np.log(paths.shape[0])
    return mean


def _check(logp: Floats, top: Floats, hit: NDArray[np.bool_], vocabulary: int) -> None:
    if not logp.shape == top.shape == hit.shape or logp.ndim != 1:
        raise ValueError(f"shapes differ: {logp.shape}, {top.shape}, {hit.shape}; expected (n,)")
    if np.isnan(logp).any() or np.isnan(top).any() or (top > 0).any():
        raise ValueError("log-probabilities must be numbers of at most 0")
    if (logp > top + 1e-6).any():
        raise ValueError("a token is more likely than the most likely one; check the inputs")
    if vocabulary < 1:
        raise ValueError(f"vocabulary must be >= 1, got {vocabulary}")
