"""What is kept of a draft's law beside the target's: how they overlap, and what is left.

Numbers in, numbers out. With p the target's law and q the draft's, a draft is accepted with
probability A, the sum of min(p, q), and a rejected one is recovered from (p - q)+. The
columns are those of `draftgate.stats.scores.Scores`.
"""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.floating[Any]]
Ints = NDArray[np.integer[Any]]

_NAMES = ("overlap", "over", "top_over", "rest_top", "rest_below")


def sampled_columns(
    log_laws: ArrayLike, log_drafts: ArrayLike, tokens: ArrayLike
) -> dict[str, Any]:
    """Return the columns about drafts that were drawn from known laws.

    Args:
        log_laws: Log-probabilities under the target, normalised; shape (n, V).
        log_drafts: The same under the draft; shape (n, V).
        tokens: Ids of the tokens that came; shape (n,).
    """
    ids = np.asarray(tokens, dtype=int)
    pairs = zip(np.asarray(log_laws), np.asarray(log_drafts), ids.tolist(), strict=True)
    rows = [_sampled(law, draft, token) for law, draft, token in pairs]
    found: dict[str, Any] = {name: [row[i] for row in rows] for i, name in enumerate(_NAMES)}
    drafts = np.asarray(log_drafts)
    return found | {
        "draft": drafts.argmax(axis=1),
        "draft_law": drafts[np.arange(len(ids)), ids],
    }


def _sampled(law: Floats, draft: Floats, token: int) -> tuple[float, float, bool, bool, float]:
    p, q = np.exp(law), np.exp(draft)
    proposed = q > p
    rest = np.maximum(p - q, 0.0)
    left = float(rest.sum())
    return (
        _log(float(np.minimum(p, q).sum())),
        _log(float(p[proposed].sum())),
        bool(proposed[law.argmax()]),
        left > 0 and token == int(rest.argmax()),
        float(rest[:token].sum()) / left if left > 0 else np.nan,
    )


def certain_columns(log_laws: ArrayLike, drafts: ArrayLike, tokens: ArrayLike) -> dict[str, Any]:
    """Return the columns about proposals that were one token for sure: q is 1 there.

    Args:
        log_laws: Log-probabilities under the target, normalised; shape (n, V).
        drafts: Ids of the proposals; -1 where there was none, and nothing is known there.
        tokens: Ids of the tokens that came; shape (n,).
    """
    laws, ids = np.asarray(log_laws), np.asarray(tokens, dtype=int)
    proposals = np.asarray(drafts, dtype=int)
    rows = [
        _certain(law, draft, token) if draft >= 0 else (np.nan, np.nan, False, False, np.nan)
        for law, draft, token in zip(laws, proposals.tolist(), ids.tolist(), strict=True)
    ]
    found: dict[str, Any] = {name: [row[i] for row in rows] for i, name in enumerate(_NAMES)}
    hit = np.where(proposals == ids, 0.0, -np.inf)
    return found | {"draft": proposals, "draft_law": np.where(proposals >= 0, hit, np.nan)}


def _certain(law: Floats, draft: int, token: int) -> tuple[float, float, bool, bool, float]:
    overlap = float(law[draft])
    left = -float(np.expm1(overlap))
    if left <= 0:  # the target is as sure as the draft: nothing is proposed too often
        return overlap, -np.inf, False, False, np.nan
    rest = law.copy()
    rest[draft] = -np.inf
    below = float(np.exp(rest[:token]).sum()) / left
    return overlap, overlap, int(law.argmax()) == draft, token == int(rest.argmax()), below


def _log(value: float) -> float:
    with np.errstate(divide="ignore"):
        return float(np.log(value))
