"""How well the load generator itself is doing: lag, delays, CPU time, collector pauses.

A generator that is late measures itself, so each run carries these numbers.
Knows nothing of requests.
"""

import gc
import math
import resource
from array import array
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
from numpy.typing import NDArray

from draftgate.clock import Clock
from draftgate.load.timer import PreciseTimer
from draftgate.records import Window

_PERIOD_NS = 20_000_000
"""Each firing costs about 20 us of CPU, so a thousandth of a core."""

_LOWEST_NS = 100.0
_BIN_RATIO = 1.01
_BINS = 2_100
"""Bins of 1 % from 100 ns on reach 100 ns x 1.01^2100, about two minutes."""


class Delays:
    """Counts delays in bins of 1 %, so that memory does not grow with the run.

    Good enough for what the generator says about itself; measured latencies
    are never kept this way.

    Attributes:
        counts: Delays per bin; shape (2100,).
    """

    def __init__(self) -> None:
        self.counts = np.zeros(_BINS, dtype=np.int64)

    def add_ns(self, delays_ns: Sequence[int] | NDArray[np.int64]) -> None:
        """Count delays, nanoseconds, each >= 0; longer than two minutes count as that."""
        values = np.maximum(np.asarray(delays_ns, dtype=np.float64), _LOWEST_NS)
        places = np.ceil(np.log(values / _LOWEST_NS) / math.log(_BIN_RATIO) - 1e-9)
        np.add.at(self.counts, np.clip(places, 0, _BINS - 1).astype(np.int64), 1)

    def merge(self, other: "Delays") -> None:
        """Count what `other` counted too."""
        self.counts += other.counts

    @property
    def count(self) -> int:
        """Return how many were counted."""
        return int(self.counts.sum())

    def quantile_s(self, share: float) -> float | None:
        """Return the delay that at least `share` do not exceed, at most 1 % too long; seconds.

        None of none.
        """
        if self.count == 0:
            return None
        rank = max(1, math.ceil(share * self.count))
        place = int(np.searchsorted(np.cumsum(self.counts), rank))
        return _LOWEST_NS * _BIN_RATIO**place / 1e9


class LagMeter:
    """Fires every 20 ms and notes by how much it was late.

    A loop that was blocked misses firings; each missed one is noted with the
    lag it would have had, or a long block would count as a single sample. An
    idle loop is late by about 60 us.

    Args:
        clock: Source of stamps; must be the monotonic clock of this machine
            for the firings to be due when they say.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._due = array("q")
        self._lag = array("d")
        self._timer: PreciseTimer | None = None
        self._due_ns = 0

    def start(self) -> None:
        """Begin to fire."""
        self._timer = PreciseTimer(self._fire)
        self._arm()

    def stop(self) -> None:
        """Fire no more."""
        if self._timer is not None:
            self._timer.close()
            self._timer = None

    def note(self, due_ns: int, now_ns: int) -> None:
        """Enter a firing due at `due_ns` that came at `now_ns`, and those missed since."""
        for missed_ns in (due_ns, *range(due_ns + _PERIOD_NS, now_ns, _PERIOD_NS)):
            self._due.append(missed_ns)
            self._lag.append(max(0, now_ns - missed_ns) / 1e9)

    def lags_s(self, window: Window | None) -> tuple[float, ...]:
        """Return the lags of firings due in `window`, or all if there is none, seconds."""
        if window is None:
            return tuple(self._lag)
        inside = (window.start_ns, window.end_ns)
        pairs = zip(self._due, self._lag, strict=True)
        return tuple(lag for t_ns, lag in pairs if inside[0] <= t_ns < inside[1])

    def _arm(self) -> None:
        now_ns = self._clock.now_ns()
        self._due_ns = now_ns + _PERIOD_NS
        if self._timer is not None:
            self._timer.arm(self._due_ns, now_ns)

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
