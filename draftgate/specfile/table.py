"""A strict reader of TOML tables: known keys, their rules, and errors that help.

Knows nothing of profiles. Every message says where, what was got, what was
expected and what to do next.
"""

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

from draftgate.errors import SpecError
from draftgate.speculation.method import Rule, is_number


@dataclass(frozen=True, slots=True)
class Place:
    """Where in which file a value stands, for messages.

    Attributes:
        source: The file, as a person would name it.
        path: Dotted key of the table; empty at the top.
    """

    source: str
    path: str = ""

    def at(self, key: str) -> "Place":
        """Return the place of `key` in this table."""
        return Place(self.source, f"{self.path}.{key}" if self.path else key)

    def fail(self, got: str, expected: str, next_step: str) -> NoReturn:
        """Refuse the value at this place.

        Raises:
            SpecError: Always.
        """
        where = self.path or "the file"
        raise SpecError(f"{self.source}: {where}: got {got}, expected {expected}. {next_step}")


@dataclass(frozen=True, slots=True)
class Key:
    """A key that a table may hold, or must."""

    rule: Rule
    required: bool = False


def read_table(raw: Any, keys: Mapping[str, Key], place: Place) -> dict[str, Any]:
    """Return the values of a table, checked and converted.

    Args:
        raw: What stands there.
        keys: Every key that may.
        place: For messages.

    Returns:
        Given keys only, in the order of `keys`.

    Raises:
        SpecError: If `raw` is no table, a key is unknown or missing, or a
            value breaks its rule.
    """
    if not isinstance(raw, dict):
        place.fail(show(raw), "a table", f"Write [{place.path}] above its keys.")
    for key in raw:
        if key not in keys:
            place.at(key).fail(
                "an unknown key",
                f"one of {', '.join(keys)}",
                f"Correct or drop it.{suggestion(key, keys)}",
            )
    for key, known in keys.items():
        if known.required and key not in raw:
            place.at(key).fail("nothing", known.rule.expected, "Add the key; it has no default.")
    return {key: _value(raw[key], keys[key].rule, place.at(key)) for key in keys if key in raw}


def read_list(raw: Any, place: Place) -> list[Any]:
    """Return the entries of an array of tables.

    Raises:
        SpecError: If `raw` is no list, or holds no entry.
    """
    if not isinstance(raw, list) or not raw:
        place.fail(show(raw), "one table or more", f"Write [[{place.path}]] above each.")
    return raw


def suggestion(name: str, known: Iterable[str]) -> str:
    """Return " Did you mean ...?" if a known name is close to `name`, else nothing."""
    close = difflib.get_close_matches(name, list(known), n=1)
    return f" Did you mean {close[0]!r}?" if close else ""


def show(value: object) -> str:
    """Return a value as a person would find it in the file, cut to a line."""
    shown = str(value).lower() if isinstance(value, bool) else repr(value)
    return shown if len(shown) <= 80 else f"{shown[:77]}..."


def number(low: float, high: float | None = None, *, above: bool = False) -> Rule:
    """Return the rule for a finite number in [low, high], or in (low, high) if `above`."""
    sign = ">" if above else ">="
    words = f"a number {sign} {low:g}"
    if high is not None:
        words += f" and {'<' if above else '<='} {high:g}"

    def accepts(value: Any) -> bool:
        if not is_number(value):
            return False
        if above:
            return bool(low < value and (high is None or value < high))
        return bool(low <= value and (high is None or value <= high))

    return Rule(words, accepts, float)


def strings() -> Rule:
    """Return the rule for a list of strings, which becomes a tuple."""
    return Rule(
        "a list of strings",
        lambda value: isinstance(value, list) and all(isinstance(item, str) for item in value),
        tuple,
    )


def string_table() -> Rule:
    """Return the rule for a table of strings, which becomes sorted pairs."""
    return Rule(
        'a table of strings, numbers in quotes too (NAME = "1")',
        lambda value: (
            isinstance(value, dict) and all(isinstance(item, str) for item in value.values())
        ),
        lambda value: tuple(sorted(value.items())),
    )


def anything(expected: str) -> Rule:
    """Return the rule for a value that is read by itself later."""
    return Rule(expected, lambda _: True)


def _value(raw: Any, rule: Rule, place: Place) -> Any:
    if not rule.accepts(raw):
        hint = suggestion(raw, rule.choices) if isinstance(raw, str) else ""
        place.fail(show(raw), rule.expected, f"Correct the value.{hint}")
    return rule.convert(raw)
