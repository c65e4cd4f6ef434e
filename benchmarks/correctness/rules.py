"""Wrong rules of a verify step, as laws of what one place emits.

A rule says with which mass each token is emitted as an accepted draft and as a
recovered (or bonus) token, given that the place was reached. Faults that reach over
several tokens (a shared coin, a reused quantile, a shared seed) are in `serial.py`.
Faults of lengths and ends are no laws and are left to the exact checks.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.correctness.contexts import K
from benchmarks.correctness.places import Place

Floats = NDArray[np.floating[Any]]
Masses = tuple[Floats, Floats]
"""Accepted and recovered mass of each token; shape (V,) each, adding up to 1 together."""

RACES = 8
"""Nodes of the quadrature over when the draft's race ends."""

PADDING = 2
"""Id of the special token that the padding fault emits."""


@dataclass(frozen=True, slots=True)
class Rule:
    """One fault at one strength.

    Attributes:
        name: As in the issue's list.
        masses: What a place emits.
        condition: Key of `places.CONDITIONS` under which it shows.
        kinds: Kinds of drafts that can have it.
    """

    name: str
    masses: Callable[[Place], Masses]
    condition: str = "plain"
    kinds: tuple[str, ...] = ("greedy", "sampled")


def honest(place: Place, target: Floats | None = None, draft: Floats | None = None) -> Masses:
    """Return the standard rule's masses, with other laws in place of the right ones if given."""
    p = place.target if target is None else target
    if place.number == K:
        return np.zeros_like(p), p
    return taken(place.draft, _chance(p, place.draft if draft is None else draft), p)


def taken(draft: Floats, chance: Floats, target: Floats) -> Masses:
    """Return the masses if proposals are accepted by `chance`, else recovered as they should."""
    return recovered(draft * chance, np.maximum(target - draft, 0.0), target)


def recovered(accepted: Floats, weights: Floats, target: Floats) -> Masses:
    """Return the masses if what is not accepted is drawn by `weights`, if any is above 0."""
    total = weights.sum()
    law = weights / total if total > 0 else target
    return accepted, max(1.0 - accepted.sum(), 0.0) * law


def _chance(target: Floats, draft: Floats) -> Floats:
    return np.minimum(1.0, target / np.maximum(draft, 1e-300))


def _verified(rule: Callable[[Place], Masses]) -> Callable[[Place], Masses]:
    """Return a rule that is wrong where there is a draft and right for the bonus token."""
    return lambda place: honest(place) if place.number == K else rule(place)


def _bonus(law: Callable[[Place], Floats]) -> Callable[[Place], Masses]:
    """Return a rule that is right but for the law of its bonus token."""
    return lambda place: honest(place, law(place) if place.number == K else None)


def from_target(place: Place) -> Masses:
    """Return the masses if recovered tokens come from the target's law, not the residual."""
    return recovered(honest(place)[0], place.target, place.target)


def argmax_accepted(place: Place) -> Masses:
    """Return the masses if a proposal is accepted just when it is the most likely token."""
    chance = np.zeros_like(place.target)
    chance[place.target.argmax()] = 1.0
    return taken(place.draft, chance, place.target)


def threshold(limit: float) -> Callable[[Place], Masses]:
    """Return the rule that accepts where p > limit q, without a coin."""
    return lambda place: taken(
        place.draft, (place.target > limit * place.draft).astype(float), place.target
    )


def greedy_recovered(place: Place) -> Masses:
    """Return the masses if the recovered token is the residual's most likely one."""
    left = np.maximum(place.target - place.draft, 0.0)
    best = np.zeros_like(left)
    best[left.argmax()] = 1.0
    return recovered(honest(place)[0], best, place.target)


def kept(share: float) -> Callable[[Place], Masses]:
    """Return the rule in which a share of the rejected proposals stays."""

    def masses(place: Place) -> Masses:
        chance = _chance(place.target, place.draft)
        return taken(place.draft, chance + share * (1 - chance), place.target)

    return masses


def always(place: Place) -> Masses:
    """Return the masses if every proposal is accepted."""
    return taken(place.draft, np.ones_like(place.target), place.target)


def mismatched(place: Place) -> Masses:
    """Return the masses if the ratio has another draft law than the one that was drawn from.

    Greedy drafts: the drafter's probability instead of one. Sampled drafts: its law
    before it was sharpened.
    """
    said = place.model if place.draft.max() == 1.0 else place.cool
    chance = _chance(place.target, said)
    return recovered(place.draft * chance, np.maximum(place.target - said, 0.0), place.target)


