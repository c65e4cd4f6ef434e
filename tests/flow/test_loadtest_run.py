"""Load tests on the scripted server: what is counted, what is left, what is told."""

import json
import resource
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from draftgate import codec
from draftgate.engines.fake_server import FakeConfig, FakeServer
from draftgate.errors import EngineError, MeasurementError, SpecError
from draftgate.load.arrivals import ClosedLoop, Constant, ThinkTime
from draftgate.load.lengths import Fixed
from draftgate.load.prompts import Synthetic, Words
from draftgate.load.requests import Endpoint
from draftgate.load.state import LoadProgress
from draftgate.load.workload import RequestPlan
from draftgate.loadtest import LoadSummary, LoadTest, run_load_test
from draftgate.loadtest.columns import read_requests
from draftgate.loadtest.run import _emptied_on_failure
from tests.support.fake import endpoint, fake_server
from tests.support.load_tests import make_test

FAST = {"step_s": 0.002, "ttft_s": 0.004}
KEY = "sk-planted-4711"


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Put temporary files into a folder of the test's own, and see it empty in the end."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    yield folder
    assert list(folder.iterdir()) == []


def on(server: FakeServer, **changes: Any) -> LoadTest:
    """Return a test of 20 requests of 6 tokens on `server`, with `changes`."""
    fields: dict[str, Any] = {
        "endpoint": endpoint(server),
        "arrivals": ClosedLoop(4),
        "workload": RequestPlan(Synthetic(Fixed(8), Words()), Fixed(6), seed=1),
        "max_requests": 20,
        "stall_timeout_s": 5.0,
    }
    return make_test(**{**fields, **changes})


def failures(summary: LoadSummary) -> dict[str, int]:
    """Return the number of failed requests by class."""
    return {failure.kind: failure.count for failure in summary.requests.failures}


def test_closed_loop_counts_everything_once() -> None:
    """All requests are served, over streams that are never more than asked for."""
    with fake_server(FakeConfig(**FAST)) as server:
        summary = run_load_test(on(server))

    assert summary.valid, summary.invalid
    assert (summary.requests.sent, summary.requests.served) == (20, 20)
    assert (server.requests, server.most_running) == (20, 4)
    assert summary.client.output_tokens == 120
    assert summary.client.processes == 1
    assert summary.latency.step_gap_s is not None
    assert 0.0015 < summary.latency.step_gap_s.p50 < 0.01
    assert summary.records.folder is None
    assert summary.records.bytes > 0


def test_open_loop_keeps_its_schedule() -> None:
    """Requests go out at their times, and both latencies are told with the error between."""
    test_s = 0.5
    with fake_server(FakeConfig(**FAST)) as server:
        test = on(server, arrivals=Constant(40), max_requests=None, duration_s=test_s)
        summary = run_load_test(test)

    assert summary.requests.sent == 20
    assert summary.asked.open_loop
    assert summary.latency.ttft_s is not None
    assert summary.latency.ttft_from_scheduled_s is not None
    assert summary.latency.ttft_from_scheduled_s.p50 >= summary.latency.ttft_s.p50
    assert summary.client.scheduling_error_s is not None
    assert summary.client.scheduling_error_s.p50 > 0


def test_duration_ends_a_closed_loop() -> None:
    """Nothing is sent once the time is over, and what is open may end."""
    with fake_server(FakeConfig(**FAST)) as server:
        test = on(server, max_requests=None, duration_s=0.3)
        summary = run_load_test(test)

    assert summary.requests.failed == 0
    assert summary.requests.sent > 20
    assert 0.3 <= summary.wall_s < 2.0


def test_think_time_slows_a_stream_down() -> None:
    """A pause after each answer is no part of a latency, but of the run."""
    with fake_server(FakeConfig(**FAST)) as server:
        arrivals = ClosedLoop(2, think_time=ThinkTime(0.05))
        summary = run_load_test(on(server, arrivals=arrivals, max_requests=8))

    assert summary.wall_s > 3 * 0.05
    assert summary.latency.e2e_s is not None
    assert summary.latency.e2e_s.p50 < 0.05


