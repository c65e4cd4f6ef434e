"""How well the load generator itself is doing: event-loop lag, CPU time, collector pauses.

A generator that is late measures itself, so each run carries these numbers.
Knows nothing of requests.
"""

import asyncio
import gc
import math
import resource
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from draftgate.clock import Clock
from draftgate.records import Window

_PERIOD_S = 0.010


class LagMeter:
    """Fires every 10 ms and notes by how much it was late.

    A loop that was blocked misses firings; each missed one is noted with the
    lag it would have had, or a long block would count as a single sample. The
    loop's timers count whole milliseconds, so values up to 1 ms mean nothing.

    Args:
        clock: Source of stamps.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._samples: list[tuple[int, float]] = []
        self._timer: asyncio.TimerHandle | None = None
        self._due_ns = 0

    def start(self) -> None:
        """Begin to fire."""
        self._arm()

    def stop(self) -> None:
        """Fire no more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def note(self, due_ns: int, now_ns: int) -> None:
        """Enter a firing due at `due_ns` that came at `now_ns`, and those missed since."""
        period_ns = round(_PERIOD_S * 1e9)
        self._samples.append((due_ns, max(0, now_ns - due_ns) / 1e9))
        for missed_ns in range(due_ns + period_ns, now_ns, period_ns):
            self._samples.append((missed_ns, (now_ns - missed_ns) / 1e9))

    def lags_s(self, window: Window | None) -> tuple[float, ...]:
        """Return the lags of firings due in `window`, or all if there is none, seconds."""
        if window is None:
            return tuple(lag for _, lag in self._samples)
        inside = (window.start_ns, window.end_ns)
        return tuple(lag for t_ns, lag in self._samples if inside[0] <= t_ns < inside[1])

    def _arm(self) -> None:
        self._due_ns = self._clock.now_ns() + round(_PERIOD_S * 1e9)
        self._timer = asyncio.get_running_loop().call_later(_PERIOD_S, self._fire)

    def _fire(self) -> None:
        self.note(self._due_ns, self._clock.now_ns())
        self._arm()


def percentile(values: Sequence[float], share: float) -> float:
    """Return the smallest value that at least `share` of `values` do not exceed; 0 of none."""
    if not values:
        return 0.0
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]


def cpu_time_s() -> float:
    """Return the CPU seconds, user and system, that this process has used."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


class CollectorPause:
    """Keeps Python's garbage collector out of the measured window."""

    def __init__(self) -> None:
        self._was_enabled = False

    def begin(self) -> None:
        """Switch the collector off."""
        self._was_enabled = gc.isenabled()
        gc.disable()

    def end(self) -> None:
        """Put the collector back to how `begin` found it; harmless without it."""
        if self._was_enabled:
            gc.enable()
            self._was_enabled = False


@contextmanager
def frozen_heap() -> Iterator[None]:
    """Collect now and keep what is left out of later collections, until the block ends.

    A heap that somebody else froze stays frozen.
    """
    mine = gc.get_freeze_count() == 0
    gc.collect()
    if mine:
        gc.freeze()
    try:
        yield
    finally:
        if mine:
            gc.unfreeze()
