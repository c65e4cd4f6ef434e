"""The benchmark's scores of change points: hand-made cases of TCPDBench's definitions."""

import pytest

from benchmarks.changepoints.scoring import cover_score, f1_score, hits


@pytest.mark.parametrize(
    ("truth", "found", "count"),
    [
        ({1, 10, 20, 23}, {3, 8, 20}, 3),
        ({1, 10, 20, 23}, {1, 3, 8, 20}, 3),
        ({100}, {94, 106}, 0),
        ({100}, {95}, 1),
        ({100, 104}, {102}, 1),
        (set(), {1, 2}, 0),
    ],
)
def test_each_found_change_counts_once(truth: set[int], found: set[int], count: int) -> None:
    """A hit is at most five values off, and no found change serves two true ones."""
    assert hits(truth, found) == count


def test_nothing_found_where_nothing_is_scores_one() -> None:
    """The start of the series is a change that everybody sees."""
    assert f1_score([(), ()], ()) == 1.0
    assert cover_score([(), ()], (), 50) == 1.0


def test_f1_takes_precision_from_all_and_recall_from_each() -> None:
    """Annotators {0, 50} and {0}, found {0, 50, 80}: precision 2/3, recall 1."""
    assert f1_score([(50,), ()], (50, 80)) == pytest.approx(2 * (2 / 3) / (2 / 3 + 1))


def test_f1_averages_recall_over_annotators() -> None:
    """Annotators {0, 50} and {0, 20, 70}, found {0, 50}: precision 1, recall (1 + 1/3) / 2."""
    recall = (1 + 1 / 3) / 2

    assert f1_score([(50,), (20, 70)], (50,)) == pytest.approx(2 * recall / (1 + recall))


def test_cover_weighs_the_best_overlap_by_length() -> None:
    """Cut at 40 of 100, found at 50: 40 * 40/50 + 60 * 50/60 of 100, the other sees no cut."""
    assert cover_score([(40,), ()], (50,), 100) == pytest.approx((0.82 + 0.5) / 2)
