"""The open loop: requests go out when they are due, whatever became of earlier ones.

Keeps to a schedule of arrivals and lends each request a connection; knows
neither which process of arrivals made the schedule nor what is sent.
"""

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from draftgate.clock import Clock
from draftgate.errors import SpecError
from draftgate.load.client import StreamConnection
from draftgate.load.requests import Endpoint, PreparedRequest
from draftgate.load.state import Limits, LoadHooks, RunEnd, RunState, SentWire, Sink, cancelled
from draftgate.load.timer import PreciseTimer

_SPARE_CONNECTIONS = 4
"""Connections kept open beyond those in use, so that a burst need not connect first."""

_SPARE_AGE_NS = 3_000_000_000
"""Age from which an unused connection is closed; uvicorn closes it after 5 s."""


@dataclass(frozen=True, slots=True)
class OpenLoopPlan:
    """How one open-loop run goes.

    Attributes:
        offsets_ns: When each request is due, nanoseconds from the start of the
            run, not decreasing.
        stall_timeout_s: Silence after which a request is given up.
        run_timeout_s: Time after which the run ends whatever is open.
        keep_text: Whether records hold the output text.
        max_requests: Requests after which no more are sent; None for no limit.
        duration_s: Time after which no more are due; None for no limit.
        failures_in_a_row: Failures in a row after which the run gives up.
        start_ns: The start that several processes agreed on; 0 for now.
    """

    offsets_ns: Iterator[int]
    stall_timeout_s: float
    run_timeout_s: float
    keep_text: bool = True
    max_requests: int | None = None
    duration_s: float | None = None
    failures_in_a_row: int = 100
    start_ns: int = 0

    def __post_init__(self) -> None:
        """Check the ranges.

        Raises:
            SpecError: If a value is out of range; the message names it.
        """
        for name in ("stall_timeout_s", "run_timeout_s", "max_requests", "duration_s"):
            value = getattr(self, name)
            if value is not None and not value > 0:  # this way round NaN fails too
                raise SpecError(f"{name} must be > 0, got {value}.")


