"""What is kept of a token and the law it should have come from: one row of numbers.

A law over tokens is a vector as long as the vocabulary; the evidence against it
needs a few numbers of that vector only. They are taken here once, so that tests
can be stored, replayed and simulated without the vectors. Knows no models and no
servers.
"""

from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

POWERS = (0.5, 0.7, 0.85, 1.15, 1.5, 2.2)
"""Powers of the law that stand for a wrong temperature: T / T', hotter below 1."""

TINY = 1e-300
"""Stands for 0 where one divides by it."""

Floats = NDArray[np.floating[Any]]
Ints = NDArray[np.integer[Any]]
Bools = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scores:
    """Drawn tokens in the order in which they were drawn; one entry a token in every column.

    All log-probabilities are natural and at most 0; -inf says "cannot be drawn".
    NaN says "not known", and directions that need the number then say nothing.

    Attributes:
        token: Ids; shape (n,).
        logp: Log-probability of the token under its law, given its prefix.
        top: That of the most likely token there.
        is_top: Whether the token is that one; of several equally likely ones, the first.
        rank: Number of tokens that are more likely, or as likely with a smaller id.
        log_norm: Log of the sum over all tokens of p ** power; shape (n, len(POWERS)).
        unfiltered: Log-probability without top-k, top-p and min-p, so after penalties, bias,
            masks and temperature.
        before: Log-probability of the token under the law of the token before.
        recent: Log of the mean of its probabilities under the laws of up to five tokens
            before it in the same request.
        below: Probability of all tokens with smaller ids.
        position: Place in the chain of a verify step, from 0; -1 if the token is in no chain,
            or its place is not known.
        bonus: Whether the token follows a chain that was accepted as a whole.
        draft: The proposal for this place; -1 if there is none or it is not known.
        draft_logp: Log-probability of that proposal under the law of this place.
        confidence: That of the proposal under the draft model's own law, also where the
            most likely token is proposed for sure.
        draft_law: Log-probability of the token under the draft's own law q.
        overlap: Log of the sum over all tokens of min(p, q): how often drafts are accepted.
        over: Log of the probability under the law of all tokens with q > p.
        far_over: Likewise with q > 2 p.
        top_level: Of the most likely token 0 if q <= p, 2 if q > 2 p, else 1.
        rest_top: Whether the token has the largest p - q, if any is above 0.
        rest_free: Log of the mean of 1 - min(1, q / p) over (p - q)+, normalised.
        rest_below: Share of (p - q)+ that tokens with smaller ids have.
        sibling: Token of another request with the same prefix; -1 if there is none.
        special: Whether the token is one of the tokenizer's special ones.
        request: Number of the request, rising.
    """

    token: Ints
    logp: Floats
    top: Floats
    is_top: Bools
    rank: Floats
    log_norm: Floats
    unfiltered: Floats
    before: Floats
    recent: Floats
    below: Floats
    position: Ints
    bonus: Bools
    draft: Ints
    draft_logp: Floats
    confidence: Floats
    draft_law: Floats
    overlap: Floats
    over: Floats
    far_over: Floats
    top_level: Ints
    rest_top: Bools
    rest_free: Floats
    rest_below: Floats
    sibling: Ints
    special: Bools
    request: Ints

    def __len__(self) -> int:
        """Return the number of tokens."""
        return len(self.token)

    def take(self, rows: Any) -> "Scores":
        """Return the rows that a numpy index picks, in its order."""
        return Scores(**{f.name: getattr(self, f.name)[rows] for f in fields(self)})


def score(log_law: ArrayLike, token: int, **known: Any) -> Scores:
    """Return the row of one token drawn from a law over the whole vocabulary.

    Args:
        log_law: Log-probabilities of all tokens, nats, normalised; shape (V,).
        token: Id of the drawn token, in [0, V).
        known: Further columns by name as single values, for example `position=2`;
            `draft_logp` is read from the law when `draft` is given without it.

    Raises:
        ValueError: If the law is not normalised within 1e-4 or holds NaN, the token
            lies outside it, or a column is unknown.
    """
    law = np.asarray(log_law, dtype=float)
    if law.ndim != 1:
        raise ValueError(f"a law is one row of numbers, got shape {law.shape}")
    return score_many(law[None], [token], **{name: [value] for name, value in known.items()})


def score_many(log_laws: ArrayLike, tokens: ArrayLike, **known: Any) -> Scores:
    """Return the rows of tokens drawn from laws over the whole vocabulary.

    Args:
        log_laws: Log-probabilities of all tokens, nats, normalised; shape (n, V).
        tokens: Ids of the drawn tokens, in [0, V); shape (n,).
        known: Further columns by name, shape (n,); `draft_logp` is read from the laws
            when `draft` is given without it.

    Raises:
        ValueError: As `score`, or if the shapes do not fit.
    """
    laws, ids = np.asarray(log_laws, dtype=float), np.asarray(tokens, dtype=int)
    unknown = set(known) - {f.name for f in fields(Scores)}
    if unknown:
        raise ValueError(f"unknown columns: {', '.join(sorted(unknown))}")
    if laws.ndim != 2 or ids.shape != laws.shape[:1]:
        raise ValueError(f"got laws of shape {laws.shape} for tokens of shape {ids.shape}")
    columns = _columns(laws, ids) | known
    if "draft" in known and "draft_logp" not in known:
        columns["draft_logp"] = _at(laws, np.asarray(known["draft"], dtype=int))
    row = blank(len(ids))
    changed = {
        name: np.asarray(value, dtype=getattr(row, name).dtype) for name, value in columns.items()
    }
    wrong = [name for name, value in changed.items() if len(value) != len(ids)]
    if wrong:
        raise ValueError(f"expected {len(ids)} entries in each column; not so: {', '.join(wrong)}")
    return replace(row, **changed)


