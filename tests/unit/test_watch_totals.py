"""Growth between two readings, restarts included, and how it becomes windows."""

import pytest

from draftgate.errors import SpecError
from draftgate.watch.page import Totals
from draftgate.watch.totals import Growth, growth, restarted
from draftgate.watch.windows import WindowSize, gather

BEFORE = Totals(100, 400, 150, 10, 260, (90, 60), 5.0)


def test_growth_is_the_difference() -> None:
    """Without a restart each total is taken off its later value."""
    after = Totals(130, 520, 190, 14, 334, (110, 75, 5), 5.0)

    assert not restarted(BEFORE, after)
    assert growth(BEFORE, after) == Growth(30, 120, 40, 4, 74, (20, 15, 5))


@pytest.mark.parametrize(
    "after",
    [
        Totals(20, 80, 30, 2, 52, (18, 12), 5.0),
        Totals(120, 480, 140, 12, 272, (100, 40), 5.0),
        Totals(300, 1200, 450, 30, 780, (270, 180), 9.0),
        Totals(100, 400, 170, 10, 280, (100, 70), 5.0),
    ],
    ids=["all fell", "one fell", "another creation time", "more accepted than drafted"],
)
def test_restart_counts_all_that_came_after_it(after: Totals) -> None:
    """A fall of any counter, or another creation time, means that all began at 0."""
    assert restarted(BEFORE, after)
    assert growth(BEFORE, after) == growth(Totals(0.0), after)
    assert growth(BEFORE, after).drafts == after.drafts


def test_creation_time_that_only_one_page_tells_is_no_restart() -> None:
    """A page that stops telling it has not restarted anything."""
    after = Totals(130, 520, 190, 14, 334, (110, 75))

    assert not restarted(BEFORE, after)


def test_accepted_tokens_follow_from_what_was_generated() -> None:
    """SGLang: 1,010 tokens of 10 requests in 400 steps are 600 accepted ones."""
    before, after = Totals(0, generated=0, requests=0), Totals(400, generated=1010, requests=10)

    assert growth(before, after).accepted == 600
    assert growth(before, Totals(400, generated=300, requests=0)).accepted == 0


def test_growth_adds_up_by_position() -> None:
    """Sums keep the longer of two lists of positions."""
    both = Growth(1, 4, 2, 1, 3, (1, 1)) + Growth(2, 8, 3, 1, 5, (2,))

    assert both == Growth(3, 12, 5, 2, 8, (3, 1))


def test_window_is_full_at_its_requests_and_takes_all_of_them() -> None:
    """It is never smaller than asked for, and what is over stays in it."""
    size = WindowSize(requests=100)

    left, window = gather(Growth(drafts=900, requests=90), Growth(drafts=300, requests=30), size)
    assert window == Growth(drafts=1200, requests=120)
    assert left == Growth()
    assert gather(Growth(), Growth(drafts=9, requests=99), size)[1] is None


def test_window_of_steps_does_not_look_at_requests() -> None:
    """Steps fill it alone."""
    size = WindowSize(requests=None, steps=50)

    assert gather(Growth(), Growth(drafts=49, requests=999), size)[1] is None
    assert gather(Growth(), Growth(drafts=50), size)[1] is not None


def test_requests_without_steps_are_no_window() -> None:
    """They are dropped, so that later steps do not count as theirs."""
    assert gather(Growth(), Growth(requests=100), WindowSize()) == (Growth(), None)


@pytest.mark.parametrize(("requests", "steps"), [(None, None), (5, 5), (0, None), (None, -1)])
def test_size_is_one_positive_number(requests: int | None, steps: int | None) -> None:
    """Exactly one of the two, at least 1."""
    with pytest.raises(SpecError, match="--window"):
        WindowSize(requests, steps)