class OpenLoop:
    """One open-loop run; lives on one event loop and is used once.

    What triggers a request is its time alone. `scheduled_ns` is that time, so
    latencies counted from it hold all waiting, that for this client included;
    `sent_ns` - `scheduled_ns` says how late the client was. Open requests may
    end after the last one was sent, within the time limits.

    Raises:
        SpecError: If the endpoint's key variable is unset.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        next_request: Callable[[int], PreparedRequest | None],
        plan: OpenLoopPlan,
        clock: Clock,
        hooks: LoadHooks,
        sink: Sink,
    ) -> None:
        self._next_request = next_request
        self._plan = plan
        self._clock = clock
        self._pool = _Pool(endpoint, clock, plan.stall_timeout_s)
        limits = Limits(
            plan.run_timeout_s,
            plan.failures_in_a_row,
            plan.max_requests,
            plan.duration_s,
            plan.start_ns,
        )
        self.state = RunState(clock, limits, hooks, sink, self._pool.received_bytes)
        self.state.on_stop = self._wake
        self._due = asyncio.Event()
        self._open: set[asyncio.Task[None]] = set()
        self._errors: list[BaseException] = []

    async def run(self) -> RunEnd:
        """Send everything that falls due, then close every socket, also when cancelled."""
        state = self.state
        state.pause_collector()
        await self._pool.fill()
        state.begin()
        try:
            await self._drive()
            while self._open:
                await asyncio.wait(self._open)
            if self._errors:
                raise self._errors[0]
            await state.drain()
        finally:
            await cancelled(list(self._open))
            await self._pool.stop()
            await state.finish(self._pool.all)
        return state.end(None)

    async def _drive(self) -> None:
        state, plan = self.state, self._plan
        end_ns = None if plan.duration_s is None else round(plan.duration_s * 1e9)
        timer = PreciseTimer(self._wake)
        try:
            for number, offset_ns in enumerate(plan.offsets_ns):
                if end_ns is not None and offset_ns >= end_ns:
                    break
                request = self._next_request(number)  # before it is due, so that it is ready
                due_ns = state.start_ns + offset_ns
                await self._until(timer, due_ns)
                index = state.ticket() if request is not None else None
                if index is None or request is None:
                    break
                self._send(index, number, due_ns, request)
            state.stop()
        finally:
            timer.close()

    async def _until(self, timer: PreciseTimer, due_ns: int) -> None:
        """Wait until `due_ns`, or until the run stops."""
        while not self.state.stopping.is_set():
            now_ns = self._clock.now_ns()
            if now_ns >= due_ns:
                return
            self._due.clear()
            timer.arm(due_ns, now_ns)
            await self._due.wait()

    def _send(self, index: int, number: int, due_ns: int, request: PreparedRequest) -> None:
        task = asyncio.create_task(self._one(index, number, due_ns, request))
        self._open.add(task)
        task.add_done_callback(self._over)

    async def _one(self, index: int, number: int, due_ns: int, request: PreparedRequest) -> None:
        connection = self._pool.take()
        wire = await connection.exchange(request, deadline_ns=self.state.deadline_ns)
        self._pool.give_back(connection)
        self.state.keep(SentWire(index, number, due_ns, request, wire))

    def _over(self, task: asyncio.Task[None]) -> None:
        self._open.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._errors.append(error)
            self.state.stop()

    def _wake(self) -> None:
        self._due.set()


class _Pool:
    """Connections that are lent to one exchange at a time; always some to spare."""

    def __init__(self, endpoint: Endpoint, clock: Clock, stall_timeout_s: float) -> None:
        self._endpoint = endpoint
        self._clock = clock
        self._stall_timeout_s = stall_timeout_s
        self._idle: list[tuple[int, StreamConnection]] = []
        self._lent: set[StreamConnection] = set()
        self._gone_bytes = 0
        self._filling: asyncio.Task[None] | None = None
        self._new()  # a missing key is told before anything is sent

    def take(self) -> StreamConnection:
        """Return a connection, open if there is one to spare, and have more opened."""
        connection = self._spare() or self._new()
        self._lent.add(connection)
        if len(self._idle) < _SPARE_CONNECTIONS and self._filling is None:
            self._filling = asyncio.create_task(self._refill())
        return connection

    def give_back(self, connection: StreamConnection) -> None:
        """Take a connection back; a closed one is forgotten."""
        self._lent.discard(connection)
        if connection.usable:
            self._idle.append((self._clock.now_ns(), connection))
        else:
            self._forget(connection)

    async def fill(self) -> None:
        """Open connections until there are enough to spare, dropping those grown old.

        A server that refuses is no error here: the next request tells it.
        """
        oldest_ns = self._clock.now_ns() - _SPARE_AGE_NS
        old = [connection for since_ns, connection in self._idle if since_ns < oldest_ns]
        self._idle = [pair for pair in self._idle if pair[0] >= oldest_ns]
        for connection in old:
            await connection.close()
            self._forget(connection)
        while len(self._idle) < _SPARE_CONNECTIONS:
            connection = self._new()
            try:
                await connection.connect()
            except OSError:
                return
            self._idle.append((self._clock.now_ns(), connection))

    async def stop(self) -> None:
        """Open no more."""
        if self._filling is not None:
            await cancelled([self._filling])

    def all(self) -> list[StreamConnection]:
        """Return every connection there is."""
        return [*self._lent, *(connection for _, connection in self._idle)]

    def received_bytes(self) -> int:
        """Return the bytes received so far."""
        return self._gone_bytes + sum(connection.body_bytes for connection in self.all())

    async def _refill(self) -> None:
        try:
            await self.fill()
        finally:
            self._filling = None

    def _spare(self) -> StreamConnection | None:
        """Return an open connection that nobody uses, the latest used first."""
        while self._idle:
            _, connection = self._idle.pop()
            if connection.usable:
                return connection
            self._forget(connection)
        return None

    def _forget(self, connection: StreamConnection) -> None:
        self._gone_bytes += connection.body_bytes

    def _new(self) -> StreamConnection:
        return StreamConnection(self._endpoint, self._clock, stall_timeout_s=self._stall_timeout_s)
