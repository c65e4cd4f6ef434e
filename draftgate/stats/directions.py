"""Ways in which a token may not follow its law, each as a likelihood ratio.

Numbers in, numbers out. A direction is another law for the next token, made of
what was known before it was drawn; the log of (its probability of the token / the
stated one) is what the direction has to say. No direction is the law of one given
fault: they are the ways that whole families of faults take (too hot or cold, too
greedy, towards the draft, another row's law, garbage, a copied or repeated token,
a quantile used twice). Under the stated law each ratio has mean one, so products
over tokens are martingales (Ville 1939; Ramdas et al. 2023).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from draftgate.stats.scores import POWERS, Scores

Floats = NDArray[np.floating[Any]]
Ints = NDArray[np.integer[Any]]
Bools = NDArray[np.bool_]

RARE = 1e-3
"""A token of less probability counts as a surprise that a fault may repeat."""

ACCEPTANCE = (
    (1.0, -2.5),
    (1.0, -1.0),
    (1.0, -0.4),
    (1.0, 0.4),
    (1.0, 1.0),
    (1.0, 2.5),
    (2.0, -2.5),
    (2.0, 0.0),
    (2.0, 1.0),
    (4.0, -2.0),
    (4.0, 1.0),
)
"""Slopes and shifts of the odds of acceptance: tilts both ways, and sharper decisions."""

CELLS = (
    ((2.5, 2.5), (-3.0, -3.0)),
    ((-2.0, -2.0), (2.0, 2.0)),
    ((2.5, 2.5), (0.0, 0.0)),
    ((0.0, 0.0), (2.0, 2.0)),
    ((0.0, 0.0), (-3.0, -3.0)),
    ((-3.0, -3.0), (-3.0, -3.0)),
    ((0.7, -3.0), (0.7, -3.0)),
    ((0.7, -1.0), (0.7, -1.0)),
    ((-1.0, 1.0), (-1.0, 1.0)),
)
"""Tilts of likely and of other proposals, proposed somewhat and far too often: both ways,
and against each other."""

NARROW = 1e-9
"""An interval that is narrower may be rounding, and says nothing of a quantile."""

FAMILIES = {
    "temperature": 0.13,
    "greedy": 0.04,
    "garbage": 0.03,
    "ranks": 0.04,
    "special": 0.05,
    "unfiltered": 0.07,
    "neighbour row": 0.06,
    "draft": 0.14,
    "acceptance": 0.16,
    "cells": 0.12,
    "rest": 0.05,
    "chain": 0.04,
    "copy": 0.04,
    "repeat": 0.01,
    "quantile": 0.02,
}
"""Prior weight of each family of directions; they add up to 1."""

OF_DRAFTS = ("draft", "acceptance", "cells", "rest", "chain")
"""Families that speak of drafts: only where there is one, or in the bonus token's place."""


@dataclass(frozen=True, slots=True)
class Direction:
    """One alternative law.

    Attributes:
        family: Key of FAMILIES.
        label: What the tokens look like if it is the true one, for reports.
        log_ratio: Rows to log likelihood ratios, shape (n,); 0 where a number is not known.
    """

    family: str
    label: str
    log_ratio: Callable[[Scores], Floats]


@dataclass(frozen=True, slots=True)
class Scope:
    """A part of the tokens that a direction may be confined to.

    Attributes:
        label: Where in the chain.
        weight: Prior weight.
        draft_weight: That for the families in OF_DRAFTS.
        holds: Rows to which of them belong to it; known before a token is drawn.
    """

    label: str
    weight: float
    draft_weight: float
    holds: Callable[[Scores], Bools]


SCOPES = (
    Scope("everywhere", 0.45, 0.1, lambda s: np.ones(len(s), dtype=bool)),
    Scope("verified places", 0.2, 0.6, lambda s: (s.position >= 0) & ~s.bonus),
    Scope("first place of the chain", 0.05, 0.05, lambda s: (s.position == 0) & ~s.bonus),
    Scope("later places of the chain", 0.1, 0.1, lambda s: (s.position > 0) & ~s.bonus),
    Scope("bonus token", 0.2, 0.15, lambda s: np.asarray(s.bonus)),
)


def mixed(share: float, alternative: Floats, logp: Floats) -> Floats:
    """Return log((1 - share) + share * alternative / p) from log-probabilities."""
    with np.errstate(invalid="ignore"):
        ratio = np.logaddexp(np.log1p(-share), np.log(share) + alternative - logp)
    # Neither law can draw the token: it says nothing for or against this direction.
    return np.where(np.isneginf(alternative) & np.isneginf(logp), 0.0, ratio)


