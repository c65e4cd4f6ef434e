"""What every run has, however its requests are timed: its end, its hooks, its meters.

The loops in `draftgate.load.closed` and `draftgate.load.open` hold one
`RunState` each and say when requests go out; it says when that is over, keeps
what came back in a sink, and knows neither HTTP nor tokens.
"""

import asyncio
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

from draftgate.clock import Clock
from draftgate.load.health import CollectorPause, LagMeter, cpu_time_s
from draftgate.load.requests import PreparedRequest
from draftgate.load.wire import WireExchange
from draftgate.records import Window

_PROGRESS_PERIOD_S = 1.0
_ASK_PERIOD_S = 0.02
_FEWEST_FAILURES = 3
"""Failures in a row that end a run of fewer streams; with more, one per stream."""

_USAGE = re.compile(rb'"completion_tokens":\s*(\d+)')
_USAGE_BYTES = 1024
"""Where a response's usage is looked for: its end; vLLM's last two events fit."""


@dataclass(frozen=True, slots=True)
class SentWire:
    """One exchange as it came, with what is known about it beforehand.

    Attributes:
        index: Running number inside the run, in order of sending.
        stream: The stream that sent it; the arrival's number in open loop.
        scheduled_ns: When it was due.
        request: What was sent.
        wire: What came back.
    """

    index: int
    stream: int
    scheduled_ns: int
    request: PreparedRequest
    wire: WireExchange


class Sink(Protocol):
    """Where ended exchanges go; called on the event loop, so it must be quick."""

    def take(self, sent: SentWire) -> None:
        """Keep one exchange."""


class MemorySink:
    """Keeps all exchanges as they are; for runs that fit into memory."""

    def __init__(self) -> None:
        self.kept: list[SentWire] = []

    def take(self, sent: SentWire) -> None:
        """Keep one exchange."""
        self.kept.append(sent)


@dataclass(frozen=True, slots=True)
class LoadProgress:
    """How far a run is.

    Attributes:
        elapsed_s: Seconds since its start.
        running: Requests open now.
        ended: Requests ended, failed ones included.
        failed: Requests that got no whole response with status 200.
        received_bytes: Bytes received, HTTP's own included.
        output_tokens: Tokens of ended requests by their usage, and of open ones
            as estimated from their bytes; None until a request has ended.
    """

    elapsed_s: float
    running: int
    ended: int
    failed: int
    received_bytes: int
    output_tokens: int | None


@dataclass(frozen=True, slots=True)
class LoadHooks:
    """What the caller does while a run goes on; each is optional.

    All run on a worker thread, so they never hold up the event loop, though
    they share its interpreter. An exception from one ends the run and is raised
    once the sockets are closed.

    Attributes:
        on_window_open: Called once, right after the window opened.
        on_window_close: Called once, right after it closed, by whatever cause;
            never before `on_window_open` has returned, and not at all if the
            run is cancelled or ends by an exception.
        on_progress: Called about once per second.
        stop_when: Asked every 20 ms, on the event loop, so it must be quick;
            once it returns True nothing more is sent.
    """

    on_window_open: Callable[[], None] | None = None
    on_window_close: Callable[[], None] | None = None
    on_progress: Callable[[LoadProgress], None] | None = None
    stop_when: Callable[[], bool] | None = None


@dataclass(frozen=True, slots=True)
class Limits:
    """When a run ends, whatever else it waits for.

    Attributes:
        run_timeout_s: Time after which whatever is open fails.
        failures_in_a_row: Failures in a row after which it gives up; at least 3.
        max_requests: Requests after which no more are sent; None for no limit.
        duration_s: Time after which no more are sent; None for no limit.
        start_ns: The start that several processes agreed on; 0 for now.
    """

    run_timeout_s: float
    failures_in_a_row: int
    max_requests: int | None = None
    duration_s: float | None = None
    start_ns: int = 0


