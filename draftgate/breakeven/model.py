"""What a verify step costs, and from which acceptance on it is worth it. Numbers alone.

With L tokens of a step (the bonus token included) the time that a stream spends
per output token is

    t(L) = alpha + T / L,

T the time of a step and alpha what a token costs whatever is accepted: prefill
and waiting, spread over a request's tokens. Both follow from two measured L.
Without speculation it is t0. Speculation breaks even where t(L) = t0.

Source: our own derivation. L for an acceptance a of each draft, given that those
before it were accepted, is 1 + a + ... + a^K: Leviathan et al.,
arXiv:2211.17192, equation 1.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from draftgate.twins import geometric_rates

_HALVINGS = 60
"""Of the interval [0, 1]: a double has 53 binary digits."""


@dataclass(frozen=True, slots=True)
class StepCost:
    """The line t(L) = alpha + T / L of one number of streams and drafts.

    Attributes:
        alpha_s: Seconds per token whatever is accepted; below 0 only by noise.
        step_s: T, seconds per verify step of one stream.
        misfit_ratio: Largest relative distance of a measured point from the
            line; 0 with two points, which always lie on it.
        points: Measured points behind it, at least 2.
    """

    alpha_s: float
    step_s: float
    misfit_ratio: float
    points: int

    def per_token_s(self, length: float) -> float:
        """Return t(L), seconds per output token of one stream, for L >= 1."""
        return self.alpha_s + self.step_s / length

    def break_even_length(self, reference_s: float) -> float | None:
        """Return the L at which a token takes `reference_s`; None if none does.

        Args:
            reference_s: t0, seconds per token without speculation, > 0.
        """
        room_s = reference_s - self.alpha_s
        return self.step_s / room_s if room_s > 0 else None


def tokens_per_step(acceptance: float, k: int) -> float:
    """Return L = 1 + a + ... + a^K, tokens; a in [0, 1], K >= 0."""
    return 1.0 + sum(geometric_rates(acceptance, k))


def acceptance_for(length: float, k: int) -> float | None:
    """Return the a in [0, 1] with `tokens_per_step(a, k)` = `length`.

    Args:
        length: L, tokens.
        k: Drafts, K >= 1.

    Returns:
        0 for L <= 1, which every acceptance reaches; None for L > K + 1, which none does.
    """
    if length <= 1:
        return 0.0
    if length > k + 1:
        return None
    low, high = 0.0, 1.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        if tokens_per_step(middle, k) < length:
            low = middle
        else:
            high = middle
    return high


def break_even_acceptance(cost: StepCost, reference_s: float, k: int) -> float | None:
    """Return the acceptance from which on speculation is not slower; None if it always is.

    Args:
        cost: Of this number of streams and K.
        reference_s: t0, seconds per token without speculation.
        k: Drafts, K >= 1.
    """
    length = cost.break_even_length(reference_s)
    return None if length is None else acceptance_for(length, k)


def fit_step_cost(lengths: Sequence[float], per_token_s: Sequence[float]) -> StepCost:
    """Return the least-squares line of time per token over 1 / L.

    Args:
        lengths: Measured L, tokens; shape (n,), each >= 1, at least two different.
        per_token_s: Measured seconds per output token of one stream; shape (n,).

    Raises:
        ValueError: If the shapes differ, or all L are alike: one level of
            acceptance can't tell alpha from T.
    """
    if len(lengths) != len(per_token_s):
        raise ValueError(f"got {len(lengths)} lengths and {len(per_token_s)} times, expected equal")
    x = [1 / length for length in lengths]
    if len(x) < 2 or max(x) - min(x) < 1e-6:
        raise ValueError(
            f"got lengths {list(lengths)}, expected two different: one level of acceptance can't "
            "tell the cost of a step from what every token costs."
        )
    mean_x, mean_y = sum(x) / len(x), sum(per_token_s) / len(x)
    spread = sum((value - mean_x) ** 2 for value in x)
    both = sum((a - mean_x) * (b - mean_y) for a, b in zip(x, per_token_s, strict=True))
    step_s = both / spread
    alpha_s = mean_y - step_s * mean_x
    misfit = max(abs(alpha_s + step_s * a - b) / b for a, b in zip(x, per_token_s, strict=True))
    return StepCost(alpha_s, step_s, misfit if len(x) > 2 else 0.0, len(x))
