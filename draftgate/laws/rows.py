"""Where each token of an answer stands: in its verify step, and beside other answers.

Everything here follows from token ids and chunk sizes alone. The first token of an
answer has no row, since prefill draws it. Knows no laws, models or servers.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from draftgate.laws.answer import Answer

Ints = NDArray[np.integer[Any]]
Bools = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Step:
    """One step of the engine after prefill.

    Attributes:
        start: Index in the output of its first token.
        tokens: Tokens that it yielded, at least 1.
        drafts: Tokens that were proposed, at least 0.
    """

    start: int
    tokens: int
    drafts: int


@dataclass(frozen=True, slots=True)
class Places:
    """Place of every token but the first in its verify step; shape (n - 1,) each.

    Attributes:
        position: Index in the chain, from 0; -1 in steps without drafts, or where the
            step is not known.
        bonus: Whether the token follows a chain that was accepted as a whole.
    """

    position: Ints
    bonus: Bools


def steps_of(answer: Answer, k: int | None) -> tuple[Step, ...]:
    """Return the steps after prefill, one a chunk, as if each had proposed k drafts.

    A server merges chunks that its client is slow to take; such a chunk is taken for one
    step. The first one holds the first token, which prefill drew, and what it was merged with.

    Args:
        answer: With the sizes of its chunks; without them there are no steps.
        k: Draft tokens a step; None or 0 without speculation.
    """
    steps, end = [], 0
    for size in answer.chunks:
        begin, end = max(end, 1), end + size
        if end > begin:
            steps.append(Step(begin, end - begin, k or 0))
    return tuple(steps)


def places_of(answer: Answer, steps: Sequence[Step]) -> Places:
    """Return where the tokens of an answer stand in the given steps.

    A token past the bonus token shows that steps were merged, and its place is not known.
    Those before it keep their places all the same: to drop them for what came later would
    drop tokens by what they are, and evidence would no longer have mean one.
    """
    n = max(len(answer.token_ids) - 1, 0)
    position, bonus = np.full(n, -1), np.zeros(n, dtype=bool)
    for step in steps:
        if step.drafts:
            rows = np.arange(min(step.tokens, step.drafts + 1))
            position[step.start - 1 + rows] = rows
            bonus[step.start - 1 + rows] = rows == step.drafts
    return Places(position, bonus)


def siblings_of(answers: Sequence[Answer]) -> list[Ints]:
    """Return per answer, for every token but the first, what another one had in its place.

    The other one is the latest earlier answer to the same prompt whose output up to there
    is the same; -1 where there is none.
    """
    earlier: dict[tuple[int, ...], list[Answer]] = {}
    found = []
    for answer in answers:
        same_prompt = earlier.setdefault(answer.prompt_token_ids, [])
        column = np.full(len(answer.token_ids), -1)
        for other in same_prompt:
            reach = _common(answer.token_ids, other.token_ids) + 1
            ids = other.token_ids[: min(reach, len(answer.token_ids))]
            column[: len(ids)] = ids
        same_prompt.append(answer)
        found.append(column[1:])
    return found


def known_columns(
    answer: Answer, places: Places, sibling: Ints, special_ids: Collection[int]
) -> dict[str, Any]:
    """Return the columns of `Scores` that do not depend on any law, by name."""
    tokens = np.array(answer.token_ids[1:], dtype=int)
    return {
        "position": places.position,
        "bonus": places.bonus,
        "sibling": sibling,
        "special": np.isin(tokens, list(special_ids)),
        "request": np.full(len(tokens), answer.request),
    }


def _common(one: Sequence[int], other: Sequence[int]) -> int:
    """Return the length of the common beginning."""
    for index, (mine, theirs) in enumerate(zip(one, other, strict=False)):
        if mine != theirs:
            return index
    return min(len(one), len(other))
