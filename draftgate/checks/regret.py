"""Greedy output held against the target itself, token by token, with the prefix it has.

The target reads the server's own output (teacher forcing), so nothing is lost at the
first difference of two texts. Regret is the largest logit minus that of the token chosen;
over 0 the token is a flip. Rounding flips near ties, and how often it does is measured in
the same run (A/A). Takes logits or log-probabilities; knows no models and no servers.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from draftgate.laws.answer import Answer

REGRET_LIMIT_LOGITS = {"float32": 0.01, "bfloat16": 0.5, "float16": 0.0625}
"""Largest regret that rounding is taken for, by dtype.

float32: ties only. No flip was seen there; 0.01 is a hundred times the rounding of its
logits. bfloat16: twice the .25 within which all flips between 1-row and 5-row
verification lay on SmolLM2-135M; its logits have steps of .125 between 16 and 32. float16:
an eighth of that, by its three more bits; not measured.
"""

ALPHA = 1e-4
"""Share of faultless servers that the number of flips ever calls wrong."""

Floats = NDArray[np.floating[Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Flip:
    """A token that is not the target's most likely one.

    Attributes:
        request: Running number of its request.
        prompt_id: The prompt.
        index: Its index in the output.
        token: The token that came out.
        best: The target's most likely one.
        token_logit: Its logit, or its log-probability: their differences are the same.
        best_logit: That of `best`.
    """

    request: int
    prompt_id: str
    index: int
    token: int
    best: int
    token_logit: float
    best_logit: float

    @property
    def regret(self) -> float:
        """How much the token loses to the best one, logits."""
        return self.best_logit - self.token_logit

    def describe(self, text: Callable[[int], str] | None = None) -> str:
        """Say where it is, with both candidates, their texts if known, and logits."""
        shown = [
            f"{token}{f' {text(token)!r}' if text else ''} ({value:.4f})"
            for token, value in ((self.token, self.token_logit), (self.best, self.best_logit))
        ]
        return (
            f"request {self.request} ({self.prompt_id}), token {self.index}: got {shown[0]}, "
            f"the target prefers {shown[1]}; regret {self.regret:.4f}"
        )


@dataclass(frozen=True, slots=True)
class Regrets:
    """Flips among the tokens of answers, first tokens left out; a tie is no flip."""

    tokens: int
    flips: tuple[Flip, ...] = ()

    @property
    def largest(self) -> float:
        """Largest regret, logits; 0 without flips."""
        return max((flip.regret for flip in self.flips), default=0.0)

    def __add__(self, other: "Regrets") -> "Regrets":
        """Return both together, in order."""
        return Regrets(self.tokens + other.tokens, self.flips + other.flips)


def regrets(answer: Answer, logits: Floats) -> Regrets:
    """Return the flips of one greedy answer by the target's logits.

    Args:
        answer: What the server said.
        logits: The target's, for each token of the output given all before; any constant
            may be added to a row; shape (n, V).

    Raises:
        ValueError: If rows and tokens differ in number, or a logit is not a number.
    """
    rows = np.asarray(logits)
    _check_rows(answer, len(rows))
    if np.isnan(rows).any():
        raise ValueError(f"{answer.prompt_id}: the target's logits hold NaN")
    chosen = rows[np.arange(len(rows)), np.asarray(answer.token_ids, dtype=int)]
    best = rows.argmax(axis=1)
    leading = rows.max(axis=1)
    places = (np.flatnonzero(leading[1:] > chosen[1:]) + 1).tolist()
    return Regrets(
        max(len(rows) - 1, 0),
        tuple(_flip(answer, i, int(best[i]), float(chosen[i]), float(leading[i])) for i in places),
    )


def regrets_from_top(answer: Answer, rows: Sequence[Mapping[int, float]]) -> Regrets:
    """Return the flips of one greedy answer by a server's top log-probabilities.

    Args:
        answer: What the server under test said.
        rows: Per token of the output its candidates with their log-probabilities, nats, by
            a server without speculation that read the same ids; the token itself and the
            most likely one are among them.

    Raises:
        ValueError: If rows and tokens differ in number, or a row lacks the token itself.
    """
    _check_rows(answer, len(rows))
    flips = []
    for index in range(1, len(rows)):
        row, token = rows[index], answer.token_ids[index]
        if token not in row:
            raise ValueError(
                f"{answer.prompt_id}: no log-probability of token {token} at index {index}; got "
                f"those of {sorted(row)}. Ask for the token's own (vLLM's prompt_logprobs has it)."
            )
        best = max(row, key=lambda candidate: row[candidate])
        if row[best] > row[token]:
            flips.append(_flip(answer, index, best, row[token], row[best]))
    return Regrets(max(len(rows) - 1, 0), tuple(flips))


def most_flips(tokens: int, same: Regrets, alpha: float = ALPHA) -> int:
    """Return the most flips that rounding explains, from those of a same-run A/A.

    The A/A's rate is bounded from above with confidence 1 - alpha/2 (Clopper and Pearson);
    the number of flips exceeds what is returned with probability at most alpha/2 at that
    rate. Together alpha. Flips are taken as independent given their prefixes; that tokens
    differ in how near a tie is makes the number less scattered, not more.

    Args:
        tokens: Tokens under test.
        same: Flips of the server without speculation, under the same reference.
        alpha: Share of faultless servers called wrong, in (0, 1).

    Raises:
        ValueError: If the A/A has no tokens.

    Source:
        Clopper and Pearson (1934); Hoeffding (1956) for unequal rates.
    """
    if same.tokens < 1:
        raise ValueError("the A/A run has no tokens after the first ones; send it more")
    upper = rate_bound(len(same.flips), same.tokens, alpha / 2)
    return int(stats.binom.isf(alpha / 2, tokens, upper))


def rate_bound(flips: int, tokens: int, alpha: float) -> float:
    """Return the upper confidence bound 1 - alpha of a rate."""
    if flips == tokens:
        return 1.0
    return float(stats.beta.isf(alpha, flips + 1, tokens - flips))


@dataclass(frozen=True, slots=True, kw_only=True)
class GreedyResult:
    """What speaks against greedy output, and what against judging it.

    Attributes:
        found: Flips under test.
        same: Flips of the A/A; None if none could run.
        limit_logits: Largest regret let through.
        most: Largest number of flips let through; None without an A/A.
        alpha: Share of faultless servers that `most` calls wrong.
    """

    found: Regrets
    same: Regrets | None
    limit_logits: float
    most: int | None
    alpha: float

    @property
    def faults(self) -> tuple[str, ...]:
        """Why the output is not the target's; empty if nothing says so."""
        reasons = []
        over = [flip for flip in self.found.flips if flip.regret > self.limit_logits]
        if over:
            reasons.append(
                f"{len(over)} of {self.found.tokens} tokens have a regret over "
                f"{self.limit_logits:g} logits"
            )
        if self.most is not None and len(self.found.flips) > self.most:
            reasons.append(
                f"{len(self.found.flips)} of {self.found.tokens} tokens are flips, at most "
                f"{self.most} are rounding's at level {self.alpha:g}"
            )
        return tuple(reasons)

    @property
    def doubts(self) -> tuple[str, ...]:
        """Why nothing can be concluded: the A/A itself does not fit the reference."""
        if self.same is None or self.same.largest <= self.limit_logits:
            return ()
        reason = (
            f"without speculation too a token has a regret of {self.same.largest:.4f} logits, over "
            f"{self.limit_logits:g}: the reference is not this target, or rounds otherwise"
        )
        return (reason,)

    @property
    def passed(self) -> bool:
        """Whether nothing speaks against the output or against judging it."""
        return not self.faults and not self.doubts

    @property
    def first(self) -> Flip | None:
        """The first divergence from the target."""
        return min(self.found.flips, key=lambda flip: (flip.request, flip.index), default=None)

    @property
    def worst(self) -> Flip | None:
        """The flip with the largest regret."""
        return max(self.found.flips, key=lambda flip: flip.regret, default=None)

    def describe(self, text: Callable[[int], str] | None = None) -> str:
        """Say the outcome with the first and the worst divergence."""
        reasons = (*self.faults, *self.doubts)
        cap = "no A/A ran, so their number is not judged" if self.most is None else ""
        head = "; ".join(reasons) or (
            f"{len(self.found.flips)} flips in {self.found.tokens} tokens, largest regret "
            f"{self.found.largest:.4f} logits, limit {self.limit_logits:g}; "
            + (cap or f"at most {self.most} flips")
        )
        shown = {"first divergence": self.first, "worst": self.worst}
        lines = [f"{name}: {flip.describe(text)}" for name, flip in shown.items() if flip]
        return "\n".join([head, *lines])