def test_sessions_send_what_was_answered() -> None:
    """Of sessions of three turns, prompts grow turn by turn, by the server's own count."""
    with fake_server(FakeConfig(**FAST)) as server:
        workload = RequestPlan(Synthetic(Fixed(8), Words()), Fixed(6), seed=1, turns=3)
        test = on(server, arrivals=ClosedLoop(1), workload=workload, max_requests=9)
        longer = run_load_test(test)
        shorter = run_load_test(on(server, arrivals=ClosedLoop(1), max_requests=9))

    assert longer.requests.failed == 0
    assert longer.asked.prompts.endswith("sessions of 3 turns")
    assert longer.throughput.input_tokens is not None
    assert shorter.throughput.input_tokens is not None
    assert longer.throughput.input_tokens > 2 * shorter.throughput.input_tokens


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        ("error_every", "http_error"),
        ("in_band_error_every", "in_band_error"),
        ("early_close_every", "early_end"),
        ("stall_every", "stalled"),
        ("missing_usage_every", "missing_usage"),
        ("wrong_length_every", "wrong_length"),
        ("garbage_every", "malformed"),
    ],
)
def test_each_fault_is_in_its_class(fault: str, kind: str) -> None:
    """Every fifth request fails, is counted in one class, and the run is still valid."""
    with fake_server(FakeConfig(**FAST, **{fault: 5})) as server:  # type: ignore[arg-type]
        summary = run_load_test(on(server, stall_timeout_s=0.3))

    assert failures(summary) == {kind: 4}
    assert summary.requests.served == 16
    assert summary.requests.failed_share == 0.2
    assert summary.valid, summary.invalid


def test_server_that_dies_ends_the_run() -> None:
    """A dead server is given up after a failure of each stream, and the note says so."""
    with fake_server(FakeConfig(**FAST, die_after_requests=6)) as server:
        summary = run_load_test(on(server, max_requests=500))

    assert summary.requests.sent < 30
    assert summary.requests.served <= 6
    assert "gave up after 4 failures in a row" in summary.notes[0]


def test_run_of_failures_alone_is_invalid() -> None:
    """A server that refuses everything leaves no number, and a reason."""
    with fake_server(FakeConfig(**FAST, error_every=1)) as server:
        summary = run_load_test(on(server))

    assert not summary.valid
    assert "was served in full" in summary.invalid[0]
    assert "planted error" in summary.requests.failures[0].example


def test_unreachable_server_is_an_error_at_once() -> None:
    """Nothing listens: told before any folder is made or process started."""
    test = make_test(endpoint=Endpoint("http://127.0.0.1:9", "m"))

    with pytest.raises(EngineError, match=r"no connection to http://127\.0\.0\.1:9: "):
        run_load_test(test)


