"""Which requests, chunks and gaps of a run count.

Only requests that were served in full count, and of those only what lies inside
the window in which all streams ran; [start, end) for every stamp. A run without
a window has nothing that counts. Registers no metric.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from draftgate.records import RequestRecord, RunSamples, StreamChunk, Window


@dataclass(frozen=True, slots=True)
class Gap:
    """One decode step as a client sees it: two chunks in a row of one request.

    Attributes:
        seconds: Time between them.
        tokens: Tokens of the chunk that closes it.
    """

    seconds: float
    tokens: int


def inside(window: Window, t_ns: int) -> bool:
    """Whether a stamp lies in the window, [start, end)."""
    return window.start_ns <= t_ns < window.end_ns


def served(run: RunSamples) -> Iterator[RequestRecord]:
    """Yield the requests that did not fail."""
    return (record for record in run.records if record.failure is None)


def sent_inside(run: RunSamples) -> Iterator[RequestRecord]:
    """Yield the served requests that were sent in the window."""
    window = run.window
    if window is not None:
        yield from (record for record in served(run) if inside(window, record.sent_ns))


def ended_inside(run: RunSamples) -> Iterator[RequestRecord]:
    """Yield the served requests that ended in the window."""
    window = run.window
    if window is not None:
        yield from (record for record in served(run) if inside(window, record.ended_ns))


def chunks_inside(run: RunSamples) -> Iterator[StreamChunk]:
    """Yield the chunks of served requests that arrived in the window."""
    window = run.window
    if window is None:
        return
    for record in served(run):
        yield from (chunk for chunk in record.chunks if inside(window, chunk.t_ns))


def gaps_inside(run: RunSamples) -> Iterator[Gap]:
    """Yield the gaps of served requests that have both ends in the window."""
    window = run.window
    if window is None:
        return
    for record in served(run):
        for before, after in pairwise(record.chunks):
            if inside(window, before.t_ns) and inside(window, after.t_ns):
                yield Gap((after.t_ns - before.t_ns) / 1e9, after.num_tokens)


def per_token_s(record: RequestRecord) -> float | None:
    """Return the mean time per output token after the first chunk, seconds.

    A verify step that accepts k draft tokens arrives as one chunk of up to
    k + 1 tokens, so the divisor is tokens, never chunks. None for a request
    whose output arrived in a single chunk.
    """
    tokens = sum(chunk.num_tokens for chunk in record.chunks[1:])
    if not tokens:
        return None
    return (record.chunks[-1].t_ns - record.chunks[0].t_ns) / 1e9 / tokens


def e2e_s(record: RequestRecord) -> float:
    """Return the time from the last byte sent to the last byte received, seconds."""
    return (record.ended_ns - record.sent_ns) / 1e9


def ttft_s(record: RequestRecord) -> float | None:
    """Return the time from the last byte sent to the first chunk, seconds."""
    if not record.chunks:
        return None
    return (record.chunks[0].t_ns - record.sent_ns) / 1e9
