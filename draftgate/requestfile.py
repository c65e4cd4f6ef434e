"""Request records as Parquet: one row per request, written as they come.

The one definition of the columns, for run folders and for load tests. Knows how
records are laid out, nothing of what they mean. 64-bit stamps of one request lie
close together, so they are stored as differences (Parquet's delta encoding).
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pyarrow as pa
import pyarrow.parquet as pq

from draftgate.records import Failure, FailureKind, RequestRecord, StreamChunk

COLUMNS = pa.schema(
    [
        pa.field("index", pa.int64(), nullable=False),
        pa.field("stream", pa.int64(), nullable=False),
        pa.field("prompt_id", pa.string(), nullable=False),
        pa.field("scheduled_ns", pa.int64(), nullable=False),
        pa.field("sent_ns", pa.int64(), nullable=False),
        pa.field("ended_ns", pa.int64(), nullable=False),
        ("chunk_ns", pa.list_(pa.int64())),
        ("chunk_token_ids", pa.list_(pa.list_(pa.int32()))),
        ("chunk_counted", pa.list_(pa.int32())),
        ("prompt_tokens", pa.int64()),
        ("completion_tokens", pa.int64()),
        ("finish_reason", pa.string()),
        ("failure_kind", pa.string()),
        ("failure_message", pa.string()),
        ("text", pa.string()),
    ]
)
"""One row per request. `chunk_counted` is null unless the server sent counts
in place of ids."""

_STAMPS = ("chunk_ns.list.element",)
"""Columns that hold rising stamps; deltas of two bytes instead of eight."""


def to_table(
    records: Iterable[RequestRecord], metadata: Mapping[bytes, bytes] | None = None
) -> pa.Table:
    """Return the records as a table with the columns of `COLUMNS`."""
    schema = COLUMNS.with_metadata(dict(metadata)) if metadata else COLUMNS
    return pa.Table.from_pylist([_row(record) for record in records], schema=schema)


def from_table(table: pa.Table) -> tuple[RequestRecord, ...]:
    """Return the records that a table with the columns of `COLUMNS` holds.

    Raises:
        ValueError: If it has other columns.
    """
    if not table.schema.equals(COLUMNS):
        raise ValueError(f"expected the columns {COLUMNS.names}, got {table.schema.names}")
    return tuple(_record(row) for row in table.to_pylist())


def write_table(table: pa.Table, path: Path) -> None:
    """Write a table to one Parquet file, compressed and with checksums.

    Raises:
        OSError: If it cannot be written.
    """
    with _writer(path, table.schema) as writer:
        writer.write_table(table)


class RequestWriter:
    """Writes records to one Parquet file in batches; memory holds one batch.

    Args:
        path: The file, which appears when the writer is closed well.
        batch_requests: Requests per row group.

    Raises:
        OSError: If it cannot be written.
    """

    def __init__(self, path: Path, batch_requests: int = 512) -> None:
        self.requests = 0
        self._writer = _writer(path, COLUMNS)
        self._batch: list[RequestRecord] = []
        self._batch_requests = batch_requests

    def __enter__(self) -> Self:
        """Begin."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Write what is left and close the file."""
        if kind is None:
            self._flush()
        self._writer.close()

    def add(self, record: RequestRecord) -> None:
        """Write one record, with the rest of its batch."""
        self._batch.append(record)
        self.requests += 1
        if len(self._batch) >= self._batch_requests:
            self._flush()

    def _flush(self) -> None:
        if self._batch:
            self._writer.write_table(to_table(self._batch))
            self._batch = []


def read_batches(paths: Sequence[Path], columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Yield the row groups of several files in turn, with some of the columns.

    Raises:
        OSError: If one cannot be read.
        pyarrow.ArrowException: If one is damaged.
    """
    for path in paths:
        file = pq.ParquetFile(path, page_checksum_verification=True)
        for group in range(file.num_row_groups):
            yield from file.read_row_group(group, columns=list(columns)).to_batches()


def _writer(path: Path, schema: pa.Schema) -> pq.ParquetWriter:
    return pq.ParquetWriter(
        path,
        schema,
        compression="zstd",
        write_page_checksum=True,
        use_dictionary=[name for name in schema.names if name != "chunk_ns"],
        column_encoding=dict.fromkeys(_STAMPS, "DELTA_BINARY_PACKED"),
    )


def _row(record: RequestRecord) -> dict[str, Any]:
    failure, chunks = record.failure, record.chunks
    counted = any(chunk.counted is not None for chunk in chunks)
    return {
        "index": record.index,
        "stream": record.stream,
        "prompt_id": record.prompt_id,
        "scheduled_ns": record.scheduled_ns,
        "sent_ns": record.sent_ns,
        "ended_ns": record.ended_ns,
        "chunk_ns": [chunk.t_ns for chunk in chunks],
        "chunk_token_ids": [chunk.token_ids for chunk in chunks],
        "chunk_counted": [chunk.counted for chunk in chunks] if counted else None,
        "prompt_tokens": record.prompt_tokens,
        "completion_tokens": record.completion_tokens,
        "finish_reason": record.finish_reason,
        "failure_kind": failure.kind.value if failure else None,
        "failure_message": failure.message if failure else None,
        "text": record.text,
    }


def _record(row: dict[str, Any]) -> RequestRecord:
    stamps, tokens = row.pop("chunk_ns"), row.pop("chunk_token_ids")
    counted = row.pop("chunk_counted") or [None] * len(stamps)
    kind, message = row.pop("failure_kind"), row.pop("failure_message")
    return RequestRecord(
        chunks=tuple(
            StreamChunk(t_ns, tuple(ids), count)
            for t_ns, ids, count in zip(stamps, tokens, counted, strict=True)
        ),
        failure=None if kind is None else Failure(FailureKind(kind), message),
        **row,
    )
