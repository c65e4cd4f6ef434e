"""How far the client may have moved a metric, and runs that are thrown out for it."""

from dataclasses import replace

import pytest

from draftgate.metrics import compute_all
from draftgate.metrics.client_error import (
    GAP_ERROR_S,
    MEDIAN_STAMP_ERROR_S,
    STAMP_ERROR_S,
    client_error_ratio,
    client_faults,
    unresolved,
)
from draftgate.records import ClientHealth, RequestRecord, RunSamples, StreamChunk, Window
from draftgate.specs import SLO
from tests.support.samples import make_run

MS = 1_000_000
HEALTH = ClientHealth(
    cpu_s=0.1,
    wall_s=1.0,
    lag_p99_s=0.003,
    lag_max_s=0.004,
    kernel_stamps=True,
    read_delay_p50_s=0.001,
    read_delay_p99_s=0.002,
    reads=100,
)


def _run(health: ClientHealth, *, wait_ms: float = 0) -> RunSamples:
    """Return a run of ten requests in a row: 10 ms to each of 5 chunks, `wait_ms` between."""
    records = []
    for index in range(10):
        free = round(index * (50 + wait_ms) * MS)
        sent = free + round(wait_ms * MS)
        chunks = tuple(StreamChunk(sent + 10 * MS * (i + 1), (1,)) for i in range(5))
        records.append(
            RequestRecord(index, 0, "p", free, sent, sent + 50 * MS, chunks, 1, 5, "length")
        )
    window = Window(0, records[-1].ended_ns + 1)
    return replace(make_run(), records=tuple(records), window=window, client=health)


@pytest.mark.parametrize(
    ("coalesced", "metric", "error_s"),
    [
        (0, "step_gap_p50_s", MEDIAN_STAMP_ERROR_S),
        (1, "step_gap_p99_s", GAP_ERROR_S),
        (2, "step_gap_p99_s", 0.002),
        (2, "step_gap_p50_s", MEDIAN_STAMP_ERROR_S),
        (0, "ttft_p99_s", STAMP_ERROR_S),
        (60, "ttft_p50_s", 0.001),
        (0, "per_token_p50_s", MEDIAN_STAMP_ERROR_S / 4),
        (0, "per_token_p99_s", STAMP_ERROR_S / 4),
    ],
)
def test_kernel_stamps_err_where_reads_coalesced(
    coalesced: int, metric: str, error_s: float
) -> None:
    """A percentile is in doubt only if more reads held several chunks than lie beyond it."""
    run = _run(replace(HEALTH, coalesced_reads=coalesced))

    assert client_error_ratio(metric, run) == pytest.approx(error_s / 0.010)


def test_reads_alone_err_by_the_lag() -> None:
    """Without kernel stamps an arrival may be stamped as late as the loop was."""
    run = _run(replace(HEALTH, kernel_stamps=False))

    assert client_error_ratio("step_gap_p99_s", run) == pytest.approx(0.003 / 0.010)


def test_rates_err_by_the_idle_time_between_requests() -> None:
    """The time from a request's end to the next one's sending counts, however it was spent."""
    run = _run(HEALTH, wait_ms=4)

    assert client_error_ratio("output_tokens_per_s", run) == pytest.approx(4 / 54)


def test_one_hiccup_counts_in_full_whatever_the_median_says() -> None:
    """A client that hung for 0.5 s once took half of the time of ten requests of 50 ms."""
    run = _run(HEALTH)
    late = [
        replace(
            record,
            scheduled_ns=record.scheduled_ns + 500 * MS,  # the end was noticed late as well
            sent_ns=record.sent_ns + 500 * MS,
            ended_ns=record.ended_ns + 500 * MS,
        )
        for record in run.records[5:]
    ]
    window = Window(0, late[-1].ended_ns + 1)
    hung = replace(run, records=(*run.records[:5], *late), window=window)

    assert client_error_ratio("output_tokens_per_s", run) == 0.0
    assert client_error_ratio("output_tokens_per_s", hung) == pytest.approx(50 / 100)


def test_late_notice_without_kernel_stamps_is_bounded_by_the_lag() -> None:
    """Where ends are stamped by the reader, the lag of the loop comes on top."""
    run = _run(replace(HEALTH, kernel_stamps=False))

    assert client_error_ratio("output_tokens_per_s", run) == pytest.approx(3 / 50)


@pytest.mark.parametrize("metric", ["acceptance_ratio", "tokens_per_step", "server_rss_bytes"])
def test_what_the_client_has_no_part_in_has_no_bound(metric: str) -> None:
    """Counters and counts do not depend on when the client looked."""
    assert client_error_ratio(metric, _run(HEALTH)) is None


@pytest.mark.parametrize("metric", sorted(compute_all(make_run(), SLO(ttft_s=1.0))))
def test_every_metric_has_an_answer(metric: str) -> None:
    """The bound of each metric that a run has is None or a ratio of at least 0."""
    error = client_error_ratio(metric, make_run())

    assert error is None or error >= 0


def test_fault_is_told_beyond_a_tenth_of_the_margin() -> None:
    """A bound of 0.4 % passes a margin of 5 %, fails one of 3 %, and says what was seen."""
    run = _run(HEALTH, wait_ms=0.2)

    assert client_faults(run, {"output_tokens_per_s": 0.05}) == ()
    (fault,) = client_faults(run, {"output_tokens_per_s": 0.03})
    assert "output_tokens_per_s by 0.40%" in fault
    assert "read delay p99 2.00 ms" in fault


def test_small_metric_is_unresolved_and_no_fault_of_the_run() -> None:
    """25 us of a gap of 10 ms are .25 %: too much for a margin of 2 %, and only that gate pays."""
    run = _run(HEALTH)
    margins = {"step_gap_p99_s": 0.02, "step_gap_p50_s": 0.02, "output_tokens_per_s": 0.02}

    assert client_faults(run, margins) == ()
    ((metric, why),) = unresolved(run, margins)
    assert metric == "step_gap_p99_s"
    assert "0.01 s" in why
    assert "0.25% of it; at most 0.20%" in why


@pytest.mark.parametrize("stamped", [True, False])
def test_disturbed_client_is_a_fault_whatever_stamps_are_good_for(*, stamped: bool) -> None:
    """Late reads, with the kernel's stamps and without, speak against the whole run."""
    run = _run(replace(HEALTH, kernel_stamps=stamped, coalesced_reads=2))
    margins = {"step_gap_p99_s": 0.02}

    assert len(client_faults(run, margins)) == 1
    assert unresolved(run, margins) == ()
