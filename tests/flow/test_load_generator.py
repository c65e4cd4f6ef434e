"""The closed loop: window, stagger, drain, giving up, cancelling, its own health."""

import asyncio
import gc
import os
import signal
import socket
import threading
from collections import Counter
from collections.abc import Callable
from itertools import pairwise

import psutil
import pytest
import uvloop

from draftgate.clock import SYSTEM_CLOCK, ManualClock
from draftgate.engines.fake_server import FakeConfig, FakeServer
from draftgate.errors import SpecError
from draftgate.load.closed import ClosedLoop, ClosedLoopPlan
from draftgate.load.generator import LoadResult, run
from draftgate.load.health import LagMeter, percentile
from draftgate.load.requests import Endpoint, PreparedRequest
from draftgate.load.spread import processes_for
from draftgate.load.state import LoadHooks, LoadProgress, MemorySink
from draftgate.load.window import Phase, WindowRule, replay
from draftgate.records import FailureKind, RequestRecord, Window
from tests.support.fake import chat, endpoint, fake_server

FAST = {"step_s": 0.002, "ttft_s": 0.005}
S = 1_000_000_000


def _plan(**changes: float) -> ClosedLoopPlan:
    fields: dict[str, float] = {
        "concurrency": 3,
        "warmup_requests": 1,
        "window_s": 0.1,
        "min_requests": 3,
        "stagger_s": 0.03,
        "stall_timeout_s": 5.0,
        "run_timeout_s": 10.0,
    }
    return ClosedLoopPlan(**{**fields, **changes})  # type: ignore[arg-type]


def _requests(max_tokens: int = 8) -> Callable[[int], PreparedRequest]:
    request = chat(max_tokens=max_tokens)
    return lambda _stream: request


def _by_stream(result: LoadResult) -> dict[int, list[RequestRecord]]:
    streams: dict[int, list[RequestRecord]] = {}
    for record in result.records:
        streams.setdefault(record.stream, []).append(record)
    return streams


def _rule(**changes: float) -> WindowRule:
    fields: dict[str, float] = {"warmup_requests": 2, "window_s": 1.0, "min_requests": 2}
    return WindowRule(2, **{**fields, **changes})  # type: ignore[arg-type]


def test_window_opens_when_the_last_stream_is_warm() -> None:
    """The window starts just after the end of the last warm-up request of the last stream."""
    rule = _rule()
    for stream, t_ns in ((0, 10), (0, 20), (0, 30), (1, 40)):
        rule.ended(stream, t_ns)
        assert rule.phase is Phase.WARM_UP

    rule.ended(1, 50)

    assert rule.phase is Phase.OPEN
    assert rule.ended_inside == 0
    rule.close(70)
    assert rule.window == Window(51, 70)


def test_window_without_warm_up_opens_at_the_last_first_byte() -> None:
    """With no warm-up, first bytes open the window; requests that end without one do not."""
    rule = _rule(warmup_requests=0)
    rule.ended(0, 5)
    rule.ended(1, 6)
    rule.first_byte(0, 10)
    assert rule.phase is Phase.WARM_UP

    rule.first_byte(1, 20)

    assert rule.phase is Phase.OPEN


