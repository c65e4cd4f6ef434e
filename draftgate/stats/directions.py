"""Ways in which a token may not follow its law, each as a likelihood ratio.

Numbers in, numbers out. A direction is another law for the next token, made of
what was known before it was drawn; the log of (its probability of the token / the
stated one) is what the direction has to say. No direction is the law of one given
fault: they are the ways that whole families of faults take (too hot or cold, too
greedy, towards the draft, another row's law, garbage, a copied or repeated token,
a quantile used twice). Under the stated law each ratio has mean one, so products
over tokens are martingales (Ville 1939; Ramdas et al. 2023).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from draftgate.stats.ratios import (
    blended,
    by_rank,
    column,
    heated,
    point,
    powered,
    repeated_surprise,
)
from draftgate.stats.ratios_draft import (
    accepted_by_confidence,
    accepted_with_odds,
    associated,
    favoured,
    refused,
    rest_from_draft,
    rest_to_top,
    tilted_cells,
    tilted_to_draft,
)
from draftgate.stats.ratios_quantile import same_quantile
from draftgate.stats.scores import POWERS, Scores

Floats = NDArray[np.floating[Any]]
Bools = NDArray[np.bool_]

ACCEPTANCE = (
    (1.0, -2.5, 0.5),
    (1.0, -1.0, 0.4),
    (1.0, 0.4, 0.5),
    (1.0, 1.0, 2.6),
    (1.0, 2.5, 0.5),
    (1.5, -3.0, 0.8),
    (2.0, 0.0, 0.4),
    (3.0, -5.0, 0.5),
    (4.0, -2.0, 0.4),
)
"""Slopes, shifts and weights: tilts of the odds both ways, and sharper decisions."""

CELLS = (
    ((2.5, 2.5), (-3.0, -3.0), 2.4),
    ((1.0, 1.0), (-3.0, -3.0), 1.5),
    ((-2.0, -2.0), (2.0, 2.0), 0.4),
    ((2.5, 2.5), (0.0, 0.0), 0.4),
    ((0.0, 0.0), (2.0, 2.0), 0.4),
    ((0.0, 0.0), (-3.0, -3.0), 0.4),
    ((-3.0, -3.0), (-3.0, -3.0), 0.4),
    ((0.7, -3.0), (0.7, -3.0), 0.4),
    ((-1.0, 1.0), (-1.0, 1.0), 0.4),
)
"""Tilts of likely and of other proposals, proposed somewhat and far too often, with weights."""

POWER_WEIGHTS = (0.25, 0.4, 5.0, 1.0, 0.4, 0.25)
"""Prior weights of POWERS: small changes of temperature need the most tokens."""

FAMILIES = {
    "temperature": 0.12,
    "greedy": 0.015,
    "garbage": 0.01,
    "ranks": 0.01,
    "special": 0.045,
    "unfiltered": 0.1,
    "neighbour row": 0.09,
    "draft": 0.12,
    "acceptance": 0.13,
    "cells": 0.07,
    "rest": 0.06,
    "chain": 0.06,
    "copy": 0.065,
    "repeat": 0.005,
    "quantile": 0.1,
}
"""Prior weight of each family of directions; they add up to 1."""

OF_DRAFTS = ("draft", "acceptance", "cells", "rest", "chain")
"""Families that speak of drafts: only where there is one, or in the bonus token's place."""

OF_OTHERS = ("copy", "repeat", "quantile")
"""Families that hold a token against earlier ones: what they say does not end with a chain."""


@dataclass(frozen=True, slots=True)
class Direction:
    """One alternative law.

    Attributes:
        family: Key of FAMILIES.
        label: What the tokens look like if it is the true one, for reports.
        log_ratio: Rows to log likelihood ratios, shape (n,); NaN where a number is not known.
        weight: Prior weight among its family. Those that faults were seen to take have
            more, and none is so small that it costs over two nats more than an equal share.
    """

    family: str
    label: str
    log_ratio: Callable[[Scores], Floats]
    weight: float = 1.0


@dataclass(frozen=True, slots=True)
class Scope:
    """A part of the tokens that a direction may be confined to.

    Attributes:
        label: Where in the chain.
        weight: Prior weight.
        draft_weight: That for the families in OF_DRAFTS.
        other_weight: That for the families in OF_OTHERS.
        holds: Rows to which of them belong to it; known before a token is drawn.
    """

    label: str
    weight: float
    draft_weight: float
    other_weight: float
    holds: Callable[[Scores], Bools]


def groups(family: Sequence[Direction]) -> NDArray[np.int64]:
    """Return the group of each direction: 0 of the law, 1 of OF_DRAFTS, 2 of OF_OTHERS.

    Scopes have weights of their own for each: `weight`, `draft_weight`, `other_weight`.
    """
    return np.array([(d.family in OF_DRAFTS) + 2 * (d.family in OF_OTHERS) for d in family])


SCOPES = (
    Scope("everywhere", 0.12, 0.03, 0.88, lambda s: np.ones(len(s), dtype=bool)),
    Scope("all but the bonus token", 0.64, 0.79, 0.05, lambda s: ~s.bonus),
    Scope("first place of the chain", 0.025, 0.01, 0.02, lambda s: (s.position == 0) & ~s.bonus),
    Scope("later places of the chain", 0.035, 0.03, 0.02, lambda s: (s.position > 0) & ~s.bonus),
    Scope("bonus token", 0.18, 0.14, 0.03, lambda s: np.asarray(s.bonus)),
)


