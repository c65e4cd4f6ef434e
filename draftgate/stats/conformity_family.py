"""Ways in which a verify step may break its rule, each as another law of flag and token.

Numbers in, numbers out. A departure states another chance of accepting, another law
of the token that ends a chain, or both, made of what was known before the place was
drawn. None is the law of one given fault: shares, odds and thresholds stand for whole
families. Under the stated rule each likelihood ratio has mean at most one.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from draftgate.stats.conformity_rows import POWERS, TILTS, Places

Floats = NDArray[np.floating[Any]]
Bools = NDArray[np.bool_]
Chance = Callable[[Places], Floats]
"""P(accepted) of each place; NaN says nothing."""
TokenLaw = Callable[[Places], Floats]
"""Log-probability of each token that ends a chain; NaN says nothing."""

FAMILIES = {
    "acceptance": 0.25,
    "threshold": 0.15,
    "temperature": 0.12,
    "neighbour row": 0.08,
    "coin": 0.12,
    "recovered": 0.15,
    "garbage": 0.06,
    "copy": 0.07,
}
"""Prior weight of each family; they add up to 1."""

STEEPNESS = 6.0
"""How sharply a smoothed threshold cuts, per unit of the logarithm; far from a step function."""


@dataclass(frozen=True, slots=True)
class Departure:
    """One other rule.

    Attributes:
        family: Key of FAMILIES.
        label: What the engine does if it is the true one, for reports.
        chance: Its chance of accepting; None for the stated one.
        token_law: Its law of recovered and bonus tokens; None for the stated one.
    """

    family: str
    label: str
    chance: Chance | None = None
    token_law: TokenLaw | None = None


@dataclass(frozen=True, slots=True)
class Part:
    """A part of the places that a departure may be confined to.

    Attributes:
        label: Where in the chain.
        weight: Prior weight.
        holds: Which places belong to it; known before they are drawn.
    """

    label: str
    weight: float
    holds: Callable[[Places], Bools]


PARTS = (
    Part("everywhere", 0.5, lambda s: np.ones(len(s), dtype=bool)),
    Part("first place of the chain", 0.12, lambda s: (s.position == 0) & ~s.bonus),
    Part("later places of the chain", 0.18, lambda s: (s.position > 0) & ~s.bonus),
    Part("bonus token", 0.2, lambda s: np.asarray(s.bonus)),
)


def log_ratios(s: Places, departures: tuple[Departure, ...]) -> Floats:
    """Return each departure's log likelihood ratio of each place; shape (departures, n).

    Where the rule's own probability was raised to the floor, the departure's is raised
    to it too; the factor 1 + slack in the rule's keeps the mean of the ratio at most one.
    """
    # Logs of 0 and numbers that are not known are part of the game; NaN ends as "says nothing".
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        return np.stack([_log_ratio(s, departure) for departure in departures])


def _log_ratio(s: Places, departure: Departure) -> Floats:
    stated = np.asarray(s.chance)
    other = stated if departure.chance is None else departure.chance(s)
    other = np.clip(np.where(np.isnan(other), stated, other), 0.0, 1.0)
    law = s.token_logp if departure.token_law is None else departure.token_law(s)
    law = np.where(np.isnan(law), s.token_logp, law)
    kept = np.log(other) - np.log(stated)
    own = np.where(s.bonus, 0.0, np.log1p(-stated)) + s.token_logp
    ended = np.where(s.bonus, 0.0, np.log1p(-other)) + law
    ended = np.where(own < s.floor, np.maximum(ended, s.floor), ended) - s.rejected_logp
    ratio = np.where(s.accepted, kept, ended)
    return np.where(np.isnan(ratio) | impossible(s), 0.0, ratio)


def impossible(s: Places) -> Bools:
    """Return which places the stated rule excludes."""
    never = np.where(s.accepted, s.chance <= 0.0, np.isneginf(s.rejected_logp))
    return np.asarray(s.broken | never)


def family(vocabulary: int) -> tuple[Departure, ...]:
    """Return the generic family.

    Args:
        vocabulary: Number of tokens V >= 2; a larger number is safe and weaker.

    Raises:
        ValueError: If there are fewer than 2 tokens.
    """
    if vocabulary < 2:
        raise ValueError(f"got a vocabulary of {vocabulary}; expected at least 2 tokens")
    return (
        *_acceptance(),
        *_thresholds(),
        *_temperature(),
        *_neighbours(),
        *_coins(),
        *_endings(),
        *_garbage(vocabulary),
        *_copies(),
    )


def _shared(share: float, chance: Chance) -> Chance:
    return lambda s: (1.0 - share) * s.chance + share * chance(s)


def _mixed(share: float, law: TokenLaw) -> TokenLaw:
    """Return the law that is `law` with probability `share` and the stated one otherwise."""

    def mixture(s: Places) -> Floats:
        return np.asarray(np.logaddexp(np.log1p(-share) + s.token_logp, np.log(share) + law(s)))

    return mixture


def _flat(value: float) -> Chance:
    return lambda s: np.full(len(s), value)


def _odds(shift: float) -> Chance:
    def chance(s: Places) -> Floats:
        raised = s.chance * np.exp(shift)
        return np.asarray(raised / (raised + 1.0 - s.chance))

    return chance


def _acceptance() -> list[Departure]:
    return [
        *(
            Departure("acceptance", f"odds of accepting times {np.exp(shift):.2g}", _odds(shift))
            for shift in (-2.5, -1.0, -0.35, 0.35, 1.0, 2.5)
        ),
        *(
            Departure("acceptance", f"{s:.0%} accepted whatever it is", _shared(s, _flat(1.0)))
            for s in (0.03, 0.3, 0.9)
        ),
        *(
            Departure("acceptance", f"accepted at {rate:.0%} always", _shared(0.9, _flat(rate)))
            for rate in (0.2, 0.5, 0.8)
        ),
    ]


def _logistic(value: Callable[[Places], Floats], at: float) -> Chance:
    def chance(s: Places) -> Floats:
        return np.asarray(1.0 / (1.0 + np.exp(-STEEPNESS * (value(s) - np.log(at)))))

    return chance


def _log_of_ratio(s: Places) -> Floats:
    return np.asarray(np.log(s.ratio))


def _thresholds() -> list[Departure]:
    by_ratio = [(f"p over {c:g} q", _logistic(_log_of_ratio, c)) for c in (0.2, 0.5, 0.8)]
    by_top = [
        (f"p over {c:g} of the largest", _logistic(lambda s: s.draft_top, c)) for c in (0.3, 0.7)
    ]
    by_p = [(f"p over {c:g}", _logistic(lambda s: s.draft_logp, c)) for c in (0.1, 0.4)]
    return [
        Departure("threshold", f"accepted if {what}", _shared(0.95, chance))
        for what, chance in (*by_ratio, *by_top, *by_p)
    ] + [
        Departure("threshold", f"accepted by q to the power {power:g}", _misjudged(power))
        for power in (0.3, 0.7, 1.4)
    ]


def _misjudged(power: float) -> Chance:
    return lambda s: _capped(s.draft_logp, power * s.draft_logq)


def _capped(logp: Floats, logq: Floats) -> Floats:
    """Return min(1, p / q); NaN where both are 0."""
    return np.asarray(np.exp(np.minimum(logp - logq, 0.0)))


def _at_power(index: int) -> Chance:
    def chance(s: Places) -> Floats:
        law = POWERS[index] * s.draft_logp - s.draft_norm[:, index]
        return _capped(law, s.draft_logq)

    return chance


def _ended_at_power(index: int) -> TokenLaw:
    return lambda s: POWERS[index] * s.token_logp - s.token_norm[:, index]


def _temperature() -> list[Departure]:
    rows = [(power, _at_power(i), _ended_at_power(i)) for i, power in enumerate(POWERS)]
    return [
        *(Departure("temperature", f"power {p:g} of the law", c, law) for p, c, law in rows),
        *(Departure("temperature", f"accepted by power {p:g} of the law", c) for p, c, _ in rows),
        *(Departure("temperature", f"last tokens by power {p:g}", None, law) for p, _, law in rows),
    ]


def _chance_by(column: str) -> Chance:
    return lambda s: _capped(getattr(s, column), s.draft_logq)


def _law_by(column: str) -> TokenLaw:
    return lambda s: np.asarray(getattr(s, column))


def _neighbours() -> list[Departure]:
    return [
        Departure(
            "neighbour row",
            f"{share:.0%} by the row {side}",
            _shared(share, _chance_by(f"draft_{side}")),
            _mixed(share, _law_by(side)),
        )
        for side in ("before", "after")
        for share in (0.05, 0.4, 0.95)
    ]


def chain_coin(s: Places) -> Floats:
    """Return the chance of accepting if all places of the step share one uniform coin.

    That the places before were accepted says that the coin lies below all their
    chances, so this place is accepted with min(1, own / smallest so far).
    """
    found = np.full(len(s), np.nan)
    smallest, step = 1.0, -1
    for row, (at, own) in enumerate(zip(s.step.tolist(), s.chance.tolist(), strict=True)):
        smallest, step = (smallest, step) if at == step else (1.0, at)
        if own == own and smallest > 0:  # noqa: PLR0124 - NaN, the bonus token, has no coin
            found[row] = min(1.0, own / smallest)
            smallest = min(smallest, own)
    return found


def request_coin(s: Places) -> Floats:
    """Return the chance of accepting if one uniform coin serves all steps of a request.

    Each flag says on which side of the chance the coin lies. Where the flags
    contradict one coin, a new one is begun.
    """
    found = np.full(len(s), np.nan)
    low, high, request = 0.0, 1.0, -1
    rows = zip(s.request.tolist(), s.chance.tolist(), s.accepted.tolist(), strict=True)
    for row, (at, own, accepted) in enumerate(rows):
        low, high = (low, high) if at == request else (0.0, 1.0)
        request = at
        if own == own:  # noqa: PLR0124 - NaN, the bonus token, has no coin
            found[row] = min(max((own - low) / (high - low), 0.0), 1.0)
            low, high = (low, min(high, own)) if accepted else (max(low, own), high)
            low, high = (low, high) if low < high else (0.0, 1.0)
    return found


def _coins() -> list[Departure]:
    return [
        Departure("coin", f"{share:.0%} by one coin for the {what}", _shared(share, coin))
        for what, coin in (("chain", chain_coin), ("request", request_coin))
        for share in (0.3, 0.9)
    ]


def _top(s: Places) -> Floats:
    return np.where(s.token_top, 0.0, -np.inf)


def _tilted(index: int) -> TokenLaw:
    return lambda s: s.token_logp + s.tilts[:, index]


def _endings() -> list[Departure]:
    mixtures = (
        ("by the target's own law", _law_by("logp"), (0.1, 0.4, 0.9)),
        ("by the draft's law", _law_by("draft_law"), (0.05, 0.3, 0.9)),
        ("the most likely one", _top, (0.05, 0.3, 0.9)),
    )
    return [
        Departure("recovered", f"{share:.0%} of last tokens {what}", None, _mixed(share, law))
        for what, law, shares in mixtures
        for share in shares
    ] + [
        Departure("recovered", f"recovered with (1 - q/p) to the {power:g}", None, _tilted(index))
        for index, power in enumerate(TILTS)
    ]


def _garbage(vocabulary: int) -> list[Departure]:
    uniform = _flat(-float(np.log(vocabulary)))
    return [
        Departure("garbage", f"{share:.1%} of last tokens garbage", None, _mixed(share, uniform))
        for share in (0.005, 0.05, 0.5)
    ]


def _twin_token(s: Places) -> Floats:
    known = np.where(s.token == s.twin_token, 0.0, -np.inf)
    return np.where(s.twin_token >= 0, known, np.nan)


def _copies() -> list[Departure]:
    return [
        Departure(
            "copy",
            f"{share:.0%} copied",
            _shared(share, lambda s: np.asarray(s.twin_accepted)),
            _mixed(share, _twin_token),
        )
        for share in (0.1, 0.5, 0.95)
    ]
