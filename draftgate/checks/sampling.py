"""A first look at sampled text: is it as likely under the target as it should be?

Compares, request by request, the mean negative log-likelihood that the target
gives to text sampled with and without speculation. It sees a wrong
temperature or garbage at once and small faults not at all. Knows no servers.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

ALPHA = 1e-4
"""Share of unchanged servers that are called different."""


@dataclass(frozen=True, slots=True)
class LikelihoodCheck:
    """Likelihood of sampled text with and without speculation.

    Attributes:
        reference_nats: Median over requests without speculation, nats a token.
        candidate_nats: Median over requests under speculation, nats a token.
        p_value: Two-sided, of the hypothesis that both are alike.
        alpha: Limit on `p_value`.
        requests: Number on each side, reference first.
    """

    reference_nats: float
    candidate_nats: float
    p_value: float
    alpha: float
    requests: tuple[int, int]

    @property
    def alike(self) -> bool:
        """Whether the samples do not contradict that both are alike."""
        return self.p_value >= self.alpha

    def __str__(self) -> str:
        """Say both medians and the p-value."""
        return (
            f"sampled text costs {self.candidate_nats:.2f} nats a token under speculation, "
            f"{self.reference_nats:.2f} without (Mann-Whitney p = {self.p_value:.2g}, limit "
            f"{self.alpha:g}, {self.requests[0]} and {self.requests[1]} requests)"
        )


def compare_likelihood(
    reference: Sequence[float], candidate: Sequence[float], *, alpha: float = ALPHA
) -> LikelihoodCheck:
    """Return whether two sets of requests are equally likely text.

    Requests are independent, tokens inside one are not, so the request is the
    unit.

    Args:
        reference: Mean negative log-likelihood per request without
            speculation, nats a token; at least 16 of them.
        candidate: The same under speculation.
        alpha: Error rate of the two-sided test.

    Raises:
        ValueError: If a side has fewer than 16 values or one is not finite.

    Source:
        Mann and Whitney 1947, "On a test of whether one of two random
        variables is stochastically larger than the other"; scipy's
        `mannwhitneyu`. With 16 on each side its smallest p is below 1e-6.
    """
    sides = [np.asarray(side, dtype=float) for side in (reference, candidate)]
    for name, side in zip(("reference", "candidate"), sides, strict=True):
        if side.size < 16 or not np.isfinite(side).all():
            raise ValueError(f"{name}: need at least 16 finite values, got {side.tolist()}")
    p_value = float(stats.mannwhitneyu(sides[0], sides[1], alternative="two-sided").pvalue)
    return LikelihoodCheck(
        reference_nats=float(np.median(sides[0])),
        candidate_nats=float(np.median(sides[1])),
        p_value=p_value,
        alpha=alpha,
        requests=(sides[0].size, sides[1].size),
    )