def directions(vocabulary: int, special: int, *, drafts: bool = True) -> tuple[Direction, ...]:
    """Return the generic family.

    Args:
        vocabulary: Number of tokens V; a larger number is safe and weaker.
        special: Number of special tokens; 0 leaves their direction out.
        drafts: Whether anything is known of drafts; without them, the directions that
            speak of drafts would only dilute the others.

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
        *(_of_the_draft() if drafts else ()),
        *(_of_acceptance() if drafts else ()),
        *_of_others(),
    )


def _of_the_law() -> list[Direction]:
    tops = lambda s: (s.is_top, np.ones(len(s), dtype=bool))  # noqa: E731 - two results, one line
    return [
        *(
            Direction("temperature", f"power {power:g} of the law", powered(index), weight)
            for index, (power, weight) in enumerate(zip(POWERS, POWER_WEIGHTS, strict=True))
        ),
        *(
            Direction("temperature", f"{s:.0%} by the law's square root", heated(s, 0), 0.25)
            for s in (0.03, 0.2)
        ),
        *(Direction("greedy", f"{s:.0%} most likely", point(s, tops)) for s in (0.05, 0.3, 0.9)),
        *(
            Direction("unfiltered", f"{s:.0%} without filters", column(s, "unfiltered"), weight)
            for s, weight in ((0.03, 0.2), (0.3, 0.6), (0.95, 2.4))
        ),
    ]


def _garbage(vocabulary: int, special: int) -> list[Direction]:
    def uniform(s: Scores) -> Floats:
        return np.full(len(s), -np.log(vocabulary))

    def one_special(s: Scores) -> Floats:
        return np.where(s.special, -np.log(special), -np.inf)

    found = [
        Direction("garbage", f"{p:.0%} garbage", blended(p, uniform)) for p in (0.01, 0.1, 0.5)
    ]
    found += [
        Direction("ranks", f"{p:.0%} by rank", by_rank(p, vocabulary)) for p in (0.01, 0.05, 0.2)
    ]
    if special:
        found += [
            Direction("special", f"{p:.1%} special", blended(p, one_special), weight)
            for p, weight in ((0.005, 1.6), (0.05, 0.3))
        ]
    return found


def _of_the_draft() -> list[Direction]:
    return [
        *(
            Direction(
                "draft",
                f"odds of the draft times {np.exp(odds):.2g}",
                tilted_to_draft(odds),
                weight,
            )
            for odds, weight in ((-1.0, 0.4), (1.0, 1.0), (2.5, 0.4))
        ),
        *(
            Direction("draft", f"{s:.2g} of the draft's law", column(s, "draft_law"), weight)
            for s, weight in ((0.012, 0.8), (0.05, 0.5), (0.3, 0.4), (0.9, 4.0))
        ),
    ]


def _of_acceptance() -> list[Direction]:
    return [
        *(
            Direction(
                "acceptance",
                f"drafts accepted with {np.exp(shift):.2g} x odds^{slope:g}",
                accepted_with_odds(slope, shift),
                weight,
            )
            for slope, shift, weight in ACCEPTANCE
        ),
        *(
            Direction(
                "acceptance",
                f"odds of a draft times doubt^{b:g}",
                accepted_by_confidence(b),
                weight,
            )
            for b, weight in ((-1.0, 0.4), (1.5, 1.4))
        ),
        Direction("acceptance", "over-proposed tokens refused if unsure", refused(3.0, -6.0), 2.2),
        *(
            Direction("cells", _of_cells(top, others), tilted_cells(top, others), weight)
            for top, others, weight in CELLS
        ),
        *(
            Direction("rest", f"{s:.0%} of the rest most likely", rest_to_top(s), weight)
            for s, weight in ((0.3, 0.3), (0.8, 2.4))
        ),
        *(
            Direction("rest", f"{s:.0%} of the rest shuns the draft", rest_from_draft(s), weight)
            for s, weight in ((0.15, 0.3), (0.5, 0.5))
        ),
        *(
            Direction("chain", f"odds of a draft times luck^{b:g}", associated(b), weight)
            for b, weight in ((-0.5, 0.3), (2.0, 0.4))
        ),
        Direction("chain", "over-proposed tokens times luck^0.5", favoured(0.5), 2.5),
    ]


def _of_cells(top: tuple[float, float], others: tuple[float, float]) -> str:
    said = ", ".join(f"{np.exp(tilt):.2g}" for tilt in (*top, *others))
    return f"drafts (likely, likely and far too frequent, other, other likewise) times {said}"


def _of_others() -> list[Direction]:
    sibling = lambda s: (s.token == s.sibling, s.sibling >= 0)  # noqa: E731 - two results, one line
    return [
        *(
            Direction("neighbour row", f"{s:.0%} by the row before", column(s, "before"), weight)
            for s, weight in ((0.05, 0.3), (0.4, 0.3), (0.95, 2.0))
        ),
        *(
            Direction(
                "neighbour row", f"{s:.0%} by one of the last rows", column(s, "recent"), weight
            )
            for s, weight in ((0.05, 2.0), (0.4, 0.3))
        ),
        *(
            Direction("copy", f"{s:.0%} copied", point(s, sibling), weight)
            for s, weight in ((0.1, 0.2), (0.9, 2.0))
        ),
        *(
            Direction(
                "quantile",
                f"{s:.0%} by the quantile of earlier {'ends of steps' if ends else 'tokens'}",
                same_quantile(s, ends=ends),
                weight,
            )
            for s, weight in ((0.3, 0.2), (0.95, 2.0))
            for ends in (True, False)
        ),
        *(
            Direction("repeat", f"{s:.1%} repeated surprises", repeated_surprise(s))
            for s in (0.005, 0.05)
        ),
    ]
