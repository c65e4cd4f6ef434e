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

from benchmarks.correctness.bank import Bank, Known
from benchmarks.correctness.contexts import K
from benchmarks.correctness.serial import STEPS_PER_REQUEST, Drawn
from draftgate.stats.directions import Direction
from draftgate.stats.eprocess import log_ratios, log_weights, scopes_of
from draftgate.stats.scores import Scores, joined

Floats = NDArray[np.floating[Any]]
Ints = NDArray[np.integer[Any]]

ALONG = ("quantile", "repeat", "chain")
"""Families whose ratios depend on other tokens of the stream."""

NEVER = np.iinfo(np.int64).max
"""Stands for the time of an alarm that did not come."""


@dataclass(frozen=True, slots=True)
class Streams:
    """Tokens of equally long streams.

    Attributes:
        rows: Scores of distinct tokens.
        row: Index into them; shape (streams, tokens).
        request: Number of the request within the stream; same shape.
        oracle: Log ratio of the fault's own law to the right one; same shape.
        bin: Bin of the token's rank; same shape.
        place: Index of the place; same shape.
        known: What is known of each place.
        sibling: Token of a twin at each place; None leaves that of the scored tokens.
    """

    rows: Scores
    row: Ints
    request: Ints
    oracle: Floats
    bin: Ints
    place: Ints
    known: Sequence[Known]
    sibling: Ints | None = None


def arranged(
    bank: Bank, known: Sequence[Known], count: int, length: int, seed: int
) -> tuple[Streams, Ints]:
    """Return streams of independent steps, each in a context and with draws picked at random.

    Beside them the index of each token into the bank's draws; shape (streams, tokens).
    """
    rng = np.random.default_rng(seed)
    contexts, _, draws = bank.draws.shape
    steps = int(length / bank.reach.sum() * 1.25) + 20
    context = rng.integers(contexts, size=(count, steps, 1))
    pick = rng.integers(draws, size=(count, steps, K + 1), dtype=np.int64)
    flat = (context * (K + 1) + np.arange(K + 1)) * draws + pick
    reached = np.ones(flat.shape, dtype=bool)
    reached[:, :, 1:] = np.cumprod(bank.accepted.ravel()[flat[:, :, :K]], axis=2)
    found = _first(reached, length)
    draw = np.take_along_axis(flat.reshape(count, -1), found, axis=1)
    row = bank.draws.ravel()[draw]
    request = found // (K + 1) // STEPS_PER_REQUEST
    streams = Streams(
        bank.rows, row, request, bank.oracle[row], bank.bin[row], bank.place[row], known
    )
    return streams, draw


def of_serial(drawn: Drawn, length: int) -> Streams:
    """Return the streams of a fault that reaches over several tokens."""
    count = len(drawn.row)
    found = _first(drawn.reached, length)
    row = np.take_along_axis(drawn.row.reshape(count, -1), found, axis=1)
    oracle = np.take_along_axis(drawn.oracle.reshape(count, -1), found, axis=1)
    request = found // (K + 1) // STEPS_PER_REQUEST
    return Streams(drawn.rows, row, request, oracle, drawn.bin[row], drawn.place[row], drawn.known)


def copied(honest: Streams) -> Streams:
    """Return streams in which two requests of one seed run side by side, token by token.

    The first of each pair draws as it should, the second repeats it.
    """
    n = len(honest.rows)
    twins = replace(honest.rows, sibling=honest.rows.token)
    row = np.repeat(honest.row, 2, axis=1)
    second = np.arange(row.shape[1]) % 2 == 1
    return Streams(
        joined([honest.rows, twins]),
        row + n * second,
        2 * np.repeat(honest.request, 2, axis=1) + second,
        np.where(second, -honest.rows.logp[row], 0.0),
        np.repeat(honest.bin, 2, axis=1),
        np.repeat(honest.place, 2, axis=1),
        honest.known,
    )


