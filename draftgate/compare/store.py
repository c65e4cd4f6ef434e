"""The folder of one comparison: written pair by pair, so that a killed one resumes.

    comparison.json       what was asked for, fixed before the first pair
    pairs/NNNN-*.json     one file per pair, in the order taken
    state.json            minutes spent, how it ended, what a reader must know
    taking.json           the pair that is being taken; there only meanwhile
    samples/*.parquet     every request and stamp of every start
    logs/                 what the servers wrote

Each file appears whole or not at all. Knows the layout and decides nothing.
"""

import json
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from draftgate.codec import decode, encode
from draftgate.compare.records import COMPARISON_SCHEMA_VERSION, ComparisonHeader, Pair
from draftgate.errors import BaselineError
from draftgate.files import write_text
from draftgate.hidden import hide
from draftgate.metrics import DEFINITIONS_VERSION
from draftgate.records import RunSamples
from draftgate.runstore import slug, write_samples, writing

T = TypeVar("T")

HEADER = "comparison.json"


@dataclass(frozen=True, slots=True)
class ComparisonState:
    """How far a comparison is.

    Attributes:
        minutes: Time spent taking pairs, over all sittings.
        ended: `running`, `decided`, `budget` or `interrupted`.
        longest_minutes: The longest time that one pair took.
        sittings: How often it was started or resumed.
        notes: What a reader has to know.
    """

    minutes: float = 0.0
    ended: str = "running"
    longest_minutes: float = 0.0
    sittings: int = 0
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ComparisonFolder:
    """A comparison's folder; one writer at a time. What may be secret is not written."""

    path: Path
    asked: ComparisonHeader | None = field(default=None, repr=False, compare=False)
    """What was asked for, secrets included; None where it was read back from disk."""

    @property
    def logs(self) -> Path:
        """Folder of the servers' logs."""
        return self.path / "logs"

    @classmethod
    def create(cls, root: Path, header: ComparisonHeader) -> "ComparisonFolder":
        """Make the folder named by the header's id and write the header.

        Raises:
            MeasurementError: If it cannot be written.
        """
        folder = cls(root / header.id, header)
        with _writing(folder.path):
            root.mkdir(parents=True, exist_ok=True)
            folder.path.mkdir()
            (folder.path / "pairs").mkdir()
            folder.logs.mkdir()
        folder._write(HEADER, header)
        folder.write_state(ComparisonState())
        return folder

    def header(self) -> ComparisonHeader:
        """Return what was asked for.

        Raises:
            BaselineError: If it is missing, damaged, or of other schema or definitions.
        """
        with _reading(self.path / HEADER):
            document = json.loads((self.path / HEADER).read_text(encoding="utf-8"))
            _check_versions(document)
            return decode(ComparisonHeader, document, "comparison")

    def pairs(self) -> tuple[Pair, ...]:
        """Return all pairs in the order in which they were taken.

        Raises:
            BaselineError: If one is damaged; the message names its file.
        """
        files = sorted((self.path / "pairs").glob("*.json"))
        return tuple(self._read(path, Pair) for path in files)

    def add(self, pair: Pair) -> Path:
        """Write one pair; it is in the folder whole or not at all.

        Raises:
            MeasurementError: If it cannot be written.
        """
        number = len(list((self.path / "pairs").glob("*.json")))
        place = f"{slug(pair.arm)}-{pair.stage.name.lower()}-{pair.slot + 1:02d}"
        path = self.path / "pairs" / f"{number:04d}-{place}.json"
        self._write(f"pairs/{path.name}", pair)
        (self.path / "taking.json").unlink(missing_ok=True)
        return path

    def begin_pair(self, name: str) -> None:
        """Note which pair is being taken, so that an interrupted one can be named.

        Raises:
            MeasurementError: If it cannot be written.
        """
        self._write("taking.json", {"pair": name})

    def interrupted_pair(self) -> str | None:
        """Return the name of the pair that was being taken when the last sitting ended.

        Raises:
            BaselineError: If the note is damaged.
        """
        path = self.path / "taking.json"
        if not path.exists():
            return None
        with _reading(path):
            return str(json.loads(path.read_text(encoding="utf-8"))["pair"])

    def state(self) -> ComparisonState:
        """Return how far it is.

        Raises:
            BaselineError: If the file is damaged.
        """
        return self._read(self.path / "state.json", ComparisonState)

    def write_state(self, state: ComparisonState) -> None:
        """Record how far it is.

        Raises:
            MeasurementError: If it cannot be written.
        """
        self._write("state.json", state)

    def keep_sample(self, name: str, run: RunSamples) -> str:
        """Write the raw records of a run and return where they lie in the folder.

        Raises:
            MeasurementError: If they cannot be written.
        """
        relative = f"samples/{slug(name)}.parquet"
        write_samples(self.path / relative, run)
        return relative

    def write_report(self, name: str, text: str) -> Path:
        """Write a text file that is made from the comparison, and return it.

        Raises:
            MeasurementError: If it cannot be written.
        """
        path = self.path / name
        with _writing(path):
            write_text(path, text)
        return path

    def _write(self, name: str, value: object) -> None:
        text = json.dumps(hide(encode(value)), indent=1, allow_nan=False) + "\n"
        with _writing(self.path / name):
            write_text(self.path / name, text)

    def _read(self, path: Path, kind: type[T]) -> T:
        with _reading(path):
            return decode(kind, json.loads(path.read_text(encoding="utf-8")), path.name)


def newest(root: Path) -> Path | None:
    """Return the newest comparison's folder under `root`; None if there is none."""
    found: Sequence[Path] = sorted(path.parent for path in root.glob(f"*/{HEADER}"))
    return found[-1] if found else None


def _check_versions(document: Any) -> None:
    held = document if isinstance(document, dict) else {}
    if held.get("schema") != COMPARISON_SCHEMA_VERSION:
        raise ValueError(
            f"schema {held.get('schema')!r} is not the one this version reads, "
            f"{COMPARISON_SCHEMA_VERSION}"
        )
    if held.get("definitions") != DEFINITIONS_VERSION:
        raise ValueError(
            f"its metrics have definitions {held.get('definitions')!r}, this version's have "
            f"{DEFINITIONS_VERSION}: equal names would hide unequal things"
        )


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise BaselineError(
            f"comparison {path}: cannot be read ({type(error).__name__}: {error}). Expected a "
            f"file written by `draftgate compare`, schema {COMPARISON_SCHEMA_VERSION}. Restore it, "
            "or compare anew."
        ) from error


def _writing(path: Path) -> AbstractContextManager[None]:
    return writing(
        "comparison",
        path,
        left="Nothing half-written is left; pairs that were stored before are.",
        advice="choose another folder with --out. What was begun goes on with --resume.",
    )
