"""Faults that reach over several tokens: each token has its law, but not given the others.

Streams are drawn directly, with the log ratio of the fault's law of each token, given
all before it, to the right one. That ratio's mean is the divergence per token. Requests
end after a fixed number of steps, so that what is reused in a request is reused.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.correctness.bank import Facts, Known
from benchmarks.correctness.contexts import K
from benchmarks.correctness.places import World
from benchmarks.correctness.rules import honest
from draftgate.stats.scores import Scores, joined

Floats = NDArray[np.floating[Any]]
Ints = NDArray[np.integer[Any]]
Bools = NDArray[np.bool_]

STEPS_PER_REQUEST = 12

Draw = Callable[[Facts, Ints], None]
"""Draws one place of the steps at the given indices."""


@dataclass(frozen=True, slots=True)
class Drawn:
    """Steps drawn one by one.

    Attributes:
        rows: Scores of the distinct tokens.
        bin: Bin of each row's rank.
        place: Place of each row, context * (K + 1) + place.
        row: Row of the token at each place; shape (streams, steps, K + 1).
        reached: Whether the step came that far; same shape.
        proposal: Same shape; -1 at the bonus place.
        oracle: Log ratio of the fault's law of the token, given all before; same shape.
        known: What is known of each place.
    """

    rows: Scores
    bin: Ints
    place: Ints
    row: Ints
    reached: Bools
    proposal: Ints
    oracle: Floats
    known: list[Known]


@dataclass(slots=True)
class _Steps:
    """Steps that are being drawn: context, coin and quantile of each, flat."""

    context: Ints
    coin: Floats
    quantile: Floats
    token: Ints
    row: Ints
    reached: Bools
    proposal: Ints
    parts: Floats


def shared_coin(world: World, count: int, steps: int, seed: int) -> Drawn:
    """Return steps in which one coin decides on all drafts of a chain.

    The first place is right. Behind drafts whose smallest chance was c, a draft x is
    accepted with min(1, chance(x) / c).
    """
    drawn = _begun(world, count, steps, seed)
    rng = np.random.default_rng(seed + 1)
    limit = np.ones(len(drawn.context))

    def place(facts: Facts, at: Ints) -> None:
        p, q = facts.place.target, facts.place.draft
        rest = np.maximum(p - q, 0.0)
        if facts.place.number == K:
            _emit(drawn, facts, at, _inverse(p, rng.random(len(at))), 0.0)
            return
        chance = np.minimum(1.0, p / np.maximum(q, 1e-300))
        proposal = _inverse(q, rng.random(len(at)))
        kept = drawn.coin[at] < chance[proposal]
        token = np.where(kept, proposal, _inverse(rest, rng.random(len(at))))
        share = np.minimum(1.0, chance[token] / limit[at])
        left = 1.0 - _accepted_below(q, chance, limit[at])
        law = q[token] * share + left * rest[token] / max(rest.sum(), 1e-300)
        _emit(drawn, facts, at, token, np.log(law) - facts.log[token])
        drawn.proposal[at, facts.place.number] = proposal
        drawn.reached[at, facts.place.number + 1] = kept
        limit[at] = np.where(kept, np.minimum(limit[at], chance[proposal]), limit[at])

    return _drawn(world, drawn, place, (count, steps))


def _accepted_below(q: Floats, chance: Floats, limit: Floats) -> Floats:
    """Return the sum of q min(1, chance / limit) for each limit."""
    some = np.flatnonzero(q > 0)
    order = some[np.argsort(chance[some])]
    low = np.concatenate([[0.0], np.cumsum(q[order] * chance[order])])
    high = np.concatenate([[0.0], np.cumsum(q[order])])
    cut = np.searchsorted(chance[order], limit, side="left")
    found: Floats = low[cut] / limit + (high[-1] - high[cut])
    return found


def shared_quantile(world: World, count: int, steps: int, seed: int) -> Drawn:
    """Return steps whose recovered and bonus tokens are drawn by one quantile a request.

    Inversion in the order of ids. Given the tokens that ended chains before, the quantile
    is uniform on what their intervals have in common.
    """
    drawn = _begun(world, count, steps, seed)
    rng = np.random.default_rng(seed + 1)

    def place(facts: Facts, at: Ints) -> None:
        number = facts.place.number
        accepted, rest = honest(facts.place)
        sums = np.concatenate([[0.0], np.cumsum(rest)])
        total = sums[-1]
        kept = rng.random(len(at)) < accepted.sum()
        ended = np.searchsorted(sums[1:], drawn.quantile[at] * total, side="right")
        token = np.where(kept, _inverse(accepted, rng.random(len(at))), ended)
        token = np.minimum(token, len(rest) - 1)
        _emit(drawn, facts, at, token, facts.log[token])
        known = (accepted[token], np.full(len(at), total), sums[token], rest[token])
        drawn.parts[at, number, 1:] = np.stack(known, axis=1)
        refused = np.maximum(facts.place.draft - accepted, 0.0)
        if number < K:
            other = _inverse(refused, rng.random(len(at)))
            drawn.proposal[at, number] = np.where(kept, token, other)
            drawn.reached[at, number + 1] = kept

    found = _drawn(world, drawn, place, (count, steps))
    shape = (count, steps, K + 1)
    return replace(found, oracle=_by_quantile(drawn, shape, every=False))


def one_quantile(world: World, count: int, steps: int, seed: int) -> Drawn:
    """Return steps whose tokens are all drawn by one quantile a request.

    A draft is accepted if it is what the quantile picks from the target's law.
    """
    drawn = _begun(world, count, steps, seed)
    rng = np.random.default_rng(seed + 1)

    def place(facts: Facts, at: Ints) -> None:
        number, p = facts.place.number, facts.place.target
        token = _inverse(p, drawn.quantile[at])
        _emit(drawn, facts, at, token, facts.log[token])
        nothing = np.zeros(len(at))
        known = (nothing, nothing + 1.0, facts.sums[token], p[token])
        drawn.parts[at, number, 1:] = np.stack(known, axis=1)
        if number < K:
            proposal = _inverse(facts.place.draft, rng.random(len(at)))
            drawn.proposal[at, number] = proposal
            drawn.reached[at, number + 1] = proposal == token

    found = _drawn(world, drawn, place, (count, steps))
    return replace(found, oracle=_by_quantile(drawn, (count, steps, K + 1), every=True))


def _by_quantile(drawn: _Steps, shape: tuple[int, int, int], *, every: bool) -> Floats:
    """Return the log ratios of a shared quantile, given the intervals of tokens seen before.

    These are all tokens with `every`, else those that end steps.
    """
    count, steps, width = shape
    parts, reached = drawn.parts.reshape(*shape, 5), drawn.reached.reshape(shape)
    low, high = np.zeros(count), np.ones(count)
    found = np.zeros(shape)
    for step in range(steps):
        if step % STEPS_PER_REQUEST == 0:
            low, high = np.zeros(count), np.ones(count)
        for place in range(width):
            on = reached[:, step, place]
            logp, accepted, total, below, mass = np.moveaxis(parts[:, step, place], 1, 0)
            scale = np.maximum(total, 1e-300)
            begin, end = below / scale, (below + mass) / scale
            common = np.minimum(end, high) - np.maximum(begin, low)
            law = accepted + total * np.maximum(common, 0.0) / (high - low)
            found[on, step, place] = (np.log(law) - logp)[on]
            ends = on & ~reached[:, step, place + 1] if place + 1 < width else on
            fine = (on if every else ends) & (common > 0)
            low = np.where(fine, np.maximum(low, begin), low)
            high = np.where(fine, np.minimum(high, end), high)
    return found


def _begun(world: World, count: int, steps: int, seed: int) -> _Steps:
    rng = np.random.default_rng(seed)
    flat, requests = count * steps, -(-steps // STEPS_PER_REQUEST)
    quantile = np.repeat(rng.random((count, requests)), STEPS_PER_REQUEST, axis=1)[:, :steps]
    reached = np.zeros((flat, K + 2), dtype=bool)
    reached[:, 0] = True
    return _Steps(
        context=rng.integers(len(world), size=flat),
        coin=rng.random(flat),
        quantile=quantile.ravel(),
        token=np.zeros((flat, K + 1), dtype=np.int64),
        row=np.zeros((flat, K + 1), dtype=np.int64),
        reached=reached[:, : K + 1],
        proposal=np.full((flat, K + 1), -1, dtype=np.int64),
        parts=np.zeros((flat, K + 1, 5)),
    )


def _emit(drawn: _Steps, facts: Facts, at: Ints, token: Ints, number: Any) -> None:
    drawn.token[at, facts.place.number] = token
    drawn.parts[at, facts.place.number, 0] = number


def _inverse(weights: Floats, uniform: Floats) -> Ints:
    """Return tokens by inversion; all weights 0 stands for "never asked" and gives the last."""
    sums = np.cumsum(weights)
    found = np.searchsorted(sums, uniform * sums[-1], side="right")
    return np.minimum(found, len(weights) - 1)


def _drawn(world: World, drawn: _Steps, place: Draw, shape: tuple[int, int]) -> Drawn:
    """Draw all places, one context after the other, and score what was drawn."""
    rows, bins, places, known = [], [], [], []
    count = 0
    for context in range(len(world)):
        mine = np.flatnonzero(drawn.context == context)
        for one in world.chain(context):
            facts = Facts(one, world.kind)
            known.append(facts.known)
            at = mine[drawn.reached[mine, one.number]]
            place(facts, at)
            distinct, inverse = np.unique(drawn.token[at, one.number], return_inverse=True)
            drawn.row[at, one.number] = count + inverse
            rows.append(facts.scores(distinct))
            bins.append(facts.bins(distinct))
            places.append(np.full(len(distinct), context * (K + 1) + one.number))
            count += len(distinct)
    whole = (*shape, K + 1)
    return Drawn(
        rows=joined(rows),
        bin=np.concatenate(bins),
        place=np.concatenate(places),
        row=drawn.row.reshape(whole),
        reached=drawn.reached.reshape(whole),
        proposal=drawn.proposal.reshape(whole),
        oracle=drawn.parts[:, :, 0].reshape(whole),
        known=known,
    )
