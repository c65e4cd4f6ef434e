"""The history on disk: one Parquet file per night, added and never rewritten.

    history/<hardware>/<engines>/<profile>/<run id>.parquet

A run id begins with the UTC time, so names sort by night. Nights of different
branches or runners are different files and merge without a conflict. Folders
are for people: what may be compared is decided by the columns. Readable without
draftgate, by glob:

    SELECT session_time, exp(avg(ln(value))) FROM 'history/*/*/*/*.parquet'
    WHERE metric = 'output_tokens_per_s' AND invalid = '' AND arm = 'ngram' AND concurrency = 8
    GROUP BY ALL ORDER BY ALL    -- DuckDB

    pandas.read_parquet("history")

Knows how nights are laid out, nothing of series or changes.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from draftgate import runstore
from draftgate.errors import BaselineError
from draftgate.files import replacing
from draftgate.history.records import NightRows

HISTORY_SCHEMA_VERSION = 1
"""History: 1 first version."""

_METADATA_KEY = b"draftgate_history"

_DAMAGE = (OSError, ValueError, KeyError, pa.ArrowException)
"""What reading a file raises that is cut, altered, or none of ours."""

_ONCE = ("run_id", "session_time", "hardware", "profile", "draftgate", "definitions")
"""Columns that are equal in all rows of a night."""


@dataclass(frozen=True, slots=True)
class Appended:
    """What became of a night.

    Attributes:
        path: Its file.
        is_new: False if it was there already, with these very numbers.
        notes: What is odd about it; empty if nothing is.
    """

    path: Path
    is_new: bool
    notes: tuple[str, ...]


def night_path(root: Path, night: NightRows) -> Path:
    """Return the file of a night, there or not."""
    names = (night.hardware, night.engines, night.profile)
    return root.joinpath(*map(slug, names), f"{slug(night.run_id)}.parquet")


def append(root: Path, night: NightRows, *, again: bool = False) -> Appended:
    """Add a night to the history: its whole file or nothing.

    Args:
        root: Folder of the history; made if absent.
        night: What to add.
        again: Let a night pass that is there already with these very numbers,
            as a repeated CI job meets it. One with other numbers is refused
            all the same.

    Raises:
        BaselineError: If the night is there already, or a file beside it is
            damaged.
        MeasurementError: If the file cannot be written; nothing of it is left.
    """
    path = night_path(root, night)
    table = to_table(night)
    held = [other for other in night_files(root) if other.name == path.name]
    if held:
        _expect_same(held[0], table, night.run_id, again=again)
        return Appended(held[0], is_new=False, notes=night.notes)
    others = [
        _place(other) for other in path.parent.parent.parent.glob(f"*/{path.parent.name}/*.parquet")
    ]
    _write(path, table, 1 + max((sequence for sequence, _, _ in others), default=0))
    later = [run_id for _, time, run_id in others if time > night.session_time]
    return Appended(path, is_new=True, notes=(*night.notes, *_late_notes(night.run_id, later)))


def night_files(root: Path) -> tuple[Path, ...]:
    """Return the files of all nights, sorted by folder and name.

    Raises:
        BaselineError: If two of them are of one run: its numbers would count twice.
    """
    found = tuple(sorted(root.glob("*/*/*/*.parquet")))
    first: dict[str, Path] = {}
    for path in found:
        if path.name in first:
            raise BaselineError(
                f"history {root}: {first[path.name].relative_to(root)} and "
                f"{path.relative_to(root)} are the same run twice. Delete the copy."
            )
        first[path.name] = path
    return found


def read_nights(root: Path) -> pa.Table:
    """Return all rows of the history as one table with the columns of `columns`.

    Raises:
        BaselineError: If there is no history at `root`, or files of it are
            damaged, of another schema or at the wrong place; all are named.
    """
    paths = night_files(root)
    if not paths:
        raise BaselineError(
            f"history {root}: holds no night. Append one first: draftgate history append RUN "
            f"--history {root}"
        )
    tables, broken = [], []
    for path in paths:
        try:
            tables.append(_read(path))
        except _DAMAGE as error:
            broken.append(f"{path.relative_to(root)}: {error}")
    if broken:
        raise BaselineError(
            f"history {root}: {len(broken)} of {len(paths)} files can't be read "
            f"({'; '.join(broken)}). Restore them from version control, or delete them and append "
            "their runs again."
        )
    return pa.concat_tables(tables).unify_dictionaries()


def columns() -> pa.Schema:
    """Return the columns of every file: one row per run and metric."""
    text, time = pa.dictionary(pa.int32(), pa.string()), pa.timestamp("us", tz="UTC")
    kinds = {
        "run_id": text,
        "session_time": time,
        "sequence": pa.int32(),
        "hardware": text,
        "profile": text,
        "draftgate": text,
        "definitions": pa.int32(),
        "time": time,
        "repeat": pa.int32(),
        "engine": text,
        "engine_version": text,
        "arm": text,
        "role": text,
        "concurrency": pa.int32(),
        "metric": text,
        "value": pa.float64(),
        "unit": text,
        "better": text,
        "commit": text,
        "workload": text,
        "requests": pa.int64(),
        "invalid": text,
    }
    return pa.schema([pa.field(name, kind, nullable=False) for name, kind in kinds.items()])


def to_table(night: NightRows) -> pa.Table:
    """Return the night's table; its sequence is 0 until it is written."""
    once = {name: getattr(night, name) for name in _ONCE}
    rows = [{**once, "sequence": 0, **asdict(row)} for row in night.rows]
    return pa.Table.from_pylist(rows, schema=columns())


