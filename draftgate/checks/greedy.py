"""Greedy text with and without speculation, token by token.

Speculation verifies several positions in one batch, so rounding may differ
from plain decoding and an argmax between two nearly equal logits may flip.
Such a flip is no fault of the rule; anything else is. Knows no servers.
"""

from collections.abc import Sequence
from dataclasses import dataclass

NEAR_TIE_LOGITS = {"float32": 0.01, "bfloat16": 0.25, "float16": 0.05}
"""Largest gap of the two leading logits at which a flip is let through, by dtype.

bfloat16: all flips between a 1-row and a 5-row batch lay within 0.25 on
SmolLM2-135M (1.4 % of positions); float32: none was seen, 0.01 is a hundred
times the rounding of its logits. float16 is bfloat16's with eight times finer
steps, rounded up; not measured.
"""


@dataclass(frozen=True, slots=True)
class GreedyAnswer:
    """What a server said to one prompt at temperature 0.

    Attributes:
        prompt_id: The prompt's id.
        token_ids: Output tokens.
        gap_logits: Per token, leading logit minus the next.
        runner_up: Per token, id of the next.
    """

    prompt_id: str
    token_ids: tuple[int, ...]
    gap_logits: tuple[float, ...]
    runner_up: tuple[int, ...]


def greedy_of(
    prompt_id: str, token_ids: tuple[int, ...], leading: Sequence[Sequence[tuple[int, float]]]
) -> GreedyAnswer:
    """Return an answer with the lead of each token, out of the two likeliest at each place.

    Args:
        prompt_id: The prompt's id.
        token_ids: Output tokens; length n.
        leading: (id, log-probability) of the likeliest token and of the next; n of them.
    """
    return GreedyAnswer(
        prompt_id=prompt_id,
        token_ids=token_ids,
        gap_logits=tuple(first[1] - second[1] for first, second in leading),
        runner_up=tuple(second[0] for _, second in leading),
    )


@dataclass(frozen=True, slots=True)
class Divergence:
    """The first place where two answers part.

    Attributes:
        prompt_id: The prompt's id.
        position: Index of the token, from 0.
        expected: Token without speculation; None if that answer had ended.
        got: Token under speculation; None if that answer had ended.
        gap_logits: Gap of the two leading logits there; None past the end.
        near_tie: Whether `got` is the runner-up within the tolerance.
    """

    prompt_id: str
    position: int
    expected: int | None
    got: int | None
    gap_logits: float | None
    near_tie: bool

    def __str__(self) -> str:
        """Say where, what and how close."""
        gap = "past the end" if self.gap_logits is None else f"gap {self.gap_logits:.4f} logits"
        kind = "near tie" if self.near_tie else "NOT a near tie"
        return (
            f"{self.prompt_id}: token {self.position} is {self.got}, without speculation "
            f"{self.expected} ({gap}; {kind})"
        )


def first_divergence(
    expected: GreedyAnswer, got: tuple[int, ...], tolerance_logits: float
) -> Divergence | None:
    """Return where `got` first differs from `expected`, or None if it never does.

    What follows the first difference continues another text and is not looked
    at. A difference in length is a difference at the end of the shorter one,
    never a near tie.

    Args:
        expected: Answer without speculation.
        got: Tokens under speculation.
        tolerance_logits: Largest gap that counts as a near tie, >= 0.
    """
    pairs = zip(expected.token_ids, got, strict=False)
    for position, (want, have) in enumerate(pairs):
        if want != have:
            gap = expected.gap_logits[position]
            close = gap <= tolerance_logits and have == expected.runner_up[position]
            return Divergence(expected.prompt_id, position, want, have, gap, close)
    end = min(len(expected.token_ids), len(got))
    if len(expected.token_ids) == len(got):
        return None
    longer_want = expected.token_ids[end] if len(expected.token_ids) > end else None
    longer_got = got[end] if len(got) > end else None
    return Divergence(expected.prompt_id, end, longer_want, longer_got, None, near_tie=False)
