"""Where tokens stand: in the chain of their verify step, and beside other answers."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from draftgate.laws.answer import Answer
from draftgate.laws.own import OwnReference
from draftgate.laws.parameters import LawParameters
from draftgate.laws.reference import Reference
from draftgate.laws.rows import Step, known_columns, places_of, siblings_of, steps_of
from draftgate.stats.scores import score, score_many


def answer(
    tokens: tuple[int, ...], chunks: tuple[int, ...] = (), prompt: tuple[int, ...] = (1,)
) -> Answer:
    """Return an answer with the given tokens."""
    return Answer(
        request=7,
        prompt_id="p",
        prompt_token_ids=prompt,
        token_ids=tokens,
        chunks=chunks,
        finish_reason="length",
        parameters=LawParameters(),
    )


@pytest.mark.parametrize(
    ("chunks", "k", "position", "bonus"),
    [
        ((1, 3, 1, 2), 2, [0, 1, 2, 0, 0, 1], [2]),
        ((1, 3, 1, 2), 4, [0, 1, 2, 0, 0, 1], []),
        ((3, 2), 2, [0, 1, 0, 1], []),
        ((1, 0, 2), 1, [0, 1], [1]),
        ((1, 5), 2, [0, 1, 2, -1, -1], [2]),
        ((1, 1, 1), None, [-1, -1], []),
        ((1,), 3, [], []),
    ],
    ids=[
        "whole chain",
        "never whole",
        "merged first",
        "empty chunk",
        "merged",
        "none",
        "one token",
    ],
)
def test_places_follow_the_chunks(
    chunks: tuple[int, ...], k: int | None, position: list[int], bonus: list[int]
) -> None:
    """A token's place is its index in its step; the one after k accepted drafts is the bonus."""
    found = answer(tuple(range(sum(chunks))), chunks)

    places = places_of(found, steps_of(found, k))

    assert places.position.tolist() == position
    assert np.flatnonzero(places.bonus).tolist() == bonus


def test_places_are_not_known_without_chunks() -> None:
    """An answer that was not streamed has no known places."""
    found = answer((4, 5, 6))

    places = places_of(found, steps_of(found, 3))

    assert places.position.tolist() == [-1, -1]
    assert not places.bonus.any()


def test_tokens_of_steps_without_drafts_are_in_no_chain() -> None:
    """A step in which nothing was proposed has neither places nor a bonus token."""
    places = places_of(answer((4, 5, 6, 7)), [Step(1, 1, 0), Step(2, 2, 1)])

    assert places.position.tolist() == [-1, 0, 1]
    assert places.bonus.tolist() == [False, False, True]


@settings(deadline=None)
@given(
    st.lists(st.integers(1, 6), min_size=1, max_size=8),
    st.integers(0, 5),
    st.integers(0, 20),
)
def test_places_do_not_depend_on_what_comes_later(chunks: list[int], k: int, cut: int) -> None:
    """Cutting an answer short leaves the places before the cut as they were."""
    whole = answer(tuple(range(sum(chunks))), tuple(chunks))
    sizes, left = [], min(cut + 1, sum(chunks))
    for size in chunks:
        sizes.append(min(size, left))
        left -= sizes[-1]
    short = answer(tuple(range(sum(sizes))), tuple(sizes))

    one, other = (places_of(a, steps_of(a, k)) for a in (whole, short))

    n = len(other.position)
    assert one.position[:n].tolist() == other.position.tolist()
    assert one.bonus[:n].tolist() == other.bonus.tolist()


def test_siblings_are_the_latest_earlier_answers_with_the_same_beginning() -> None:
    """The sibling is looked up in earlier answers to the same prompt, the latest first."""
    answers = [
        answer((5, 6, 7, 8)),
        answer((5, 6, 9)),
        answer((5, 6, 7, 1), prompt=(2,)),
        answer((5, 6, 7, 3, 3)),
        answer((4, 6, 7)),
    ]

    found = [column.tolist() for column in siblings_of(answers)]

    assert found == [[-1, -1, -1], [6, 7], [-1, -1, -1], [6, 9, 8, -1], [-1, -1]]


def test_known_columns_say_what_is_special() -> None:
    """Special ids, request numbers and siblings stand in one entry a token but the first."""
    found = answer((5, 0, 6))

    columns = known_columns(found, places_of(found, ()), np.array([-1, 3]), {0, 2})

    assert columns["special"].tolist() == [True, False]
    assert columns["request"].tolist() == [7, 7]
    assert columns["sibling"].tolist() == [-1, 3]


def test_many_rows_are_the_single_rows() -> None:
    """Scoring many tokens at once gives what scoring each of them gives."""
    rng = np.random.default_rng(1)
    logits = rng.normal(size=(5, 9)) * 3
    laws = logits - np.logaddexp.reduce(logits, axis=1, keepdims=True)
    tokens, draft = rng.integers(0, 9, 5), np.array([-1, 2, 3, 8, -1])

    many = score_many(laws, tokens, draft=draft)

    for row in range(5):
        one = score(laws[row], int(tokens[row]), draft=int(draft[row]))
        for name in ("logp", "top", "is_top", "log_norm", "below", "draft_logp"):
            np.testing.assert_allclose(getattr(many, name)[row], getattr(one, name)[0])


def test_only_one_token_is_the_most_likely_one() -> None:
    """Of two tokens tied at the top only the first counts, or the law of tops would sum to two."""
    law = np.log([0.2, 0.4, 0.4])

    tops = [bool(score(law, token).is_top[0]) for token in range(3)]

    assert tops == [False, True, False]


@pytest.mark.parametrize(
    ("laws", "tokens", "known"),
    [
        (np.log([[0.5, 0.4]]), [0], {}),
        (np.log([[0.5, 0.5]]), [2], {}),
        (np.array([[np.nan, 0.0]]), [1], {}),
        (np.log([[0.5, 0.5]]), [0, 1], {}),
        (np.log([[0.5, 0.5]]), [0], {"odd": [1]}),
        (np.log([[0.5, 0.5]]), [0], {"position": [1, 2]}),
    ],
    ids=["not normalised", "outside", "NaN", "shape", "unknown column", "column's length"],
)
def test_wrong_laws_are_refused(laws: np.ndarray, tokens: list[int], known: dict) -> None:
    """Laws, tokens and columns that do not fit are errors."""
    with pytest.raises(ValueError, match=r"law|token|column|entries"):
        score_many(laws, tokens, **known)


def test_references_keep_the_protocol() -> None:
    """A reference has a name, its blind spots and a function that scores."""
    assert isinstance(OwnReference(vocabulary=10), Reference)