def _first(reached: NDArray[np.bool_], length: int) -> Ints:
    """Return the flat indices of each stream's first `length` places that were reached."""
    found = np.empty((len(reached), length), dtype=np.int64)
    for stream, one in enumerate(reached):
        places = np.flatnonzero(one)
        if len(places) < length:
            raise ValueError(f"expected {length} tokens in a stream, got {len(places)}")
        found[stream] = places[:length]
    return found


class Judge:
    """The evidence of one family of directions over distinct tokens."""

    def __init__(
        self, rows: Scores, family: Sequence[Direction], changing: Sequence[str] = ALONG
    ) -> None:
        """Work out all ratios but those of families that change along a stream."""
        self.rows, self.changing = rows, tuple(changing)
        along = np.array([direction.family in changing for direction in family])
        self.along = tuple(d for d, on in zip(family, along, strict=True) if on)
        alone = tuple(d for d, on in zip(family, along, strict=True) if not on)
        weights = np.exp(log_weights(family))
        self.weights = np.concatenate([weights[~along], weights[along]])
        with np.errstate(over="ignore"):
            self.ratios = np.exp(log_ratios(rows, alone)).T.copy()
        self.scopes = scopes_of(rows).T.copy()

    def alarms(self, streams: Streams, alpha: float) -> Ints:
        """Return after how many tokens each stream alarms, NEVER if it does not."""
        return self.alarms_at(streams, (alpha,))[0]

    def alarms_at(self, streams: Streams, alphas: Sequence[float]) -> Ints:
        """Return the same for several bounds; shape (alphas, streams)."""
        bounds = 1 / np.array(alphas)
        count, length = streams.row.shape
        along = self.along_ratios(streams)
        wealth = np.ones((self.scopes.shape[1], count, len(self.weights)))
        found = np.full((len(bounds), count), NEVER)
        going = np.arange(count)
        for token in range(length):
            row = streams.row[going, token]
            ratio = np.concatenate([self.ratios[row], along[going, token]], axis=1)
            self._grow(wealth, ratio, self.scopes[row])
            value = np.einsum("cst,tc->s", wealth, self.weights)
            new = (value >= bounds[:, None]) & (found[:, going] == NEVER)
            found[:, going] = np.where(new, token + 1, found[:, going])
            over = value >= bounds.max()
            if over.any():
                going, wealth = going[~over], wealth[:, ~over]
            if not len(going):
                break
        return found

    def _grow(self, wealth: Floats, ratio: Floats, holds: NDArray[np.bool_]) -> None:
        """Multiply each scope's parts by the ratios of the tokens that belong to it."""
        for scope in range(holds.shape[1]):
            inside = holds[:, scope]
            if inside.all():
                wealth[scope] *= ratio
            else:
                wealth[scope, inside] *= ratio[inside]

    def along_ratios(self, streams: Streams) -> Floats:
        """Return the ratios of the families that change along a stream; (streams, tokens, n)."""
        if not self.along:
            return np.zeros((*streams.row.shape, 0))
        return np.stack([self._along_one(streams, number) for number in range(len(streams.row))])

    def _along_one(self, streams: Streams, number: int) -> Floats:
        one = replace(self.rows.take(streams.row[number]), request=streams.request[number])
        if streams.sibling is not None:
            one = replace(one, sibling=streams.sibling[number])
        return np.exp(log_ratios(one, self.along)).T


def without_draft(rows: Scores) -> Scores:
    """Return the rows as they are where the draft model is not known."""
    nan = np.full(len(rows), np.nan)
    return replace(
        rows,
        draft=np.full(len(rows), -1),
        draft_logp=nan,
        confidence=nan,
        draft_law=nan,
        overlap=nan,
        over=nan,
        far_over=nan,
        top_level=np.zeros(len(rows), dtype=int),
        rest_top=np.zeros(len(rows), dtype=bool),
        rest_free=nan,
        rest_below=nan,
    )
