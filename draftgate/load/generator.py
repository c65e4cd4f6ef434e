"""The closed loop: c streams, each with one request open at any time.

Knows when to send and when to stop; knows neither HTTP nor tokens. Uses
`draftgate.load.client` while the run goes on and `draftgate.load.parse` once
all sockets are closed, and hands the records to `draftgate.measure`.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

import uvloop

from draftgate.clock import SYSTEM_CLOCK, Clock
from draftgate.errors import SpecError
from draftgate.load.client import RawExchange, StreamConnection
from draftgate.load.health import CollectorPause, LagMeter, cpu_time_s, frozen_heap, percentile
from draftgate.load.parse import SentRequest, parse_exchange
from draftgate.load.requests import Endpoint, PreparedRequest
from draftgate.load.window import Phase, WindowRule
from draftgate.records import ClientHealth, RequestRecord, Window

_PROGRESS_PERIOD_S = 1.0
_FEWEST_FAILURES = 3
"""Failures in a row that end a run of fewer streams; with more, one per stream."""


@dataclass(frozen=True, slots=True)
class ClosedLoopPlan:
    """How one closed-loop run goes.

    Attributes:
        concurrency: Streams c, each with one request open at any time.
        warmup_requests: Requests each stream ends before the window may open;
            0 opens it when each stream has had its first byte.
        window_s: Shortest length of the window.
        min_requests: Fewest requests that must end inside the window.
        stagger_s: Time over which the streams are started, evenly spaced.
        stall_timeout_s: Silence after which a request is given up.
        run_timeout_s: Time after which the run ends whatever is open.
        keep_text: Whether records hold the output text.
        whole_rounds: Whether the window closes at the end of a round of all
            streams only; see `draftgate.load.window.WindowRule`.
    """

    concurrency: int
    warmup_requests: int
    window_s: float
    min_requests: int
    stagger_s: float
    stall_timeout_s: float
    run_timeout_s: float
    keep_text: bool = True
    whole_rounds: bool = False

    def __post_init__(self) -> None:
        """Check the ranges.

        Raises:
            SpecError: If a value is out of range; the message names it.
        """
        if self.concurrency < 1:
            raise SpecError(f"concurrency must be >= 1, got {self.concurrency}.")
        for name in ("warmup_requests", "window_s", "min_requests", "stagger_s"):
            if not getattr(self, name) >= 0:  # this way round NaN fails too
                raise SpecError(f"{name} must be >= 0, got {getattr(self, name)}.")
        for name in ("stall_timeout_s", "run_timeout_s"):
            if not getattr(self, name) > 0:
                raise SpecError(f"{name} must be > 0, got {getattr(self, name)}.")


@dataclass(frozen=True, slots=True)
class LoadHooks:
    """What the caller does while a run goes on; each is optional.

    All three run on a worker thread, so they never hold up the event loop,
    though they share its interpreter. An exception from one ends the run and
    is raised once the sockets are closed.

    Attributes:
        on_window_open: Called once, right after the window opened.
        on_window_close: Called once, right after it closed, by whatever cause;
            never before `on_window_open` has returned, and not at all if the
            run is cancelled or ends by an exception.
        on_progress: Called about once per second with seconds since the
            start, requests ended and body bytes received.
    """

    on_window_open: Callable[[], None] | None = None
    on_window_close: Callable[[], None] | None = None
    on_progress: Callable[[float, int, int], None] | None = None


@dataclass(frozen=True, slots=True)
class LoadResult:
    """What one run left behind.

    Attributes:
        records: Every request in order of sending, warm-up and drain included.
        window: Where all streams ran; None if it never opened.
        client: The generator's own CPU time over the run and its lag inside
            the window (over the run without one).
        notes: Why the run did not go as planned; empty if it did.
    """

    records: tuple[RequestRecord, ...]
    window: Window | None
    client: ClientHealth
    notes: tuple[str, ...]


def run(
    endpoint: Endpoint,
    next_request: Callable[[int], PreparedRequest],
    plan: ClosedLoopPlan,
    *,
    clock: Clock = SYSTEM_CLOCK,
    hooks: LoadHooks | None = None,
) -> LoadResult:
    """Run `run_closed_loop` on an event loop of its own and return its result.

    Raises:
        KeyboardInterrupt: On Ctrl-C, once all sockets are closed.
    """
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(run_closed_loop(endpoint, next_request, plan, clock, hooks))


async def run_closed_loop(
    endpoint: Endpoint,
    next_request: Callable[[int], PreparedRequest],
    plan: ClosedLoopPlan,
    clock: Clock,
    hooks: LoadHooks | None = None,
) -> LoadResult:
    """Keep `plan.concurrency` streams busy until the window closes; return all records.

    What triggers the next request of a stream is the end of the one before it,
    so a slow server is asked less often. `scheduled_ns` is when the stream was
    free, and latencies counted from `sent_ns` leave out all waiting that an
    independent arrival would have had, as well as connecting (first request of
    a stream, or after a failure) and building the request.

    The window opens and closes by `draftgate.load.window.WindowRule`. All
    streams go on until it closes; then none sends again and open requests may
    end, within the time limits. At `run_timeout_s` whatever is open fails.
    After `concurrency` failures in a row (at least 3) the run gives up.

    Args:
        endpoint: Where to send.
        next_request: Returns the next request of a stream, given its number;
            called on the event loop between two requests, so it must be quick.
        plan: Numbers and limits.
        clock: Source of every stamp.
        hooks: What to do meanwhile.

    Raises:
        SpecError: If the endpoint's key variable is unset.
    """
    loop = _ClosedLoop(endpoint, next_request, plan, clock, hooks or LoadHooks())
    with frozen_heap():
        await loop.run()
    return loop.result()


class _ClosedLoop:
    """State of one run; lives on one event loop and is used once."""

    def __init__(
        self,
        endpoint: Endpoint,
        next_request: Callable[[int], PreparedRequest],
        plan: ClosedLoopPlan,
        clock: Clock,
        hooks: LoadHooks,
    ) -> None:
        self._secret = endpoint.api_key()
        self._next_request = next_request
        self._plan = plan
        self._clock = clock
        self._hooks = hooks
        self._rule = WindowRule(
            plan.concurrency,
            warmup_requests=plan.warmup_requests,
            window_s=plan.window_s,
            min_requests=plan.min_requests,
            whole_rounds=plan.whole_rounds,
        )
        self._connections = [
            StreamConnection(endpoint, clock, stall_timeout_s=plan.stall_timeout_s)
            for _ in range(plan.concurrency)
        ]
        self._lag = LagMeter(clock)
        self._collector = CollectorPause()
        self._stopping = asyncio.Event()
        self._drained = asyncio.Event()
        self._window_timer: asyncio.TimerHandle | None = None
        self._hook_tasks: list[asyncio.Task[None]] = []
        self._sent: list[tuple[int, int, PreparedRequest, RawExchange]] = []
        self._failures_in_a_row = 0
        self._notes: list[str] = []
        self._start_ns = self._end_ns = 0
        self._cpu_s = 0.0

    async def run(self) -> None:
        """Run all streams, then close every socket, also when cancelled."""
        self._start_ns, cpu_s = self._clock.now_ns(), cpu_time_s()
        self._lag.start()
        deadline = asyncio.get_running_loop().call_later(self._plan.run_timeout_s, self._time_is_up)
        streams = [asyncio.create_task(self._stream(i)) for i in range(self._plan.concurrency)]
        progress = asyncio.create_task(self._report_progress())
        try:
            await asyncio.gather(*streams)
            self._stop()
            self._drained.set()
            await asyncio.gather(progress, *self._hook_tasks)
        finally:
            deadline.cancel()
            self._end_window()
            self._lag.stop()
            await _cancelled([*streams, progress, *self._hook_tasks])
            for connection in self._connections:
                await connection.close()
            self._end_ns, self._cpu_s = self._clock.now_ns(), cpu_time_s() - cpu_s

    def result(self) -> LoadResult:
        """Parse everything and return it; called after `run`."""
        window = self._rule.window
        ordered = sorted(self._sent, key=lambda sent: (sent[3].sent_ns, sent[0]))
        records = tuple(
            parse_exchange(
                SentRequest(index, stream, scheduled_ns, request, exchange),
                secret=self._secret,
                keep_text=self._plan.keep_text,
            )
            for index, (stream, scheduled_ns, request, exchange) in enumerate(ordered)
        )
        lags = self._lag.lags_s(window)
        health = ClientHealth(
            cpu_s=self._cpu_s,
            wall_s=(self._end_ns - self._start_ns) / 1e9,
            lag_p99_s=percentile(lags, 0.99),
            lag_max_s=max(lags, default=0.0),
        )
        notes = list(self._notes)
        if window is None:
            notes.append("the window never opened: not every stream got through its warm-up")
        return LoadResult(records, window, health, tuple(notes))

    async def _stream(self, stream: int) -> None:
        """Send one request after the other until the run stops."""
        plan = self._plan
        await _wait(self._stopping, plan.stagger_s * stream / plan.concurrency)
        deadline_ns = self._start_ns + round(plan.run_timeout_s * 1e9)
        while not self._stopping.is_set():
            scheduled_ns = self._clock.now_ns()
            if scheduled_ns >= deadline_ns:
                self._time_is_up()
                return
            request = self._next_request(stream)
            exchange = await self._connections[stream].exchange(
                request,
                deadline_ns=deadline_ns,
                on_first_byte=lambda t_ns: self._first_byte(stream, t_ns),
            )
            self._sent.append((stream, scheduled_ns, request, exchange))
            self._request_ended(stream, exchange)

    def _first_byte(self, stream: int, t_ns: int) -> None:
        before = self._rule.phase
        self._rule.first_byte(stream, t_ns)
        self._follow(before)

    def _request_ended(self, stream: int, exchange: RawExchange) -> None:
        before = self._rule.phase
        self._rule.ended(stream, exchange.ended_ns)
        self._follow(before)
        self._failures_in_a_row = 0 if exchange.answered else self._failures_in_a_row + 1
        limit = max(_FEWEST_FAILURES, self._plan.concurrency)
        if self._failures_in_a_row >= limit and not self._stopping.is_set():
            last = exchange.error.message if exchange.error else f"HTTP status {exchange.status}"
            self._notes.append(f"gave up after {limit} failures in a row; the last: {last}")
            self._stop()

    def _follow(self, before: Phase) -> None:
        """Do what a change of phase asks for."""
        phase = self._rule.phase
        if phase is before:
            return
        if phase is Phase.OPEN:
            self._collector.begin()
            self._start_hook(self._hooks.on_window_open)
            self._arm_window_timer()
        else:
            self._stop()

    def _arm_window_timer(self) -> None:
        left_s = self._rule.time_left_s(self._clock.now_ns())
        if left_s > 0:
            # Timers may fire up to a millisecond early; then it is armed again.
            self._window_timer = asyncio.get_running_loop().call_later(
                left_s + 0.0005, self._window_tick
            )

    def _window_tick(self) -> None:
        before = self._rule.phase
        self._rule.tick(self._clock.now_ns())
        self._follow(before)
        if self._rule.phase is Phase.OPEN:
            self._arm_window_timer()

    def _time_is_up(self) -> None:
        if not self._stopping.is_set():
            limit = f"{self._plan.run_timeout_s:g} s (run_timeout_s)"
            seen = f"{self._rule.ended_inside} requests had ended in the window"
            self._notes.append(f"the run's time was up after {limit} when {seen}")
            self._stop()

    def _stop(self) -> None:
        """Close the window if it is still open and let no stream send again."""
        if self._stopping.is_set():
            return
        self._stopping.set()
        opened = self._end_window()
        if opened:
            self._start_hook(self._hooks.on_window_close)

    def _end_window(self) -> bool:
        """Close the window for good and undo what it asked for; return whether it had opened."""
        self._rule.close(self._clock.now_ns())
        self._collector.end()
        if self._window_timer is not None:
            self._window_timer.cancel()
            self._window_timer = None
        return self._rule.window is not None

    def _start_hook(self, hook: Callable[[], None] | None) -> None:
        if hook is not None:
            earlier = self._hook_tasks[-1] if self._hook_tasks else None
            self._hook_tasks.append(asyncio.create_task(self._call(earlier, hook)))

    async def _call(
        self, earlier: asyncio.Task[None] | None, hook: Callable[..., None], *args: float
    ) -> None:
        """Call a hook on a thread; if it fails, stop the run so that the error is seen soon."""
        try:
            if earlier is not None:
                await earlier
            await asyncio.to_thread(hook, *args)
        except Exception:
            self._stop()
            raise

    async def _report_progress(self) -> None:
        hook = self._hooks.on_progress
        while hook is not None:
            await _wait(self._drained, _PROGRESS_PERIOD_S)
            if self._drained.is_set():
                return
            elapsed_s = (self._clock.now_ns() - self._start_ns) / 1e9
            received = sum(connection.body_bytes for connection in self._connections)
            await self._call(None, hook, elapsed_s, len(self._sent), received)


async def _wait(event: asyncio.Event, seconds: float) -> None:
    """Wait for `event`, but no longer than `seconds`."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()


async def _cancelled(tasks: list[asyncio.Task[None]]) -> None:
    """Cancel what still runs and wait for its end; errors were raised to the caller before."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
