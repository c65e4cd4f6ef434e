"""What a client saw against what a null engine truly sent, chunk by chunk.

Takes the records of one run and the send log of the engine that served it;
returns the client's errors as exact order statistics. Starts and reads nothing,
and leaves nothing out: what cannot be matched is an error.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from draftgate.errors import MeasurementError
from draftgate.null_engine.sendlog import SentStream
from draftgate.records import RequestRecord

_Ints = NDArray[np.int64]
_Floats = NDArray[np.float64]

_SHOWN = 3
"""Requests that a message names; the rest is a number."""


@dataclass(frozen=True, slots=True)
class ErrorStats:
    """How far one quantity was off, seconds; positive where it was seen too long or too late.

    Attributes:
        count: Values behind it, >= 1.
        p50_s: Median of the absolute error.
        p99_s: Its 99th percentile; the maximum of fewer than 100 values.
        max_s: Its maximum.
        lowest_s: Smallest error, with its sign.
        highest_s: Largest error, with its sign.
    """

    count: int
    p50_s: float
    p99_s: float
    max_s: float
    lowest_s: float
    highest_s: float


@dataclass(frozen=True, slots=True)
class StreamFigures:
    """What one side, client or engine, says about the same streams.

    Each as in docs/glossary.md, over all requests; None where no request has
    one.

    Attributes:
        ttft_p50_s: Median time to first token.
        ttft_p99_s: Its 99th percentile.
        step_gap_p50_s: Median step gap.
        step_gap_p99_s: Its 99th percentile.
        per_token_p50_s: Median per-token time.
        per_token_p99_s: Its 99th percentile.
        tokens_per_step: Tokens of chunks after the first / number of these.
    """

    ttft_p50_s: float | None
    ttft_p99_s: float | None
    step_gap_p50_s: float | None
    step_gap_p99_s: float | None
    per_token_p50_s: float | None
    per_token_p99_s: float | None
    tokens_per_step: float | None


@dataclass(frozen=True, slots=True)
class ClientErrors:
    """A client's errors over one run.

    Attributes:
        requests: Requests compared.
        chunks: Chunks compared.
        tokens: Tokens that the engine sent.
        wrong_tokens: Chunks that held another number of tokens than was sent.
        ttft: Time to first token seen - true. The true one counts from the
            engine's reading the request, so the request's way there, and the
            engine's own delay in reading, are part of the error.
        request_delay: That part: engine's reading - client's `sent_ns`.
        first_arrival: The other part: `arrival` of first chunks alone.
        arrival: Chunk's stamp - true send, of every chunk. The way through the
            kernel, and the engine's send call, are part of it.
        step_gap: Gap seen - true gap, of every gap.
        per_token: Per-token time seen - true, of every request that has one.
        seen: What the client says.
        true: What the engine says.

    An error is None where no request had a value.
    """

    requests: int
    chunks: int
    tokens: int
    wrong_tokens: int
    ttft: ErrorStats | None
    request_delay: ErrorStats
    first_arrival: ErrorStats | None
    arrival: ErrorStats | None
    step_gap: ErrorStats | None
    per_token: ErrorStats | None
    seen: StreamFigures
    true: StreamFigures


def compare(records: Sequence[RequestRecord], streams: Sequence[SentStream]) -> ClientErrors:
    """Return how far the records are from what was truly sent.

    A record belongs to the stream whose prompt begins with its `prompt_id`,
    followed by white space or nothing. So each request needs an id of its own,
    without white space and of at most 64 characters, and a prompt that begins
    with it. Failed requests are compared like all others, by what arrived
    before they failed.

    Args:
        records: Every request of a run, in any order.
        streams: Every answer in the log of the engine that served it.

    Raises:
        MeasurementError: If a request has no stream or a stream no request, if
            ids repeat, if a request holds more or fewer chunks than were sent,
            or if there is no request; the message says which.
    """
    matched = _matched(records, streams)
    counts = np.array([len(record.chunks) for record in records], np.int64)
    _check_counts(records, matched, counts)
    seen, true = _seen_side(records, counts), _true_side(matched, counts)
    arrival_s, firsts = (seen.chunk_ns - true.chunk_ns) / 1e9, seen.starts()
    return ClientErrors(
        requests=len(records),
        chunks=int(counts.sum()),
        tokens=int(true.tokens.sum()),
        wrong_tokens=int(np.count_nonzero(seen.tokens != true.tokens)),
        ttft=_stats((seen.ttft_ns() - true.ttft_ns()) / 1e9),
        request_delay=_some_stats((true.asked_ns - seen.asked_ns) / 1e9),
        first_arrival=_stats(arrival_s[firsts]),
        arrival=_stats(arrival_s),
        step_gap=_stats((seen.gaps_ns() - true.gaps_ns()) / 1e9),
        per_token=_per_token_stats(seen, true),
        seen=seen.figures(),
        true=true.figures(),
    )


@dataclass(frozen=True, slots=True, eq=False)
class _Side:
    """Times and tokens of all requests, one after the other, as one side has them.

    Attributes:
        asked_ns: When each request went out or came in; shape (n_requests,).
        counts: Chunks of each; shape (n_requests,).
        chunk_ns: When each chunk came or went; shape (n_chunks,).
        tokens: Tokens in it; shape (n_chunks,).
    """

    asked_ns: _Ints
    counts: _Ints
    chunk_ns: _Ints
    tokens: _Ints

    def starts(self) -> _Ints:
        """Return the place of the first chunk of each request that has one."""
        ends = np.cumsum(self.counts)
        return (ends - self.counts)[self.counts > 0]

    def ttft_ns(self) -> _Ints:
        return self.chunk_ns[self.starts()] - self.asked_ns[self.counts > 0]

    def inner(self) -> NDArray[np.bool_]:
        """Return which neighbours belong to one request; shape (n_chunks - 1,)."""
        inside = np.ones(max(self.chunk_ns.size - 1, 0), np.bool_)
        inside[self.starts()[1:] - 1] = False
        return inside

    def gaps_ns(self) -> _Ints:
        return np.diff(self.chunk_ns)[self.inner()]

    def per_token_s(self) -> _Floats:
        """Return the per-token times; NaN of a request with one chunk."""
        starts = self.starts()
        if not starts.size:
            return np.empty(0)
        lasts = starts + self.counts[self.counts > 0] - 1
        later = np.add.reduceat(self.tokens, starts) - self.tokens[starts]
        times_s = (self.chunk_ns[lasts] - self.chunk_ns[starts]) / 1e9
        per_token_s = np.full(times_s.shape, np.nan)
        np.divide(times_s, later, out=per_token_s, where=later > 0)
        return per_token_s

    def figures(self) -> StreamFigures:
        per_token_s = self.per_token_s()
        later = self.tokens[1:][self.inner()]
        ttft, gap = _two(self.ttft_ns() / 1e9), _two(self.gaps_ns() / 1e9)
        per_token = _two(per_token_s[np.isfinite(per_token_s)])
        return StreamFigures(
            ttft_p50_s=ttft[0],
            ttft_p99_s=ttft[1],
            step_gap_p50_s=gap[0],
            step_gap_p99_s=gap[1],
            per_token_p50_s=per_token[0],
            per_token_p99_s=per_token[1],
            tokens_per_step=float(later.mean()) if later.size else None,
        )


def _seen_side(records: Sequence[RequestRecord], counts: _Ints) -> _Side:
    chunks = [chunk for record in records for chunk in record.chunks]
    return _Side(
        asked_ns=np.array([record.sent_ns for record in records], np.int64),
        counts=counts,
        chunk_ns=np.array([chunk.t_ns for chunk in chunks], np.int64),
        tokens=np.array([chunk.num_tokens for chunk in chunks], np.int64),
    )


def _true_side(streams: Sequence[SentStream], counts: _Ints) -> _Side:
    return _Side(
        asked_ns=np.array([stream.arrived_ns for stream in streams], np.int64),
        counts=counts,
        chunk_ns=np.concatenate([stream.step_ns for stream in streams]),
        tokens=np.concatenate([stream.step_tokens for stream in streams]),
    )


def _matched(
    records: Sequence[RequestRecord], streams: Sequence[SentStream]
) -> tuple[SentStream, ...]:
    """Return the stream of each record, in the records' order."""
    names = [record.prompt_id for record in records]
    by_name = {_first_word(stream.prompt): stream for stream in streams}
    if not names:
        raise MeasurementError("there is no request to compare. Let the run be longer.")
    _check_unique("requests with the id", names)
    _check_unique("answers to a prompt that begins with", [_first_word(s.prompt) for s in streams])
    _check_none("requests have no answer in the send log", set(names) - by_name.keys())
    _check_none("answers in the send log have no request", by_name.keys() - set(names))
    return tuple(by_name[name] for name in names)