def powered(index: int) -> Callable[[Scores], Floats]:
    """Return the ratio of the law raised to POWERS[index] and normalised again."""

    def ratio(s: Scores) -> Floats:
        with np.errstate(invalid="ignore"):
            return (POWERS[index] - 1) * s.logp - s.log_norm[:, index]

    return ratio


def tilted_to_draft(odds: float) -> Callable[[Scores], Floats]:
    """Return the ratio of the law in which the proposal's weight is multiplied by exp(odds)."""

    def ratio(s: Scores) -> Floats:
        weight = np.exp(np.where(s.draft >= 0, s.draft_logp, np.nan))
        hit = np.where(s.token == s.draft, odds, 0.0)
        return hit - np.log1p(np.expm1(odds) * weight)

    return ratio


def _accepted(s: Scores) -> Floats:
    """Return min(1, q / p) of each token: the share of its probability that comes by acceptance."""
    with np.errstate(invalid="ignore"):
        return np.exp(np.minimum(s.draft_law - s.logp, 0.0))


def accepted_with_odds(slope: float, shift: float) -> Callable[[Scores], Floats]:
    """Return the ratio of the law in which drafts are accepted with other odds.

    The right law is A min(p, q) / A + (1 - A) (p - q)+ / (1 - A) with A, the chance that
    a draft is accepted, the sum of min(p, q). Here logit A' = slope logit A + shift takes
    the place of A, so the mean of c A' / A + (1 - c)(1 - A') / (1 - A), with c = min(1, q / p),
    is A' + 1 - A' = 1. A slope above 1 decides more sharply than the coin does.
    """
    return lambda s: _with_odds(s, slope, shift)


def _with_odds(s: Scores, slope: float, shift: float | Floats) -> Floats:
    share = np.exp(s.overlap)
    with np.errstate(divide="ignore", invalid="ignore"):
        other = expit(slope * (s.overlap - np.log1p(-share)) + shift)
        gain = np.where(share > 0, other / share, 1.0)
        loss = np.where(share < 1, (1.0 - other) / (1.0 - share), 1.0)
        taken = _accepted(s)
        found: Floats = np.log(taken * gain + (1.0 - taken) * loss)
    return found


def rest_to_top(share: float) -> Callable[[Scores], Floats]:
    """Return the ratio of the law whose recovered tokens are the likeliest ones more often.

    The rest (p - q)+ / (1 - A) is mixed with its most likely token t; the mean of
    c + (1 - c)(1 - share) + [x = t] share (1 - A) / p is A + (1 - A)(1 - share) + share (1 - A).
    """

    def ratio(s: Scores) -> Floats:
        taken = _accepted(s)
        with np.errstate(over="ignore"):
            most = s.rest_top * share * -np.expm1(s.overlap) * np.exp(-s.logp)
        with np.errstate(divide="ignore"):
            return np.log(taken + (1.0 - taken) * (1.0 - share) + most)

    return ratio


def tilted_cells(top: tuple[float, float], others: tuple[float, float]) -> Callable[..., Floats]:
    """Return the ratio of the law with other weights of what the draft proposes too often.

    These are the tokens with p < q <= 2 p (first number) and with q > 2 p (second). Their
    weights are multiplied by the exponential of the number, in `top` if the token is the
    most likely one and in `others` else. The whole is normalised by the probabilities of
    these cells, which are known before the draw.
    """

    def ratio(s: Scores) -> Floats:
        far = np.exp(s.far_over)
        near = np.maximum(np.exp(s.over) - far, 0.0)
        total = np.ones(len(s))
        for level, mass in ((1, near), (2, far)):
            leading = np.where(s.top_level == level, np.minimum(np.exp(s.top), mass), 0.0)
            total += leading * np.expm1(top[level - 1])
            total += (mass - leading) * np.expm1(others[level - 1])
        level = _level(s)
        tilts = np.array([[0.0, *others], [0.0, *top]])
        return np.where(np.isnan(s.draft_law), np.nan, tilts[s.is_top * 1, level] - np.log(total))

    return ratio


def _level(s: Scores) -> Ints:
    """Return 0 for tokens with q <= p, 2 for those with q > 2 p, 1 between."""
    with np.errstate(invalid="ignore"):
        excess = s.draft_law - s.logp
        return (excess > 0).astype(int) + (excess > np.log(2))


