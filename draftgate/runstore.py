"""The folder that one invocation leaves behind: `runs/<id>/`.

    run.json            what was asked for, where, with which commands
    samples/*.parquet   every request and every stamp, one file per run
    acceptance.json     acceptance by kind of traffic, if that was measured
    verdicts.json       what was decided
    logs/               whatever the engines wrote

Knows how these are laid out and nothing of what they mean. Each file appears
whole or not at all, so a run that was killed can still be read. What may be a
secret is not in them (`draftgate.hidden`).
"""

import errno
import hashlib
import json
import re
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from draftgate.clock import Clock
from draftgate.codec import decode, encode
from draftgate.datasets import with_prompts_digest
from draftgate.errors import BaselineError, DraftgateError, MeasurementError, SpecError
from draftgate.files import replacing, write_text
from draftgate.hidden import hide
from draftgate.records import Environment, RunSamples, TrafficAcceptance
from draftgate.requestfile import from_table, to_table, write_table
from draftgate.specs import Profile
from draftgate.verdict import Verdict

T = TypeVar("T")

# History: 1 first version. 2 chunk counts of servers without token ids.
RUN_SCHEMA_VERSION = 2

_METADATA_KEY = b"draftgate"
_DIGEST_KEY = b"draftgate.sha256"
"""Of what stands under `_METADATA_KEY`, which Parquet's page checksums leave out. Files from
before it was kept have none and are read as they are."""


@dataclass(frozen=True, slots=True)
class RunHeader:
    """What run.json holds; attributes as in `StoredRun`, samples by file name."""

    schema: int
    id: str
    started_at: str
    argv: tuple[str, ...]
    profile: Profile
    environment: Environment | None = None
    commands: tuple[tuple[str, str], ...] = ()
    samples: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Decisions:
    """What verdicts.json holds."""

    schema: int
    baseline: str | None
    verdicts: tuple[Verdict, ...]


@dataclass(frozen=True, slots=True)
class _Traffic:
    """What acceptance.json holds."""

    schema: int
    traffic: tuple[TrafficAcceptance, ...]


@dataclass(frozen=True, slots=True)
class StoredRun:
    """Everything a run folder holds, read back.

    Attributes:
        id: Name of the folder.
        path: The folder.
        started_at: Time of day, ISO 8601, UTC.
        argv: Command line of the invocation.
        profile: What was asked for, overrides included, with the digest of the prompts.
        environment: Where it ran.
        commands: Start command by arm.
        samples: One per run, in order of measuring.
        verdicts: What was decided; empty if the run ended before that.
        baseline: What it was judged against; None without one.
        traffic: Acceptance by arm and kind of traffic; empty if not measured.
    """

    id: str
    path: Path
    started_at: str
    argv: tuple[str, ...]
    profile: Profile
    environment: Environment
    commands: Mapping[str, str]
    samples: tuple[RunSamples, ...]
    verdicts: tuple[Verdict, ...] = ()
    baseline: str | None = None
    traffic: tuple[TrafficAcceptance, ...] = ()


