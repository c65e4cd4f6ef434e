"""Assignments from the command line, made in a profile before it is checked.

`workload.repeats=2` sets one key. The value is TOML; a bare word that is none
is taken as a string, so that a shell needs no second pair of quotes. Arms go
by name and gates by metric: `arm.ngram.num_speculative_tokens=5`,
`gate.ttft_p50_s.min_runs=2`; a `*` there means all of them. Whether a key is
known is not asked here: the strict reader comes after.
"""

import re
import tomllib
from typing import Any

from draftgate.errors import SpecError
from draftgate.specfile.table import suggestion

_SELECTORS = {"arm": "name", "gate": "metric"}
_BARE_WORD = re.compile(r"[A-Za-z_.~/][\w.~/:-]*")


def assign(document: dict[str, Any], assignment: str) -> None:
    """Make one assignment in `document`, in place.

    Raises:
        SpecError: If it is not of the form KEY=VALUE, the value is not TOML,
            or it names an arm or gate that is not there.
    """
    dotted, equals, shown = assignment.partition("=")
    keys = [key.strip() for key in dotted.split(".")]
    if not equals or not all(keys):
        raise SpecError(
            f"override {assignment!r}: got no KEY=VALUE. Write for example workload.repeats=2."
        )
    value = _parse(shown.strip(), assignment)
    for table, rest in _tables(document, keys, assignment):
        _set(table, rest, value, assignment)


def _parse(shown: str, assignment: str) -> Any:
    try:
        parsed = tomllib.loads(f"value = {shown}")
    except tomllib.TOMLDecodeError as error:
        if _BARE_WORD.fullmatch(shown):
            return shown
        raise SpecError(
            f"override {assignment!r}: the value {shown!r} is not TOML ({error}). Write a number, "
            'true, false, "a string" or [a, list].'
        ) from error
    if len(parsed) != 1:
        raise SpecError(f"override {assignment!r}: got several lines. Give one value.")
    return parsed["value"]


def _tables(
    document: dict[str, Any], keys: list[str], assignment: str
) -> list[tuple[dict[str, Any], list[str]]]:
    """Return the tables an assignment is meant for, with the keys left to follow."""
    kind = keys[0]
    if kind not in _SELECTORS or len(keys) == 1:
        return [(document, keys)]
    if len(keys) == 2:
        raise SpecError(f"override {assignment!r}: got no key. Write {kind}.{keys[1]}.KEY=VALUE.")
    entries = document.get(kind)
    if not isinstance(entries, list):
        entries = []
    tables = [entry for entry in entries if isinstance(entry, dict)]
    names = [str(table.get(_SELECTORS[kind])) for table in tables]
    chosen = [
        (table, keys[2:])
        for name, table in zip(names, tables, strict=True)
        if keys[1] in (name, "*")
    ]
    if not chosen:
        raise SpecError(
            f"override {assignment!r}: the profile has no {kind} {keys[1]!r}. It has: "
            f"{', '.join(names) or 'none'}.{suggestion(keys[1], names)}"
        )
    return chosen


def _set(table: dict[str, Any], keys: list[str], value: Any, assignment: str) -> None:
    for key in keys[:-1]:
        table = table.setdefault(key, {})
        if not isinstance(table, dict):
            raise SpecError(
                f"override {assignment!r}: {key!r} is no table, so it holds no {keys[-1]!r}. "
                "Assign to it as a whole."
            )
    table[keys[-1]] = value
