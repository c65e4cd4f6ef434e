"""Recorded arrivals: a CSV or JSONL file of time stamps, with lengths where it has them.

Reads the files that serving traces are published in. Knows nothing of seeds,
requests or clocks; `draftgate.load.arrivals.Replay` sends at the times read
here.
"""

import csv
import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal, InvalidOperation
from pathlib import Path

from draftgate.errors import SpecError

_TIME_UNITS_NS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}

_PROMPT_NAMES = ("contexttokens", "input_length", "request tokens", "prompt_tokens")
_OUTPUT_NAMES = ("generatedtokens", "output_length", "response tokens", "output_tokens")
_TIME_NAMES = ("timestamp", *(f"timestamp_{unit}" for unit in _TIME_UNITS_NS))

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

_Row = tuple[str, dict[str, object]]


@dataclass(frozen=True, slots=True)
class Trace:
    """Arrivals in order of time; row i of each tuple is the same request.

    Attributes:
        offsets_s: Seconds since the first arrival, non-decreasing.
        prompt_tokens: Prompt lengths; empty where the file has none.
        output_tokens: Output lengths; empty where the file has none.
    """

    offsets_s: tuple[float, ...]
    prompt_tokens: tuple[int, ...]
    output_tokens: tuple[int, ...]


def read_trace(path: Path, *, unit: str | None = None) -> Trace:
    """Return the arrivals of a trace file, sorted by time, the first at 0.

    Files that end in `.jsonl` hold one object a line, all others are CSV with
    a header. The column `timestamp` (in any case) holds a number or an ISO
    date and time; numbers are seconds, but milliseconds in JSONL lines with
    `input_length`, which is the form of the Mooncake traces. A column may
    carry its unit in its name (`timestamp_ms`). Lengths are taken from the
    columns of the Azure, Mooncake and BurstGPT traces where present.

    Args:
        path: The file.
        unit: `s`, `ms`, `us` or `ns`: what numbers are counted in, whatever
            the file looks like; None for the rule above.

    Raises:
        SpecError: If the file cannot be read, has no arrivals or no such
            column, or a line is wrong; the message names file and line.

    Source:
        Azure LLM inference traces 2023 and 2024 (`TIMESTAMP, ContextTokens,
        GeneratedTokens`; seven digits behind the second, or six and an
        offset), Mooncake (`timestamp` in ms, `input_length`,
        `output_length`), BurstGPT (`Timestamp` in s, `Request tokens`,
        `Response tokens`).
    """
    if unit is not None and unit not in _TIME_UNITS_NS:
        known = ", ".join(_TIME_UNITS_NS)
        raise SpecError(f"trace {str(path)!r}: unknown unit {unit!r}. Known: {known}.")
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise SpecError(
            f"trace {str(path)!r}: cannot be read as UTF-8 text: {error}. Expected CSV or JSONL."
        ) from error
    rows = _json_rows(text, path) if path.suffix == ".jsonl" else _csv_rows(text, path)
    found = sorted((_arrival(place, row, unit) for place, row in rows), key=lambda item: item[0])
    if not found:
        raise SpecError(f"trace {str(path)!r}: got no arrivals, expected at least one.")
    stamps, prompts, outputs = zip(*found, strict=True)
    return Trace(
        offsets_s=tuple((stamp - stamps[0]) / 1e9 for stamp in stamps),
        prompt_tokens=_column(prompts, path),
        output_tokens=_column(outputs, path),
    )


def _column(lengths: tuple[int | None, ...], path: Path) -> tuple[int, ...]:
    known = tuple(length for length in lengths if length is not None)
    if known and len(known) < len(lengths):
        raise SpecError(
            f"trace {str(path)!r}: only {len(known)} of {len(lengths)} rows have a length. "
            "Complete the column or remove it."
        )
    return known


def _json_rows(text: str, path: Path) -> Iterator[_Row]:
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        place = f"{path}:{number}"
        try:
            row = json.loads(line, parse_float=str, parse_int=str)  # exact: see `_number_ns`
        except json.JSONDecodeError as error:
            raise SpecError(f"{place}: not valid JSON ({error.msg}).") from error
        if not isinstance(row, dict):
            raise SpecError(f"{place}: expected a JSON object.")
        row = {key.lower(): value for key, value in row.items()}
        if "timestamp" in row and "input_length" in row:
            row["timestamp_ms"] = row.pop("timestamp")
        yield place, row


def _csv_rows(text: str, path: Path) -> Iterator[_Row]:
    reader = csv.reader(text.splitlines())
    header = [name.strip().lower() for name in next(reader, [])]
    for cells in reader:
        if not cells:
            continue
        place = f"{path}:{reader.line_num}"
        if len(cells) != len(header):
            raise SpecError(f"{place}: got {len(cells)} cells, the header has {len(header)}.")
        yield place, dict(zip(header, cells, strict=True))


def _arrival(
    place: str, row: dict[str, object], unit: str | None
) -> tuple[int, int | None, int | None]:
    name = next((name for name in _TIME_NAMES if name in row), None)
    if name is None:
        raise SpecError(
            f"{place}: got columns {', '.join(row) or 'none'}, expected one of "
            f"{', '.join(_TIME_NAMES)}."
        )
    factor_ns = _TIME_UNITS_NS[unit or name.partition("_")[2] or "s"]
    stamp_ns = _stamp_ns(str(row[name]).strip(), factor_ns, f"{place}: {name}")
    return stamp_ns, _length(row, _PROMPT_NAMES, place), _length(row, _OUTPUT_NAMES, place)


def _length(row: dict[str, object], names: tuple[str, ...], place: str) -> int | None:
    name = next((name for name in names if name in row), None)
    if name is None:
        return None
    text = str(row[name]).strip()
    if not text.isdecimal():
        raise SpecError(f"{place}: {name} must be a whole number of tokens, got {row[name]!r}.")
    return int(text)


def _stamp_ns(text: str, factor_ns: int, place: str) -> int:
    try:
        return _number_ns(text, factor_ns)
    except InvalidOperation:  # no number, so it must be a date
        return _date_or_error(text, place)


def _date_or_error(text: str, place: str) -> int:
    try:
        return _date_ns(text)
    except ValueError:
        raise SpecError(
            f"{place} must be a finite number or an ISO date and time, got {text!r}."
        ) from None


def _number_ns(text: str, factor_ns: int) -> int:
    """Return a count of time units in nanoseconds; decimal, so that no digit is lost."""
    number = Decimal(text)
    if not number.is_finite():
        raise InvalidOperation
    return int((number * factor_ns).to_integral_value())


def _date_ns(text: str) -> int:
    """Return nanoseconds since 1970; `datetime` alone would drop the seventh digit."""
    whole, dot, rest = text.partition(".")
    digits = len(rest) - len(rest.lstrip("0123456789"))
    moment = datetime.fromisoformat(whole + rest[digits:])
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)  # only differences matter
    if dot and not digits:
        raise ValueError(text)
    fraction_ns = int(rest[:digits][:9].ljust(9, "0")) if digits else 0
    return (moment - _EPOCH) // timedelta(seconds=1) * 10**9 + fraction_ns