@dataclass(frozen=True, slots=True)
class RunDirectory:
    """A run folder that is being written; one writer at a time."""

    path: Path
    logs_path: Path = field(repr=False)

    @classmethod
    def create(
        cls, root: Path, profile: Profile, argv: Sequence[str], clock: Clock
    ) -> "RunDirectory":
        """Make a new folder under `root` and write its header.

        The id is the UTC time, the profile's name and four random hex digits,
        so that two invocations in one second do not meet.

        Raises:
            MeasurementError: If it cannot be written.
            SpecError: If the profile's prompts cannot be read.
        """
        now = clock.wall()
        run_id = new_id(profile.name, now)
        profile = replace(profile, workload=with_prompts_digest(profile.workload))
        run = cls(root / run_id, root / run_id / "logs")
        with _writing(run.path):
            root.mkdir(parents=True, exist_ok=True)
            run.path.mkdir()
            run.logs_path.mkdir()
        header = RunHeader(RUN_SCHEMA_VERSION, run_id, now.isoformat(), tuple(argv), profile)
        run._write_header(header)
        return run

    def write_environment(self, environment: Environment) -> None:
        """Record where the run takes place.

        Raises:
            MeasurementError: If it cannot be written.
        """
        self._write_header(replace(_read_header(self.path), environment=environment))

    def write_profile(self, profile: Profile) -> None:
        """Record a profile that gained arms or cells since the folder was made.

        Raises:
            MeasurementError: If it cannot be written.
        """
        self._write_header(replace(_read_header(self.path), profile=profile))

    def write_command(self, arm: str, command: str) -> None:
        """Record the command that starts the server of `arm`; the last one stands.

        Raises:
            MeasurementError: If it cannot be written.
        """
        header = _read_header(self.path)
        commands = tuple(sorted({**dict(header.commands), arm: hide(command)}.items()))
        self._write_header(replace(header, commands=commands))

    def add(self, run: RunSamples) -> Path:
        """Write one run as Parquet, then enter it in the header; return its file.

        Raises:
            MeasurementError: If it cannot be written; nothing of it is left.
        """
        header = _read_header(self.path)
        number = len(header.samples)
        name = f"{number:04d}-{slug(run.arm)}-c{run.concurrency}-r{run.repeat}.parquet"
        path = self.path / "samples" / name
        write_samples(path, run)
        try:
            self._write_header(replace(header, samples=(*header.samples, name)))
        except MeasurementError:
            path.unlink()
            raise
        return path

    def write_acceptance(self, traffic: Sequence[TrafficAcceptance]) -> None:
        """Record acceptance by kind of traffic, all that was measured so far.

        Raises:
            MeasurementError: If it cannot be written.
        """
        held = _Traffic(RUN_SCHEMA_VERSION, tuple(traffic))
        _write_json(self.path / "acceptance.json", held)

    def write_verdicts(self, verdicts: Sequence[Verdict], baseline: str | None) -> None:
        """Record what was decided and against which baseline.

        Raises:
            MeasurementError: If it cannot be written.
        """
        decisions = _Decisions(RUN_SCHEMA_VERSION, baseline, tuple(verdicts))
        _write_json(self.path / "verdicts.json", decisions)

    def _write_header(self, header: RunHeader) -> None:
        _write_json(self.path / "run.json", header)


def load_header(path: Path) -> RunHeader:
    """Read what a run folder says of itself, without its samples.

    Raises:
        BaselineError: Naming the file and what is wrong with it.
    """
    return _read_header(path)


def load_run(path: Path) -> StoredRun:
    """Read a run folder back.

    A run that ended before its verdicts were written has none; anything else
    that is missing, damaged or of another schema is an error.

    Raises:
        BaselineError: Naming the file and what is wrong with it.
    """
    header = _read_header(path)
    if header.environment is None:
        raise BaselineError(
            f"run {path / 'run.json'}: no environment is recorded; the run ended before its first "
            "server was ready. Measure again."
        )
    decisions = _Decisions(RUN_SCHEMA_VERSION, None, ())
    if (path / "verdicts.json").exists():
        decisions = _read_json(path / "verdicts.json", _Decisions)
    held = _Traffic(RUN_SCHEMA_VERSION, ())
    if (path / "acceptance.json").exists():
        held = _read_json(path / "acceptance.json", _Traffic)
    return StoredRun(
        id=header.id,
        path=path,
        started_at=header.started_at,
        argv=header.argv,
        profile=header.profile,
        environment=header.environment,
        commands=dict(header.commands),
        samples=tuple(read_samples(path / "samples" / name) for name in header.samples),
        verdicts=decisions.verdicts,
        baseline=decisions.baseline,
        traffic=held.traffic,
    )


