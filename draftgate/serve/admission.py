"""Who goes to the engine now, who waits, and who is turned away.

Slots with a bounded queue before them, first in, first out. Knows neither HTTP nor an
engine; lives on one event loop and does no I/O.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from draftgate.clock import Clock
from draftgate.errors import SpecError


class QueueFullError(Exception):
    """As many requests wait as may."""


class QueueClosedError(Exception):
    """Nobody is admitted any more."""


class Admission:
    """Slots and the queue before them.

    Args:
        max_in_flight: Requests at the engine at once, >= 1.
        max_queue: Requests that may wait for a slot, >= 0.
        clock: Measures waits.

    Raises:
        SpecError: If a number is out of range.
    """

    def __init__(self, max_in_flight: int, max_queue: int, clock: Clock) -> None:
        for option, value, least in (
            ("--max-in-flight", max_in_flight, 1),
            ("--max-queue", max_queue, 0),
        ):
            if value < least:
                raise SpecError(f"serve: {option} must be {least} or more requests, got {value}.")
        self._max_in_flight = max_in_flight
        self._max_queue = max_queue
        self._clock = clock
        self._waiters: deque[asyncio.Future[None]] = deque()
        self._in_flight = 0
        self._closed = False
        self._empty = asyncio.Event()
        self._empty.set()
        self._busy_ns, self._changed_ns = 0, clock.now_ns()

    @property
    def in_flight(self) -> int:
        """Requests that have a slot now."""
        return self._in_flight

    @property
    def queued(self) -> int:
        """Requests that wait for a slot now."""
        return sum(not turn.done() for turn in self._waiters)

    @property
    def closed(self) -> bool:
        """Whether nobody is admitted any more."""
        return self._closed

    @asynccontextmanager
    async def slot(self) -> AsyncIterator[int]:
        """Hold a slot; yield how long it was waited for, nanoseconds.

        Cancelled while it waits, a request leaves the queue and its place is free.

        Raises:
            QueueFullError: If as many wait as may.
            QueueClosedError: If the queue was closed, before or meanwhile.
        """
        waited_ns = await self._enter()
        try:
            yield waited_ns
        finally:
            self._leave()

    def busy_s(self) -> float:
        """Return the time spent in slots so far, summed over requests, seconds.

        Its growth over an interval / the interval is the mean number in flight.
        """
        self._count(0)
        return self._busy_ns / 1e9

    def close(self) -> None:
        """Admit nobody any more and turn away all who wait; those with a slot keep it."""
        self._closed = True
        while self._waiters:
            turn = self._waiters.popleft()
            if not turn.done():
                turn.set_exception(QueueClosedError())

    async def drained(self) -> None:
        """Return once no request has a slot."""
        await self._empty.wait()

    async def _enter(self) -> int:
        if self._closed:
            raise QueueClosedError
        if self._in_flight < self._max_in_flight:  # nobody waits while a slot is free
            self._count(1)
            return 0
        if self.queued >= self._max_queue:
            raise QueueFullError
        arrived_ns = self._clock.now_ns()
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            self._give_up(turn)
            raise
        return self._clock.now_ns() - arrived_ns

    def _give_up(self, turn: asyncio.Future[None]) -> None:
        """Take a waiter out whose request is gone; pass on a slot that came at the same moment."""
        if turn in self._waiters:
            self._waiters.remove(turn)
        elif not turn.cancelled() and turn.exception() is None:
            self._leave()

    def _leave(self) -> None:
        while self._waiters:
            turn = self._waiters.popleft()
            if not turn.done():
                turn.set_result(None)  # the slot changes hands
                return
        self._count(-1)

    def _count(self, change: int) -> None:
        now_ns = self._clock.now_ns()
        self._busy_ns += self._in_flight * (now_ns - self._changed_ns)
        self._changed_ns = now_ns
        self._in_flight += change
        if self._in_flight:
            self._empty.clear()
        else:
            self._empty.set()
