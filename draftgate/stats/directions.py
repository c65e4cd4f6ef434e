"""Ways in which a token may not follow its law, each as a likelihood ratio.

Numbers in, numbers out. A direction is another law for the next token, made of
what was known before it was drawn; the log of (its probability of the token / the
stated one) is what the direction has to say. No direction is the law of one given
fault: they are the ways that whole families of faults take (too hot or cold, too
greedy, towards the draft, another row's law, garbage, a copied or repeated token,
a quantile used twice). Under the stated law each ratio has mean one, so products
over tokens are martingales (Ville 1939; Ramdas et al. 2023).
"""

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from draftgate.stats.scores import POWERS, Scores

Floats = NDArray[np.floating[Any]]
Bools = NDArray[np.bool_]

RARE = 1e-3
"""A token of less probability counts as a surprise that a fault may repeat."""

FAMILIES = {
    "temperature": 0.2,
    "greedy": 0.15,
    "garbage": 0.1,
    "special": 0.05,
    "unfiltered": 0.1,
    "neighbour row": 0.1,
    "draft": 0.2,
    "copy": 0.05,
    "repeat": 0.025,
    "quantile": 0.025,
}
"""Prior weight of each family of directions; they add up to 1."""


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
        holds: Rows to which of them belong to it; known before a token is drawn.
    """

    label: str
    weight: float
    holds: Callable[[Scores], Bools]


SCOPES = (
    Scope("everywhere", 0.5, lambda s: np.ones(len(s), dtype=bool)),
    Scope("first place of the chain", 0.1, lambda s: (s.position == 0) & ~s.bonus),
    Scope("later places of the chain", 0.2, lambda s: (s.position > 0) & ~s.bonus),
    Scope("bonus token", 0.2, lambda s: np.asarray(s.bonus)),
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
    """Return the ratio of a mixture with tokens drawn by the quantile of the token before.

    By inversion in the order of ids a token covers [below, below + p) of [0, 1); one
    drawn by the same number lies where both intervals overlap.
    """

    def ratio(s: Scores) -> Floats:
        low, high = s.below, s.below + np.exp(s.logp)
        same = np.zeros(len(s), dtype=bool)
        same[1:] = s.request[1:] == s.request[:-1]
        overlap = np.zeros(len(s))
        overlap[1:] = np.minimum(high[1:], high[:-1]) - np.maximum(low[1:], low[:-1])
        width = np.ones(len(s))
        width[1:] = (high - low)[:-1]
        with np.errstate(divide="ignore", invalid="ignore"):
            law = np.log(np.maximum(overlap, 0.0) / width)
        return np.where(same, mixed(share, law, s.logp), 0.0)

    return ratio


def repeated_surprise(share: float) -> Callable[[Scores], Floats]:
    """Return the ratio of a mixture with the surprising tokens seen so far, by their counts."""

    def ratio(s: Scores) -> Floats:
        seen: defaultdict[int, int] = defaultdict(int)
        total = 0
        law = np.full(len(s), np.nan)
        rare = s.logp < np.log(RARE)
        for row, token in enumerate(s.token.tolist()):
            if total:
                law[row] = np.log(seen[token] / total) if seen[token] else -np.inf
            if rare[row]:
                seen[token] += 1
                total += 1
        return mixed(share, law, s.logp)

    return ratio


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
    return (*_of_the_law(), *_garbage(vocabulary, special), *_of_the_draft(), *_of_others())


def _of_the_law() -> list[Direction]:
    tops = lambda s: (s.is_top, np.ones(len(s), dtype=bool))  # noqa: E731 - two results, one line
    return [
        *(
            Direction("temperature", f"power {power:g} of the law", powered(index))
            for index, power in enumerate(POWERS)
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
    if special:
        found += [
            Direction(
                "special", f"{p:.1%} special", lambda s, p=p: mixed(p, one_special(s), s.logp)
            )
            for p in (0.005, 0.05)
        ]
    return found


def _of_the_draft() -> list[Direction]:
    proposal = lambda s: (s.token == s.draft, s.draft >= 0)  # noqa: E731 - two results, one line
    return [
        *(
            Direction("draft", f"odds of the draft times {np.exp(odds):.2g}", tilted_to_draft(odds))
            for odds in (-3.0, -1.0, -0.4, 0.4, 1.0, 2.5)
        ),
        *(Direction("draft", f"{s:.0%} the draft", point(s, proposal)) for s in (0.05, 0.3, 0.9)),
        *(
            Direction("draft", f"{s:.0%} by the draft's law", column(s, "draft_law"))
            for s in (0.05, 0.3, 0.9)
        ),
    ]


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
