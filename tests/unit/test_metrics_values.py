"""Metrics of small runs whose right values can be worked out by hand."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from draftgate.errors import MeasurementError
from draftgate.metrics import compute_all
from draftgate.metrics.decomposition import compare_factors, decompose
from draftgate.metrics.definition import percentile
from draftgate.metrics.latency import sample_counts
from draftgate.metrics.throughput import keeps
from draftgate.records import (
    ClientHealth,
    EngineCounters,
    Failure,
    FailureKind,
    RequestRecord,
    ResourceUse,
    RunSamples,
    SpeculationCounters,
    StreamChunk,
    Window,
)
from draftgate.specs import SLO
from tests.support.samples import make_cell, make_run

S = 1_000_000_000


def _request(sent: float, chunks: list[tuple[float, int]], ended: float) -> RequestRecord:
    """A served request; times in seconds, chunks as (time, tokens)."""
    return RequestRecord(
        index=0,
        stream=0,
        prompt_id="p",
        scheduled_ns=round(sent * S),
        sent_ns=round(sent * S),
        ended_ns=round(ended * S),
        chunks=tuple(StreamChunk(round(t * S), (7,) * n) for t, n in chunks),
    )


def _run(*records: RequestRecord, window: tuple[float, float] | None = (10, 20)) -> RunSamples:
    return RunSamples(
        arm="ngram",
        method="ngram",
        num_speculative_tokens=3,
        concurrency=2,
        repeat=0,
        started_at="2026-01-01T00:00:00+00:00",
        records=records,
        window=window and Window(round(window[0] * S), round(window[1] * S)),
        counters=None,
        resources=ResourceUse(),
        client=ClientHealth(cpu_s=1.0, wall_s=4.0, lag_p99_s=0.001, lag_max_s=0.002),
    )


EARLY = _request(7.5, [(9, 1), (11, 3), (12, 2)], 12.5)  # sent before the window, ends in it
WHOLE = _request(13, [(14, 1), (14.5, 4)], 15)  # inside
LATE = _request(18, [(19, 1), (19.5, 2), (20, 4)], 20)  # ends on the window's open end
FAILED = replace(WHOLE, failure=Failure(FailureKind.STALLED, "silent for 60 s"))
RUN = _run(EARLY, WHOLE, LATE, FAILED)


def test_metrics_of_a_run_worked_out_by_hand() -> None:
    """Each family takes its requests, gaps and tokens from its own side of the window."""
    got = compute_all(RUN, SLO(per_token_s=0.3))

    # Sent inside: WHOLE and LATE, both 1 s; EARLY took 1.5 s.
    assert got["ttft_p50_s"] == got["ttft_p99_s"] == 1.0
    # Both ends inside: 11 to 12, 14 to 14.5, 19 to 19.5; the gap to 20 is cut off.
    assert got["step_gap_p50_s"] == 0.5
    assert got["step_gap_p99_s"] == 1.0
    # Ended inside: EARLY 3 s / 5 tokens, WHOLE 0.5 s / 4 tokens.
    assert got["per_token_p50_s"] == 0.125
    assert got["per_token_p99_s"] == pytest.approx(0.6)
    assert got["e2e_p50_s"] == 2.0
    assert got["e2e_p99_s"] == 5.0
    # Tokens that arrived inside: 3 + 2, 1 + 4, 1 + 2.
    assert got["output_tokens_per_s"] == pytest.approx(1.3)
    assert got["tokens_per_s_per_stream"] == pytest.approx(0.65)
    assert got["requests_per_s"] == pytest.approx(0.2)
    assert got["goodput_per_s"] == pytest.approx(0.1)
    # Tokens that close the three gaps: 2, 4, 2.
    assert got["tokens_per_step"] == pytest.approx(8 / 3)
    assert got["step_time_s"] == pytest.approx(2 / 3)
    assert got["decode_share_ratio"] == pytest.approx(0.65 * (2 / 3) / (8 / 3))
    assert got["failed_ratio"] == 0.25
    assert got["client_cpu_ratio"] == 0.25
    assert got["client_lag_p99_s"] == 0.001


def test_sample_counts_say_what_is_behind_the_percentiles() -> None:
    """Counts follow the same rules as the values."""
    assert sample_counts(RUN) == {"ttft": 2, "step_gap": 3, "per_token": 2, "e2e": 2}


def test_failed_requests_change_nothing_but_the_failure_share() -> None:
    """A failed request gives no latency, no tokens and no request."""
    without = compute_all(_run(EARLY, WHOLE, LATE), SLO(per_token_s=0.3))
    with_failed = compute_all(RUN, SLO(per_token_s=0.3))

    assert without.pop("failed_ratio") == 0.0
    assert with_failed.pop("failed_ratio") == 0.25
    assert with_failed == without


def test_chunks_are_never_counted_as_tokens() -> None:
    """The same tokens in fewer chunks give the same rate and per-token time, longer gaps."""
    single = _request(11, [(12, 1)] + [(12 + i * 0.25, 1) for i in range(1, 9)], 14)
    burst = _request(11, [(12, 1), (13, 4), (14, 4)], 14)

    one, other = (compute_all(_run(record), SLO()) for record in (single, burst))

    for name in ("output_tokens_per_s", "per_token_p50_s", "ttft_p50_s", "e2e_p50_s"):
        assert one[name] == pytest.approx(other[name])
    assert other["tokens_per_step"] == 4 * one["tokens_per_step"] == 4.0
    assert other["step_time_s"] == pytest.approx(4 * one["step_time_s"])


def test_metrics_that_do_not_apply_are_absent() -> None:
    """No window, no GPU, no speculation, no limits: no value, in particular no zero."""
    got = compute_all(_run(WHOLE, window=None), SLO())

    assert set(got) == {"failed_ratio", "client_cpu_ratio", "client_lag_p99_s"}


def test_metrics_of_a_run_without_requests() -> None:
    """A window in which nothing arrived has a rate of 0 and no latency."""
    got = compute_all(_run(), SLO(ttft_s=1.0))

    assert got["output_tokens_per_s"] == got["requests_per_s"] == got["goodput_per_s"] == 0.0
    assert not [name for name in got if name.startswith(("ttft", "step", "per_token", "e2e"))]


def test_metrics_of_counters_and_resources() -> None:
    """Counters and resources come through by their definitions."""
    counters = EngineCounters(
        generation_tokens=100,
        prompt_tokens=50,
        queue_time_sum_s=0.6,
        queue_time_count=4,
        kv_use_max_ratio=0.5,
        speculation=SpeculationCounters(20, 60, 30, (15, 10, 5)),
    )
    resources = ResourceUse(1.5, 2_000, 0.7, 300.0, 80_000)
    got = compute_all(replace(RUN, counters=counters, resources=resources), SLO())

    assert got["acceptance_ratio"] == 0.5
    assert got["mean_acceptance_length"] == 2.5
    assert [got[f"acceptance_pos_{i}_ratio"] for i in range(3)] == [0.75, 0.5, 0.25]
    assert "acceptance_pos_3_ratio" not in got
    assert got["queue_time_mean_s"] == pytest.approx(0.15)
    assert got["kv_use_max_ratio"] == 0.5
    assert got["server_cpu_cores"] == 1.5
    assert got["server_rss_bytes"] == 2_000
    assert got["gpu_use_ratio"] == 0.7
    assert got["gpu_power_w"] == 300.0
    assert got["gpu_memory_bytes"] == 80_000


def test_acceptance_without_any_draft_is_absent() -> None:
    """An arm that never drafted has no acceptance, rather than one of 0."""
    counters = EngineCounters(9, 9, 0.0, 0, None, SpeculationCounters(0, 0, 0, (0, 0)))
    got = compute_all(replace(RUN, counters=counters), SLO())

    assert not [name for name in got if "acceptance" in name]
    assert "queue_time_mean_s" not in got
    assert "kv_use_max_ratio" not in got


@pytest.mark.parametrize(
    ("slo", "good"),
    [
        (SLO(ttft_s=1.0), True),
        (SLO(ttft_s=0.9), False),
        (SLO(per_token_s=0.125), True),
        (SLO(per_token_s=0.12), False),
        (SLO(e2e_s=2.0), True),
        (SLO(e2e_s=1.9), False),
        (SLO(ttft_s=1.0, per_token_s=0.2, e2e_s=1.9), False),
    ],
)
def test_good_request_keeps_every_limit(slo: SLO, *, good: bool) -> None:
    """A limit is kept up to and including its value; one broken limit is enough."""
    assert keeps(WHOLE, slo) is good


def test_good_request_in_one_chunk_has_no_per_token_time() -> None:
    """A one-chunk answer cannot break the per-token limit, one without chunks has no TTFT."""
    assert keeps(_request(0, [(1, 5)], 1), SLO(per_token_s=1e-9))
    assert not keeps(_request(0, [], 1), SLO(ttft_s=10.0))


@settings(deadline=None)  # a busy machine is no failure
@given(
    values=st.lists(st.floats(0, 1e6), min_size=1, max_size=300),
    percent=st.sampled_from([50, 90, 99]),
)
def test_percentile_agrees_with_its_definition(values: list[float], percent: int) -> None:
    """It is the smallest measured value that enough of the values do not exceed."""
    ordered = sorted(values)
    slow = next(v for i, v in enumerate(ordered, 1) if 100 * i >= percent * len(ordered))

    assert percentile(values, percent) == slow


def test_percentile_of_few_values_is_a_measured_one() -> None:
    """p99 of 99 values is their maximum, of 100 values the second largest; of none, none."""
    assert percentile(range(1, 100), 99) == 99
    assert percentile(range(1, 101), 99) == 99
    assert percentile([], 99) is None


@pytest.mark.parametrize("concurrency", [1, 4])
@pytest.mark.parametrize("k", [0, 3])
def test_factors_multiply_to_the_speed(k: int, concurrency: int) -> None:
    """The decomposition is exact, with what was planted in its factors."""
    planted = 1.0 if k == 0 else 2.2
    run = make_run(
        method="ngram" if k else "none",
        k=k,
        concurrency=concurrency,
        step_s=0.05,
        tokens_per_step=planted,
        requests=20,
        run_noise=0.0,
    )
    factors, metrics = decompose(run), compute_all(run, SLO())

    product = factors.tokens_per_step / factors.step_time_s * factors.decode_share_ratio
    assert product == pytest.approx(metrics["output_tokens_per_s"] / concurrency, rel=1e-12)
    assert product == pytest.approx(metrics["tokens_per_s_per_stream"], rel=1e-12)
    assert factors.step_time_s == pytest.approx(0.05, rel=0.02)
    assert factors.tokens_per_step == pytest.approx(planted, rel=0.1)
    assert 0.5 < factors.decode_share_ratio < 1.0


def test_factors_need_a_gap_in_the_window() -> None:
    """Without two chunks in the window there is nothing to explain, and it says so."""
    with pytest.raises(MeasurementError, match="no two chunks of a served request"):
        decompose(_run(_request(11, [(12, 3)], 12)))


def test_factor_changes_add_up_and_name_the_planted_one() -> None:
    """Slower steps show in the step time, with all of the effect; shares sum to 1."""
    settings = {"method": "ngram", "k": 3, "concurrency": 8, "tokens_per_step": 2.0}
    base = [compute_all(run, SLO()) for run in make_cell(6, **settings)]
    slow = [compute_all(run, SLO()) for run in make_cell(6, **settings, step_s=0.045, seed=1)]

    changes = {c.label: c for c in compare_factors(base, slow, confidence=0.95)}
    speed = [
        math.log(np.exp(np.mean([math.log(r["tokens_per_s_per_stream"]) for r in side])))
        for side in (base, slow)
    ]

    assert list(changes) == ["acceptance", "step time", "prefill or queueing"]
    assert changes["step time"].comparison.estimate_ratio == pytest.approx(1.5, rel=0.03)
    assert changes["step time"].comparison.low_ratio > 1.0
    assert changes["step time"].log_effect < 0
    assert sum(c.log_effect for c in changes.values()) == pytest.approx(speed[1] - speed[0])
    assert sum(c.share for c in changes.values()) == pytest.approx(1.0)
    acceptance = changes["acceptance"].comparison
    assert acceptance.low_ratio < 1.0 < acceptance.high_ratio


def test_factor_changes_need_the_factors() -> None:
    """A run that lacks a factor is an error, not a shorter list."""
    whole = [compute_all(run, SLO()) for run in make_cell(2)]

    with pytest.raises(ValueError, match="step_time_s was not measured in every run"):
        compare_factors([{"tokens_per_step": 1.0}, {"tokens_per_step": 1.1}], whole, confidence=0.9)
