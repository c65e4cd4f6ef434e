"""Tokens drawn by a rule at every place, scored against the right law, to build streams from.

A bank holds draws of each place of each context, so that streams of any length are
index arithmetic. Every distinct token of a place is scored once. Beside it stand the
exact Kullback-Leibler divergence of the rule and what fixed-sample tests need.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.correctness.contexts import K
from benchmarks.correctness.places import Place, World
from benchmarks.correctness.rules import Masses, Rule
from draftgate.stats.scores import POWERS, Scores, blank, joined

Floats = NDArray[np.floating[Any]]
Ints = NDArray[np.integer[Any]]
Bools = NDArray[np.bool_]

RANK_EDGES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 64, 128, 512, 4096)
"""First rank of each bin after the first; rank 0 is the most likely token."""

SPECIAL = 17
"""Tokens 0 to 16 are the special ones of SmolLM2's tokenizer."""


@dataclass(frozen=True, slots=True)
class Known:
    """What is the same for all tokens of a place.

    Attributes:
        mean: Of the log-probability under the law.
        variance: Likewise.
        bins: Law of the rank's bin; shape (bins,).
    """

    mean: float
    variance: float
    bins: Floats


@dataclass(frozen=True, slots=True)
class Bank:
    """Draws of one rule.

    Attributes:
        rows: Scores of every distinct token of every place.
        oracle: Log of the rule's law over the right one, per row.
        bin: Bin of the token's rank, per row.
        place: Index of the place, context * (K + 1) + place, per row.
        draws: Row of each draw; shape (contexts, K + 1, draws).
        accepted: Whether it was an accepted draft; same shape.
        proposals: The proposal there, -1 at the bonus place; same shape.
        reach: Mean probability that a step reaches each place; shape (K + 1,).
        kl: Divergence of an emitted token, nats.
    """

    rows: Scores
    oracle: Floats
    bin: Ints
    place: Ints
    draws: Ints
    accepted: Bools
    proposals: Ints
    reach: Floats
    kl: float


@dataclass(slots=True)
class _Growing:
    rows: list[Scores]
    oracle: list[Floats]
    bin: list[Ints]
    place: list[Ints]
    draws: Ints
    accepted: Bools
    proposals: Ints
    chance: Floats
    kl: Floats
    count: int = 0


def build(
    world: World, rules: Sequence[Rule], draws: int, seed: int
) -> tuple[dict[str, Bank], list[Known]]:
    """Return a bank for each rule, and what is known of each place.

    Args:
        world: Contexts of one kind and condition.
        rules: Rules to draw by.
        draws: Draws per place.
        seed: Of the draws.
    """
    rng = np.random.default_rng(seed)
    shape = (len(world), K + 1, draws)
    found = {rule.name: _empty(shape) for rule in rules}
    known = []
    for context in range(len(world)):
        for place in world.chain(context):
            index = context * (K + 1) + place.number
            facts = Facts(place, world.kind)
            known.append(facts.known)
            for rule in rules:
                _add(found[rule.name], index, facts, rule.masses(place), rng)
    return {name: _done(one) for name, one in found.items()}, known


