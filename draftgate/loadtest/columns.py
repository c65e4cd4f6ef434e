"""Records read back from Parquet as arrays, a batch at a time.

Memory holds one batch of some hundred requests, however many there are. Knows how
records are laid out and which of them count, not what is worked out of them: the
definitions are those of `draftgate.metrics.selection`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from draftgate.records import Window

if TYPE_CHECKING:
    import pyarrow as pa

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Flags = NDArray[np.bool_]

_ALWAYS = ("stream", "scheduled_ns", "sent_ns", "ended_ns", "failure_kind", "prompt_tokens")
_COUNTS = ("chunk_token_ids", "chunk_counted")


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """Some requests; each array has one entry per request, unless it says otherwise.

    Attributes:
        stream: Number of the stream.
        scheduled_ns: When it was due.
        sent_ns: When it was sent.
        ended_ns: When it ended.
        served: Whether it was served in full.
        prompt_tokens: Length of its prompt; -1 where the server did not tell.
        chunks: Its number of chunks.
        chunk_ns: Stamps of all chunks, request by request; shape (n_chunks,).
        tokens: Tokens of each chunk; shape (n_chunks,); empty if not asked for.
    """

    stream: Integers
    scheduled_ns: Integers
    sent_ns: Integers
    ended_ns: Integers
    served: Flags
    prompt_tokens: Integers
    chunks: Integers
    chunk_ns: Integers
    tokens: Integers

    @property
    def row(self) -> Integers:
        """Return the request of each chunk, by its place; shape (n_chunks,)."""
        rows: Integers = np.repeat(np.arange(self.chunks.size), self.chunks)
        return rows

    @property
    def has_chunks(self) -> Flags:
        """Return whether each request has a chunk."""
        return self.chunks > 0

    @property
    def starts(self) -> Integers:
        """Return the place of each request's first chunk, were there one, among all chunks."""
        return np.cumsum(self.chunks) - self.chunks

    def first_ns(self) -> Integers:
        """Return the first stamp of each request that has a chunk."""
        return self.chunk_ns[self.starts[self.has_chunks]]

    def last_ns(self) -> Integers:
        """Return the last stamp of each request that has a chunk."""
        return self.chunk_ns[(np.cumsum(self.chunks) - 1)[self.has_chunks]]


def inside(window: Window, t_ns: Integers) -> Flags:
    """Return which stamps lie in the window, [start, end)."""
    return (t_ns >= window.start_ns) & (t_ns < window.end_ns)


def read_requests(
    files: Sequence[Path], *, chunks: bool = True, tokens: bool = True
) -> Iterator[Batch]:
    """Yield all requests.

    Args:
        files: Parquet files, see `draftgate.requestfile`.
        chunks: Whether stamps of chunks are wanted.
        tokens: Whether numbers of tokens are wanted; needs `chunks`.
    """
    from draftgate.requestfile import read_batches  # noqa: PLC0415 - Parquet, once there are files

    columns = [*_ALWAYS]
    if chunks:
        columns.append("chunk_ns")
        if tokens:
            columns.extend(_COUNTS)
    for batch in read_batches(files, columns):
        yield _batch(batch, chunks=chunks, tokens=tokens)


def read_failures(files: Sequence[Path]) -> Iterator[tuple[int, list[tuple[str, str]]]]:
    """Yield by batches the number of requests, and class and message of the failed ones."""
    from draftgate.requestfile import read_batches  # noqa: PLC0415 - as above

    for batch in read_batches(files, ["failure_kind", "failure_message"]):
        failed = batch.filter(batch.column("failure_kind").is_valid())
        kinds, messages = (failed.column(place).to_pylist() for place in (0, 1))
        yield batch.num_rows, list(zip(kinds, messages, strict=True))