def judge_greedy(
    found: Regrets, same: Regrets | None, dtype: str, alpha: float = ALPHA
) -> GreedyResult:
    """Return whether greedy output is the target's, up to rounding.

    Args:
        found: Flips of the server under test.
        same: Flips of the server without speculation in the same run, under the same
            reference and with as many requests at once; None if there is no such server,
            and then the number of flips is not judged.
        dtype: The servers' dtype, a key of REGRET_LIMIT_LOGITS.
        alpha: Share of faultless servers that the number of flips calls wrong.

    Raises:
        ValueError: If the dtype has no limit, or nothing was found to judge.
    """
    if dtype not in REGRET_LIMIT_LOGITS:
        known = ", ".join(REGRET_LIMIT_LOGITS)
        raise ValueError(
            f"no limit of regret is known for dtype {dtype!r}, expected one of {known}"
        )
    if found.tokens < 1:
        raise ValueError("no greedy tokens after the first ones to judge")
    return GreedyResult(
        found=found,
        same=same,
        limit_logits=REGRET_LIMIT_LOGITS[dtype],
        most=None if same is None else most_flips(found.tokens, same, alpha),
        alpha=alpha,
    )


def _flip(answer: Answer, index: int, best: int, token_logit: float, best_logit: float) -> Flip:
    return Flip(
        request=answer.request,
        prompt_id=answer.prompt_id,
        index=index,
        token=answer.token_ids[index],
        best=best,
        token_logit=token_logit,
        best_logit=best_logit,
    )


def _check_rows(answer: Answer, rows: int) -> None:
    if rows != len(answer.token_ids):
        raise ValueError(
            f"{answer.prompt_id}: {rows} rows of the target for {len(answer.token_ids)} tokens"
        )
