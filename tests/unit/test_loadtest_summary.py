"""The streamed summary is what the metrics say of the same records, to the last digit."""

import gc
import json
import tracemalloc
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from draftgate import codec, metrics
from draftgate.load.arrivals import ClosedLoop, Poisson
from draftgate.load.requests import Endpoint
from draftgate.loadtest import columns
from draftgate.loadtest.spec import LoadTest
from draftgate.loadtest.summarise import Outcome, summarise
from draftgate.loadtest.summary import Distribution, LoadSummary
from draftgate.loadtest.window import find_window
from draftgate.metrics import latency, selection
from draftgate.records import (
    ClientHealth,
    Failure,
    FailureKind,
    RequestRecord,
    RunSamples,
    StreamChunk,
    Window,
)
from draftgate.requestfile import RequestWriter
from draftgate.specs import SLO
from tests.support.load_tests import make_test, write_records
from tests.support.samples import make_run

S = 1_000_000_000
HEALTH = ClientHealth(
    cpu_s=0.5,
    wall_s=10.0,
    lag_p99_s=0.0001,
    lag_max_s=0.0002,
    kernel_stamps=True,
    read_delay_p50_s=1e-5,
    read_delay_p99_s=2e-5,
    reads=1000,
    coalesced_reads=10,
    output_tokens=2000,
)


def outcome(files: tuple[Path, ...], whole: Window, **changes: Any) -> Outcome:
    """Return what a run left that wrote `files`."""
    fields: dict[str, Any] = {
        "files": files,
        "folder": None,
        "started_at": "2026-01-01T00:00:00+00:00",
        "start_ns": whole.start_ns,
        "end_ns": whole.end_ns,
        "client": HEALTH,
        "parse_cpu_s": 0.01,
        "processes": 1,
        "notes": (),
    }
    return Outcome(**{**fields, **changes})


def span(records: tuple[RequestRecord, ...]) -> Window:
    """Return the interval that holds all records."""
    return Window(min(r.scheduled_ns for r in records), max(r.ended_ns for r in records))


def summary_of(
    folder: Path, records: tuple[RequestRecord, ...], test: LoadTest, **changes: Any
) -> tuple[LoadSummary, RunSamples]:
    """Return the summary of records, and the same records as a run with the same window."""
    files = write_records(folder, records)
    whole = span(records)
    summary = summarise(test, outcome(files, whole, **changes))
    window = find_window(test, files, Window(whole.start_ns, whole.end_ns + 1)).window
    run = replace(make_run(), records=records, window=window, concurrency=4)
    return summary, run


RUNS = {
    "plain": make_run(concurrency=4, requests=12, failures=2),
    "speculative": make_run("ngram", "ngram", 3, 4, requests=12, tokens_per_step=2.5, failures=1),
    "short": make_run(concurrency=4, requests=2, tokens=3),
    "one chunk": make_run(concurrency=4, requests=6, tokens=1),
}


def counted(records: tuple[RequestRecord, ...]) -> tuple[RequestRecord, ...]:
    """Return every other record as a server without ids would have left it."""

    def plain(chunk: StreamChunk) -> StreamChunk:
        return StreamChunk(chunk.t_ns, (), chunk.num_tokens)

    return tuple(
        replace(r, chunks=tuple(plain(c) for c in r.chunks)) if r.index % 2 else r for r in records
    )


@pytest.mark.parametrize("with_counts", [False, True], ids=["ids", "counts"])
@pytest.mark.parametrize("name", RUNS)
def test_streamed_percentiles_are_those_of_the_metrics(
    tmp_path: Path, name: str, *, with_counts: bool
) -> None:
    """Each percentile, rate and count equals the registered metric exactly; means to rounding."""
    records = counted(RUNS[name].records) if with_counts else RUNS[name].records

    summary, run = summary_of(tmp_path, records, make_test())

    values = metrics.compute_all(run, SLO())
    families = {"ttft", "step_gap", "per_token", "e2e"}
    for family in families:
        told = getattr(summary.latency, f"{family}_s")
        assert (told is not None) == (f"{family}_p50_s" in values)
        if told is not None:
            assert told.p50 == values[f"{family}_p50_s"]
            assert told.p90 == values[f"{family}_p90_s"]
            assert told.p99 == values[f"{family}_p99_s"]
            assert told.count == latency.sample_counts(run)[family]
    through = summary.throughput
    assert through.output_tokens_per_s == values["output_tokens_per_s"]
    assert through.requests_per_s == values["requests_per_s"]
    assert through.tokens_per_step == values.get("tokens_per_step")
    gap = summary.latency.step_gap_s
    if gap is not None:
        assert gap.mean == pytest.approx(values["step_time_s"], rel=1e-12)
    assert summary.requests.failed_share == values["failed_ratio"]


