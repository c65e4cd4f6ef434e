"""A law of which only the most likely tokens are known: bounds in place of numbers.

Servers give a token's own log-probability and those of the n most likely ones. At other
temperatures and under filters the stated law then depends on what the rest sums to, which
is bounded here. Every bound leans to the side on which evidence comes out smaller, so
what is called an e-value stays one. Knows no servers.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from draftgate.laws.orders import ORDERS, SOFTENED
from draftgate.laws.parameters import LawParameters

Floats = NDArray[np.floating[Any]]

MASS_ROUNDING = 1e-5
"""How far a sum of reported probabilities may be off. A float32 log-softmax of logits up to
32 is off by 4e-6 at most (twice half a unit in the last place of 32), and so is each
probability, relatively; doubled."""


@dataclass(frozen=True, slots=True)
class LogprobEntry:
    """What a server reported about one place.

    Attributes:
        token: The token that stands there.
        logprob: Its log-probability before temperature and filters, nats.
        top: The most likely tokens with theirs, likeliest first; () if they were not asked for.
    """

    token: int
    logprob: float
    top: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """Whose law it is.

    Attributes:
        vocabulary: Number of tokens; a larger number is safe and weaker.
        engine: Whose order of filters is applied; key of `orders.ORDERS`.
        numerics: Dtype of the checked engine's logits; see `orders.stated`.
    """

    vocabulary: int
    engine: str = "vllm"
    numerics: str = "float32"


@dataclass(frozen=True, slots=True)
class Range:
    """The log of a number that lies between two."""

    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Kept:
    """What top-k and top-p leave, as far as the n most likely tokens tell.

    Attributes:
        known: Whether exactly the first `count` tokens stay.
        count: So many of the most likely tokens stay for sure.
        mass: Of the sum of w over all that stay.
    """

    known: bool
    count: int
    mass: Range


def rest_sum(seen: Floats, cap: float, others: int, power: float) -> Range:
    """Return bounds on the log of the sum of u ** power over tokens that are not known.

    N of them sum to m, and none exceeds c. x ** b = x * x ** (b - 1) is at most
    x * c ** (b - 1) for b >= 1 and at least that for b < 1. It is convex for b >= 1 and
    concave below, so by Jensen's inequality

        N ** (1 - b) * m ** b  <=  sum of x ** b  <=  m * c ** (b - 1)       for b >= 1
        m * c ** (b - 1)       <=  sum of x ** b  <=  N ** (1 - b) * m ** b  for b < 1

    Args:
        seen: Log-probabilities of the tokens that are known; shape (s,).
        cap: Log of c.
        others: N; a larger number is safe.
        power: b > 0.

    Source:
        Own derivation.
    """
    if others <= 0 or cap == -np.inf:
        return Range(-np.inf, -np.inf)
    mass = 1 - float(np.exp(seen).sum())
    low = float(_log(max(mass - MASS_ROUNDING, 0.0)))
    high = float(_log(max(mass, 0.0) + MASS_ROUNDING))
    slope = (power - 1) * min(cap, high)
    spread = (1 - power) * float(_log(others))
    if power >= 1:
        return Range(spread + power * low, slope + high)
    return Range(slope + low, spread + power * high)


def kept(weights: Floats, everything: Range, parameters: LawParameters, *, joint: bool) -> Kept:
    """Return what top-k and top-p leave.

    Args:
        weights: Log w of the most likely tokens, likeliest first; shape (n,), n >= 1.
        everything: Log of the sum of w over all tokens.
        parameters: With top-k and top-p.
        joint: Whether top-p is measured on all tokens and not on what top-k left.
    """
    above = np.concatenate([[-np.inf], np.logaddexp.accumulate(weights)])
    pool = _pool(weights, above, everything, parameters.top_k)
    if parameters.top_p >= 1:
        return pool
    base, limit = everything if joint else pool.mass, float(np.log(parameters.top_p))
    # above[i] is what stands before token i; those before which less than top-p stands stay.
    sure = min(int((above[:-1] - base.low < limit).sum()), pool.count)
    if sure == pool.count and pool.known:
        return pool
    if sure < len(weights) and above[sure] - base.high >= limit and not _tie(weights, sure):
        return Kept(known=True, count=sure, mass=Range(above[sure], above[sure]))
    least = above[sure] if joint else max(above[sure], limit + base.low)
    return Kept(known=False, count=sure, mass=Range(least, pool.mass.high))


def _pool(weights: Floats, above: Floats, everything: Range, top_k: int) -> Kept:
    """Return what top-k alone leaves; tokens tied with the k-th all stay."""
    if not top_k:
        return Kept(known=False, count=len(weights), mass=everything)
    end = top_k
    while end < len(weights) and _tie(weights, end):
        end += 1
    if end < len(weights):
        return Kept(known=True, count=end, mass=Range(above[end], above[end]))
    return Kept(known=False, count=len(weights), mass=Range(above[-1], everything.high))


def _tie(weights: Floats, index: int) -> bool:
    """Return whether the token at an index is as likely as the one before it."""
    return bool(weights[index] == weights[index - 1])


class PartialLaw:
    """Bounds on the stated law of one place (`orders.stated`).

    With u the reported law, b = 1 / temperature and w = u ** b, the stated law of a token is
    w * ((1 - e) [stays] / K + e / Z), where Z sums w over all tokens, K over those that the
    filters leave, and e is the softening; without filters e is 1.

    Whether a number is given at all follows from the most likely tokens, never from the
    drawn one: a direction that fell silent for some draws only would not have mean one. Bounds
    may depend on the draw, since each holds for whatever is drawn.

    Args:
        entry: What the server reported.
        parameters: With a temperature above 0, top-k and top-p and nothing else.
        setting: Whose law it is.
    """

    def __init__(self, entry: LogprobEntry, parameters: LawParameters, setting: Setting) -> None:
        order = ORDERS[setting.engine]
        self.filtered = parameters.filtered
        self._parameters, self._setting = parameters, setting
        self._power = 1 / max(parameters.temperature, order.least_temperature)
        self._joint = "top_k_and_top_p" in order.steps
        self._soft = SOFTENED[setting.numerics] if parameters.filtered else 1.0
        self._rank = {token: place for place, (token, _) in enumerate(entry.top)}
        self._logprob = dict(entry.top) | {entry.token: entry.logprob}
        self._top = np.array([value for _, value in entry.top], dtype=float)
        own = [] if entry.token in self._rank else [entry.logprob]
        self._seen = np.concatenate([self._top, own])

    @cached_property
    def z(self) -> Range:
        """Log of the sum of w over all tokens."""
        return self._total(self._seen, self._power)

    @cached_property
    def kept(self) -> Kept:
        """What the filters leave, worked out without the drawn token."""
        everything = self._total(self._top, self._power)
        if not self.filtered:
            return Kept(known=True, count=0, mass=everything)
        return kept(self._power * self._top, everything, self._parameters, joint=self._joint)

    @property
    def exact(self) -> bool:
        """Whether the law of the most likely tokens is known and not only bounded."""
        return self._power == 1 and self.kept.known

    def is_top(self, token: int) -> bool:
        """Return whether a token is the most likely one; no token is if there is no list."""
        return self._rank.get(token) == 0

    def highest_rank(self, token: int) -> int:
        """Return the most tokens that can be likelier than a listed or the drawn one.

        A token that is not listed has r tokens in front of it, of which r - n are not listed
        either and no less likely than it: they and it hold (r - n + 1) u of the rest's m.
        """
        if token in self._rank:
            return self._rank[token]
        listed, most = len(self._top), self._setting.vocabulary - 1
        mass = max(1 - float(np.exp(self._top).sum()), 0.0) + MASS_ROUNDING
        share = mass / np.exp(self._logprob[token]) if self._logprob[token] > -np.inf else np.inf
        return int(min(listed - 1 + share, most)) if share < most else most

    def is_top_without(self, token: int, other: int) -> bool:
        """Return whether a token is the most likely one once another is taken away."""
        left = [listed for listed in self._rank if listed != other]
        return left[:1] == [token]

    def listed(self, token: int) -> bool:
        """Return whether a token is among the most likely ones."""
        return token in self._rank

    def highest(self, token: int) -> float:
        """Return the most that the log-probability of a listed or the drawn token can be."""
        return min(self._weight(token) + self._factor(token, self.z.low, self.kept.mass.low), 0.0)

    def highest_of_all(self) -> float:
        """Return the most that any token's log-probability can be."""
        return self.highest(next(iter(self._rank))) if self._rank else 0.0

    def lowest(self, token: int) -> float:
        """Return the least that the log-probability of any token can be; -inf if not known."""
        if token not in self._logprob:
            return -np.inf
        sure = self._rank.get(token, np.inf) < self.kept.count
        stays = self._factor(token, self.z.high, self.kept.mass.high) if sure else -np.inf
        return self._weight(token) + max(stays, float(_log(self._soft)) - self.z.high)

    def lowest_unfiltered(self, token: int) -> float:
        """Return the least that the log-probability of the drawn token can be without filters."""
        return self._weight(token) - self.z.high

    def lowest_ratio(self, token: int, power: float) -> float:
        """Return a lower bound on the log ratio of the law to a power, normalised, to the law.

        NaN if the filters' edge is not known. The ratio is s ** (a - 1) / (sum of s ** a) with
        s the stated law. Without filters s = w / Z, and the ratio w ** (a - 1) * Z / (sum of
        w ** a) is smallest at the lowest Z. With them s follows 1 / Z through e alone: numerator
        and sum are bounded one by one.
        """
        total = self._total(self._seen, self._power * power)
        if not self.filtered:
            return (power - 1) * self._weight(token) + self.z.low - total.high
        if not self.kept.known:
            return np.nan
        z = self.z.high if power > 1 else self.z.low
        own = (power - 1) * (self._weight(token) + self._factor(token, z, self.kept.mass.low))
        return own - self._sum_of_powers(power)

    def _sum_of_powers(self, power: float) -> float:
        """Return an upper bound on the log of the sum of s ** power over all tokens."""
        count, both = self.kept.count, self._power * power
        inside = np.logaddexp.reduce(both * self._seen[:count])
        outside = np.logaddexp.reduce(both * self._seen[count:])
        outside = np.logaddexp(outside, self._rest(self._seen, both).high)
        soft = float(_log(self._soft)) - self.z.low
        stays = np.logaddexp(np.log1p(-self._soft) - self.kept.mass.low, soft)
        return float(np.logaddexp(power * stays + inside, power * soft + outside))

    def _factor(self, token: int, z: float, mass: float) -> float:
        """Return the log of what w is multiplied by; a token that may stay is taken to stay."""
        soft = float(_log(self._soft)) - z
        rank = self._rank.get(token, np.inf)
        if not self.filtered or (self.kept.known and rank >= self.kept.count):
            return soft
        return float(np.logaddexp(np.log1p(-self._soft) - mass, soft))

    def _weight(self, token: int) -> float:
        return self._power * self._logprob[token]

    def _total(self, seen: Floats, power: float) -> Range:
        """Return bounds on the log of the sum of u ** power over all tokens."""
        if power == 1:
            return Range(0.0, 0.0)
        known, rest = float(np.logaddexp.reduce(power * seen)), self._rest(seen, power)
        return Range(float(np.logaddexp(known, rest.low)), float(np.logaddexp(known, rest.high)))

    def _rest(self, seen: Floats, power: float) -> Range:
        cap = float(self._top[-1]) if len(self._top) else 0.0
        return rest_sum(seen, cap, self._setting.vocabulary - len(seen), power)


def _log(value: float) -> Any:
    with np.errstate(divide="ignore"):
        return np.log(value)
