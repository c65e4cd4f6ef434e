"""Frozen records to JSON values and back, by their type hints.

One codec for baselines and run records, so that a record that gains a field
needs no second definition of itself. Knows no record by name, opens no file.
Reading is strict: an unknown key, a missing one or a wrong type is a
`ValueError` that says where in the document it was.
"""

import dataclasses
import json
import math
import types
import typing
from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from typing import Any, TypeVar, cast

T = TypeVar("T")


def encode(value: object) -> Any:
    """Return `value` as what `json.dumps` takes.

    Records become objects, tuples lists, enums their value, paths text; floats
    that JSON lacks become "nan", "inf" and "-inf".

    Raises:
        TypeError: If some part of `value` is of a kind that cannot be read back.
    """
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: encode(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, Mapping):
        return {str(key): encode(item) for key, item in value.items()}
    if isinstance(value, (tuple, list)):
        return [encode(item) for item in value]
    if isinstance(value, Path):
        return str(value)
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise TypeError(f"cannot encode {type(value).__name__} as JSON")


def decode(kind: type[T], data: object, where: str) -> T:
    """Return the record of type `kind` that `data` holds.

    Args:
        kind: A record class, or a plain type, tuple, enum or union of these.
        data: As returned by `json.loads`.
        where: What `data` is called in errors, for example "environment".

    Raises:
        ValueError: If `data` is no such record; the message says where and
            what was expected.
    """
    return cast("T", _decode(kind, data, where))


def to_lines(value: Any, indent: int = 0) -> str:
    """Return JSON that reads well in a diff: keys sorted, one leaf a line.

    A leaf is whatever holds no further object or list.

    Args:
        value: As returned by `encode`.
        indent: Depth at which the text will stand.

    Raises:
        ValueError: If a float is not finite.
    """
    nested = value.values() if isinstance(value, dict) else value
    if not isinstance(value, (dict, list)) or not any(
        isinstance(item, (dict, list)) for item in nested
    ):
        return json.dumps(value, sort_keys=True, allow_nan=False)
    space = " " * (indent + 1)
    if isinstance(value, dict):
        items = [f"{json.dumps(k)}: {to_lines(v, indent + 1)}" for k, v in sorted(value.items())]
        opening, closing = "{", "}"
    else:
        items = [to_lines(item, indent + 1) for item in value]
        opening, closing = "[", "]"
    body = ",\n".join(space + item for item in items)
    return f"{opening}\n{body}\n{' ' * indent}{closing}"


def _decode(hint: Any, data: Any, where: str) -> Any:
    if hint is Any:
        return data
    origin = typing.get_origin(hint)
    if origin in (typing.Union, types.UnionType):
        return _decode_union(typing.get_args(hint), data, where)
    if origin is tuple:
        return _decode_tuple(typing.get_args(hint), data, where)
    if dataclasses.is_dataclass(hint):
        return _decode_record(cast("type[Any]", hint), data, where)
    return _decode_plain(hint, data, where)


def _decode_union(members: tuple[Any, ...], data: Any, where: str) -> Any:
    if data is None and type(None) in members:
        return None
    rest = [member for member in members if member is not type(None)]
    if len(rest) > 1:
        # Records of one union have different fields, so the keys name the member.
        rest = [member for member in rest if _fits(member, data)]
    if len(rest) != 1:
        names = " or ".join(getattr(member, "__name__", str(member)) for member in members)
        raise ValueError(f"{where}: expected {names}, got {data!r}")
    return _decode(rest[0], data, where)


def _fits(member: Any, data: Any) -> bool:
    if not dataclasses.is_dataclass(member) or not isinstance(data, dict):
        return False
    known = {f.name for f in dataclasses.fields(member)}
    return _required(cast("type[Any]", member)) <= data.keys() <= known


def _required(record: type[Any]) -> set[str]:
    missing = dataclasses.MISSING
    return {
        f.name
        for f in dataclasses.fields(record)
        if f.default is missing and f.default_factory is missing
    }


def _decode_tuple(items: tuple[Any, ...], data: Any, where: str) -> tuple[Any, ...]:
    if not isinstance(data, list):
        raise ValueError(f"{where}: expected a list, got {data!r}")  # noqa: TRY004 - see `decode`
    if len(items) == 2 and items[1] is Ellipsis:
        items = (items[0],) * len(data)
    if len(items) != len(data):
        raise ValueError(f"{where}: expected {len(items)} entries, got {len(data)}")
    return tuple(
        _decode(item, value, f"{where}[{i}]")
        for i, (item, value) in enumerate(zip(items, data, strict=True))
    )


def _decode_record(record: type[Any], data: Any, where: str) -> Any:
    if not isinstance(data, dict):
        raise ValueError(f"{where}: expected an object, got {data!r}")  # noqa: TRY004 - see `decode`
    hints = typing.get_type_hints(record)
    known = {f.name for f in dataclasses.fields(record)}
    unknown, missing = sorted(data.keys() - known), sorted(_required(record) - data.keys())
    if unknown or missing:
        raise ValueError(f"{where}: unknown keys {unknown}, missing keys {missing}")
    return record(**{k: _decode(hints[k], v, f"{where}.{k}") for k, v in data.items()})


def _decode_plain(hint: Any, data: Any, where: str) -> Any:
    if isinstance(hint, type) and issubclass(hint, Enum):
        return hint(data)
    if hint is Path and isinstance(data, str):
        return Path(data)
    if hint is float and _is_number(data):
        return float(data) if isinstance(data, str) else data
    if isinstance(data, hint) and not (hint is int and isinstance(data, bool)):
        return data
    raise ValueError(f"{where}: expected {hint.__name__}, got {data!r}")


def _is_number(data: Any) -> bool:
    if isinstance(data, str):
        return data in ("nan", "inf", "-inf")
    return isinstance(data, (int, float)) and not isinstance(data, bool)