def associated(strength: float) -> Callable[[Scores], Floats]:
    """Return the ratio of the law in which lucky drafts make the next one likelier to be accepted.

    Luck is the sum of -log min(1, p / q) over the tokens accepted so far in the chain; the
    odds of acceptance are multiplied by exp(strength x luck).
    """

    def ratio(s: Scores) -> Floats:
        with np.errstate(invalid="ignore"):
            luck = np.nan_to_num(np.maximum(s.draft_law - s.logp, 0.0), neginf=0.0, posinf=0.0)
        before = np.cumsum(luck) - luck
        begin = np.maximum.accumulate(np.where(s.position <= 0, np.arange(len(s)), 0))
        return _with_odds(s, 1.0, strength * (before - before[begin]))

    return ratio


def by_rank(share: float, vocabulary: int) -> Callable[[Scores], Floats]:
    """Return the ratio of a mixture with Zipf's law of ranks, 1 / (1 + rank) normalised.

    It gives plausible but unlikely tokens far more weight than a uniform law does.
    """
    total = np.log(np.euler_gamma + np.log(vocabulary) + 0.5 / vocabulary)
    return lambda s: mixed(share, -np.log1p(s.rank) - total, s.logp)


def heated(share: float, index: int) -> Callable[[Scores], Floats]:
    """Return the ratio of a mixture with the law raised to POWERS[index]."""
    bent = powered(index)
    return lambda s: mixed(share, bent(s) + s.logp, s.logp)


def point(share: float, where: Callable[[Scores], tuple[Bools, Bools]]) -> Callable[..., Floats]:
    """Return the ratio of a mixture with one token; `where` says (is it that one, is one known)."""

    def ratio(s: Scores) -> Floats:
        hit, known = where(s)
        return np.where(known, mixed(share, np.where(hit, 0.0, -np.inf), s.logp), 0.0)

    return ratio


def column(share: float, name: str) -> Callable[[Scores], Floats]:
    """Return the ratio of a mixture with the law whose log-probabilities are the column `name`."""
    return lambda s: mixed(share, getattr(s, name), s.logp)


def same_quantile(share: float) -> Callable[[Scores], Floats]:
    """Return the ratio of a mixture with tokens drawn by the quantile of earlier steps' ends.

    By inversion in the order of ids a token covers an interval of [0, 1) as wide as its
    probability; one drawn by the same number lies where the intervals overlap. What ends
    a step is recovered, so that the intervals are those of the rest (p - q)+, or the bonus
    token; where the rest is not known, those of the law itself stand for it.
    """

    def ratio(s: Scores) -> Floats:
        low, width, taken, free = _intervals(s)
        left, right = _quantiles_left(s, low, width)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            common = np.minimum(low + width, right) - np.maximum(low, left)
            again = free * np.maximum(common, 0.0) / (right - left) / np.exp(s.logp)
            found = np.log(taken + (1.0 - taken) * (1.0 - share) + share * again)
        return np.where(right - left > NARROW, found, 0.0)

    return ratio


def _intervals(s: Scores) -> tuple[Floats, Floats, Floats, Floats]:
    """Return where intervals begin, how wide they are, c = min(1, q / p), and 1 - A.

    Where the rest is not known, or for the bonus token, c is 0 and A too.
    """
    p = np.exp(s.logp)
    rest = ~np.isnan(s.rest_below) & ~s.bonus
    with np.errstate(divide="ignore", invalid="ignore"):
        taken = np.where(rest, _accepted(s), 0.0)
        free = np.where(rest, -np.expm1(s.overlap), 1.0)
        width = np.nan_to_num(p * (1.0 - taken) / free, posinf=0.0)
    return np.where(rest, s.rest_below, s.below), width, taken, free


def _quantiles_left(s: Scores, low: Floats, width: Floats) -> tuple[Floats, Floats]:
    """Return what the intervals of all tokens that ended earlier steps of the request share.

    As lower and upper bounds of each row; both NaN before the first of them.
    """
    rows = np.arange(len(s))
    starts = s.position <= 0
    begin = np.maximum.accumulate(np.where(starts, rows, 0))
    turn = np.cumsum(np.diff(s.request, prepend=s.request[:1]) != 0)
    ends = np.append(starts[1:], False) & (width > NARROW)
    # Twice the request's turn keeps running maxima of one request apart from the next one's.
    left = np.maximum.accumulate(np.where(ends, low, 0.0) + 2 * turn)
    right = np.maximum.accumulate(np.where(ends, -(low + width), -1.0) + 2 * turn)
    source = np.maximum(begin - 1, 0)
    known = (begin > 0) & (turn[source] == turn)
    shift = 2 * turn
    return (
        np.where(known, left[source] - shift, np.nan),
        np.where(known, shift - right[source], np.nan),
    )


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


