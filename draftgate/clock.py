"""The one place that reads a clock.

Everything timed takes a `Clock`, so that tests pass a `ManualClock` and never
sleep. Durations come from the monotonic clock in integer nanoseconds; wall
time is only ever used as a label.
"""

import time
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
