"""From values of paired server starts to one loss per pair.

Positive always means worse. Knows nothing of metrics, runs or decisions: what
is done with the losses is in `sequential`, `confirm` and `sign_process`.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from draftgate.stats.compare import FloatArray

BLOCK_PAIRS = 4
"""Pairs per randomised block; every default look ends at a whole block."""

_ROUNDING = 1e-12
"""Relative spread that is rounding and not variance."""


def relative_losses(
    base: Sequence[float] | FloatArray,
    candidate: Sequence[float] | FloatArray,
    *,
    higher_is_better: bool,
) -> FloatArray:
    """Return the loss of each pair of starts as a log ratio, positive where worse.

    x = log(candidate / base), with its sign turned where higher is better.
    The unit is one server start: one value per start, never one per request.

    Args:
        base: One value per pair, all > 0; shape (n,).
        candidate: The start taken in the same pair, all > 0; shape (n,).
        higher_is_better: Direction of the metric.

    Returns:
        Losses, natural logarithms; shape (n,).

    Raises:
        ValueError: If the sides differ in length, are empty, or hold a number
            that is NaN, infinite, zero or negative.
    """
    below, above = _positive(base, "base"), _positive(candidate, "candidate")
    if below.size != above.size:
        raise ValueError(
            f"got {below.size} base and {above.size} candidate values, expected pairs. Leave out "
            "a pair of which only one start was measured."
        )
    change: FloatArray = np.log(above) - np.log(below)
    return -change if higher_is_better else change


def absolute_losses(base: FloatArray, candidate: FloatArray) -> FloatArray:
    """Return the loss of each pair as a mean difference over the same prompts.

    For shares such as acceptance, where a ratio of small numbers explodes. A
    prompt is compared with itself, so what makes prompts differ cancels; what
    is left per pair of starts is one number, since prompts of one start share
    the server. The claim is about these prompts, not about others.

    Args:
        base: Value by pair of starts and prompt, higher is better; shape
            (n_pairs, n_prompts).
        candidate: The same prompts in the same order; same shape.

    Returns:
        base - candidate, averaged over prompts, in the values' own unit; shape
        (n_pairs,).

    Raises:
        ValueError: If shapes differ or are not two-dimensional, a side is
            empty, or a value is NaN or infinite.
    """
    below, above = np.asarray(base, dtype=np.float64), np.asarray(candidate, dtype=np.float64)
    if below.shape != above.shape or below.ndim != 2 or below.size == 0:
        raise ValueError(
            f"got shapes {below.shape} and {above.shape}, expected (n_pairs, n_prompts) twice. "
            "Leave out prompts that one side did not answer."
        )
    for side, values in (("base", below), ("candidate", above)):
        if not np.isfinite(values).all():
            raise ValueError(f"{side}: got NaN or infinity, expected a finite value per prompt")
    return np.asarray((below - above).mean(axis=1), dtype=np.float64)


def log_loss(loss_ratio: float, *, higher_is_better: bool) -> float:
    """Return a tolerated or relevant relative loss on the scale of `relative_losses`.

    A loss of 5 % is a ratio of 0.95 where higher is better and 1.05 elsewhere.

    Args:
        loss_ratio: Relative loss, in [0, 1); 0.05 for 5 %.
        higher_is_better: Direction of the metric.

    Raises:
        ValueError: If the loss is outside [0, 1).
    """
    if not 0.0 <= loss_ratio < 1.0:
        raise ValueError(f"loss_ratio must be in [0, 1), got {loss_ratio}")
    return -math.log1p(-loss_ratio) if higher_is_better else math.log1p(loss_ratio)


def loss_ratio(log: float, *, higher_is_better: bool) -> float:
    """Return the relative loss that `log_loss` maps to `log`; negative for a gain."""
    return -math.expm1(-log) if higher_is_better else math.expm1(log)


def candidate_first(pairs: int, *, seed: int, block_pairs: int = BLOCK_PAIRS) -> tuple[bool, ...]:
    """Return for each pair whether the candidate goes first, in random balanced blocks.

    Half of the pairs of each block have the candidate first, so that whatever
    the first place (or a port, a core) does to a server hits both sides alike
    at the end of every block; `estimate` takes it out of the spread too.

    Args:
        pairs: Number of pairs, >= 1.
        seed: Equal seeds give equal orders, and a longer one continues a shorter one.
        block_pairs: Even, >= 2.

    Raises:
        ValueError: If `pairs` is below 1 or `block_pairs` is odd or below 2.

    Source:
        Random permuted blocks: M. Zelen, J. Chronic Dis. 27 (1974) 365-375.
    """
    if pairs < 1:
        raise ValueError(f"pairs must be >= 1, got {pairs}")
    if block_pairs < 2 or block_pairs % 2:
        raise ValueError(f"block_pairs must be even and >= 2, got {block_pairs}")
    rng = np.random.default_rng(seed)
    block = np.arange(block_pairs) % 2 == 0
    blocks = [rng.permutation(block) for _ in range(-(-pairs // block_pairs))]
    return tuple(bool(first) for first in np.concatenate(blocks)[:pairs])


def checked_losses(
    losses: Sequence[float] | FloatArray, *, least: int, what: str = "losses"
) -> FloatArray:
    """Return losses as an array of shape (n,), n >= `least`.

    Raises:
        ValueError: If there are fewer, one is NaN or infinite, or the shape is another.
    """
    array = np.asarray(losses, dtype=np.float64)
    if array.ndim != 1:
        raise ValueError(f"{what}: expected one value per pair, got shape {array.shape}")
    if array.size < least:
        raise ValueError(f"{what}: too few pairs, got {array.size}, expected at least {least}")
    if not np.isfinite(array).all():
        raise ValueError(f"{what}: got NaN or infinity in {array.tolist()}, expected finite losses")
    return array


@dataclass(frozen=True, slots=True)
class Estimate:
    """The mean loss and how well it is known.

    Attributes:
        mean: Mean loss, of both orders alike where the order was given.
        error: Its standard error; exactly 0 where nothing varies.
        degrees: Degrees of freedom of the error, >= 1.
        adjusted: Losses without what the order did to them; shape (n,).
    """

    mean: float
    error: float
    degrees: int
    adjusted: FloatArray

    def p_above(self, margin: float) -> float:
        """Return Student's one-sided p-value for "the mean loss is at most the margin".

        Without any spread it is 0 above the margin and 1 otherwise: a statement
        about exact numbers such as counts.
        """
        from scipy import special  # noqa: PLC0415 - its import is slow; pytest loads us everywhere

        if self.error == 0.0:
            return 0.0 if self.mean > margin else 1.0
        return float(special.stdtr(self.degrees, -(self.mean - margin) / self.error))

    def bound(self, confidence: float) -> float:
        """Return the upper bound at a one-sided confidence; under 0.5 a lower bound."""
        from scipy import special  # noqa: PLC0415 - as above

        return self.mean + float(special.stdtrit(self.degrees, confidence)) * self.error


def estimate(losses: FloatArray, first: Sequence[bool] | None = None) -> Estimate:
    """Return the mean loss with its standard error, the effect of the order taken out.

    With a = +1 where the candidate went first and -1 elsewhere, the losses are
    fitted by mean + effect * a, and the effect is what the first place, port or
    core does to whichever server has it. One degree of freedom is its price.

    Args:
        losses: Finite; shape (n,), n >= 2, and n >= 3 with an order.
        first: Whether the candidate went first, per pair; None takes nothing out.

    Raises:
        ValueError: If the order has another length, holds one order only, or
            there are too few pairs.

    Source:
        Least squares in a two-period crossover: M. Hills and P. Armitage, Br. J.
        Clin. Pharmacol. 8 (1979) 7-20.
    """
    n = losses.size
    mean = float(losses.mean())
    if first is None:
        checked_losses(losses, least=2)
        spread = 0.0 if losses.min() == losses.max() else float(losses.std(ddof=1))
        centre = float(losses[0]) if spread == 0.0 else mean
        return Estimate(centre, spread / math.sqrt(n), n - 1, losses)
    order = _order(first, n)
    centred = order - order.mean()
    square = float(centred @ centred)
    effect = float(centred @ losses) / square
    adjusted = losses - effect * order
    mean = float(adjusted.mean())
    rest = adjusted - mean
    variance = float(rest @ rest) / (n - 2)
    if variance <= (_ROUNDING * float(np.abs(losses).max())) ** 2:
        return Estimate(mean, 0.0, n - 2, np.full(n, mean))
    error = math.sqrt(variance * (1 / n + float(order.mean()) ** 2 / square))
    return Estimate(mean, error, n - 2, adjusted)


def _order(first: Sequence[bool], pairs: int) -> FloatArray:
    order = np.where(np.asarray(first, dtype=bool), 1.0, -1.0)
    if order.shape != (pairs,):
        raise ValueError(f"got an order of {order.size} pairs for {pairs} losses")
    if pairs < 3 or abs(order.sum()) == pairs:
        raise ValueError(
            f"too few pairs to tell the order's effect: got {pairs} pairs, "
            f"{int((order > 0).sum())} with the candidate first; expected 3 or more, both orders"
        )
    return order


def _positive(values: Sequence[float] | FloatArray, side: str) -> FloatArray:
    array = checked_losses(values, least=1, what=side)
    if not (array > 0.0).all():
        raise ValueError(
            f"{side}: expected values above 0, got {array.tolist()}. A relative loss from or to 0 "
            "is not defined; compare shares by `absolute_losses`."
        )
    return array