def _columns(laws: Floats, ids: Ints) -> dict[str, Any]:
    """Return what one law and its token say by themselves."""
    n, vocabulary = laws.shape
    log_norm, below, top_token = np.empty((n, len(POWERS))), np.empty(n), laws.argmax(axis=1)
    rank = np.empty(n)
    buffer = np.empty(vocabulary)
    # Row by row: one row stays in the processor's cache, all of them do not.
    for row, (law, token) in enumerate(zip(laws, ids.tolist(), strict=True)):
        np.exp(law, out=buffer)
        _check_law(float(buffer.sum()), token, vocabulary)
        below[row] = buffer[:token].sum()
        # Tied tokens get a rank each: with one for all, a law of ranks would exceed 1.
        rank[row] = (law > law[token]).sum() + (law[:token] == law[token]).sum()
        for column, power in enumerate(POWERS):
            np.exp(np.multiply(law, power, out=buffer), out=buffer)
            log_norm[row, column] = np.log(buffer.sum())
    own = _at(laws, ids)
    return {
        "token": ids,
        "logp": own,
        "top": _at(laws, top_token),
        "is_top": ids == top_token,
        "rank": rank,
        "log_norm": log_norm,
        "unfiltered": own,
        "below": below,
    }


def draft_columns(log_laws: ArrayLike, draft_laws: ArrayLike, tokens: ArrayLike) -> dict[str, Any]:
    """Return the columns of `Scores` that compare laws with those drafts are drawn from, by name.

    Args:
        log_laws: Log-probabilities p of all tokens, nats; shape (n, V).
        draft_laws: Those of the draft, q; 0 for the proposal and -inf else where it is
            a draft's most likely token or known for sure; shape (n, V).
        tokens: Ids of the drawn tokens; shape (n,).
    """
    laws, drafts = np.asarray(log_laws, dtype=float), np.asarray(draft_laws, dtype=float)
    rows = [
        _compared(np.exp(law), np.exp(draft), token)
        for law, draft, token in zip(laws, drafts, np.asarray(tokens).tolist(), strict=True)
    ]
    columns = {name: np.array([row[name] for row in rows]) for name in _COMPARED}
    return columns | {"draft_law": _at(drafts, np.asarray(tokens))}


_COMPARED = ("overlap", "over", "far_over", "top_level", "rest_top", "rest_free", "rest_below")


def _compared(p: Floats, q: Floats, token: int) -> dict[str, Any]:
    """Return what one law has to do with its draft's law, as probabilities; shape (V,) each."""
    rest = np.maximum(p - q, 0.0)
    top = int(p.argmax())
    with np.errstate(divide="ignore"):
        return {
            "overlap": np.log(np.minimum(p, q).sum()),
            "over": np.log(p[q > p].sum()),
            "far_over": np.log(p[q > 2 * p].sum()),
            "top_level": int(q[top] > p[top]) + int(q[top] > 2 * p[top]),
            "rest_top": bool(rest[token] > 0 and token == rest.argmax()),
            "rest_free": np.log((rest**2 / np.maximum(p, TINY)).sum() / max(rest.sum(), TINY)),
            "rest_below": rest[:token].sum() / max(rest.sum(), TINY),
        }


def _at(laws: Floats, ids: Ints) -> Floats:
    """Return each law at its id; NaN where the id is negative, which stands for none."""
    return np.where(ids >= 0, laws[np.arange(len(ids)), np.maximum(ids, 0)], np.nan)


def blank(n: int) -> Scores:
    """Return n rows in which nothing is known, to be filled with `dataclasses.replace`."""
    nan, none, no = np.full(n, np.nan), np.full(n, -1), np.zeros(n, dtype=bool)
    return Scores(
        token=none,
        logp=nan,
        top=nan,
        is_top=no,
        rank=nan,
        log_norm=np.full((n, len(POWERS)), np.nan),
        unfiltered=nan,
        before=nan,
        recent=nan,
        below=nan,
        position=np.zeros(n, dtype=int),
        bonus=no,
        draft=none,
        draft_logp=nan,
        confidence=nan,
        draft_law=nan,
        overlap=nan,
        over=nan,
        far_over=nan,
        top_level=np.zeros(n, dtype=int),
        rest_top=no,
        rest_free=nan,
        rest_below=nan,
        sibling=none,
        special=no,
        request=np.zeros(n, dtype=int),
    )


def joined(parts: "list[Scores]") -> Scores:
    """Return the rows of all parts, in order.

    Raises:
        ValueError: If there are no parts.
    """
    if not parts:
        raise ValueError("no scores to join")
    return Scores(
        **{f.name: np.concatenate([getattr(p, f.name) for p in parts]) for f in fields(Scores)}
    )


def _check_law(total: float, token: int, vocabulary: int) -> None:
    if not 0 <= token < vocabulary:
        raise ValueError(f"token {token} lies outside a vocabulary of {vocabulary}")
    if not abs(total - 1) <= 1e-4:
        raise ValueError(f"the law's probabilities add up to {total:.6f}, expected 1")
