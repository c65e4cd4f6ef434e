"""The one place that reads a clock.

Everything timed takes a `Clock`, so that tests pass a `ManualClock` and never
sleep. Durations come from the monotonic clock in integer nanoseconds; wall
time is only ever used as a label.
"""

import socket
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    """What the rest of the package may know about time."""

    def now_ns(self) -> int:
        """Return monotonic nanoseconds; only differences mean anything."""

    def wall(self) -> datetime:
        """Return the time of day in UTC, for labels."""


class SystemClock:
    """The machine's own clocks."""

    def now_ns(self) -> int:
        """Return `CLOCK_MONOTONIC` in nanoseconds."""
        return time.monotonic_ns()

    def wall(self) -> datetime:
        """Return the time of day in UTC."""
        return datetime.now(UTC)


@dataclass(slots=True)
class ManualClock:
    """A clock that moves only when a test tells it to."""

    t_ns: int = 0
    start: datetime = datetime(2026, 1, 1, tzinfo=UTC)

    def now_ns(self) -> int:
        """Return the time set so far."""
        return self.t_ns

    def wall(self) -> datetime:
        """Return the fixed start as time of day."""
        return self.start

    def advance(self, seconds: float) -> None:
        """Move forward by `seconds`."""
        self.t_ns += round(seconds * 1e9)


SYSTEM_CLOCK = SystemClock()

_OFFSET_TRIES = 3
"""Readings of which the tightest counts; an interrupt rarely hits three in a row."""


def realtime_offset_ns(
    monotonic_ns: Callable[[], int] = time.monotonic_ns,
    realtime_ns: Callable[[], int] = time.time_ns,
) -> int:
    """Return `CLOCK_REALTIME` minus `CLOCK_MONOTONIC`, nanoseconds.

    The kernel stamps received packets with the former, everything else here
    uses the latter. Frequency corrections move both alike, so the difference
    changes only when somebody sets the time of day.

    Args:
        monotonic_ns: Reads the one clock.
        realtime_ns: Reads the other.

    Returns:
        The offset of the reading with the narrowest bracket; its error is at
        most half of that bracket, well below a microsecond.

    Source:
        Cristian, "Probabilistic clock synchronization", Distributed Computing
        3 (1989), section 3: the midpoint of the shortest round trip.
    """
    best_ns, offset_ns = 1 << 62, 0
    for _ in range(_OFFSET_TRIES):
        before_ns = monotonic_ns()
        real_ns = realtime_ns()
        after_ns = monotonic_ns()
        if after_ns - before_ns < best_ns:
            best_ns = after_ns - before_ns
            offset_ns = real_ns - (before_ns + after_ns) // 2
    return offset_ns


SO_TIMESTAMPNS = getattr(socket, "SO_TIMESTAMPNS", 35)
"""Linux `asm-generic/socket.h`; Python names it only from 3.14 on."""

RECEIVE_STAMP_BYTES = socket.CMSG_SPACE(16)
"""Room in ancillary data for one receive stamp, a `struct timespec` of two 64-bit integers."""

_TIMESPEC = struct.Struct("@qq")


def stamp_receives(sock: socket.socket) -> bool:
    """Ask the kernel to stamp what `sock` receives; return whether it agreed.

    Linux turns stamping on for the machine in the background when the first
    socket asks, so what arrives within the first moments may bear no stamp.
    """
    try:
        sock.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
    except OSError:  # not on this platform: the reader's own stamps count
        return False
    return True


def receive_stamp_ns(stamp: bytes) -> int:
    """Return a receive stamp as nanoseconds of `CLOCK_REALTIME`.

    Subtract `realtime_offset_ns` to have it on the monotonic clock.

    Args:
        stamp: Data of the ancillary message (SOL_SOCKET, SCM_TIMESTAMPNS).
    """
    seconds, nanoseconds = _TIMESPEC.unpack(stamp)
    return int(seconds) * 1_000_000_000 + int(nanoseconds)
