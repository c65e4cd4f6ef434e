"""Recorded server starts as a small Parquet file, one row per start and number of streams.

Holds what `draftgate.compare.records.ServerStart` holds, and which kind of start
it was. A file grows round by round and is never half written; rounds of unlike
settings are refused. Knows neither servers nor verdicts.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from draftgate.compare.records import CellValues, Role, ServerStart
from draftgate.errors import BaselineError
from draftgate.files import replacing
from draftgate.metrics import DEFINITIONS_VERSION

SCHEMA_VERSION = 1
_KEY = b"draftgate.gate"

_MAP = pa.map_(pa.string(), pa.float64())
_SCHEMA = pa.schema(
    [
        ("kind", pa.string()),
        ("round", pa.int32()),
        ("place", pa.int32()),
        ("started_at", pa.string()),
        ("ready_s", pa.float64()),
        ("engine", pa.string()),
        ("start_invalid", pa.list_(pa.string())),
        ("concurrency", pa.int32()),
        ("requests", pa.int32()),
        ("values", _MAP),
        ("prompts", _MAP),
        ("spreads", _MAP),
        ("invalid", pa.list_(pa.string())),
    ]
)


@dataclass(frozen=True, slots=True)
class Setting:
    """What all rounds of a file share.

    Attributes:
        definitions: Version of the metrics' definitions.
        hardware: Slug of the machine.
        profile: Name of the profile.
        profile_sha256: Hash of its text.
        concurrencies: Numbers of streams.
        min_requests: Requests that end in each window at least.
        seed: Of the order of starts within a round.
        quick: Whether engine core and worker were forked.
        schema: SCHEMA_VERSION.
    """

    definitions: int
    hardware: str
    profile: str
    profile_sha256: str
    concurrencies: tuple[int, ...]
    min_requests: int
    seed: int
    quick: bool
    schema: int = SCHEMA_VERSION


@dataclass(frozen=True, slots=True)
class Recorded:
    """One start.

    Attributes:
        kind: Name of its kind (`faults.KINDS`).
        round: Round in which it was taken, from 0; starts of one round were up together.
        place: Its place in the round's order, from 0.
        start: What was seen; its role is set anew by each comparison.
    """

    kind: str
    round: int
    place: int
    start: ServerStart


@dataclass(frozen=True, slots=True)
class Recording:
    """A file, read."""

    setting: Setting
    starts: tuple[Recorded, ...]

    def rounds(self) -> dict[int, dict[str, Recorded]]:
        """Return the starts by round and kind."""
        found: dict[int, dict[str, Recorded]] = {}
        for recorded in self.starts:
            found.setdefault(recorded.round, {})[recorded.kind] = recorded
        return found


def read(path: Path) -> Recording:
    """Read a recording.

    Raises:
        BaselineError: If it is missing, damaged, or of another version.
    """
    try:
        table = pq.read_table(path)
        setting = json.loads(table.schema.metadata[_KEY])
        return Recording(_setting(setting), _starts(table.to_pylist()))
    except (OSError, ValueError, KeyError, TypeError, pa.ArrowException) as error:
        raise BaselineError(
            f"recording {path}: {error}. Record it with: python -m benchmarks.gate.record"
        ) from error


def append(path: Path, setting: Setting, starts: Sequence[Recorded]) -> None:
    """Add a round to a recording, which is made if it is not there.

    Raises:
        BaselineError: If the file's rounds were taken with another setting.
    """
    known: tuple[Recorded, ...] = ()
    if path.exists():
        held = read(path)
        check_setting(held.setting, setting)
        known = held.starts
    write(path, setting, (*known, *starts))


def write(path: Path, setting: Setting, starts: Iterable[Recorded]) -> None:
    """Write a whole recording."""
    rows = [row for recorded in starts for row in _rows(recorded)]
    metadata = {_KEY: json.dumps(asdict(setting), sort_keys=True).encode()}
    table = pa.Table.from_pylist(rows, schema=_SCHEMA.with_metadata(metadata))
    with replacing(path) as part:
        pq.write_table(table, part, compression="zstd")


def check_setting(held: Setting, here: Setting) -> None:
    """Do nothing if rounds of both settings may stand in one recording.

    Raises:
        BaselineError: If they may not; the message names what differs.
    """
    mine, other = asdict(held), asdict(here)
    unlike = [f"{name}: {mine[name]!r} and {other[name]!r}" for name in mine]
    unlike = [text for name, text in zip(mine, unlike, strict=True) if mine[name] != other[name]]
    if unlike:
        raise BaselineError(
            f"rounds of unlike settings don't mix: {'; '.join(unlike)} (held and new). Record "
            "into another file."
        )


def _setting(held: dict[str, Any]) -> Setting:
    if held["schema"] != SCHEMA_VERSION:
        raise ValueError(f"got schema {held['schema']}, expected {SCHEMA_VERSION}")
    if held["definitions"] != DEFINITIONS_VERSION:
        raise ValueError(
            f"got metrics of definitions {held['definitions']}, expected {DEFINITIONS_VERSION}"
        )
    return Setting(**{**held, "concurrencies": tuple(held["concurrencies"])})


def _rows(recorded: Recorded) -> list[dict[str, Any]]:
    start = recorded.start
    head = {
        "kind": recorded.kind,
        "round": recorded.round,
        "place": recorded.place,
        "started_at": start.started_at,
        "ready_s": start.ready_s,
        "engine": start.engine,
        "start_invalid": list(start.invalid),
    }
    if not start.cells:
        return [{**head, "concurrency": 0, "requests": 0, **_NOTHING}]
    return [
        {
            **head,
            "concurrency": cell.concurrency,
            "requests": cell.requests,
            "values": list(cell.values),
            "prompts": list(cell.prompts),
            "spreads": list(cell.spreads),
            "invalid": list(cell.invalid),
        }
        for cell in start.cells
    ]


_NOTHING: dict[str, Any] = {"values": [], "prompts": [], "spreads": [], "invalid": []}


def _starts(rows: Iterable[dict[str, Any]]) -> tuple[Recorded, ...]:
    """Return the starts of rows that stand in the order in which they were written."""
    found: dict[tuple[int, str], list[dict[str, Any]]] = {}
    for row in rows:
        found.setdefault((row["round"], row["kind"]), []).append(row)
    return tuple(_start(held) for held in found.values())


def _start(rows: Sequence[dict[str, Any]]) -> Recorded:
    first = rows[0]
    start = ServerStart(
        role=Role.BASE,
        started_at=first["started_at"],
        ready_s=first["ready_s"],
        engine=first["engine"],
        cells=tuple(_cell(row) for row in rows if row["concurrency"]),
        invalid=tuple(first["start_invalid"]),
    )
    return Recorded(first["kind"], first["round"], first["place"], start)


def _cell(row: dict[str, Any]) -> CellValues:
    return CellValues(
        concurrency=row["concurrency"],
        values=tuple(row["values"]),
        requests=row["requests"],
        prompts=tuple(row["prompts"]),
        spreads=tuple(row["spreads"]),
        invalid=tuple(row["invalid"]),
    )
