"""How many draft tokens a step accepted, by position, with intervals over prompts.

Counts in, intervals out. Knows nothing of servers; the prompt is drawn as a
whole, because steps of one answer resemble each other.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from draftgate.stats.paired import RESAMPLES, Interval, ratio_of_sums

IntArray = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class StepAcceptance:
    """Acceptance per step over a set of prompts.

    Attributes:
        length: Tokens per step, 1 + accepted / steps, in [1, K + 1].
        rate: Accepted / (K * steps), in [0, 1].
        by_position: For each draft position, steps that accepted it / steps;
            never rises.
        prompts: Prompts with at least one step.
        steps: Steps of all of them.
    """

    length: Interval
    rate: Interval
    by_position: tuple[Interval, ...]
    prompts: int
    steps: int


def room_counts(chunk_tokens: Sequence[int], after_first: int, k: int) -> tuple[int, ...]:
    """Return how many steps of one answer gave 1, 2, ..., K + 1 tokens.

    `max_tokens` cuts what the last steps give, so only steps that began with
    room for K + 1 tokens count. That is known before a step's outcome and so
    selects no outcome, unlike leaving out the steps that were cut. A chunk of
    more than K + 1 tokens holds two steps and is left out.

    Args:
        chunk_tokens: Tokens of each chunk after the first.
        after_first: Tokens that fit after the first chunk.
        k: Draft tokens per step, >= 1.
    """
    counts = [0] * (k + 1)
    left = after_first
    for tokens in chunk_tokens:
        if left < k + 1:
            break
        if 1 <= tokens <= k + 1:
            counts[tokens - 1] += 1
        left -= tokens
    return tuple(counts)


def step_acceptance(
    counts: Sequence[Sequence[int]] | IntArray,
    *,
    confidence: float,
    seed: int,
    resamples: int = RESAMPLES,
) -> StepAcceptance | None:
    """Return acceptance with intervals; None for fewer than two prompts with a step.

    Everything is a ratio of sums over prompts, so long answers weigh more, and
    its interval a bootstrap over prompts (`paired.ratio_of_sums`).

    Args:
        counts: Steps of each prompt that gave 1, 2, ..., K + 1 tokens; shape
            (prompts, K + 1), K >= 1.
        confidence: Two-sided coverage, in (0, 1).
        seed: Seed of the draws.
        resamples: Number of bootstrap replicates, >= 1.

    Raises:
        ValueError: If the shape is another, a count is negative, or a setting
            is out of range.
    """
    array = np.asarray(counts, dtype=np.int64)
    if array.size == 0:
        return None
    if array.ndim != 2 or array.shape[1] < 2 or (array < 0).any():
        raise ValueError(f"expected counts >= 0 of shape (prompts, K + 1), got {array.shape}")
    array = array[array.sum(axis=1) > 0]
    if array.shape[0] < 2:
        return None
    steps = array.sum(axis=1).astype(np.float64)
    # Column p: steps that accepted the drafts at positions 0 to p.
    reached = (array[:, ::-1].cumsum(axis=1)[:, ::-1][:, 1:]).astype(np.float64)
    k = reached.shape[1]

    def of(numerator: NDArray[np.float64], denominator: NDArray[np.float64]) -> Interval:
        return ratio_of_sums(
            denominator, numerator, confidence=confidence, seed=seed, resamples=resamples
        )

    accepted = reached.sum(axis=1)
    return StepAcceptance(
        length=of(steps + accepted, steps),
        rate=of(accepted, steps * k),
        by_position=tuple(of(reached[:, p], steps) for p in range(k)),
        prompts=array.shape[0],
        steps=int(steps.sum()),
    )