class Facts:
    """One place with the sums that scoring its tokens takes."""

    def __init__(self, place: Place, kind: str) -> None:
        self.place, self.kind = place, kind
        p = place.target
        with np.errstate(divide="ignore"):
            self.log = np.log(p)
            self.log_bare, self.log_before = np.log(place.bare), np.log(place.before)
            self.log_recent = np.log(place.recent)
            self.log_draft = np.log(place.draft if kind == "greedy" else place.model)
        self.sums = np.concatenate([[0.0], np.cumsum(p)])
        self.sorted = np.sort(p)
        self.log_norm = np.array([np.log((p**power).sum()) for power in POWERS])
        self.draft = int(place.draft.argmax())
        self.overlap = float(np.log(np.minimum(p, place.draft).sum() + 1e-300))
        left = np.maximum(p - place.draft, 0.0)
        q, top = place.draft, int(p.argmax())
        self.over = [float(np.log(p[q > times * p].sum() + 1e-300)) for times in (1, 2)]
        self.top_level = int(q[top] > p[top]) + int(q[top] > 2 * p[top])
        self.rest_top = int(left.argmax())
        free = (left**2 / np.maximum(p, 1e-300)).sum() / max(left.sum(), 1e-300)
        self.rest_free = float(np.log(max(free, 1e-300)))
        self.rest_sums = np.concatenate([[0.0], np.cumsum(left)]) / max(left.sum(), 1e-300)
        law = np.where(p > 0, self.log, 0.0)
        mean = float((p * law).sum())
        bins = np.add.reduceat(self.sorted[::-1], [0, *RANK_EDGES])
        self.known = Known(mean, float((p * law**2).sum() - mean**2), bins)

    def ranks(self, tokens: Ints) -> Ints:
        """Return how many other tokens are at least as likely: ties count against all of them."""
        less = np.searchsorted(self.sorted, self.place.target[tokens], side="left")
        return len(self.sorted) - 1 - less

    def bins(self, tokens: Ints) -> Ints:
        """Return bins of the tokens' ranks."""
        return np.searchsorted(RANK_EDGES, self.ranks(tokens), side="right")

    def scores(self, tokens: Ints) -> Scores:
        """Return the rows of some tokens."""
        n = len(tokens)
        return replace(
            blank(n),
            token=tokens,
            logp=self.log[tokens],
            top=np.full(n, self.log.max()),
            is_top=tokens == self.place.target.argmax(),
            rank=self.ranks(tokens).astype(float),
            log_norm=np.tile(self.log_norm, (n, 1)),
            unfiltered=self.log_bare[tokens],
            before=self.log_before[tokens],
            recent=self.log_recent[tokens],
            below=self.sums[tokens],
            position=np.full(n, self.place.number),
            bonus=np.full(n, self.place.number == K),
            draft=np.full(n, self.draft),
            draft_logp=np.full(n, self.log[self.draft]),
            confidence=np.full(n, np.log(self.place.model[self.draft] + 1e-300)),
            draft_law=self.log_draft[tokens],
            special=tokens < SPECIAL,
            overlap=np.full(n, self.overlap),
            over=np.full(n, self.over[0]),
            far_over=np.full(n, self.over[1]),
            top_level=np.full(n, self.top_level),
            rest_top=tokens == self.rest_top,
            rest_free=np.full(n, self.rest_free),
            rest_below=self.rest_sums[tokens],
        )


def _empty(shape: tuple[int, ...]) -> _Growing:
    return _Growing(
        rows=[],
        oracle=[],
        bin=[],
        place=[],
        draws=np.zeros(shape, dtype=np.int64),
        accepted=np.zeros(shape, dtype=bool),
        proposals=np.full(shape, -1, dtype=np.int64),
        chance=np.zeros(shape[:2]),
        kl=np.zeros(shape[:2]),
    )


def _add(
    bank: _Growing, index: int, facts: Facts, masses: Masses, rng: np.random.Generator
) -> None:
    context, number = divmod(index, K + 1)
    accepted, rest = masses
    law = accepted + rest
    draws = bank.draws.shape[2]
    picked = _drawn(np.concatenate([accepted, rest]), draws, rng)
    flags, tokens = picked < len(law), picked % len(law)
    distinct, inverse = np.unique(tokens, return_inverse=True)
    bank.draws[context, number] = bank.count + inverse
    bank.accepted[context, number] = flags
    if number < K:
        refused = np.maximum(facts.place.draft - accepted, 0.0)
        if refused.sum() > 0:
            bank.proposals[context, number] = _drawn(refused, draws, rng)
        bank.proposals[context, number, flags] = tokens[flags]
    with np.errstate(divide="ignore"):
        oracle = np.log(law[distinct]) - facts.log[distinct]
    some = law > 0
    bank.kl[context, number] = float((law[some] * (np.log(law[some]) - facts.log[some])).sum())
    bank.chance[context, number] = accepted.sum()
    bank.rows.append(facts.scores(distinct))
    bank.oracle.append(oracle)
    bank.bin.append(facts.bins(distinct))
    bank.place.append(np.full(len(distinct), index))
    bank.count += len(distinct)


def _drawn(masses: Floats, draws: int, rng: np.random.Generator) -> Ints:
    steps = np.cumsum(masses)
    return np.searchsorted(steps, rng.random(draws) * steps[-1], side="right")


def _done(one: _Growing) -> Bank:
    ones = np.ones((len(one.chance), 1))
    reach = np.concatenate([ones, np.cumprod(one.chance[:, :K], axis=1)], axis=1)
    return Bank(
        rows=joined(one.rows),
        oracle=np.concatenate(one.oracle),
        bin=np.concatenate(one.bin),
        place=np.concatenate(one.place),
        draws=one.draws,
        accepted=one.accepted,
        proposals=one.proposals,
        reach=reach.mean(axis=0),
        kl=float((reach * one.kl).sum() / reach.sum()),
    )
