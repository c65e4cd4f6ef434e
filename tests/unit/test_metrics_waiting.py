"""Means of waiting inside the engine: from the counters, or absent."""

from dataclasses import replace

import pytest

from draftgate.codec import decode, encode
from draftgate.metrics import Direction, compute_all, definition
from draftgate.records import EngineCounters
from draftgate.specs import SLO
from tests.support.samples import make_run

COUNTERS = EngineCounters(100, 50, 0.6, 4, None, None, 0.9, 3)


def test_waiting_means_are_sums_over_counts() -> None:
    """Each mean divides its own sum by its own number of requests."""
    got = compute_all(replace(make_run(), counters=COUNTERS), SLO())

    assert got["queue_time_mean_s"] == pytest.approx(0.15)
    assert got["prefill_time_mean_s"] == pytest.approx(0.3)


@pytest.mark.parametrize(
    "counters",
    [
        None,
        replace(COUNTERS, prefill_time_sum_s=None, prefill_time_count=None),
        replace(COUNTERS, prefill_time_sum_s=0.0, prefill_time_count=0),
    ],
    ids=["no counters", "engine tells none", "no request"],
)
def test_prefill_that_nobody_counted_is_absent(counters: EngineCounters | None) -> None:
    """No count is no zero."""
    got = compute_all(replace(make_run(), counters=counters), SLO())

    assert "prefill_time_mean_s" not in got


@pytest.mark.parametrize(
    ("name", "label"), [("queue_time_mean_s", "queueing"), ("prefill_time_mean_s", "prefill")]
)
def test_waiting_metrics_name_their_own_cause(name: str, label: str) -> None:
    """Both are better when lower and stand for one cause each."""
    assert definition(name).cause == label
    assert definition(name).direction is Direction.LOWER


def test_counters_stored_before_prefill_was_counted_still_read() -> None:
    """A stored run without the fields reads as one whose engine told nothing."""
    stored = encode(replace(COUNTERS, prefill_time_sum_s=None, prefill_time_count=None))
    del stored["prefill_time_sum_s"], stored["prefill_time_count"]

    found = decode(EngineCounters, stored, "counters")

    assert (found.queue_time_sum_s, found.prefill_time_sum_s) == (0.6, None)
    assert found.prefill_time_count is None
