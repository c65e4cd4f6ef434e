"""Streams of tokens put together from a bank, and when evidence alarms on them.

A stream is a row of indices into a bank's scored tokens, step after step, each step
in a context of its own. The evidence is that of `draftgate.stats.eprocess`, taken for
many streams at once: the directions' ratios are looked up per scored token where they
depend on it alone, and worked out along the stream where they do not.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.correctness.bank import Bank
from benchmarks.correctness.contexts import K
from draftgate.stats.directions import Direction
from draftgate.stats.eprocess import log_ratios, log_weights, scopes_of
from draftgate.stats.scores import Scores

Floats = NDArray[np.floating[Any]]
Ints = NDArray[np.integer[Any]]

ALONG = ("quantile", "repeat", "copy")
"""Families whose ratios depend on other tokens of the stream."""

REQUEST = 32
"""Tokens after which a stream goes on with another request."""

NEVER = np.iinfo(np.int64).max
"""Stands for the time of an alarm that did not come."""


@dataclass(frozen=True, slots=True)
class Streams:
    """Tokens of equally long streams.

    Attributes:
        rows: Index into the bank's scored tokens; shape (streams, tokens).
        step: Number of the verify step within the stream; same shape.
        draw: Flat index into the bank's draws; same shape.
    """

    rows: Ints
    step: Ints
    draw: Ints


def arranged(bank: Bank, count: int, length: int, seed: int) -> Streams:
    """Return streams of independent steps, each in a context and with draws picked at random."""
    rng = np.random.default_rng(seed)
    contexts, _, draws = bank.draws.shape
    steps = int(length / bank.reach.sum() * 1.25) + 20
    context = rng.integers(contexts, size=(count, steps, 1))
    pick = rng.integers(draws, size=(count, steps, K + 1), dtype=np.int64)
    flat = (context * (K + 1) + np.arange(K + 1)) * draws + pick
    reached = np.ones(flat.shape, dtype=bool)
    reached[:, :, 1:] = np.cumprod(bank.accepted.ravel()[flat[:, :, :K]], axis=2)
    return _cut(bank, flat, reached, length)


def _cut(bank: Bank, flat: Ints, reached: NDArray[np.bool_], length: int) -> Streams:
    count = len(flat)
    found = np.empty((count, length), dtype=np.int64)
    for stream in range(count):
        places = np.flatnonzero(reached[stream])
        if len(places) < length:
            raise ValueError(f"expected {length} tokens in a stream, got {len(places)}")
        found[stream] = places[:length]
    draw = np.take_along_axis(flat.reshape(count, -1), found, axis=1)
    return Streams(bank.draws.ravel()[draw], found // (K + 1), draw)


def scored(bank: Bank, rows: Ints) -> Scores:
    """Return the scores of one stream's tokens, split into requests."""
    return replace(bank.rows.take(rows), request=np.arange(len(rows)) // REQUEST)


class Judge:
    """The evidence of one family of directions over a bank."""

    def __init__(self, bank: Bank, family: Sequence[Direction]) -> None:
        """Look up all ratios that depend on a token alone."""
        self.bank = bank
        along = np.array([direction.family in ALONG for direction in family])
        self.along = tuple(d for d, on in zip(family, along, strict=True) if on)
        alone = tuple(d for d, on in zip(family, along, strict=True) if not on)
        weights = np.exp(log_weights(family))
        self.weights = np.concatenate([weights[~along], weights[along]])
        with np.errstate(over="ignore"):
            self.ratios = np.exp(log_ratios(bank.rows, alone)).T.copy()
        self.scopes = scopes_of(bank.rows).T.copy()

    def alarms(self, rows: Ints, alpha: float) -> Ints:
        """Return after how many tokens each stream alarms, NEVER if it does not.

        Args:
            rows: Shape (streams, tokens).
            alpha: Bound on false alarms.
        """
        count, length = rows.shape
        along = self._along(rows)
        wealth = np.ones((self.scopes.shape[1], count, len(self.weights)))
        prior = self.weights.T[:, None, :]
        found = np.full(count, NEVER)
        open_ = np.arange(count)
        for token in range(length):
            row = rows[open_, token]
            ratio = np.concatenate([self.ratios[row], along[open_, token]], axis=1)
            holds = self.scopes[row]
            for scope in range(holds.shape[1]):
                inside = holds[:, scope]
                wealth[scope, inside] *= ratio[inside]
            over = (wealth * prior).sum(axis=(0, 2)) >= 1 / alpha
            if over.any():
                found[open_[over]] = token + 1
                open_, wealth = open_[~over], wealth[:, ~over]
                if not len(open_):
                    break
        return found

    def _along(self, rows: Ints) -> Floats:
        if not self.along:
            return np.zeros((*rows.shape, 0))
        ratios = [np.exp(log_ratios(scored(self.bank, one), self.along)).T for one in rows]
        return np.stack(ratios)


def without_draft(rows: Scores) -> Scores:
    """Return the rows as they are where the draft model is not known."""
    nan = np.full(len(rows), np.nan)
    return replace(
        rows,
        draft=np.full(len(rows), -1),
        draft_logp=nan,
        draft_law=nan,
        overlap=nan,
        over=nan,
        top_over=np.zeros(len(rows), dtype=bool),
        rest_top=np.zeros(len(rows), dtype=bool),
    )