def padded(share: float) -> Callable[[Place], Masses]:
    """Return the rule in which a padding token is emitted now and then."""

    def masses(place: Place) -> Masses:
        accepted, rest = (mass * (1 - share) for mass in honest(place))
        rest = rest.copy()
        rest[PADDING] += share
        return accepted, rest

    return masses


def left_over(share: float) -> Callable[[Place], Masses]:
    """Return the rule in which some rows are those that the step before left in their place."""
    return lambda place: _mixed(share, honest(place), honest(place, place.older))


def stale(share: float) -> Callable[[Place], Masses]:
    """Return the rule in which some rows read a stale slot of the cache.

    The slot is that of the last token before the chain, and holds what the drafter had
    proposed there. That token's own row, place 0, is right.
    """

    def masses(place: Place) -> Masses:
        right = honest(place)
        return _mixed(share, right, honest(place, place.stale)) if place.number else right

    return masses


def _mixed(share: float, right: Masses, wrong: Masses) -> Masses:
    accepted, rest = (
        (1 - share) * good + share * bad for good, bad in zip(right, wrong, strict=True)
    )
    return accepted, rest


def unfiltered_recovered(place: Place) -> Masses:
    """Return the masses if recovered tokens come from the law without the filter."""
    return recovered(honest(place)[0], np.maximum(place.bare - place.draft, 0.0), place.target)


def same_noise(place: Place) -> Masses:
    """Return the masses if draft and recovered token are picked by the same noise.

    Both are picked by a race: the least E_x / q_x is the proposal, the least E_x / r_x the
    recovered token, with one exponential E_x a token. If the first race ends at time t,
    the other E_x are q_x t plus a fresh exponential, so that token x runs in the second
    race from q_x t / r_x on. The law is the mean over t, which is exponential.
    """
    accepted = honest(place)[0]
    left = np.maximum(place.target - place.draft, 0.0)
    some = np.flatnonzero(left)
    if not len(some):
        return honest(place)
    rate, start = left[some] / left.sum(), place.draft[some]
    law = np.zeros_like(left)
    for time, weight in zip(*np.polynomial.laguerre.laggauss(RACES), strict=True):
        law[some] += weight * _race(rate, start * time / rate)
    return recovered(accepted, law, place.target)


def _race(rate: Floats, start: Floats) -> Floats:
    """Return who is first if each runs at its rate from its start on."""
    order = np.argsort(start)
    begin, speed = start[order], np.cumsum(rate[order])
    hazard = np.concatenate([[0.0], np.cumsum(speed[:-1] * np.diff(begin))])
    alive = np.exp(-hazard)
    spans = np.append(alive[:-1] - alive[1:], alive[-1]) / speed
    chance = np.empty_like(rate)
    chance[order] = rate[order] * np.cumsum(spans[::-1])[::-1]
    return chance


RULES = (
    Rule("recovered from the target", _verified(from_target)),
    Rule("accept if argmax", _verified(argmax_accepted)),
    Rule("accept if p > .9 q", _verified(threshold(0.9))),
    Rule("bonus from the draft", _bonus(lambda place: place.draft)),
    Rule("temperature ignored in verification", _verified(lambda place: honest(place, place.hot))),
    Rule("draft law mismatched", _verified(mismatched)),
    Rule("row off by one", lambda place: honest(place, place.before)),
    Rule("greedy recovered token", _verified(greedy_recovered)),
    Rule("always accept", _verified(always)),
    Rule("2 % of rejected kept", _verified(kept(0.02))),
    Rule(".5 % padding", padded(0.005)),
    Rule("5 % stale rows", left_over(0.05)),
    Rule("5 % of rows read a stale cache slot", stale(0.05)),
    Rule("bonus ignores temperature", _bonus(lambda place: place.hot)),
    Rule("noise shared by draft and recovery", _verified(same_noise), kinds=("sampled",)),
    Rule("top-p dropped on recovered", _verified(unfiltered_recovered), "filtered"),
    Rule(
        "penalties not on verified rows",
        _verified(lambda place: honest(place, place.bare)),
        "penalised",
    ),
)
"""The issue's faults that are laws of one place."""

TUNED: Mapping[str, Rule] = {
    rule.name: rule
    for rule in (
        Rule("accept if p > .6 q", _verified(threshold(0.6))),
        Rule("6 % of rejected kept", _verified(kept(0.06))),
        Rule("2 % padding", padded(0.02)),
        Rule("15 % stale rows", left_over(0.15)),
    )
}
"""Other strengths, used to tune the family and nowhere in the reported numbers."""