def directions(vocabulary: int, special: int) -> tuple[Direction, ...]:
    """Return the generic family.

    Args:
        vocabulary: Number of tokens V; a larger number is safe and weaker.
        special: Number of special tokens; 0 leaves their direction out.

    Raises:
        ValueError: If the numbers make no sense.
    """
    if vocabulary < 2 or not 0 <= special <= vocabulary:
        raise ValueError(
            f"got a vocabulary of {vocabulary} with {special} special tokens; expected "
            "at least 2 tokens and no more special ones than that"
        )
    return (
        *_of_the_law(),
        *_garbage(vocabulary, special),
        *_of_the_draft(),
        *_of_acceptance(),
        *_of_others(),
    )


def _of_the_law() -> list[Direction]:
    tops = lambda s: (s.is_top, np.ones(len(s), dtype=bool))  # noqa: E731 - two results, one line
    return [
        *(
            Direction("temperature", f"power {power:g} of the law", powered(index))
            for index, power in enumerate(POWERS)
        ),
        *(
            Direction("temperature", f"{s:.0%} by the law's square root", heated(s, 0))
            for s in (0.03, 0.2)
        ),
        *(Direction("greedy", f"{s:.0%} most likely", point(s, tops)) for s in (0.05, 0.3, 0.9)),
        *(
            Direction("unfiltered", f"{s:.0%} without filters", column(s, "unfiltered"))
            for s in (0.03, 0.3, 0.95)
        ),
    ]


def _garbage(vocabulary: int, special: int) -> list[Direction]:
    def uniform(s: Scores) -> Floats:
        return np.full(len(s), -np.log(vocabulary))

    def one_special(s: Scores) -> Floats:
        return np.where(s.special, -np.log(special), -np.inf)

    found = [
        Direction("garbage", f"{p:.0%} garbage", lambda s, p=p: mixed(p, uniform(s), s.logp))
        for p in (0.01, 0.1, 0.5)
    ]
    found += [
        Direction("ranks", f"{p:.0%} by rank", by_rank(p, vocabulary)) for p in (0.01, 0.05, 0.2)
    ]
    if special:
        found += [
            Direction(
                "special", f"{p:.1%} special", lambda s, p=p: mixed(p, one_special(s), s.logp)
            )
            for p in (0.005, 0.05)
        ]
    return found


def _of_the_draft() -> list[Direction]:
    return [
        *(
            Direction("draft", f"odds of the draft times {np.exp(odds):.2g}", tilted_to_draft(odds))
            for odds in (-1.0, 1.0, 2.5)
        ),
        *(
            Direction("draft", f"{s:.0%} by the draft's law", column(s, "draft_law"))
            for s in (0.05, 0.3, 0.9)
        ),
    ]


def _of_acceptance() -> list[Direction]:
    return [
        *(
            Direction(
                "acceptance",
                f"drafts accepted with {np.exp(shift):.2g} x odds^{slope:g}",
                accepted_with_odds(slope, shift),
            )
            for slope, shift in ACCEPTANCE
        ),
        *(
            Direction(
                "cells",
                _of_cells(top, others),
                tilted_cells(top, others),
            )
            for top, others in CELLS
        ),
        *(
            Direction("rest", f"{s:.0%} of the rest most likely", rest_to_top(s))
            for s in (0.3, 0.8)
        ),
        *(
            Direction("chain", f"odds of a draft times luck^{b:g}", associated(b))
            for b in (-0.5, 0.7, 1.5)
        ),
    ]


def _of_cells(top: tuple[float, float], others: tuple[float, float]) -> str:
    said = ", ".join(f"{np.exp(tilt):.2g}" for tilt in (*top, *others))
    return f"drafts (likely, likely and far too frequent, other, other likewise) times {said}"


def _of_others() -> list[Direction]:
    sibling = lambda s: (s.token == s.sibling, s.sibling >= 0)  # noqa: E731 - two results, one line
    return [
        *(
            Direction("neighbour row", f"{s:.0%} by the row before", column(s, "before"))
            for s in (0.05, 0.4, 0.95)
        ),
        *(Direction("copy", f"{s:.0%} copied", point(s, sibling)) for s in (0.1, 0.9)),
        *(
            Direction("quantile", f"{s:.0%} by the last quantile", same_quantile(s))
            for s in (0.3, 0.95)
        ),
        *(
            Direction("repeat", f"{s:.1%} repeated surprises", repeated_surprise(s))
            for s in (0.005, 0.05)
        ),
    ]
