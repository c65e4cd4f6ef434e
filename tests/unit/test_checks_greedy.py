"""Greedy comparison: where texts part, and that a near tie excuses the runner-up alone."""

import pytest

from draftgate.checks.greedy import NEAR_TIE_LOGITS, Divergence, GreedyAnswer, first_divergence

ANSWER = GreedyAnswer("p", (5, 6, 7), gap_logits=(2.0, 0.1, 0.2), runner_up=(9, 8, 4))


def test_equal_texts_never_part() -> None:
    """Equal tokens give no divergence, at any tolerance."""
    assert first_divergence(ANSWER, (5, 6, 7), 0.0) is None
    assert first_divergence(ANSWER, (5, 6, 7), 10.0) is None


def test_first_difference_counts_and_not_a_later_one() -> None:
    """What follows the first difference is another text and is not looked at."""
    assert first_divergence(ANSWER, (5, 8, 0), 0.25) == Divergence("p", 1, 6, 8, 0.1, near_tie=True)


@pytest.mark.parametrize(
    ("got", "tolerance", "near"),
    [
        ((5, 8, 7), 0.1, True),
        ((5, 8, 7), 0.099, False),
        ((5, 3, 7), 0.25, False),
        ((9, 6, 7), 0.25, False),
        ((5, 6, 4), 0.2, True),
    ],
    ids=["at-the-limit", "past-it", "not-the-runner-up", "wide-gap", "last-token"],
)
def test_near_tie_is_the_runner_up_within_the_tolerance(
    got: tuple[int, ...],
    tolerance: float,
    near: bool,  # noqa: FBT001 - pytest passes it by name
) -> None:
    """Only the runner-up, and only within the tolerance, is let through."""
    found = first_divergence(ANSWER, got, tolerance)

    assert found is not None
    assert found.near_tie is near


@pytest.mark.parametrize(
    ("got", "expected"),
    [
        ((5, 6), Divergence("p", 2, 7, None, None, near_tie=False)),
        ((), Divergence("p", 0, 5, None, None, near_tie=False)),
        ((5, 6, 7, 1), Divergence("p", 3, None, 1, None, near_tie=False)),
    ],
    ids=["shorter", "empty", "longer"],
)
def test_other_length_is_never_a_near_tie(got: tuple[int, ...], expected: Divergence) -> None:
    """A text that ends early or goes on differs at the end of the shorter one."""
    assert first_divergence(ANSWER, got, 10.0) == expected


def test_divergence_says_where_what_and_how_close() -> None:
    """The sentence holds prompt, position, both tokens and the gap."""
    found = first_divergence(ANSWER, (5, 8, 7), 0.25)

    assert str(found) == ("p: token 1 is 8, without speculation 6 (gap 0.1000 logits; near tie)")
    assert "past the end; NOT a near tie" in str(first_divergence(ANSWER, (5,), 0.25))


def test_tolerance_grows_with_the_coarseness_of_the_type() -> None:
    """float32 is held tighter than float16, and that tighter than bfloat16."""
    assert NEAR_TIE_LOGITS["float32"] < NEAR_TIE_LOGITS["float16"] < NEAR_TIE_LOGITS["bfloat16"]
