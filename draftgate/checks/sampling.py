"""A first look at sampled text: can it have come from the target's own law?

Every sampled token is scored by the target (teacher forcing) and the evidence
against "drawn from the target's law" is added up. Garbage and wrong
temperatures show within a few hundred tokens, small faults do not. Knows no
servers.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from draftgate.stats.evidence import log_evidence

ALPHA = 1e-4
"""Share of faultless servers that are ever called wrong, however long one looks."""

LARGEST_VOCABULARY = 2**18
"""Stands in where the vocabulary's size is not known: larger is safe, only weaker."""


@dataclass(frozen=True, slots=True)
class ScoredToken:
    """One sampled token and the law it should have come from.

    Attributes:
        logprob: Its log-probability under the target, nats.
        leading_logprob: That of the target's most likely token there, nats.
        is_leading: Whether it is that token.
    """

    logprob: float
    leading_logprob: float
    is_leading: bool


@dataclass(frozen=True, slots=True)
class SamplingCheck:
    """How much speaks against sampled text.

    Attributes:
        tokens: Tokens looked at.
        log_e_value: Largest natural log of the e-value at any time.
        alarm_at: Token at which it crossed log(1/alpha); None if never.
        mean_cost_nats: Mean negative log-likelihood, nats a token.
        alpha: Bound on the share of false alarms.
    """

    tokens: int
    log_e_value: float
    alarm_at: int | None
    mean_cost_nats: float
    alpha: float

    @property
    def passed(self) -> bool:
        """Whether the evidence never reached the limit."""
        return self.alarm_at is None

    def __str__(self) -> str:
        """Say what was found after how many tokens."""
        found = (
            f"no alarm in {self.tokens} tokens"
            if self.alarm_at is None
            else f"ALARM after {self.alarm_at} of {self.tokens} tokens"
        )
        return (
            f"{found}: largest log e-value {self.log_e_value:.1f}, limit "
            f"{-np.log(self.alpha):.1f}; the text costs {self.mean_cost_nats:.2f} nats a token"
        )


def check_sampled(
    answers: Sequence[Sequence[ScoredToken]],
    *,
    vocabulary: int = LARGEST_VOCABULARY,
    alpha: float = ALPHA,
) -> SamplingCheck:
    """Return whether sampled answers can have come from the law they were scored by.

    Args:
        answers: Scored tokens of each answer, temperature 1, nothing cut off.
        vocabulary: Number of tokens in the vocabulary.
        alpha: Bound on the share of false alarms, in (0, 1).

    Raises:
        ValueError: If there are no tokens, or a score makes no sense.

    Source:
        `draftgate.stats.evidence.log_evidence`.
    """
    tokens = [token for answer in answers for token in answer]
    if not tokens:
        raise ValueError("no sampled tokens to check")
    logprob = np.array([token.logprob for token in tokens])
    path = log_evidence(
        logprob,
        np.array([token.leading_logprob for token in tokens]),
        np.array([token.is_leading for token in tokens]),
        vocabulary,
    )
    over = np.flatnonzero(path >= -np.log(alpha))
    return SamplingCheck(
        tokens=len(tokens),
        log_e_value=float(path.max()),
        alarm_at=int(over[0]) + 1 if over.size else None,
        mean_cost_nats=float(-logprob.mean()),
        alpha=alpha,
    )
