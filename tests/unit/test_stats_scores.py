"""The row of numbers that is kept of a token: against literal sums."""

import numpy as np
import pytest

from draftgate.stats.scores import POWERS, blank, joined, score, score_many

LAW = np.log([0.1, 0.4, 0.3, 0.2])


def test_a_row_holds_what_the_law_says() -> None:
    """Probability, rank, mass below and normalisers of token 2 are those of the law."""
    row = score(LAW, 2)

    assert np.exp(row.logp[0]) == pytest.approx(0.3)
    assert np.exp(row.top[0]) == pytest.approx(0.4)
    assert not row.is_top[0]
    assert row.rank[0] == 1
    assert row.below[0] == pytest.approx(0.5)
    literal = [np.log(sum(p**power for p in (0.1, 0.4, 0.3, 0.2))) for power in POWERS]
    assert row.log_norm[0] == pytest.approx(literal)
    assert row.unfiltered[0] == row.logp[0]


def test_the_draft_is_looked_up_in_the_law() -> None:
    """The proposal's probability is filled in; -1 stands for none."""
    rows = score_many([LAW, LAW], [1, 1], draft=[3, -1])

    assert np.exp(rows.draft_logp[0]) == pytest.approx(0.2)
    assert np.isnan(rows.draft_logp[1])


def test_of_equally_likely_tokens_the_first_is_the_top() -> None:
    """Ties give one top token and a rank to each."""
    rows = score_many(np.log(np.full((3, 3), 1 / 3)), [0, 1, 2])

    assert rows.is_top.tolist() == [True, False, False]
    assert sorted(rows.rank.tolist()) == [0, 1, 2]


def test_rows_are_taken_and_joined_in_order() -> None:
    """Taking all rows of two parts and joining them gives the whole again."""
    rows = score_many([LAW] * 3, [0, 1, 2], request=[4, 4, 5])

    again = joined([rows.take(slice(0, 2)), rows.take(np.array([2]))])
    assert again.token.tolist() == [0, 1, 2]
    assert again.request.tolist() == [4, 4, 5]
    assert len(again) == 3


def test_nothing_is_known_of_a_blank_row() -> None:
    """Numbers are NaN and ids -1."""
    row = blank(1)

    assert np.isnan(row.logp[0])
    assert np.isnan(row.overlap[0])
    assert row.draft[0] == row.sibling[0] == -1


@pytest.mark.parametrize(
    ("law", "token", "known", "message"),
    [
        (LAW + 0.1, 0, {}, "add up to"),
        (LAW, 4, {}, "outside a vocabulary"),
        (LAW[None], 0, {}, "one row of numbers"),
        (LAW, 0, {"temperature": 1.0}, "unknown columns: temperature"),
        (np.array([0.0, np.nan]), 0, {}, "add up to"),
    ],
    ids=["not normalised", "token", "shape", "column", "NaN"],
)
def test_what_makes_no_sense_is_refused(
    law: np.ndarray, token: int, known: dict[str, float], message: str
) -> None:
    """Laws are normalised rows, tokens lie in them, and columns have known names."""
    with pytest.raises(ValueError, match=message):
        score(law, token, **known)


def test_there_must_be_parts_to_join() -> None:
    """An empty list is an error."""
    with pytest.raises(ValueError, match="no scores"):
        joined([])