def _write(path: Path, table: pa.Table, sequence: int) -> None:
    place = table.schema.get_field_index("sequence")
    numbers = pa.array([sequence] * table.num_rows, pa.int32())
    whole = table.set_column(place, table.schema.field(place), numbers)
    mark = {
        "schema": HISTORY_SCHEMA_VERSION,
        "run_id": table.column("run_id")[0].as_py(),
        "session_time": table.column("session_time")[0].as_py().isoformat(),
        "sequence": sequence,
    }
    with writing(path), replacing(path) as part:
        pq.write_table(
            whole.replace_schema_metadata({_METADATA_KEY: json.dumps(mark).encode()}),
            part,
            compression="zstd",
            write_page_checksum=True,
        )


def _read(path: Path) -> pa.Table:
    """Return the rows of one file.

    Raises:
        OSError: If it cannot be opened.
        ValueError: If it is of another schema, empty or misplaced; Arrow's own
            errors are of this kind, or of `ArrowException`.
    """
    with pq.ParquetFile(path, page_checksum_verification=True) as file:
        _checked_mark(path, file.schema_arrow.metadata)
        names = file.schema_arrow.names
        if not file.schema_arrow.remove_metadata().equals(columns()):
            raise ValueError(f"columns {names}, expected those of schema {HISTORY_SCHEMA_VERSION}")
        table = file.read()
    if not table.num_rows:
        raise ValueError("no row")
    return table.replace_schema_metadata(None)


def _checked_mark(path: Path, metadata: Mapping[bytes, bytes] | None) -> dict[str, Any]:
    """Return what a file says of itself.

    Raises:
        ValueError: If it is not of this schema, or holds another run than its name says.
    """
    held = json.loads((metadata or {}).get(_METADATA_KEY, b"{}"))
    schema = held.get("schema") if isinstance(held, dict) else None
    if schema != HISTORY_SCHEMA_VERSION:
        raise ValueError(f"schema {schema!r}, expected {HISTORY_SCHEMA_VERSION}")
    if slug(held["run_id"]) != path.stem:
        raise ValueError(f"holds run {held['run_id']}, expected {path.stem}")
    return dict(held)


def _place(path: Path) -> tuple[int, datetime, str]:
    """Return a night's sequence number, time and run id.

    Raises:
        BaselineError: If its file cannot be read.
    """
    with _reading(path):
        mark = _checked_mark(path, pq.read_schema(path).metadata)
        time = datetime.fromisoformat(mark["session_time"])
        return int(mark["sequence"]), time, str(mark["run_id"])


def _expect_same(path: Path, table: pa.Table, run_id: str, *, again: bool) -> None:
    if not again:
        raise BaselineError(
            f"history: run {run_id} is there already, {path}. Its runs must not count twice. To "
            "let a repeated job pass, use --again."
        )
    with _reading(path):
        held = _read(path).drop_columns(["sequence"]).to_pandas()
    if not held.equals(table.drop_columns(["sequence"]).to_pandas()):
        raise BaselineError(
            f"history: run {run_id} is there already with other numbers, {path}. What was "
            "appended is never rewritten; find out which of them is right."
        )


def _late_notes(run_id: str, later: Sequence[str]) -> tuple[str, ...]:
    if not later:
        return ()
    note = (
        f"run {run_id} says that it is earlier than {len(later)} of those appended before it, "
        f"the latest {max(later)}: a clock went backwards, or an old run was added late. Series "
        "go by time."
    )
    return (note,)


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Turn every way in which a file can be unreadable into one error that names it."""
    try:
        yield
    except _DAMAGE as error:
        raise BaselineError(
            f"history {path}: can't be read ({error}). Restore it from version control, or delete "
            "it and append its run again."
        ) from error


def writing(path: Path) -> AbstractContextManager[None]:
    """Turn a failed write into one error that says where and what to do.

    Raises:
        MeasurementError: In place of any OSError.
    """
    left, advice = "Nothing half-written is left.", "choose another folder with --history."
    return runstore.writing("history", path, left=left, advice=advice)


def slug(name: str) -> str:
    """Return `name` as the name of a file or folder."""
    return re.sub(r"[^A-Za-z0-9_.+-]+", "_", name)
