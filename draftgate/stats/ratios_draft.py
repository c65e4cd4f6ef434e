"""Likelihood ratios of other laws of a token, made of what its draft has to do with its law.

With p the target's law and q the draft's, one-hot where the proposal is known for sure,
a token is min(p, q) accepted and (p - q)+ recovered. The laws here weigh these parts, or
the tokens that q proposes too often, in another way. As in `ratios`, each has mean one.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from draftgate.stats.scores import Scores

CERTAIN = 0.95
"""Share of a law that may exclude tokens; the rest of it is the stated law."""

FLOOR = 0.05
"""Least factor of weights that a law takes off: none is certain to refuse."""

Floats = NDArray[np.floating[Any]]
Ints = NDArray[np.integer[Any]]


def tilted_to_draft(odds: float) -> Callable[[Scores], Floats]:
    """Return the ratio of the law in which the proposal's weight is multiplied by exp(odds)."""

    def ratio(s: Scores) -> Floats:
        weight = np.exp(np.where(s.draft >= 0, s.draft_logp, np.nan))
        hit = np.where(s.token == s.draft, odds, 0.0)
        return np.asarray(hit - np.log1p(np.expm1(odds) * weight))

    return ratio


def accepted_with_odds(slope: float, shift: float) -> Callable[[Scores], Floats]:
    """Return the ratio of the law in which drafts are accepted with other odds.

    The right law is A min(p, q) / A + (1 - A) (p - q)+ / (1 - A) with A, the chance that
    a draft is accepted, the sum of min(p, q). Here logit A' = slope logit A + shift takes
    the place of A, so the mean of c A' / A + (1 - c)(1 - A') / (1 - A), with c = min(1, q / p),
    is A' + 1 - A' = 1. A slope above 1 decides more sharply than the coin does.
    """
    return lambda s: _with_odds(s, slope, shift)


def accepted_by_confidence(strength: float) -> Callable[[Scores], Floats]:
    """Return the ratio of the law in which unsure drafts are accepted with other odds.

    The odds are multiplied by the inverse of the proposal's probability under the draft
    model's own law, to the power `strength`.
    """
    return lambda s: _with_odds(s, 1.0, -strength * s.confidence)


def associated(strength: float) -> Callable[[Scores], Floats]:
    """Return the ratio of the law in which lucky drafts make the next one likelier to be accepted.

    Luck is the sum of -log min(1, p / q) over the tokens accepted so far in the chain; the
    odds of acceptance are multiplied by exp(strength x luck).
    """
    return lambda s: _with_odds(s, 1.0, strength * _luck(s))


def favoured(strength: float) -> Callable[[Scores], Floats]:
    """Return the ratio of the law in which lucky drafts favour what the draft proposes too often.

    The weights of the tokens with q > p are multiplied by exp(strength x luck), see `_moved`.
    """
    return lambda s: _moved(s, np.exp(strength * _luck(s)))


def refused(slope: float, shift: float) -> Callable[[Scores], Floats]:
    """Return the ratio of the law that refuses too frequent proposals where drafts are unsure.

    The weights of the tokens with q > p are multiplied by a logistic function of
    slope logit A + shift, but by FLOOR at least, see `_moved`.
    """

    def ratio(s: Scores) -> Floats:
        with np.errstate(divide="ignore", invalid="ignore"):
            sure = expit(slope * (s.overlap - np.log1p(-np.exp(s.overlap))) + shift)
        return _moved(s, FLOOR + (1.0 - FLOOR) * sure)

    return ratio


def _moved(s: Scores, factor: Floats) -> Floats:
    """Return the log ratio if what the draft proposes too often is accepted so much more often.

    The weights of the tokens with q > p, O in all, are multiplied by g, the factor, but
    at most 1 - A + O over O, where nothing is left to be recovered. The rest (p - q)+ pays or is
    paid: with A' = A + O (g - 1) the mean is O g + (A - O) + (1 - A)(1 - A') / (1 - A) = 1.
    """
    share, over, taken = np.exp(s.overlap), np.exp(s.over), accepted_share(s)
    with np.errstate(divide="ignore", invalid="ignore"):
        gain = np.minimum(factor, np.where(over > 0, (1.0 - share + over) / over, 1.0))
        left = np.where(share < 1, 1.0 - over * (gain - 1.0) / (1.0 - share), 1.0)
        moved = np.where(_level(s) > 0, gain, taken + (1.0 - taken) * np.maximum(left, 0.0))
    found = np.log(CERTAIN * moved + 1.0 - CERTAIN)
    return np.where(np.isnan(s.draft_law), np.nan, found)