def test_key_is_in_no_summary_and_no_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server repeats the key in its error; what we keep does not."""
    monkeypatch.setenv("PLANTED_KEY", KEY)
    with fake_server(FakeConfig(**FAST, api_key="another")) as server:
        where = Endpoint(server.url, server.config.model, api_key_env="PLANTED_KEY")
        summary = run_load_test(on(server, endpoint=where), records_dir=tmp_path / "records")

    assert server.headers["authorization"] == f"Bearer {KEY}"
    told = json.dumps(codec.encode(summary))
    assert "incorrect API key provided: Bearer ***" in told
    assert KEY not in told
    kept = b"".join(path.read_bytes() for path in (tmp_path / "records").iterdir())
    assert KEY.encode() not in kept


def test_records_are_kept_where_asked(tmp_path: Path) -> None:
    """The folder is made, holds every request, and nothing but Parquet files."""
    folder = tmp_path / "deep" / "records"
    with fake_server(FakeConfig(**FAST)) as server:
        summary = run_load_test(on(server), records_dir=folder)

    assert sum(batch.stream.size for batch in read_requests(tuple(folder.iterdir()))) == 20
    assert {path.suffix for path in folder.iterdir()} == {".parquet"}
    assert summary.records.folder == str(folder)


def test_records_are_never_overwritten(tmp_path: Path) -> None:
    """A folder that holds something is refused, before anything is sent, and left alone."""
    (tmp_path / "mine.txt").write_text("keep")
    with fake_server(FakeConfig(**FAST)) as server:
        with pytest.raises(SpecError, match=r"holds '\w+.*nothing is overwritten"):
            run_load_test(on(server), records_dir=tmp_path)

        assert server.requests == 0
    assert (tmp_path / "mine.txt").read_text() == "keep"


@pytest.mark.parametrize("keep", [True, False], ids=["kept", "not-kept"])
def test_spool_is_private_and_beside_the_records(
    tmp_path: Path, temporary: Path, *, keep: bool
) -> None:
    """While a run goes on, what waits to be parsed lies in a folder that only we can enter."""
    seen: list[tuple[int, list[str]]] = []
    root = tmp_path / "records" if keep else temporary

    def look(_at: LoadProgress) -> None:
        (folder,) = root.glob(".draftgate-load-*")
        waiting = [path.name for path in (folder / "spool").iterdir()]
        seen.append((stat.S_IMODE(folder.stat().st_mode), waiting))

    with fake_server(FakeConfig(step_s=0.02, ttft_s=0.2)) as server:
        test = on(server, max_requests=None, duration_s=1.2)
        run_load_test(test, records_dir=root if keep else None, on_progress=look)

    assert seen[0] == (0o700, ["000-00000.part"])


@pytest.mark.parametrize("error", [KeyboardInterrupt, MeasurementError])
def test_part_of_the_records_is_removed(tmp_path: Path, error: type[BaseException]) -> None:
    """What was already parsed when a run broke off goes away, and nothing but that."""
    (tmp_path / ".spool").mkdir()

    def break_off() -> None:
        (tmp_path / "000-00000.parquet").write_bytes(b"PAR1")
        (tmp_path / ".000-00001.parquet.x.part").write_bytes(b"")
        raise error

    with pytest.raises(error), _emptied_on_failure(tmp_path):
        break_off()

    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == []
    assert (tmp_path / ".spool").is_dir()


def test_failed_run_leaves_no_records(tmp_path: Path) -> None:
    """An error in the middle takes away what was written, so that no part passes for all."""
    folder = tmp_path / "records"

    def fail(_at: LoadProgress) -> None:
        raise SpecError("planted in progress")

    with fake_server(FakeConfig(**FAST)) as server:
        test = on(server, max_requests=None, duration_s=60.0)
        with pytest.raises(SpecError, match="planted in progress"):
            run_load_test(test, records_dir=folder, on_progress=fail)

    assert list(folder.iterdir()) == []


def test_more_streams_than_files_are_refused() -> None:
    """The system's limit is told by name, before anything is sent, and is as it was."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    with fake_server() as server:
        test = on(server, arrivals=ClosedLoop(before[1] + 1), max_requests=before[1] + 1)
        with pytest.raises(SpecError, match=r"open files, but the system allows \d+\. Raise"):
            run_load_test(test, workers=1)

    assert resource.getrlimit(resource.RLIMIT_NOFILE) == before


def test_streams_beyond_the_soft_limit_are_allowed() -> None:
    """A run may use what the hard limit gives, and puts the soft one back."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    low = len(list(Path("/proc/self/fd").iterdir())) + 20
    try:
        with fake_server(FakeConfig(**FAST)) as server:
            resource.setrlimit(resource.RLIMIT_NOFILE, (low, hard))
            summary = run_load_test(on(server, arrivals=ClosedLoop(40), max_requests=40))
            after = resource.getrlimit(resource.RLIMIT_NOFILE)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

    assert summary.requests.served == 40
    assert after == (low, hard)


@pytest.mark.parametrize("workers", [0, 5])
def test_workers_without_a_share_are_refused(workers: int) -> None:
    """Each process needs a stream; a wrong number is told before anything is sent."""
    with pytest.raises(SpecError, match=f"workers: got {workers}, expected 1 to 4"):
        run_load_test(make_test(), workers=workers)
