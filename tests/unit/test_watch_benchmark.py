"""The stored simulation of the watch: its page, its goals, and that it simulates the product."""

import re

import numpy as np
import pytest

from benchmarks.watch import page, pools, simulate, streams
from benchmarks.watch.record import lookup, steps_of
from draftgate.stats import level
from draftgate.stats.shifts import Wanted

RESULTS = page.load()


def test_page_holds_the_stored_results() -> None:
    """Every table of RESULTS.md is that of results.json."""
    text = (page.HERE / "RESULTS.md").read_text(encoding="utf-8")

    assert page.filled(text, RESULTS) == text


def test_results_are_of_the_present_settings() -> None:
    """The confidence of bounds and the pools are those of the code and the recordings."""
    assert RESULTS["confidence"] == level.CONFIDENCE
    assert [row["pool"] for row in RESULTS["pools"]] == [pool.name for pool in pools.pools()]


def test_run_length_is_reached_on_every_pool() -> None:
    """At least 10,000 windows between false alarms, from at least 2,000 streams each."""
    assert RESULTS["streams"] >= 2_000
    assert [row["pool"] for row in RESULTS["pools"] if row["run_length"] < 10_000] == []


def test_drop_is_found_in_five_windows_where_it_stands_out() -> None:
    """Median delay of 10 % at most 5 windows wherever 10 % is at least 2.5 spreads of a window."""
    clear = [row for row in RESULTS["pools"] if row["tenth_in_spreads"] >= 2.5]

    assert len(clear) == 15
    assert max(row["delays"]["-0.1"]["median"] for row in clear) <= 5


def test_drop_of_length_is_found_in_five_windows() -> None:
    """Median delay at most 5 windows for 10 % of the length, but for n-gram lookup on chat."""
    slow = [row["pool"] for row in RESULTS["pools"] if row["delay_length_-0.1"]["median"] > 5]

    assert slow == ["recorded ngram chat T=0", "recorded ngram chat T=0.8"]


@pytest.mark.parametrize("spread", [0.0005, 0.02, 0.1])
def test_simulation_is_the_product(spread: float) -> None:
    """Both alarm at the same windows, in 12 streams with changes of size."""
    rng = np.random.default_rng(1)
    values = rng.normal(0.9, spread, (12, 130))
    values[6:, 90:] -= 2 * spread

    streams.check(values, rng.uniform(2_000, 6_000, (12, 130)), 50, Wanted())


def test_bound_of_the_rival_is_siegmunds() -> None:
    """Its run length is that of the formula, so the rival is set as it is used."""
    k = 0.5
    h = simulate.siegmund_bound(k, 930.0)

    assert h == pytest.approx(5.0, abs=0.06)  # ARL 930 for h = 5, k = 0.5 (Montgomery, table 9.4)


def test_steps_follow_from_where_drafts_are_right() -> None:
    """Two accepted, then none, then the end: verify steps and accepted tokens by hand."""
    right = [False, True, True, False, False, True]

    assert steps_of(6, lambda at: right[at : at + 4]) == (3, 3)
    assert steps_of(6, lambda _: []) == (0, 0)


def test_lookup_takes_the_first_place_of_the_longest_run() -> None:
    """The run of three is found before that of two; without one nothing is drafted."""
    assert lookup([1, 2, 3, 9, 8, 7, 6, 2, 3, 5, 1, 2, 3]) == [9, 8, 7, 6]
    assert lookup([1, 2, 3, 4]) == []


def test_marks_of_tables_are_closed() -> None:
    """Each table has a begin and an end."""
    text = (page.HERE / "RESULTS.md").read_text(encoding="utf-8")

    assert len(re.findall(r"<!-- end -->", text)) == len(page.TABLES)
