"""The window of a load test: the steady part of its records, or what there is instead.

Streams the records once; `draftgate.load.steady` decides. Knows no metric.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from draftgate.load.arrivals import ClosedLoop
from draftgate.load.steady import Chunks, Steady, steady_closed, steady_open
from draftgate.loadtest.columns import Integers, inside, read_requests
from draftgate.loadtest.spec import LoadTest
from draftgate.records import Window

_NEVER_NS = int(np.iinfo(np.int64).max)


@dataclass(frozen=True, slots=True)
class FoundWindow:
    """A window and where it comes from.

    Attributes:
        window: What counts.
        steady: Whether it is a steady one.
        truncated_s: How much was left out as start-up, seconds.
        reason: How it was found, or why no steady one was.
    """

    window: Window
    steady: bool
    truncated_s: float
    reason: str


def find_window(test: LoadTest, files: Sequence[Path], whole: Window) -> FoundWindow:
    """Return the steady window of a run's records.

    Where none is found, the interval in which it was looked for counts; where
    that holds no served request's beginning or no one's end, the whole run.

    Args:
        test: What was run.
        files: Its records.
        whole: From its start to its end.
    """
    found = _steady(test, files)
    window = Window(found.start_ns, found.end_ns)
    if _holds_requests(files, window):
        return FoundWindow(window, found.found, found.truncated_s, found.reason)
    told = found.reason.removeprefix("no steady state found: ")
    reason = f"no steady state found: {told}, and no request began and none ended in it"
    return FoundWindow(whole, steady=False, truncated_s=0.0, reason=f"{reason}: the whole run")


def _steady(test: LoadTest, files: Sequence[Path]) -> Steady:
    chunks = _chunks(files)
    if isinstance(test.arrivals, ClosedLoop):
        first_ns, stopped_ns = _stream_ends(files, test.arrivals.concurrency)
        return steady_closed(chunks, first_ns, stopped_ns, test.arrivals.concurrency)
    first_due_ns, last_due_ns = _NEVER_NS, 0
    for batch in read_requests(files, chunks=False):
        first_due_ns = min(first_due_ns, int(batch.scheduled_ns.min(initial=_NEVER_NS)))
        last_due_ns = max(last_due_ns, int(batch.scheduled_ns.max(initial=0)))
    return steady_open(chunks, first_due_ns, last_due_ns)


def _chunks(files: Sequence[Path]) -> Chunks:
    return ((batch.chunk_ns, batch.tokens) for batch in read_requests(files))


def _stream_ends(files: Sequence[Path], streams: int) -> tuple[Integers, Integers]:
    """Return the first chunk and the last end of each stream that had a chunk."""
    first_ns = np.full(streams, _NEVER_NS, dtype=np.int64)
    stopped_ns = np.zeros(streams, dtype=np.int64)
    for batch in read_requests(files, tokens=False):
        np.minimum.at(first_ns, batch.stream[batch.has_chunks], batch.first_ns())
        np.maximum.at(stopped_ns, batch.stream, batch.ended_ns)
    had = first_ns < _NEVER_NS
    return first_ns[had], stopped_ns[had]


def _holds_requests(files: Sequence[Path], window: Window) -> bool:
    """Return whether a served request was sent in the window and one ended in it."""
    began = ended = False
    for batch in read_requests(files, chunks=False):
        began = began or bool((batch.served & inside(window, batch.sent_ns)).any())
        ended = ended or bool((batch.served & inside(window, batch.ended_ns)).any())
        if began and ended:
            return True
    return False
