"""When the measured window opens and closes: a rule on stamps, without I/O.

Counts ended requests by their stamps alone, so nothing needs to be parsed
while the run goes on. `draftgate.load.generator` feeds it.
"""

from collections.abc import Iterable
from enum import Enum

from draftgate.records import Window


class Phase(Enum):
    """Where a run stands."""

    WARM_UP = "warm-up"
    OPEN = "open"
    CLOSED = "closed"


class WindowRule:
    """Opens when all streams are warm, closes when enough was seen.

    A stream is warm when `warmup_requests` of its requests have ended, or for
    0 when the first byte of its first answer arrived. The window closes when
    `window_s` passed and `min_requests` requests ended inside. It is half open
    and placed so that the request whose end opens it lies outside, and the
    one whose end closes it lies inside.

    Streams that were started together stay in step: all prefill, then all
    decode. A window that ends anywhere in such a round counts one phase too
    often; in `whole_rounds` it closes only as the number of requests ended
    inside becomes a multiple of the number of streams.

    Args:
        streams: Number of closed-loop streams c.
        warmup_requests: Requests that each stream ends before the window.
        window_s: Shortest length of the window.
        min_requests: Fewest requests that must end inside it.
        whole_rounds: Whether it closes at the end of a round only.
    """

    def __init__(
        self,
        streams: int,
        *,
        warmup_requests: int,
        window_s: float,
        min_requests: int,
        whole_rounds: bool = False,
    ) -> None:
        self.phase = Phase.WARM_UP
        self.ended_inside = 0
        self._warmup_left = [warmup_requests] * streams
        self._by_first_byte = warmup_requests == 0
        self._cold = set(range(streams))
        self._window_ns = round(window_s * 1e9)
        self._min_requests = min_requests
        self._streams = streams
        self._whole_rounds = whole_rounds
        self._opened = False
        self._start_ns = 0
        self._end_ns = 0

    @property
    def window(self) -> Window | None:
        """Return the window once it is closed; None before, and if it never opened."""
        if self.phase is Phase.CLOSED and self._opened:
            return Window(self._start_ns, self._end_ns)
        return None

    def first_byte(self, stream: int, t_ns: int) -> None:
        """Take note that an answer to `stream` began at `t_ns`."""
        if self._by_first_byte:
            self._warm(stream, t_ns)

    def ended(self, stream: int, t_ns: int) -> None:
        """Take note that a request of `stream` ended at `t_ns`, well or not."""
        if self.phase is Phase.OPEN and t_ns >= self._start_ns:
            self.ended_inside += 1
            if self._is_enough(t_ns + 1):
                self.close(t_ns + 1)
        elif self.phase is Phase.WARM_UP and not self._by_first_byte:
            self._warmup_left[stream] -= 1
            if self._warmup_left[stream] <= 0:
                self._warm(stream, t_ns)

    def tick(self, t_ns: int) -> None:
        """Take note that it is `t_ns`; a window of whole rounds closes by requests alone."""
        if self.phase is Phase.OPEN and not self._whole_rounds and self._is_enough(t_ns):
            self.close(t_ns)

    def close(self, t_ns: int) -> None:
        """End the window at `t_ns`, whatever it lacks."""
        if self.phase is Phase.OPEN:
            self._end_ns = max(t_ns, self._start_ns + 1)
        self.phase = Phase.CLOSED

    def time_left_s(self, t_ns: int) -> float:
        """Return how long the window must stay open at least, 0 or more, seconds."""
        return max(0, self._start_ns + self._window_ns - t_ns) / 1e9

    def _warm(self, stream: int, t_ns: int) -> None:
        self._cold.discard(stream)
        if not self._cold and self.phase is Phase.WARM_UP:
            self.phase = Phase.OPEN
            self._opened = True
            self._start_ns = t_ns + 1

    def _is_enough(self, t_ns: int) -> bool:
        long_enough = t_ns - self._start_ns >= self._window_ns
        at_end_of_round = not self._whole_rounds or self.ended_inside % self._streams == 0
        return long_enough and at_end_of_round and self.ended_inside >= self._min_requests


def replay(rule: WindowRule, ends: Iterable[tuple[int, int]]) -> Window | None:
    """Return the window that a rule would have had, from when requests ended.

    For runs spread over processes, in which nobody saw all requests while they
    ran. A window that lacks something when the requests are over closes with
    the last of them.

    Args:
        rule: A new rule with at least one warm-up request.
        ends: (stream, end in nanoseconds) of every request, in any order.

    Returns:
        The window; None if it never opened.
    """
    last_ns = 0
    for stream, t_ns in sorted(ends, key=lambda end: end[1]):
        rule.ended(stream, t_ns)
        last_ns = t_ns
    rule.close(last_ns + 1)
    return rule.window