def _luck(s: Scores) -> Floats:
    """Return the sum of -log min(1, p / q) over the tokens accepted before each in its chain."""
    with np.errstate(invalid="ignore"):
        luck = np.nan_to_num(np.maximum(s.draft_law - s.logp, 0.0), neginf=0.0, posinf=0.0)
    before = np.cumsum(luck) - luck
    begin = np.maximum.accumulate(np.where(s.position <= 0, np.arange(len(s)), 0))
    return np.asarray(before - before[begin])


def rest_to_top(share: float) -> Callable[[Scores], Floats]:
    """Return the ratio of the law whose recovered tokens are the likeliest ones more often.

    The rest (p - q)+ / (1 - A) is mixed with its most likely token t; the mean of
    c + (1 - c)(1 - share) + [x = t] share (1 - A) / p is A + (1 - A)(1 - share) + share (1 - A).
    """

    def ratio(s: Scores) -> Floats:
        taken = accepted_share(s)
        with np.errstate(over="ignore"):
            most = s.rest_top * share * -np.expm1(s.overlap) * np.exp(-s.logp)
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(taken + (1.0 - taken) * (1.0 - share) + most))

    return ratio


def rest_from_draft(share: float) -> Callable[[Scores], Floats]:
    """Return the ratio of the law whose recovered tokens shun what the draft would propose.

    The rest r = (p - q)+ / (1 - A) is mixed with r (1 - c) over its mean M = E_r (1 - c),
    c = min(1, q / p); the mean of c + (1 - c)(1 - share) + share (1 - c)^2 / M is
    A + (1 - A)(1 - share) + share (1 - A).
    """

    def ratio(s: Scores) -> Floats:
        taken = accepted_share(s)
        with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
            shunned = (1.0 - taken) ** 2 * np.exp(-s.rest_free)
            return np.asarray(np.log(taken + (1.0 - taken) * (1.0 - share) + share * shunned))

    return ratio


def tilted_cells(top: tuple[float, float], others: tuple[float, float]) -> Callable[..., Floats]:
    """Return the ratio of the law with other weights of what the draft proposes too often.

    These are the tokens with p < q <= 2 p (first number) and with q > 2 p (second). Their
    weights are multiplied by the exponential of the number, in `top` if the token is the
    most likely one and in `others` else. The whole is normalised by the probabilities of
    these cells, which are known before the draw.
    """

    def ratio(s: Scores) -> Floats:
        far = np.exp(s.far_over)
        near = np.maximum(np.exp(s.over) - far, 0.0)
        total = np.ones(len(s))
        for level, mass in ((1, near), (2, far)):
            leading = np.where(s.top_level == level, np.minimum(np.exp(s.top), mass), 0.0)
            total += leading * np.expm1(top[level - 1])
            total += (mass - leading) * np.expm1(others[level - 1])
        tilts = np.array([[0.0, *others], [0.0, *top]])[s.is_top * 1, _level(s)]
        return np.where(np.isnan(s.draft_law), np.nan, tilts - np.log(total))

    return ratio


def _with_odds(s: Scores, slope: float, shift: float | Floats) -> Floats:
    share = np.exp(s.overlap)
    with np.errstate(divide="ignore", invalid="ignore"):
        other = expit(slope * (s.overlap - np.log1p(-share)) + shift)
        gain = np.where(share > 0, other / share, 1.0)
        loss = np.where(share < 1, (1.0 - other) / (1.0 - share), 1.0)
        taken = accepted_share(s)
        found: Floats = np.log(taken * gain + (1.0 - taken) * loss)
    return found


def accepted_share(s: Scores) -> Floats:
    """Return min(1, q / p) of each token: the share of its probability that comes by acceptance."""
    with np.errstate(invalid="ignore"):
        return np.asarray(np.exp(np.minimum(s.draft_law - s.logp, 0.0)))


def _level(s: Scores) -> Ints:
    """Return 0 for tokens with q <= p, 2 for those with q > 2 p, 1 between."""
    with np.errstate(invalid="ignore"):
        excess = s.draft_law - s.logp
        return np.asarray((excess > 0).astype(int) + (excess > np.log(2)))
