"""Records of a published file: JSON lines, one JSON list, either gzipped, or Parquet.

Knows the containers and no data set. Every row comes with the place that
messages name.
"""

import gzip
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from draftgate.errors import SpecError


@dataclass(frozen=True, slots=True)
class Row:
    """One record and where it stands, such as `test.jsonl:12`."""

    place: str
    fields: dict[str, Any]

    def text(self, key: str) -> str:
        """Return a field that must be a text.

        Raises:
            SpecError: If it is absent, no text or blank.
        """
        value = self.fields.get(key)
        if not isinstance(value, str) or not value.strip():
            got = f"only {', '.join(sorted(self.fields))}" if value is None else repr(value)[:60]
            raise SpecError(
                f"{self.place}: expected a text {key!r} that is not blank, got {got}. Check that "
                "the file is of this data set."
            )
        return value


def read_rows(path: Path) -> tuple[Row, ...]:
    """Return the records of a file, by its suffix; blank lines are skipped.

    Raises:
        SpecError: If it cannot be read, is no such file, or a record is no object.
    """
    try:
        return tuple(_parquet(path) if path.suffix == ".parquet" else _json(path))
    except (OSError, UnicodeDecodeError, EOFError) as error:
        raise SpecError(
            f"dataset file {str(path)!r}: cannot be read: {error}. Expected JSON lines, a JSON "
            "list, either of them gzipped, or Parquet; check the path."
        ) from error


def _json(path: Path) -> Iterator[Row]:
    with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
        text = file.read().decode("utf-8")
    if text.lstrip().startswith("["):
        for number, entry in enumerate(_parsed(text, str(path))):
            yield _row(f"{path}[{number}]", entry)
        return
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            yield _row(f"{path}:{number}", _parsed(line, f"{path}:{number}"))


def _parquet(path: Path) -> Iterator[Row]:
    from pyarrow import ArrowException, parquet  # noqa: PLC0415 - slow to import

    try:
        entries = parquet.read_table(path).to_pylist()
    except ArrowException as error:
        raise SpecError(f"dataset file {str(path)!r}: no Parquet file: {error}.") from error
    for number, entry in enumerate(entries):
        yield _row(f"{path}[{number}]", entry)


def _parsed(text: str, place: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise SpecError(
            f"{place}: not valid JSON ({error.msg}, line {error.lineno}, column {error.colno})."
        ) from error


def _row(place: str, entry: object) -> Row:
    if not isinstance(entry, dict):
        raise SpecError(f"{place}: expected a JSON object, got {repr(entry)[:60]}.")
    return Row(place, entry)