def _first_word(prompt: str) -> str:
    return next(iter(prompt.split(None, 1)), "")


def _check_unique(what: str, names: Sequence[str]) -> None:
    for name, times in Counter(names).most_common(1):
        if times > 1:
            raise MeasurementError(
                f"{times} {what} {name!r}, expected one. Give each request an id of its own, let "
                "its prompt begin with it, and compare one run with the log of that run alone."
            )


def _check_none(what: str, names: set[str]) -> None:
    if names:
        raise MeasurementError(
            f"{len(names)} {what}: {', '.join(map(repr, sorted(names)[:_SHOWN]))}"
            f"{', ...' if len(names) > _SHOWN else ''}. Compare one run with the whole log of that "
            "run alone, taken after all its requests have ended."
        )


def _check_counts(
    records: Sequence[RequestRecord], streams: Sequence[SentStream], counts: _Ints
) -> None:
    sent = np.array([stream.step_ns.size for stream in streams], np.int64)
    wrong = np.flatnonzero(counts != sent)
    if wrong.size:
        first = int(wrong[0])
        failure = records[first].failure
        why = "" if failure is None else f" (it failed: {failure.kind.value}: {failure.message})"
        raise MeasurementError(
            f"{wrong.size} of {counts.size} requests hold another number of chunks than were sent; "
            f"{records[first].prompt_id!r} has {counts[first]} of {sent[first]}{why}. Look for "
            "what lost them: a reset, a request given up, or a defect of the client."
        )


def _per_token_stats(seen: _Side, true: _Side) -> ErrorStats | None:
    errors_s = seen.per_token_s() - true.per_token_s()
    return _stats(errors_s[np.isfinite(errors_s)])


def _stats(errors_s: _Floats) -> ErrorStats | None:
    return _some_stats(errors_s) if errors_s.size else None


def _some_stats(errors_s: _Floats) -> ErrorStats:
    absolute = np.abs(errors_s)
    p50_s, p99_s = _quantiles(absolute)
    return ErrorStats(
        count=errors_s.size,
        p50_s=p50_s,
        p99_s=p99_s,
        max_s=float(absolute.max()),
        lowest_s=float(errors_s.min()),
        highest_s=float(errors_s.max()),
    )


def _two(values_s: _Floats) -> tuple[float, float] | tuple[None, None]:
    return _quantiles(values_s) if values_s.size else (None, None)


def _quantiles(values: _Floats) -> tuple[float, float]:
    """Return p50 and p99 as measured values; see "Percentiles" in docs/glossary.md."""
    p50, p99 = np.quantile(values, (0.5, 0.99), method="inverted_cdf")
    return float(p50), float(p99)