def test_window_of_whole_rounds_closes_at_the_end_of_one() -> None:
    """It closes as the last of two streams ends its second request, not by time or in between."""
    rule = WindowRule(2, warmup_requests=1, window_s=1.0, min_requests=1, whole_rounds=True)
    for stream, t_ns in ((0, 0), (1, 0), (0, S // 2), (1, S * 3 // 4)):
        rule.ended(stream, t_ns)
    rule.tick(2 * S)
    rule.ended(0, 3 * S)
    assert rule.phase is Phase.OPEN

    rule.ended(1, 4 * S)

    assert rule.phase is Phase.CLOSED
    assert rule.window == Window(1, 4 * S + 1)
    assert rule.ended_inside == 4


def test_window_needs_time_and_requests() -> None:
    """It stays open past its length until enough requests ended, and takes in the last."""
    rule = _rule(warmup_requests=1)
    rule.ended(0, 0)
    rule.ended(1, 0)
    rule.ended(0, S // 2)
    rule.tick(2 * S)
    assert rule.phase is Phase.OPEN

    rule.ended(1, 3 * S)

    assert rule.window == Window(1, 3 * S + 1)
    assert rule.ended_inside == 2


def test_window_with_enough_requests_closes_at_its_length() -> None:
    """Requests alone do not close it before its time; then a tick does."""
    rule = _rule(warmup_requests=1)
    for t_ns in (0, 10, 20, 30):
        rule.ended(0, t_ns)
    rule.ended(1, 40)
    for t_ns in (50, 60, 70):
        rule.ended(0, t_ns)
    rule.tick(40 + S)
    assert rule.phase is Phase.OPEN
    assert rule.time_left_s(41 + S // 2) == 0.5

    rule.tick(41 + S)

    assert rule.window == Window(41, 41 + S)


def test_window_closed_in_warm_up_never_was() -> None:
    """A run that ends in its warm-up has no window."""
    rule = _rule()
    rule.close(10)
    rule.ended(0, 20)

    assert rule.window is None
    assert rule.phase is Phase.CLOSED


@pytest.mark.parametrize("warmup_requests", [0, 1, 2])
def test_all_streams_run_throughout_the_window(warmup_requests: int) -> None:
    """Inside the window each stream goes from one request straight to the next."""
    with fake_server(FakeConfig(**FAST)) as server:
        result = run(endpoint(server), _requests(), _plan(warmup_requests=warmup_requests))
        most_running = server.most_running

    assert result.window is not None
    assert result.notes == ()
    assert result.window.length_s >= 0.1
    assert most_running == 3
    for records in _by_stream(result).values():
        assert records[0].sent_ns < result.window.start_ns
        assert records[-1].sent_ns < result.window.end_ns <= records[-1].ended_ns + S // 200
        assert sum(record.ended_ns < result.window.start_ns for record in records) >= (
            warmup_requests
        )


def test_window_holds_at_least_min_requests() -> None:
    """A window too short for its requests stays open until they have ended."""
    with fake_server(FakeConfig(**FAST)) as server:
        result = run(endpoint(server), _requests(), _plan(window_s=0.0, min_requests=12))

    window = result.window
    assert window is not None
    inside = [r for r in result.records if window.start_ns <= r.ended_ns < window.end_ns]
    assert len(inside) >= 12


def test_open_requests_drain_and_none_follows() -> None:
    """After the close every open request ends whole, and nothing more is sent."""
    with fake_server(FakeConfig(**FAST)) as server:
        result = run(endpoint(server), _requests(max_tokens=20), _plan())
        received = server.requests

    assert result.window is not None
    assert [record.failure for record in result.records if record.failure] == []
    assert all(record.completion_tokens == 20 for record in result.records)
    assert all(record.scheduled_ns <= result.window.end_ns for record in result.records)
    assert received == len(result.records)


def test_records_are_in_order_of_sending() -> None:
    """Index, sending time and scheduling agree, within a stream and over the run."""
    with fake_server(FakeConfig(**FAST)) as server:
        result = run(endpoint(server), _requests(), _plan())

    sent = [record.sent_ns for record in result.records]
    assert sent == sorted(sent)
    assert [record.index for record in result.records] == list(range(len(sent)))
    for records in _by_stream(result).values():
        for before, after in pairwise(records):
            assert before.ended_ns <= after.scheduled_ns <= after.sent_ns


def test_streams_start_staggered() -> None:
    """Stream i is due no earlier than its share of the stagger after the first."""
    with fake_server(FakeConfig(**FAST)) as server:
        result = run(endpoint(server), _requests(), _plan(concurrency=4, stagger_s=0.2))

    firsts = [records[0].scheduled_ns for _, records in sorted(_by_stream(result).items())]
    for stream, scheduled_ns in enumerate(firsts):
        assert scheduled_ns - firsts[0] >= (0.05 * stream - 0.01) * 1e9


def test_connections_are_kept_for_the_whole_run() -> None:
    """As many connections as streams are opened, and none is left behind."""
    with fake_server(FakeConfig(**FAST)) as server:
        run(endpoint(server), _requests(), _plan())
        connections = server.connections
        left = _open_sockets(server)

    assert connections == 3
    assert left == 0


def _open_sockets(server: FakeServer) -> int:
    """Count this process's sockets that lead to `server`."""
    sockets = psutil.Process().net_connections(kind="tcp")
    return sum(bool(s.raddr) and s.raddr.port == server.port for s in sockets)


def test_planted_faults_are_counted_and_do_not_stop_the_run() -> None:
    """Every nth request fails with its kind; the others are served."""
    config = FakeConfig(error_every=5, in_band_error_every=7, **FAST)
    with fake_server(config) as server:
        result = run(endpoint(server), _requests(), _plan(min_requests=30))

    kinds = Counter(record.failure.kind for record in result.records if record.failure)
    count = len(result.records)
    assert count >= 30
    assert kinds == {
        FailureKind.HTTP_ERROR: count // 5,
        FailureKind.IN_BAND_ERROR: count // 7 - count // 35,
    }
    assert result.window is not None


def test_dead_server_ends_the_run_at_once() -> None:
    """A refused connection is tried as often as there are streams, then the run gives up."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        target = Endpoint(f"http://127.0.0.1:{unused.getsockname()[1]}", "fake")
        result = run(target, _requests(), _plan(concurrency=4))

    assert 4 <= len(result.records) <= 8
    assert all(r.failure and r.failure.kind is FailureKind.CONNECT for r in result.records)
    assert result.window is None
    assert "gave up after 4 failures in a row" in result.notes[0]
    assert "never opened" in result.notes[1]
    assert result.client.wall_s < 5


def test_server_that_dies_in_the_window_closes_it() -> None:
    """Open requests fail, the run gives up, and window, hooks and records are left behind."""
    calls: list[str] = []
    hooks = LoadHooks(lambda: calls.append("open"), lambda: calls.append("close"))
    with fake_server(FakeConfig(die_after_requests=20, **FAST)) as server:
        result = run(
            endpoint(server), _requests(), _plan(window_s=60, run_timeout_s=90), hooks=hooks
        )

    kinds = {record.failure.kind for record in result.records if record.failure}
    assert kinds == {FailureKind.EARLY_END, FailureKind.CONNECT}
    assert sum(record.failure is None for record in result.records) >= 15
    assert result.window is not None
    assert calls == ["open", "close"]
    assert "gave up" in result.notes[0]


def test_run_timeout_ends_whatever_is_open() -> None:
    """At the run's limit open requests fail as DEADLINE, and the notes say so."""
    with fake_server(FakeConfig(stall_every=4, **FAST)) as server:
        result = run(endpoint(server), _requests(), _plan(run_timeout_s=0.5, window_s=30))

    kinds = [record.failure.kind for record in result.records if record.failure]
    assert set(kinds) == {FailureKind.DEADLINE}
    assert 1 <= len(kinds) <= 3
    assert "run_timeout_s" in result.notes[0]


def test_stalled_stream_fails_and_goes_on() -> None:
    """The watchdog ends a silent request; its stream sends the next one."""
    with fake_server(FakeConfig(stall_every=6, **FAST)) as server:
        result = run(endpoint(server), _requests(), _plan(stall_timeout_s=0.2, min_requests=14))

    kinds = {record.failure.kind for record in result.records if record.failure}
    assert kinds == {FailureKind.STALLED}
    assert result.window is not None


def test_hooks_never_hold_up_the_loop() -> None:
    """Requests go on while a hook blocks; the close hook waits for the open hook."""
    calls: list[str] = []
    more_was_sent = threading.Event()
    opening = threading.Event()
    request = chat()

    def next_request(_stream: int) -> PreparedRequest:
        if opening.is_set():
            more_was_sent.set()
        return request

    def on_open() -> None:
        opening.set()
        calls.append("open" if more_was_sent.wait(5) else "the loop stood still")
        threading.Event().wait(0.3)  # longer than the window is open
        calls.append("opened")

    hooks = LoadHooks(on_open, lambda: calls.append("close"))
    with fake_server(FakeConfig(**FAST)) as server:
        run(endpoint(server), next_request, _plan(window_s=0.05), hooks=hooks)

    assert calls == ["open", "opened", "close"]


def test_progress_is_reported() -> None:
    """A run of more than a second reports seconds, requests and bytes so far."""
    reports: list[LoadProgress] = []
    hooks = LoadHooks(on_progress=reports.append)
    with fake_server(FakeConfig(**FAST)) as server:
        run(endpoint(server), _requests(), _plan(window_s=1.2), hooks=hooks)

    first = reports[0]
    assert first.elapsed_s >= 0.9
    assert first.ended > 0
    assert first.received_bytes > 1000 * first.ended
    assert first.output_tokens == pytest.approx(8 * first.ended, rel=0.5)


@pytest.mark.parametrize("which", ["on_window_open", "on_window_close"])
def test_failing_hook_ends_the_run_with_its_error(which: str) -> None:
    """A hook's exception reaches the caller, sockets closed, long before the window's end."""

    def fail() -> None:
        raise SpecError("from the hook")

    window_s = 60.0 if which == "on_window_open" else 0.05
    with fake_server(FakeConfig(**FAST)) as server:
        with pytest.raises(SpecError, match="from the hook"):
            run(
                endpoint(server),
                _requests(),
                _plan(window_s=window_s, run_timeout_s=90),
                hooks=LoadHooks(**{which: fail}),
            )

        assert _open_sockets(server) == 0


def test_failing_request_source_ends_the_run_with_its_error() -> None:
    """An exception from next_request reaches the caller and leaves no socket."""
    left = [chat()] * 7

    with fake_server(FakeConfig(**FAST)) as server:
        with pytest.raises(IndexError):
            run(endpoint(server), lambda _stream: left.pop(), _plan())

        assert _open_sockets(server) == 0
    assert gc.isenabled()


def test_cancelling_leaves_no_socket() -> None:
    """A cancelled run closes everything before the cancellation is through."""

    async def cancel_midway(server: FakeServer) -> int:
        sent, midway = [0, 0, 0], asyncio.Event()

        def next_request(stream: int) -> PreparedRequest:
            sent[stream] += 1
            if min(sent) >= 2:
                midway.set()
            return chat()

        plan = _plan(window_s=60)
        loop = ClosedLoop(
            endpoint(server), next_request, plan, SYSTEM_CLOCK, LoadHooks(), MemorySink()
        )
        task = asyncio.create_task(loop.run())
        await midway.wait()
        assert _open_sockets(server) >= 3
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return _open_sockets(server)

    with (
        fake_server(FakeConfig(**FAST)) as server,
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):
        left = runner.run(cancel_midway(server))

    assert left == 0
    assert gc.isenabled()
    assert gc.get_freeze_count() == 0


def test_ctrl_c_leaves_no_socket() -> None:
    """SIGINT in the middle of a run is KeyboardInterrupt for the caller, all closed."""
    count = 0

    def next_request(_stream: int) -> PreparedRequest:
        nonlocal count
        count += 1
        if count == 8:
            os.kill(os.getpid(), signal.SIGINT)
        return chat()

    with fake_server(FakeConfig(**FAST)) as server:
        with pytest.raises(KeyboardInterrupt):
            run(endpoint(server), next_request, _plan(window_s=60, run_timeout_s=90))

        assert _open_sockets(server) == 0


def test_collector_is_off_in_the_window_only() -> None:
    """Garbage collection stops while the window is open and comes back as it was."""
    states: list[tuple[int, bool]] = []

    def next_request(_stream: int) -> PreparedRequest:
        states.append((SYSTEM_CLOCK.now_ns(), gc.isenabled()))
        return chat()

    with fake_server(FakeConfig(**FAST)) as server:
        result = run(endpoint(server), next_request, _plan())

    assert result.window is not None
    start_ns, end_ns = result.window.start_ns, result.window.end_ns
    slack_ns = S // 50
    before = [on for t_ns, on in states if t_ns < start_ns]
    inside = [on for t_ns, on in states if start_ns + slack_ns < t_ns < end_ns]
    assert set(before) == {True}
    assert set(inside) == {False}
    assert gc.isenabled()
    assert gc.get_freeze_count() == 0


def test_client_reports_its_own_use() -> None:
    """CPU time, length and lag of the generator are measured in every run."""
    with fake_server(FakeConfig(**FAST)) as server:
        client = run(endpoint(server), _requests(), _plan()).client

    assert client.wall_s >= 0.1
    assert client.cpu_s > 0
    assert 0 <= client.lag_p99_s <= client.lag_max_s
    assert client.lag_max_s > 0


def test_lag_of_a_blocked_loop_is_seen() -> None:
    """A request source that blocks the loop shows in the lag."""

    def blocking(_stream: int) -> PreparedRequest:
        threading.Event().wait(0.06)
        return chat()

    with fake_server(FakeConfig(**FAST)) as server:
        client = run(endpoint(server), blocking, _plan()).client

    assert client.lag_max_s >= 0.04


def test_missed_firings_count_with_the_lag_they_had() -> None:
    """A block of 75 ms is four late firings, not one."""
    meter = LagMeter(ManualClock())

    meter.note(20_000_000, 95_000_000)

    assert meter.lags_s(None) == pytest.approx((0.075, 0.055, 0.035, 0.015))
    assert meter.lags_s(Window(40_000_000, 80_000_000)) == pytest.approx((0.055, 0.035))


@pytest.mark.parametrize(
    ("share", "expected"), [(0.0, 1.0), (0.5, 2.0), (0.75, 3.0), (0.99, 4.0), (1.0, 4.0)]
)
def test_percentile_is_the_nearest_rank(share: float, expected: float) -> None:
    """The smallest value that covers the share, whatever the order given."""
    assert percentile([4.0, 1.0, 3.0, 2.0], share) == expected


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("concurrency", 0),
        ("warmup_requests", -1),
        ("window_s", float("nan")),
        ("stagger_s", -0.1),
        ("stall_timeout_s", 0),
        ("run_timeout_s", -1),
    ],
)
def test_plan_out_of_range_names_the_field(name: str, value: float) -> None:
    """A plan that cannot run is refused by the name of its field."""
    with pytest.raises(SpecError, match=name):
        _plan(**{name: value})


def test_text_is_kept_only_if_asked_for() -> None:
    """keep_text=False leaves it out of every record."""
    with fake_server(FakeConfig(**FAST)) as server:
        result = run(endpoint(server), _requests(), _plan(keep_text=False, window_s=0.0))

    assert {record.text for record in result.records} == {None}


@pytest.mark.parametrize(
    ("concurrency", "cores", "processes"),
    [(1, 2, 1), (512, 16, 1), (513, 16, 2), (2000, 16, 4), (2000, 3, 2), (2000, 1, 1)],
)
def test_processes_follow_the_streams_and_leave_a_core(
    concurrency: int, cores: int, processes: int
) -> None:
    """One process up to 512 streams, then one for each 512, never all cores."""
    assert processes_for(concurrency, cores) == processes


def test_replayed_window_is_the_one_that_was_watched() -> None:
    """From the ends of all requests alone, a rule finds the window that it had live."""
    with fake_server(FakeConfig(**FAST)) as server:
        result = run(endpoint(server), _requests(), _plan(whole_rounds=True))

    rule = WindowRule(3, warmup_requests=1, window_s=0.1, min_requests=3, whole_rounds=True)
    window = replay(rule, ((record.stream, record.ended_ns) for record in result.records))
    assert window is not None
    assert result.window is not None
    assert window.start_ns == pytest.approx(result.window.start_ns, abs=5_000_000)
    assert window.end_ns == pytest.approx(result.window.end_ns, abs=5_000_000)