def literal(values: list[float]) -> Distribution:
    """Return order statistics the plain way."""
    array = np.asarray(values)
    shares = [float(np.quantile(array, q, method="inverted_cdf")) for q in (0.5, 0.9, 0.95, 0.99)]
    return Distribution(array.size, float(array.mean()), *shares, float(array.max()))


def assert_alike(told: Distribution | None, values: list[float]) -> None:
    """Assert that order statistics are equal and the mean is to rounding."""
    assert told is not None
    expected = literal(values)
    assert replace(told, mean=expected.mean) == expected
    assert told.mean == pytest.approx(expected.mean, rel=1e-12)


def test_open_loop_counts_from_the_scheduled_time_too(tmp_path: Path) -> None:
    """With a client that was late, both latencies and the error between them are literal."""
    rng = np.random.default_rng(7)
    late = tuple(
        replace(record, scheduled_ns=record.sent_ns - int(rng.integers(0, 3_000_000)))
        for record in RUNS["speculative"].records
    )

    summary, run = summary_of(tmp_path, late, make_test(arrivals=Poisson(5)))

    sent, ended = list(selection.sent_inside(run)), list(selection.ended_inside(run))
    ttft = [(r.chunks[0].t_ns - r.scheduled_ns) / 1e9 for r in sent]
    assert_alike(summary.latency.ttft_from_scheduled_s, ttft)
    e2e = [(r.ended_ns - r.scheduled_ns) / 1e9 for r in ended]
    assert_alike(summary.latency.e2e_from_scheduled_s, e2e)
    assert run.window is not None
    everyone = [r for r in late if selection.inside(run.window, r.sent_ns)]
    assert len(everyone) > len(sent) - 1
    delays = [(r.sent_ns - r.scheduled_ns) / 1e9 for r in everyone]
    assert_alike(summary.client.scheduling_error_s, delays)


def test_closed_loop_has_no_scheduled_times(tmp_path: Path) -> None:
    """What only an open loop has is absent, never 0."""
    summary, _ = summary_of(tmp_path, RUNS["plain"].records, make_test())

    assert summary.latency.ttft_from_scheduled_s is None
    assert summary.latency.e2e_from_scheduled_s is None
    assert summary.client.scheduling_error_s is None


def test_step_sizes_are_shares_of_the_gaps(tmp_path: Path) -> None:
    """Sizes rise, shares add up to 1, and their mean is tokens per step."""
    summary, run = summary_of(tmp_path, RUNS["speculative"].records, make_test())

    sizes = summary.throughput.step_sizes
    tokens = [gap.tokens for gap in selection.gaps_inside(run)]
    expected = {size: tokens.count(size) / len(tokens) for size in sorted(set(tokens))}
    assert [(size.tokens, size.share) for size in sizes] == list(expected.items())
    assert set(expected) == {1, 2, 3, 4}


def test_input_tokens_are_those_of_requests_that_ended_in_the_window(tmp_path: Path) -> None:
    """Prompts of unknown length add nothing, and a run of such alone has no number."""
    records = RUNS["plain"].records
    told, run = summary_of(tmp_path, records, make_test())
    unknown = tuple(replace(r, prompt_tokens=None) for r in records)
    (tmp_path / "b").mkdir()

    untold, _ = summary_of(tmp_path / "b", unknown, make_test())

    assert told.throughput.input_tokens == 40 * len(list(selection.ended_inside(run)))
    assert untold.throughput.input_tokens is None