def write_samples(path: Path, run: RunSamples) -> None:
    """Write one run to a Parquet file: a row per request, all else in its metadata.

    Raises:
        MeasurementError: If it cannot be written; nothing of it is left.
    """
    rest = hide(encode(replace(run, records=())))
    document = json.dumps({"schema": RUN_SCHEMA_VERSION, "run": rest}, allow_nan=False).encode()
    digest = hashlib.sha256(document).hexdigest().encode()
    table = to_table(run.records, {_METADATA_KEY: document, _DIGEST_KEY: digest})
    with _writing(path), replacing(path) as part:
        write_table(table, part)


def read_samples(path: Path) -> RunSamples:
    """Read one run from its Parquet file.

    Raises:
        BaselineError: If the file is missing, damaged or of another schema.
    """
    with _reading(path):
        # One file, not a data set: folder names must not turn into columns.
        table = pq.ParquetFile(path, page_checksum_verification=True).read()
        held = table.schema.metadata or {}
        digest = hashlib.sha256(held[_METADATA_KEY]).hexdigest().encode()
        if held.get(_DIGEST_KEY, digest) != digest:
            raise ValueError("what it says of the run was changed")
        document = json.loads(held[_METADATA_KEY])
        _check_schema(document)
        run = decode(RunSamples, document["run"], "run")
        return replace(run, records=from_table(table))


def _read_header(path: Path) -> RunHeader:
    return _read_json(path / "run.json", RunHeader)


def _read_json(path: Path, kind: type[T]) -> T:
    with _reading(path):
        document = json.loads(path.read_text(encoding="utf-8"))
        _check_schema(document)
        return decode(kind, document, path.name)


def _write_json(path: Path, value: object) -> None:
    text = json.dumps(hide(encode(value)), indent=1, allow_nan=False) + "\n"
    with _writing(path):
        write_text(path, text)


def _check_schema(document: Any) -> None:
    schema = document.get("schema") if isinstance(document, dict) else None
    if schema != RUN_SCHEMA_VERSION:
        raise ValueError(
            f"schema {schema!r} is not the one this version reads, {RUN_SCHEMA_VERSION}"
        )


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Turn every way in which a file can be unreadable into one error that names it."""
    try:
        yield
    except (OSError, ValueError, KeyError, pa.ArrowException, SpecError) as error:
        raise BaselineError(
            f"run record {path}: cannot be read ({type(error).__name__}: {error}). Expected a "
            f"file written by draftgate, schema {RUN_SCHEMA_VERSION}. Restore it, or measure again."
        ) from error


@contextmanager
def writing(
    what: str,
    path: Path,
    *,
    left: str,
    advice: str,
    kind: type[DraftgateError] = MeasurementError,
) -> Iterator[None]:
    """Turn a failed write into one error that says where, what is left and what to do.

    Args:
        what: What is written, for example "run record".
        path: Where.
        left: A sentence on what is there after the failure.
        advice: What helps, an imperative in lower case; after a full disk or
            quota the message names room as the other way out.
        kind: Class of the error.

    Raises:
        DraftgateError: Of `kind`, in place of any OSError.
    """
    try:
        yield
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        step = f"Free some space there, or {advice}" if full else advice[:1].upper() + advice[1:]
        raise kind(
            f"{what} {path}: cannot be written ({error.strerror or error}). {left} {step}"
        ) from error


def _writing(path: Path) -> AbstractContextManager[None]:
    left, advice = "Nothing half-written is left.", "choose another folder for runs."
    return writing("run record", path, left=left, advice=advice)


def new_id(name: str, now: datetime) -> str:
    """Return a name for a new run folder: UTC time, a name, and four random hex digits."""
    return f"{now:%Y%m%dT%H%M%SZ}-{slug(name)}-{secrets.token_hex(2)}"


def slug(name: str) -> str:
    """Return a name as files and folders carry it."""
    return re.sub(r"[^A-Za-z0-9_.-]+", "_", name)
