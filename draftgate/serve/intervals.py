"""What happened in one interval, at the front and by the engine's own counters.

Frozen numbers for `draftgate.serve.lines`; says nothing itself.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from draftgate.clock import Clock
from draftgate.metrics.definition import percentile
from draftgate.records import EngineCounters
from draftgate.serve.admission import Admission
from draftgate.serve.exchange import Exchange


@dataclass(frozen=True, slots=True)
class Spread:
    """Two order statistics of some values, as in "Percentiles" of docs/glossary.md."""

    p50: float
    p95: float


def spread(values: Iterable[float | None]) -> Spread | None:
    """Return p50 and p95 of the values that are known; None without any."""
    known = [value for value in values if value is not None]
    p50, p95 = percentile(known, 50), percentile(known, 95)
    return None if p50 is None or p95 is None else Spread(p50, p95)


@dataclass(frozen=True, slots=True)
class Interval:
    """One interval.

    Attributes:
        seconds: Its length.
        mean_in_flight: Requests at the engine, mean over the interval.
        in_flight: The same at its end.
        queued: Requests that wait at its end.
        whole: Requests that ended with their whole answer.
        refused: Requests that the front answered itself.
        failed: Requests that the engine answered with an error.
        cut: Requests that ended before their answer did.
        waits_ms: Time in the queue, milliseconds; None if nothing ended.
        first_s: Arrival to first byte of whole streams, seconds; None likewise.
        full_s: Arrival to last byte of whole answers, seconds; None likewise.
        counted: What the engine counted; None where that is not known.
    """

    seconds: float
    mean_in_flight: float
    in_flight: int
    queued: int
    whole: int
    refused: int
    failed: int
    cut: int
    waits_ms: Spread | None
    first_s: Spread | None
    full_s: Spread | None
    counted: EngineCounters | None

    @property
    def tokens_per_s(self) -> float | None:
        """Return output tokens per second by the engine's counter; None where not known."""
        return None if self.counted is None else self.counted.generation_tokens / self.seconds


class Tally:
    """Gathers what the front sees until the interval is closed.

    Args:
        admission: Asked for what is in flight and queued.
        clock: Of the intervals.
    """

    def __init__(self, admission: Admission, clock: Clock) -> None:
        self._admission = admission
        self._clock = clock
        self._since_ns = clock.now_ns()
        self._busy_s = admission.busy_s()
        self._ended: list[Exchange] = []

    def take(self, exchange: Exchange) -> None:
        """Add a request that is over."""
        self._ended.append(exchange)

    def close(self, counted: EngineCounters | None) -> Interval:
        """Return the interval up to now; the next one begins.

        Args:
            counted: What the engine counted in it; None where that is not known.
        """
        now_ns, busy_s = self._clock.now_ns(), self._admission.busy_s()
        seconds = (now_ns - self._since_ns) / 1e9
        mean = (busy_s - self._busy_s) / seconds
        self._since_ns, self._busy_s = now_ns, busy_s
        ended, self._ended = self._ended, []
        whole = [one for one in ended if one.whole]
        return Interval(
            seconds=seconds,
            mean_in_flight=mean,
            in_flight=self._admission.in_flight,
            queued=self._admission.queued,
            whole=len(whole),
            refused=sum(one.refused is not None for one in ended),
            failed=sum(one.failed for one in ended),
            cut=sum(one.cut is not None for one in ended),
            waits_ms=spread(one.waited_ms for one in ended),
            first_s=spread(one.first_s for one in whole if one.stream),
            full_s=spread(one.total_s for one in whole),
            counted=counted,
        )