@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_any_records_count_as_the_definitions_say(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """Whatever lies on a window's edge, fails, or has no chunk, both readings agree."""
    records = data.draw(st.lists(_record(), min_size=1, max_size=12))
    start = data.draw(st.integers(0, 40))
    window = Window(start, start + data.draw(st.integers(1, 40)))
    path = tmp_path_factory.mktemp("any") / "a.parquet"
    with RequestWriter(path, 4) as writer:
        for record in records:
            writer.add(record)
    run = replace(make_run(), records=tuple(records), window=window)

    batches = list(columns.read_requests([path]))

    gaps = [columns.gaps(batch, window)[0] / 1e9 for batch in batches]
    assert np.concatenate(gaps).tolist() == latency.step_gap_values(run)
    ttft = [columns.ttft_ns(batch, window, scheduled=False) / 1e9 for batch in batches]
    assert np.concatenate(ttft).tolist() == latency.ttft_values(run)
    per_token = [columns.per_token_s(batch, window) for batch in batches]
    assert np.concatenate(per_token).tolist() == latency.per_token_values(run)
    e2e = [columns.e2e_ns(batch, window, scheduled=False) / 1e9 for batch in batches]
    assert np.concatenate(e2e).tolist() == latency.e2e_values(run)


@st.composite
def _record(draw: st.DrawFn) -> RequestRecord:
    sent, length = draw(st.integers(0, 60)), draw(st.integers(0, 20))
    stamps = sorted(draw(st.lists(st.integers(sent, sent + length), max_size=5)))
    by_count = draw(st.booleans())
    sizes = [draw(st.integers(0, 4)) for _ in stamps]
    chunks = tuple(
        StreamChunk(t, (), size) if by_count else StreamChunk(t, tuple(range(size)))
        for t, size in zip(stamps, sizes, strict=True)
    )
    failure = Failure(FailureKind.STALLED, "s") if draw(st.booleans()) else None
    return RequestRecord(0, 0, "p", sent, sent, sent + length, chunks, failure=failure)


def steady_records(seconds: int, *, failing: bool = False) -> tuple[RequestRecord, ...]:
    """Return two streams of requests of one second, a token each 100 ms."""
    records = []
    for second, stream in ((a, b) for a in range(seconds) for b in range(2)):
        sent = second * S + stream * 1000
        chunks = tuple(StreamChunk(sent + step * S // 10, (1,)) for step in range(1, 10))
        failure = Failure(FailureKind.EARLY_END, "gone") if failing else None
        ended = sent + S - 10_000
        record = RequestRecord(0, stream, "p", sent, sent, ended, chunks, failure=failure)
        records.append(record)
    return tuple(records)


def test_steady_window_is_stated(tmp_path: Path) -> None:
    """A long even run: all of it but its edges counts, told in seconds from its start."""
    records = steady_records(60)

    summary, _ = summary_of(tmp_path, records, make_test(arrivals=ClosedLoop(2)))

    window = summary.window
    assert window.steady
    assert (window.start_s, window.end_s) == pytest.approx((0.1, 60.0), abs=0.01)
    assert window.length_s == pytest.approx(window.end_s - window.start_s)
    assert "MSER-5" in window.reason
    assert summary.throughput.output_tokens_per_s == pytest.approx(18, rel=0.01)
    assert summary.valid


def test_window_without_a_request_gives_way_to_the_whole_run(tmp_path: Path) -> None:
    """One request per stream: nothing begins once all run, so everything counts, and it says so."""
    records = steady_records(1)

    summary, _ = summary_of(tmp_path, records, make_test(arrivals=ClosedLoop(2)))

    assert not summary.window.steady
    assert summary.window.reason.endswith("the whole run")
    assert summary.window.reason.startswith("no steady state found: ")
    assert summary.latency.ttft_s is not None
    assert summary.latency.ttft_s.count == 2
    assert summary.throughput.requests == 2


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"client": replace(HEALTH, cpu_s=9.1)}, "used 91% of a core in each of its 1 processes"),
        ({"client": replace(HEALTH, cpu_s=18.2), "processes": 2}, "91% of a core in each of its 2"),
    ],
)
def test_busy_client_makes_a_run_invalid(
    tmp_path: Path, changes: dict[str, Any], words: str
) -> None:
    """Over nine tenths of a core per process is not a measurement of the server."""
    records = steady_records(3)

    summary, _ = summary_of(tmp_path, records, make_test(arrivals=ClosedLoop(2)), **changes)

    assert not summary.valid
    assert words in summary.invalid[0]