@dataclass(frozen=True, slots=True)
class RunEnd:
    """What is left of a run besides its exchanges.

    Attributes:
        start_ns: When it began.
        stopped_ns: When the last request could be sent.
        end_ns: When all sockets were closed.
        cpu_s: CPU seconds of this process over it.
        lags_s: Event-loop lags of the window, or of the run without one.
        notes: Why it did not go as planned; empty if it did.
        window: Where all streams ran; None if that was not looked for.
    """

    start_ns: int
    stopped_ns: int
    end_ns: int
    cpu_s: float
    lags_s: tuple[float, ...]
    notes: tuple[str, ...]
    window: Window | None = None


class RunState:
    """State of one run; lives on one event loop and is used once.

    Args:
        clock: Source of every stamp.
        limits: When it ends.
        hooks: What to do meanwhile.
        sink: Where exchanges go.
        received_bytes: Returns the bytes received so far by all connections.
    """

    def __init__(
        self,
        clock: Clock,
        limits: Limits,
        hooks: LoadHooks,
        sink: Sink,
        received_bytes: Callable[[], int],
    ) -> None:
        self.clock = clock
        self.hooks = hooks
        self.limits = limits
        self.notes: list[str] = []
        self.stopping = asyncio.Event()
        self.start_ns = self.stopped_ns = 0
        self.deadline_ns = 0
        self.sent = self.ended = self.failed = 0
        self.on_stop: Callable[[], None] | None = None
        self._sink = sink
        self._received_bytes = received_bytes
        self._drained = asyncio.Event()
        self._lag = LagMeter(clock)
        self._collector = CollectorPause()
        self._failures_in_a_row = 0
        self._usage_tokens = self._usage_bytes = 0
        self._timers: list[asyncio.TimerHandle] = []
        self._asking: asyncio.TimerHandle | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._progress: asyncio.Task[None] | None = None
        self._cpu_s = 0.0

    def begin(self) -> None:
        """Start the meters and the limits, at the time that the limits name."""
        loop = asyncio.get_running_loop()
        self.start_ns = self.limits.start_ns or self.clock.now_ns()
        self._cpu_s = cpu_time_s()
        self.deadline_ns = self.start_ns + round(self.limits.run_timeout_s * 1e9)
        self._lag.start()
        self._timers = [loop.call_later(self.limits.run_timeout_s, self.time_is_up)]
        if self.limits.duration_s is not None:
            self._timers.append(loop.call_later(self.limits.duration_s, self.stop))
        self._progress = asyncio.create_task(self._report_progress())
        self._ask_whether_to_stop()

    async def drain(self) -> None:
        """Wait for the hooks once all exchanges have ended; raises what one of them raised."""
        self.stop()
        self._drained.set()
        if self._progress is not None:
            await self._progress
        await asyncio.gather(*self._tasks)

    async def finish(self, connections: Callable[[], "Sequence[Closing]"]) -> None:
        """Undo everything, also after cancellation: timers, hooks, sockets."""
        for timer in (*self._timers, self._asking):
            if timer is not None:
                timer.cancel()
        self.resume_collector()
        self._lag.stop()
        progress = [self._progress] if self._progress is not None else []
        await cancelled([*progress, *self._tasks])
        for connection in connections():
            await connection.close()

    def end(self, window: Window | None) -> RunEnd:
        """Return what is left; called once, after `finish`."""
        end_ns, cpu_s = self.clock.now_ns(), cpu_time_s() - self._cpu_s
        stopped_ns, lags_s = self.stopped_ns or end_ns, self._lag.lags_s(window)
        return RunEnd(self.start_ns, stopped_ns, end_ns, cpu_s, lags_s, tuple(self.notes), window)

    def ticket(self) -> int | None:
        """Return the number of the next request; None if none may be sent."""
        if self.stopping.is_set():
            return None
        number = self.sent
        self.sent += 1
        limit = self.limits.max_requests
        if limit is not None and self.sent >= limit:
            self.stop()
        return number

    def keep(self, sent: SentWire) -> None:
        """Hand an ended exchange on, and give up after too many failures in a row."""
        wire = sent.wire
        self._sink.take(sent)
        self.ended += 1
        if wire.answered:
            self._failures_in_a_row = 0
            self._count_usage(wire)
            return
        self.failed += 1
        self._failures_in_a_row += 1
        limit = max(_FEWEST_FAILURES, self.limits.failures_in_a_row)
        if self._failures_in_a_row >= limit and not self.stopping.is_set():
            last = wire.error.message if wire.error else f"HTTP status {wire.status}"
            self.notes.append(f"gave up after {limit} failures in a row; the last: {last}")
            self.stop()

    def time_is_up(self) -> None:
        """Stop because the run's time is over, and say so."""
        if not self.stopping.is_set():
            limit = f"{self.limits.run_timeout_s:g} s (run_timeout_s)"
            self.notes.append(
                f"the run's time was up after {limit} when {self.ended} requests had ended"
            )
            self.stop()

    def stop(self) -> None:
        """Let nothing more be sent."""
        if not self.stopping.is_set():
            self.stopping.set()
            self.stopped_ns = self.clock.now_ns()
            if self.on_stop is not None:
                self.on_stop()

    def pause_collector(self) -> None:
        """Keep the garbage collector out from now on."""
        self._collector.begin()

    def resume_collector(self) -> None:
        """Let the garbage collector work again."""
        self._collector.end()

    def start_hook(self, hook: Callable[[], None] | None) -> None:
        """Call `hook` on a thread, after the one before it."""
        if hook is not None:
            earlier = self._tasks[-1] if self._tasks else None
            self._tasks.append(asyncio.create_task(self._call(earlier, hook)))

    async def _call(self, earlier: asyncio.Task[None] | None, hook: Callable[[], None]) -> None:
        """Call a hook; if it fails, stop the run so that the error is seen soon."""
        try:
            if earlier is not None:
                await earlier
            await asyncio.to_thread(hook)
        except Exception:
            self.stop()
            raise

    def _ask_whether_to_stop(self) -> None:
        asked = self.hooks.stop_when
        if asked is None or self.stopping.is_set():
            return
        if asked():
            self.stop()
        else:
            loop = asyncio.get_running_loop()
            self._asking = loop.call_later(_ASK_PERIOD_S, self._ask_whether_to_stop)

    async def _report_progress(self) -> None:
        hook = self.hooks.on_progress
        while hook is not None:
            await wait(self._drained, _PROGRESS_PERIOD_S)
            if self._drained.is_set():
                return
            try:
                await asyncio.to_thread(hook, self.progress())
            except Exception:
                self.stop()
                raise

    def progress(self) -> LoadProgress:
        """Return how far the run is."""
        received = self._received_bytes()
        tokens = None
        if self._usage_tokens:
            tokens = round(received * self._usage_tokens / self._usage_bytes)
        elapsed_s = (self.clock.now_ns() - self.start_ns) / 1e9
        running = self.sent - self.ended
        return LoadProgress(elapsed_s, running, self.ended, self.failed, received, tokens)

    def _count_usage(self, wire: WireExchange) -> None:
        tail = b"".join(data for _, _, data in wire.reads[-2:])[-_USAGE_BYTES:]
        found = _USAGE.search(tail)
        if found is not None:
            self._usage_tokens += int(found[1])
            self._usage_bytes += sum(len(data) for _, _, data in wire.reads)


class Closing(Protocol):
    """What can be closed."""

    async def close(self) -> None:
        """Close and return once it is closed."""


async def wait(event: asyncio.Event, seconds: float) -> None:
    """Wait for `event`, but no longer than `seconds`."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()


async def cancelled(tasks: list[asyncio.Task[None]]) -> None:
    """Cancel what still runs and wait for its end; errors were raised to the caller before."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
