"""From values of paired server starts to one loss per pair.

Positive always means worse. Knows nothing of metrics, runs or decisions: what
is done with the losses is in `sequential`, `confirm` and `sign_process`.
"""

import math
from collections.abc import Sequence

import numpy as np

from draftgate.stats.compare import FloatArray

BLOCK_PAIRS = 4
"""Pairs per randomised block; every default look ends at a whole block."""


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


def candidate_first(pairs: int, *, seed: int) -> tuple[bool, ...]:
    """Return for each pair whether the candidate goes first, in random balanced blocks.

    Each block of four pairs has the candidate first in two of them, so that
    whatever the first place (or a port, a core) does to a server cancels at
    every look instead of adding to the spread.

    Args:
        pairs: Number of pairs, >= 1.
        seed: Equal seeds give equal orders, and a longer one continues a shorter one.

    Raises:
        ValueError: If `pairs` is below 1.

    Source:
        Randomised permuted blocks: A. B. Hill, Brit. Med. J. 1 (1951) 278-282.
    """
    if pairs < 1:
        raise ValueError(f"pairs must be >= 1, got {pairs}")
    rng = np.random.default_rng(seed)
    block = np.arange(BLOCK_PAIRS) % 2 == 0
    blocks = [rng.permutation(block) for _ in range(-(-pairs // BLOCK_PAIRS))]
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


def mean_and_error(losses: FloatArray) -> tuple[float, float]:
    """Return the mean and its standard error; error exactly 0 for equal values."""
    low = float(losses.min())
    if low == float(losses.max()):
        return low, 0.0
    return float(losses.mean()), float(losses.std(ddof=1)) / math.sqrt(losses.size)


def p_above(losses: FloatArray, margin: float) -> float:
    """Return Student's one-sided p-value for "the mean loss is at most the margin".

    Without any spread it is 0 above the margin and 1 otherwise: a statement
    about exact numbers such as counts.

    Args:
        losses: Shape (n,), n >= 2, finite.
        margin: Same unit.
    """
    from scipy import special  # noqa: PLC0415 - its import is slow, and pytest loads us everywhere

    mean, error = mean_and_error(losses)
    if error == 0.0:
        return 0.0 if mean > margin else 1.0
    return float(special.stdtr(losses.size - 1, -(mean - margin) / error))


def _positive(values: Sequence[float] | FloatArray, side: str) -> FloatArray:
    array = checked_losses(values, least=1, what=side)
    if not (array > 0.0).all():
        raise ValueError(
            f"{side}: expected values above 0, got {array.tolist()}. A relative loss from or to 0 "
            "is not defined; compare shares by `absolute_losses`."
        )
    return array
