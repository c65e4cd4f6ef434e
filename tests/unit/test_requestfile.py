"""Request records as Parquet: what goes in comes out, in few bytes, in batches."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from draftgate.records import Failure, FailureKind, RequestRecord, StreamChunk
from draftgate.requestfile import (
    COLUMNS,
    RequestWriter,
    from_table,
    read_batches,
    to_table,
    write_table,
)

MS = 1_000_000
START = 81_234_567_891_234


def _record(index: int, tokens: int = 128) -> RequestRecord:
    """Return a request of `tokens` steps of about 10 ms with ids as a real text has them."""
    sent = START + index * 7 * MS
    chunks = tuple(
        StreamChunk(
            sent + 50 * MS + i * 10 * MS + (i * 7919 + index * 104_729) % 90_000,
            ((i * 2_654_435_761 + index * 97) % 49_152,),
        )
        for i in range(tokens)
    )
    return RequestRecord(
        index,
        index % 32,
        f"chat-{index % 72:03d}",
        sent,
        sent,
        chunks[-1].t_ns + 1,
        chunks,
        20,
        tokens,
        "length",
    )


def test_records_survive_the_file(tmp_path: Path) -> None:
    """Ids, counts in their place, failures and texts come back as they were."""
    counted = RequestRecord(
        1,
        0,
        "p",
        1,
        2,
        9,
        (StreamChunk(5, (), 3), StreamChunk(7, (), 1)),
        None,
        4,
        "stop",
        None,
        "some text",
    )
    failed = RequestRecord(
        2, 0, "p", 1, 2, 9, failure=Failure(FailureKind.STALLED, "no byte for 2 s")
    )
    records = (_record(0, 3), counted, failed)
    path = tmp_path / "r.parquet"

    write_table(to_table(records), path)

    assert from_table(pq.ParquetFile(path).read()) == records


def test_writer_makes_row_groups_of_batches(tmp_path: Path) -> None:
    """Ten records in batches of four give three row groups and all records in order."""
    path = tmp_path / "r.parquet"
    with RequestWriter(path, batch_requests=4) as writer:
        for index in range(10):
            writer.add(_record(index, 2))

    assert writer.requests == 10
    assert pq.ParquetFile(path).num_row_groups == 3
    batches = list(read_batches((path, path), ("index",)))
    assert [i for batch in batches for i in batch.column(0).to_pylist()] == [*range(10)] * 2


def test_a_token_takes_few_bytes(tmp_path: Path) -> None:
    """One token per step costs at most 8 bytes: a stamp of 3 or so, an id of 2, what holds them."""
    path = tmp_path / "r.parquet"

    write_table(to_table(_record(index) for index in range(500)), path)

    assert path.stat().st_size / (500 * 128) <= 8


def test_other_columns_are_refused() -> None:
    """A table of another layout is an error that names both."""
    with pytest.raises(ValueError, match="expected the columns"):
        from_table(pa.table({"index": [1]}))
    assert COLUMNS.names[0] == "index"
