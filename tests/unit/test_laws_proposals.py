"""What vLLM's n-gram drafter proposes, and what of it an answer's tokens met."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from draftgate.errors import SpecError
from draftgate.laws.answer import Answer
from draftgate.laws.parameters import LawParameters
from draftgate.laws.proposals import NgramDrafter, proposals_of
from draftgate.laws.rows import places_of


def literal(ids: list[int], k: int, shortest: int, longest: int) -> tuple[int, ...]:
    """Return the proposals by trying every length and place in turn."""
    for length in range(longest, shortest - 1, -1):
        for start in range(len(ids) - length):
            if ids[start : start + length] == ids[-length:]:
                return tuple(ids[start + length : start + length + k])
    return ()


@settings(deadline=None)
@given(
    st.lists(st.integers(0, 3), max_size=30),
    st.integers(1, 5),
    st.integers(1, 4),
    st.integers(0, 3),
)
def test_proposals_are_the_literal_ones(ids: list[int], k: int, shortest: int, more: int) -> None:
    """The longest match counts, and of its places the earliest."""
    drafter = NgramDrafter(k=k, shortest=shortest, longest=shortest + more)

    assert drafter(ids) == literal(ids, k, shortest, shortest + more)


@pytest.mark.parametrize(
    ("ids", "expected"),
    [
        ([1, 2, 9, 5, 1, 2, 8, 5, 1, 2], (8, 5)),
        ([1, 2, 7, 1, 2, 8, 1, 2], (7, 1)),
        ([4, 4, 4], (4,)),
        ([1, 2, 3], ()),
        ([], ()),
    ],
    ids=["longest", "earliest", "overlapping", "none", "empty"],
)
def test_proposals_by_hand(ids: list[int], expected: tuple[int, ...]) -> None:
    """Cases whose proposals were worked out by hand."""
    assert NgramDrafter(k=2, shortest=1, longest=3)(ids) == expected


def test_nothing_is_proposed_past_the_longest_text() -> None:
    """Near max_model_len fewer tokens are proposed, and none at it."""
    ids = [1, 2, 3, 1]

    found = [
        NgramDrafter(k=3, shortest=1, longest=1, max_model_len=size)(ids) for size in (4, 5, 9)
    ]

    assert found == [(), (2,), (2, 3, 1)]


@pytest.mark.parametrize(("k", "shortest", "longest"), [(0, 1, 2), (3, 0, 2), (3, 3, 2)])
def test_settings_without_sense_are_refused(k: int, shortest: int, longest: int) -> None:
    """A drafter needs k >= 1 and lengths in order."""
    with pytest.raises(SpecError, match="ngram"):
        NgramDrafter(k=k, shortest=shortest, longest=longest)


def test_proposals_of_an_answer_end_their_chains() -> None:
    """Steps have as many drafts as were proposed, so the bonus token is where they end."""
    answer = Answer(
        request=0,
        prompt_id="p",
        prompt_token_ids=(1, 2, 3),
        token_ids=(1, 2, 3, 1, 9, 9, 9, 8),
        chunks=(1, 4, 1, 2),
        finish_reason="length",
        parameters=LawParameters(),
    )

    found = proposals_of(answer, 3, NgramDrafter(k=3, shortest=1, longest=2))
    places = places_of(answer, found.steps)

    # After 1: 2 3 1 were proposed and accepted, 9 is the bonus. After 9: nothing before it.
    # After 9 9: 9 was proposed and accepted, 8 is the bonus.
    assert [(s.start, s.tokens, s.drafts) for s in found.steps] == [(1, 4, 3), (5, 1, 0), (6, 2, 1)]
    assert found.draft.tolist() == [2, 3, 1, -1, -1, 9, -1]
    assert places.position.tolist() == [0, 1, 2, 3, -1, 0, 1]
    assert np.flatnonzero(places.bonus).tolist() == [3, 6]
