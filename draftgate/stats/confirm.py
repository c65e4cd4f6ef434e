"""Stage two of the paired gate: a suspect metric on fresh pairs.

Student's t and random sign flips, both against the margin. Losses in, one
frozen record out; knows nothing of how the metric became suspect, which is
why its pairs must be new ones.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from draftgate.stats.compare import FloatArray
from draftgate.stats.losses import checked_losses, estimate

STAGE_TWO_PAIRS = 24
"""Fresh pairs for a suspect."""

CONFIRM_LEVEL = 0.05
"""One-sided level of both tests; `family` lowers it where there are many gates."""

FLIPS = 99_999
"""Random sign flips: p is known to 1e-5, well under any level of `family`."""

EXACT_UP_TO = 16
"""Pairs up to which all 2^n sign vectors are tried, at most 65,536."""

ROUNDING = 1e-12
"""Relative difference of two sums that is rounding: a tie counts as reached."""

_BLOCK = 8192
"""Sign vectors at once; bounds memory to some megabytes."""


@dataclass(frozen=True, slots=True)
class Confirmation:
    """What the fresh pairs say, on the scale of the losses.

    Attributes:
        confirmed: Whether both tests reject at the level.
        pairs: Fresh pairs.
        loss: Their mean loss.
        low: Lower bound at 1 - level by t; above the margin exactly if t rejects.
        t_p: One-sided p-value of Student's t against the margin.
        flip_p: That of the sign flips.
        p_value: The larger of both; what `family` corrects.
    """

    confirmed: bool
    pairs: int
    loss: float
    low: float
    t_p: float
    flip_p: float
    p_value: float


def stage_two(
    losses: Sequence[float] | FloatArray,
    *,
    margin: float,
    seed: int,
    level: float = CONFIRM_LEVEL,
    first: Sequence[bool] | None = None,
    flips: int = FLIPS,
) -> Confirmation:
    """Return whether fresh pairs confirm a loss above the margin.

    Needs both tests, so a single wild pair cannot carry it and neither can a
    wrong assumption of one of them. Fewer than the planned pairs only cost
    power. With `first` both tests see losses without the order's effect; the
    flips are then exact up to the error of that fit.

    Args:
        losses: Of pairs that stage one has not seen; shape (n,), n >= 6.
        margin: Loss that is tolerated, same unit.
        seed: Seed of the sign flips; equal arguments give equal results.
        level: One-sided, in (0, 0.5).
        first: Whether the candidate went first, per pair.
        flips: Random sign vectors where 2^n are too many, >= 1.

    Raises:
        ValueError: If there are fewer than six losses (below, no p-value of
            sign flips lies under 0.02), one is not finite, `first` does not fit,
            or a setting is out of range.

    Source:
        Student, Biometrika 6 (1908) 1-25; for flips of fitted losses:
        A. M. Winkler et al., NeuroImage 92 (2014) 381-397; and see `sign_flip_p`.
    """
    array = checked_losses(losses, least=6, what="losses of stage two")
    if not 0.0 < level < 0.5:
        raise ValueError(f"level must be in (0, 0.5), got {level}")
    found = estimate(array, first)
    t_p = found.p_above(margin)
    flip_p = sign_flip_p(found.adjusted, margin=margin, seed=seed, flips=flips)
    return Confirmation(
        confirmed=max(t_p, flip_p) < level,
        pairs=array.size,
        loss=found.mean,
        low=found.bound(level),
        t_p=t_p,
        flip_p=flip_p,
        p_value=max(t_p, flip_p),
    )


def sign_flip_p(
    losses: Sequence[float] | FloatArray, *, margin: float, seed: int, flips: int = FLIPS
) -> float:
    """Return the one-sided p-value of sign flips for "the loss is at most the margin".

    Pairs of equal builds in random order have losses that are symmetric about
    0, whatever their law: the test is exact there. All sign vectors are tried
    for up to 16 pairs; beyond, random ones, and the p-value is
    (1 + reached) / (1 + flips), which keeps its level for any number of flips.

    Args:
        losses: Shape (n,), n >= 1.
        margin: Same unit.
        seed: Seed of the flips; not used where all are tried.
        flips: Random sign vectors, >= 1.

    Raises:
        ValueError: If there is no loss, one is not finite, or `flips` is below 1.

    Source:
        R. A. Fisher, The Design of Experiments (1935), section 21;
        B. Phipson and G. K. Smyth, Stat. Appl. Genet. Mol. Biol. 9 (2010) 39.
    """
    excess = checked_losses(losses, least=1) - margin
    if flips < 1:
        raise ValueError(f"flips must be >= 1, got {flips}")
    size = float(np.abs(excess).sum())
    reach = float(excess.sum()) - ROUNDING * size
    if excess.size <= EXACT_UP_TO:
        codes = np.arange(2**excess.size)[:, None] >> np.arange(excess.size) & 1
        return float(np.mean((2.0 * codes - 1.0) @ excess >= reach))
    rng = np.random.default_rng(seed)
    reached = 0
    for start in range(0, flips, _BLOCK):
        signs = rng.integers(0, 2, (min(_BLOCK, flips - start), excess.size)) * 2.0 - 1.0
        reached += int((signs @ excess >= reach).sum())
    return (1 + reached) / (1 + flips)
