"""The paired gate in one stage: evidence from the signs of losses, after every pair.

For one runner without a second stage. Losses in, one frozen record out; uses
only whether a pair's loss is above a bound, so one wild pair counts as one.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from draftgate.stats.compare import FloatArray
from draftgate.stats.losses import checked_losses
from draftgate.stats.sequential import Standing

STOP_AT = 1000.0
"""Evidence for a loss above the margin at which to stop: a false stop in at most 0.1 %."""

PASS_AT = 20.0
"""Evidence for a loss under the limit at which to pass: a false pass in at most 5 %."""

DECIDE_EVERY = 2
"""Pairs between decisions: whole blocks of an order drawn with block_pairs=2."""

CAP_PAIRS = 30
"""Pairs after which an open question stays open."""


@dataclass(frozen=True, slots=True)
class SignPlan:
    """When the evidence decides.

    Attributes:
        margin: Loss that is tolerated.
        limit: Loss that must be ruled out to pass; > margin.
        stop_at: e-value for a regression, > 1; `family.evidence_needed` for many gates.
        pass_at: e-value to pass, > 1.
        decide_every: Pairs between decisions, >= 1; the block of the order.
        cap_pairs: Pairs after which it is INCONCLUSIVE; a multiple of decide_every.

    Raises:
        ValueError: If a setting is out of range.
    """

    margin: float
    limit: float
    stop_at: float = STOP_AT
    pass_at: float = PASS_AT
    decide_every: int = DECIDE_EVERY
    cap_pairs: int = CAP_PAIRS

    def __post_init__(self) -> None:
        """Check the settings."""
        if not -math.inf < self.margin < self.limit < math.inf:
            raise ValueError(
                f"limit must be above the margin, both finite, got {self.limit} and {self.margin}"
            )
        if not (self.stop_at > 1.0 and self.pass_at > 1.0):
            raise ValueError(
                f"stop_at and pass_at must be > 1, got {self.stop_at} and {self.pass_at}"
            )
        if self.decide_every < 1 or self.cap_pairs < 1 or self.cap_pairs % self.decide_every:
            raise ValueError(
                "decide_every must be >= 1 and cap_pairs a positive multiple of it, "
                f"got {self.decide_every} and {self.cap_pairs}"
            )


@dataclass(frozen=True, slots=True)
class SignResult:
    """Where the evidence stands.

    Attributes:
        standing: SUSPECT means that the evidence alone carries a regression.
        pairs: Pairs used; later ones were not looked at.
        above_margin: How many of them lost more than the margin.
        log_evidence: Natural log of the e-value for "the median loss exceeds the margin".
        log_pass_evidence: The same for "the median loss is under the limit".
    """

    standing: Standing
    pairs: int
    above_margin: int
    log_evidence: float
    log_pass_evidence: float


def sign_stage(losses: Sequence[float] | FloatArray, plan: SignPlan) -> SignResult:
    """Return the first decision that the evidence reaches, else where it stands.

    Holds if, given the past, the median of each loss is at most the margin
    under the null hypothesis. For unchanged builds in random order a loss is
    symmetric about 0, so its median is 0 whatever the law of the noise. The
    mean may be anything: a loss that hits a few pairs only is not seen.

    Where the order comes from balanced blocks, decide at whole blocks only: the
    place of the candidate is then no coin given the past, but over a block with
    h pairs in each place, hit chances 1/2 + d and at most 1/2 - d multiply a bet
    by at most (1 - (2 p - 1)^2 4 d^2)^h <= 1. With a coin per pair,
    decide_every may be 1.

    Args:
        losses: In the order in which pairs were taken; shape (n,), n >= 1.
        plan: When to decide.

    Raises:
        ValueError: If there is no loss or one is not finite.

    Source:
        See `sign_evidence`; stopping at 1 / alpha by J. Ville, Étude critique
        de la notion de collectif (1939).
    """
    used = checked_losses(losses, least=1)[: plan.cap_pairs]
    worse, fine = sign_evidence(used > plan.margin), sign_evidence(used < plan.limit)
    may_decide = np.arange(1, used.size + 1) % plan.decide_every == 0
    stops = may_decide & (worse >= math.log(plan.stop_at))
    passes = may_decide & (fine >= math.log(plan.pass_at))
    decided = np.flatnonzero(stops | passes)
    last = int(decided[0]) if decided.size else used.size - 1
    capped = used.size == plan.cap_pairs
    return SignResult(
        standing=_standing(bool(stops[last]), bool(passes[last]), capped=capped),
        pairs=last + 1,
        above_margin=int((used[: last + 1] > plan.margin).sum()),
        log_evidence=float(worse[last]),
        log_pass_evidence=float(fine[last]),
    )


def sign_evidence(hits: Sequence[bool] | np.ndarray[tuple[int], np.dtype[np.bool_]]) -> FloatArray:
    """Return the log e-value after each pair against "a hit has chance at most 1/2".

    A bet at share p > 1/2 multiplies the stake by 2 p at a hit and by 2 (1 - p)
    at a miss; its mean is at most 1 whenever the chance of a hit is at most
    1/2, given the past. The stake is spread evenly over p in (1/2, 1). After n
    pairs with k hits it is worth

        2^(n + 1) B(k + 1, n - k + 1) (1 - I_{1/2}(k + 1, n - k + 1)),

    B the beta function and I its regularised incomplete form. A loss exactly
    at the bound is no hit, which only lowers the evidence.

    Args:
        hits: Whether each loss is beyond the bound; shape (n,), n >= 1.

    Returns:
        Natural logarithms; shape (n,).

    Raises:
        ValueError: If there is no pair.

    Source:
        H. Robbins, Ann. Math. Stat. 41 (1970) 1397-1409 (mixture); G. Shafer,
        J. R. Stat. Soc. A 184 (2021) 407-431 and I. Waudby-Smith and A. Ramdas,
        J. R. Stat. Soc. B 86 (2024) 1-27 (testing by betting).
    """
    from scipy import special  # noqa: PLC0415 - as in `losses`

    array = np.asarray(hits, dtype=bool)
    if array.ndim != 1 or array.size == 0:
        raise ValueError(f"expected one hit or miss per pair, at least one, got {array.shape}")
    n = np.arange(1, array.size + 1)
    k = np.cumsum(array)
    tail = special.betainc(n - k + 1, k + 1, 0.5)  # 1 - I_{1/2}(k + 1, n - k + 1)
    log_worth = (n + 1) * math.log(2) + special.betaln(k + 1, n - k + 1) + np.log(tail)
    return np.asarray(log_worth, dtype=np.float64)


def _standing(stops: bool, passes: bool, *, capped: bool) -> Standing:  # noqa: FBT001 - one caller
    if stops:
        return Standing.SUSPECT
    if passes:
        return Standing.PASS
    return Standing.INCONCLUSIVE if capped else Standing.GO_ON