def gaps(batch: Batch, window: Window) -> tuple[Integers, Flags]:
    """Return each gap of served requests with both ends in the window.

    Returns:
        Their lengths in nanoseconds, shape (n,), and for each chunk but the
        first of the batch whether it closes one of them, shape (n_chunks - 1,).
    """
    row = batch.row
    counts = batch.served[row] & inside(window, batch.chunk_ns)
    closes = counts[1:] & counts[:-1] & (row[1:] == row[:-1])
    return np.diff(batch.chunk_ns)[closes], closes


def ttft_ns(batch: Batch, window: Window, *, scheduled: bool) -> Integers:
    """Return times to first chunk of served requests sent in the window, nanoseconds."""
    since_ns = batch.scheduled_ns if scheduled else batch.sent_ns
    counts = batch.served & inside(window, batch.sent_ns)
    return (batch.first_ns() - since_ns[batch.has_chunks])[counts[batch.has_chunks]]


def e2e_ns(batch: Batch, window: Window, *, scheduled: bool) -> Integers:
    """Return end-to-end times of served requests that ended in the window, nanoseconds."""
    since_ns = batch.scheduled_ns if scheduled else batch.sent_ns
    return (batch.ended_ns - since_ns)[batch.served & inside(window, batch.ended_ns)]


def send_delay_ns(batch: Batch, window: Window) -> Integers:
    """Return sent - scheduled of all requests sent in the window, nanoseconds."""
    return (batch.sent_ns - batch.scheduled_ns)[inside(window, batch.sent_ns)]


def per_token_s(batch: Batch, window: Window) -> Floats:
    """Return per-token times of served requests that ended in the window, seconds."""
    having = batch.has_chunks
    totals = np.bincount(batch.row, weights=batch.tokens, minlength=batch.chunks.size)[having]
    after_first = totals - batch.tokens[batch.starts[having]]
    counts = (batch.served & inside(window, batch.ended_ns))[having] & (after_first > 0)
    spans_s = (batch.last_ns() - batch.first_ns())[counts] / 1e9
    times_s: Floats = spans_s / after_first[counts]
    return times_s


def _batch(batch: "pa.RecordBatch", *, chunks: bool, tokens: bool) -> Batch:
    lengths, chunk_ns = _stamps(batch) if chunks else (_none(batch.num_rows), _none(0))
    return Batch(
        stream=_integers(batch, "stream"),
        scheduled_ns=_integers(batch, "scheduled_ns"),
        sent_ns=_integers(batch, "sent_ns"),
        ended_ns=_integers(batch, "ended_ns"),
        served=batch.column("failure_kind").is_null().to_numpy(zero_copy_only=False),
        prompt_tokens=batch.column("prompt_tokens").fill_null(-1).to_numpy(zero_copy_only=False),
        chunks=lengths,
        chunk_ns=chunk_ns,
        tokens=_tokens(batch, lengths) if tokens and chunks else _none(0),
    )


def _none(size: int) -> Integers:
    return np.zeros(size, dtype=np.int64)


def _integers(batch: "pa.RecordBatch", name: str) -> Integers:
    values: Integers = batch.column(name).to_numpy(zero_copy_only=False)
    return values


def _stamps(batch: "pa.RecordBatch") -> tuple[Integers, Integers]:
    column = batch.column("chunk_ns")
    return _lengths(column), column.flatten().to_numpy(zero_copy_only=False)


def _lengths(column: "pa.ListArray") -> Integers:
    lengths: Integers = column.value_lengths().to_numpy(zero_copy_only=False).astype(np.int64)
    return lengths


def _tokens(batch: "pa.RecordBatch", chunks: Integers) -> Integers:
    """Return the tokens of each chunk: its ids, or what the server counted."""
    tokens = _lengths(batch.column("chunk_token_ids").flatten())
    counted = batch.column("chunk_counted")
    if counted.null_count == len(counted):
        return tokens
    has_counts = counted.is_valid().to_numpy(zero_copy_only=False)
    counts = counted.flatten().fill_null(-1).to_numpy(zero_copy_only=False)
    places = np.flatnonzero(np.repeat(has_counts, chunks))[counts >= 0]
    tokens[places] = counts[counts >= 0]
    return tokens
