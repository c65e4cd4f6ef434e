"""The closed loop: a fixed number of streams, each with one request open at a time.

Decides when each stream sends and when the measured window opens and closes;
`draftgate.load.state` knows when the run is over, `draftgate.load.client` how to
send.
"""

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from draftgate.clock import Clock
from draftgate.errors import SpecError
from draftgate.load.client import StreamConnection
from draftgate.load.requests import Endpoint, PreparedRequest
from draftgate.load.state import (
    Limits,
    LoadHooks,
    RunEnd,
    RunState,
    SentWire,
    Sink,
    cancelled,
    wait,
)
from draftgate.load.window import Phase, WindowRule
from draftgate.load.wire import WireExchange

NextRequest = Callable[[int], PreparedRequest | None]
"""Returns the next request of a stream, given its number; None ends the stream."""


@runtime_checkable
class Listening(Protocol):
    """A source of requests that sees each answer before it is asked for the next request."""

    def answered(self, stream: int, request: PreparedRequest, wire: WireExchange) -> None:
        """Take note of a stream's ended exchange; runs between two requests of it."""


ThinkTimes = Callable[[int], Iterator[float]]
"""Returns how long a stream waits after each of its requests, seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
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
        has_window: Whether there is a window; without one the run ends by
            `max_requests` or `duration_s`, and all of it counts.
        max_requests: Requests after which no more are sent; None for no limit.
        duration_s: Time after which no more are sent; None for no limit.
        think_times: Waiting of each stream between two requests; None for none.
        start_ns: The start that several processes agreed on; 0 for now.
    """

    concurrency: int
    warmup_requests: int = 0
    window_s: float = 0.0
    min_requests: int = 0
    stagger_s: float = 0.0
    stall_timeout_s: float
    run_timeout_s: float
    keep_text: bool = True
    whole_rounds: bool = False
    has_window: bool = True
    max_requests: int | None = None
    duration_s: float | None = None
    think_times: ThinkTimes | None = None
    start_ns: int = 0

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
        for name in ("stall_timeout_s", "run_timeout_s", "max_requests", "duration_s"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise SpecError(f"{name} must be > 0, got {value}.")
        if not self.has_window and self.max_requests is None and self.duration_s is None:
            raise SpecError("a run without a window needs max_requests or duration_s to end.")

    def window_rule(self) -> WindowRule:
        """Return a new rule for the window that is asked for."""
        return WindowRule(
            self.concurrency,
            warmup_requests=self.warmup_requests,
            window_s=self.window_s,
            min_requests=self.min_requests,
            whole_rounds=self.whole_rounds,
        )


class ClosedLoop:
    """One closed-loop run; lives on one event loop and is used once.

    What triggers the next request of a stream is the end of the one before it,
    so a slow server is asked less often. `scheduled_ns` is when the stream was
    free and its think time over, and latencies counted from `sent_ns` leave
    out all waiting that an independent arrival would have had, as well as
    connecting (first request of a stream, or after a failure) and building the
    request.

    The window opens and closes by `draftgate.load.window.WindowRule`. All
    streams go on until it closes; then none sends again and open requests may
    end, within the time limits. At `run_timeout_s` whatever is open fails.
    After `concurrency` failures in a row (at least 3) the run gives up.

    Raises:
        SpecError: If the endpoint's key variable is unset.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        next_request: NextRequest,
        plan: ClosedLoopPlan,
        clock: Clock,
        hooks: LoadHooks,
        sink: Sink,
    ) -> None:
        self._next_request = next_request
        self._listener = next_request if isinstance(next_request, Listening) else None
        self._plan = plan
        self._clock = clock
        self._rule = plan.window_rule()
        self._connections = [
            StreamConnection(endpoint, clock, stall_timeout_s=plan.stall_timeout_s)
            for _ in range(plan.concurrency)
        ]
        limits = Limits(
            plan.run_timeout_s, plan.concurrency, plan.max_requests, plan.duration_s, plan.start_ns
        )
        self.state = RunState(clock, limits, hooks, sink, self._received_bytes)
        self.state.on_stop = self._stopped
        self._window_timer: asyncio.TimerHandle | None = None

    async def run(self) -> RunEnd:
        """Run all streams, then close every socket, also when cancelled."""
        state = self.state
        state.begin()
        if not self._plan.has_window:
            state.pause_collector()
        streams = [asyncio.create_task(self._stream(i)) for i in range(self._plan.concurrency)]
        try:
            await asyncio.gather(*streams)
            await state.drain()
        finally:
            self._end_window()
            await cancelled(streams)
            await state.finish(lambda: self._connections)
        if self._plan.has_window and self._rule.window is None:
            state.notes.append("the window never opened: not every stream got through its warm-up")
        return state.end(self._rule.window)

    async def _stream(self, stream: int) -> None:
        """Send one request after the other until the run stops."""
        plan, state = self._plan, self.state
        await wait(state.stopping, plan.stagger_s * stream / plan.concurrency)
        thinking = plan.think_times(stream) if plan.think_times else None
        connection = self._connections[stream]
        watch = self._first_byte if plan.has_window else None
        while not state.stopping.is_set():
            scheduled_ns = self._clock.now_ns()
            if scheduled_ns >= state.deadline_ns:
                state.time_is_up()
                return
            index = state.ticket()
            request = self._next_request(stream) if index is not None else None
            if index is None or request is None:
                return
            wire = await connection.exchange(
                request,
                deadline_ns=state.deadline_ns,
                on_first_byte=(lambda t_ns: watch(stream, t_ns)) if watch else None,
            )
            state.keep(SentWire(index, stream, scheduled_ns, request, wire))
            self._ended(stream, wire.ended_ns)
            if self._listener is not None:
                self._listener.answered(stream, request, wire)
            if thinking is not None:
                await wait(state.stopping, next(thinking))

    def _first_byte(self, stream: int, t_ns: int) -> None:
        before = self._rule.phase
        self._rule.first_byte(stream, t_ns)
        self._follow(before)

    def _ended(self, stream: int, t_ns: int) -> None:
        if self._plan.has_window:
            before = self._rule.phase
            self._rule.ended(stream, t_ns)
            self._follow(before)

    def _follow(self, before: Phase) -> None:
        """Do what a change of phase asks for."""
        phase = self._rule.phase
        if phase is before:
            return
        if phase is Phase.OPEN:
            self.state.pause_collector()
            self.state.start_hook(self.state.hooks.on_window_open)
            self._arm_window_timer()
        else:
            self.state.stop()

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

    def _stopped(self) -> None:
        """Close the window if it is still open."""
        if not self._plan.has_window:
            return
        self._end_window()
        if self._rule.window is not None:
            self.state.start_hook(self.state.hooks.on_window_close)

    def _end_window(self) -> None:
        """Close the window for good and undo what it asked for."""
        self._rule.close(self._clock.now_ns())
        self.state.resume_collector()
        if self._window_timer is not None:
            self._window_timer.cancel()
            self._window_timer = None

    def _received_bytes(self) -> int:
        return sum(connection.body_bytes for connection in self._connections)