def test_short_run_is_not_judged_by_its_cpu_time(tmp_path: Path) -> None:
    """A run of less than a second is all start, which costs CPU time whatever comes."""
    short = replace(HEALTH, wall_s=0.9, cpu_s=0.89)

    summary, _ = summary_of(
        tmp_path, steady_records(3), make_test(arrivals=ClosedLoop(2)), client=short
    )

    assert summary.valid


def test_run_in_which_all_failed_is_invalid(tmp_path: Path) -> None:
    """Without a served request there is no number, and each class of failure is told."""
    records = list(steady_records(3, failing=True))
    records[0] = replace(records[0], failure=Failure(FailureKind.STALLED, "silence"))

    summary, _ = summary_of(tmp_path, tuple(records), make_test(arrivals=ClosedLoop(2)))

    assert summary.invalid == ("none of 6 requests was served in full",)
    assert summary.latency.ttft_s is None
    told = [(f.kind, f.count, f.example) for f in summary.requests.failures]
    assert told == [("early_end", 5, "gone"), ("stalled", 1, "silence")]


def test_run_without_any_record_is_invalid() -> None:
    """Nothing sent: a summary all the same, and it says that it is none."""
    summary = summarise(make_test(), outcome((), Window(0, S)))

    assert not summary.valid
    assert summary.requests.sent == 0
    assert summary.throughput.output_tokens_per_s == 0
    json.dumps(codec.encode(summary), allow_nan=False)


def test_json_reads_back_as_the_same_summary(tmp_path: Path) -> None:
    """What is written holds everything."""
    test = make_test(arrivals=Poisson(5), salt="s")
    summary, _ = summary_of(tmp_path, RUNS["speculative"].records, test)

    text = codec.to_lines(codec.encode(summary))

    assert codec.decode(LoadSummary, json.loads(text), "summary") == summary
    assert json.loads(text)["definitions_version"] == metrics.DEFINITIONS_VERSION


def test_address_is_told_without_what_may_be_secret(tmp_path: Path) -> None:
    """The query of the URL, where some put keys, is in no summary."""
    test = make_test(endpoint=Endpoint("http://host:1/pre?key=abc", "m", api_key_env="NAME"))

    summary, _ = summary_of(tmp_path, RUNS["plain"].records, test)

    assert summary.asked.url == "http://host:1/pre"
    assert "abc" not in json.dumps(codec.encode(summary))


def test_bytes_per_token_are_those_on_disk(tmp_path: Path) -> None:
    """The size of the files over the tokens received."""
    files = write_records(tmp_path, RUNS["plain"].records)

    told = outcome(files, span(RUNS["plain"].records), folder=tmp_path)
    summary = summarise(make_test(), told)

    size = sum(path.stat().st_size for path in tmp_path.iterdir())
    assert summary.records.bytes == size
    assert summary.records.bytes_per_token == size / HEALTH.output_tokens
    assert summary.records.folder == str(tmp_path)


def test_memory_of_reading_does_not_grow_with_the_run(tmp_path: Path) -> None:
    """Four times the records are read with the same memory, Arrow's and our own."""
    few, many = _peak_bytes(tmp_path / "few", 4), _peak_bytes(tmp_path / "many", 16)

    assert 10_000 < many < 1.05 * few


def _peak_bytes(folder: Path, files: int) -> int:
    """Return the least of three peaks: other threads of the session allocate now and then."""
    folder.mkdir()
    paths = write_records(folder, steady_records(256 * files), files, batch_requests=512)
    return min(_peak_of_reading(paths) for _ in range(3))


def _peak_of_reading(paths: Sequence[Path]) -> int:
    gc.collect()
    before = pa.total_allocated_bytes()
    tracemalloc.start()
    try:
        arrow = max(pa.total_allocated_bytes() for _ in columns.read_requests(paths)) - before
        return arrow + tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
