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
        is_top: Whether the token is that one.
        log_norm: Log of the sum over all tokens of p ** power; shape (n, len(POWERS)).
        unfiltered: Log-probability without top-k, top-p, min-p and penalties.
        before: Log-probability of the token under the law of the token before.
        below: Probability of all tokens with smaller ids.
        position: Place in the chain of a verify step, from 0.
        bonus: Whether the token follows a chain that was accepted as a whole.
        draft: The proposal for this place; -1 if there is none or it is not known.
        draft_logp: Log-probability of that proposal under the law of this place.
        draft_law: Log-probability of the token under the draft's own law.
        sibling: Token of another request with the same prefix; -1 if there is none.
        special: Whether the token is one of the tokenizer's special ones.
        request: Number of the request, rising.
    """

    token: Ints
    logp: Floats
    top: Floats
    is_top: Bools
    log_norm: Floats
    unfiltered: Floats
    before: Floats
    below: Floats
    position: Ints
    bonus: Bools
    draft: Ints
    draft_logp: Floats
    draft_law: Floats
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
    _check_law(law, token)
    likely = law[np.isfinite(law)]
    top = float(likely.max())
    powers = [_log_sum(power * likely) for power in POWERS]
    draft = int(known.get("draft", -1))
    row = blank(1)
    columns: dict[str, Any] = {
        "token": token,
        "logp": law[token],
        "top": top,
        "is_top": law[token] >= top,
        "log_norm": np.array(powers),
        "unfiltered": law[token],
        "below": float(np.exp(law[:token]).sum()),
        "draft_logp": law[draft] if draft >= 0 else np.nan,
    }
    columns |= known
    unknown = set(columns) - {f.name for f in fields(Scores)}
    if unknown:
        raise ValueError(f"unknown columns: {', '.join(sorted(unknown))}")
    changed = {
        name: np.asarray(value, dtype=getattr(row, name).dtype)[None]
        for name, value in columns.items()
    }
    return replace(row, **changed)


def blank(n: int) -> Scores:
    """Return n rows in which nothing is known, to be filled with `dataclasses.replace`."""
    nan, none, no = np.full(n, np.nan), np.full(n, -1), np.zeros(n, dtype=bool)
    return Scores(
        token=none,
        logp=nan,
        top=nan,
        is_top=no,
        log_norm=np.full((n, len(POWERS)), np.nan),
        unfiltered=nan,
        before=nan,
        below=nan,
        position=np.zeros(n, dtype=int),
        bonus=no,
        draft=none,
        draft_logp=nan,
        draft_law=nan,
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


def _log_sum(values: Floats) -> float:
    largest = float(values.max())
    return largest + float(np.log(np.exp(values - largest).sum()))


def _check_law(law: Floats, token: int) -> None:
    if law.ndim != 1 or np.isnan(law).any():
        raise ValueError(f"a law is one row of numbers, got shape {law.shape} or NaN in it")
    if not 0 <= token < len(law):
        raise ValueError(f"token {token} lies outside a vocabulary of {len(law)}")
    total = float(np.exp(law).sum())
    if abs(total - 1) > 1e-4:
        raise ValueError(f"the law's probabilities add up to {total:.6f}, expected 1")
