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

from draftgate.errors import SpecError
from draftgate.laws.bounds import MASS_ROUNDING, Kept, Range, kept, log_of, rest_sum
from draftgate.laws.orders import NOISE, ORDERS, SOFTENED
from draftgate.laws.parameters import LawParameters

Floats = NDArray[np.floating[Any]]


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


def refuse_rounded_filters(parameters: LawParameters, numerics: str) -> None:
    """Refuse filters whose edges rounding moves.

    In bfloat16 the stated law is averaged over errors of the logits (`draftgate.laws.edges`), for
    which tokens that are not listed count too. The softening alone is too little there: 1 to 7
    tokens in 1,000 are drawn from outside of the exact filter (`orders.stated`).

    Args:
        parameters: What the request asked for.
        numerics: Key of `orders.NOISE`.

    Raises:
        SpecError: If the two do not go together.
    """
    if parameters.filtered and NOISE[numerics]:
        raise SpecError(
            f"filters: got top_k {parameters.top_k} and top_p {parameters.top_p:g} in {numerics} "
            "with log-probabilities of a few tokens, expected no filters or float32: rounding "
            "moves tokens over a filter's edge. Give the model's folder as the reference, or "
            "run the server in float32."
        )


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

    Raises:
        SpecError: If there are filters and the engine's logits are rounded to bfloat16.
    """

    def __init__(self, entry: LogprobEntry, parameters: LawParameters, setting: Setting) -> None:
        refuse_rounded_filters(parameters, setting.numerics)
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
        share = (
            self._unlisted / np.exp(self._logprob[token])
            if self._logprob[token] > -np.inf
            else np.inf
        )
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
        return self._weight(token) + max(stays, float(log_of(self._soft)) - self.z.high)

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
        if not self.filtered and power < 1:
            return self._lowest_coarse_ratio(token, power)
        if not self.filtered:
            total = self._total(self._seen, self._power * power)
            return (power - 1) * self._weight(token) + self.z.low - total.high
        if not self.kept.known:
            return np.nan
        z = self.z.high if power > 1 else self.z.low
        own = (power - 1) * (self._weight(token) + self._factor(token, z, self.kept.mass.low))
        return own - self._sum_of_powers(power)

    def _lowest_coarse_ratio(self, token: int, power: float) -> float:
        """Return a lower bound on the log ratio of a coarse power of the law to the law.

        What the listed tokens leave is one block here. Within it tokens keep their shares under
        u, and the block's weight B stands for the sum of its w ** a, which for a < 1 is hardly
        bounded: 20 tokens of 49,152 leave a factor of ten. But any B that is chosen before the
        draw gives a law, so the middle of the bounds serves:

            w ** a / Y for listed tokens, u / m * B / Y for others, Y = B + sum over the listed
        """
        both = self._power * power
        rest = self._rest(self._top, both)
        block = (rest.low + rest.high) / 2 if rest.low > -np.inf else rest.high
        total = float(np.logaddexp(np.logaddexp.reduce(both * self._top), block))
        own = both * self._logprob[token]
        if token not in self._rank:
            own = self._logprob[token] - log_of(self._unlisted) + block
        return float(own - total + self.z.low - self._weight(token))

    @property
    def _unlisted(self) -> float:
        """The most that tokens which are not listed can sum to."""
        return max(1 - float(np.exp(self._top).sum()), 0.0) + MASS_ROUNDING

    def _sum_of_powers(self, power: float) -> float:
        """Return an upper bound on the log of the sum of s ** power over all tokens."""
        count, both = self.kept.count, self._power * power
        inside = np.logaddexp.reduce(both * self._seen[:count])
        outside = np.logaddexp.reduce(both * self._seen[count:])
        outside = np.logaddexp(outside, self._rest(self._seen, both).high)
        soft = float(log_of(self._soft)) - self.z.low
        stays = np.logaddexp(np.log1p(-self._soft) - self.kept.mass.low, soft)
        return float(np.logaddexp(power * stays + inside, power * soft + outside))

    def _factor(self, token: int, z: float, mass: float) -> float:
        """Return the log of what w is multiplied by; a token that may stay is taken to stay."""
        soft = float(log_of(self._soft)) - z
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
