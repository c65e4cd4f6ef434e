"""Writes nested tables as YAML that every reader takes alike.

Block style for tables, JSON for all else, which is YAML too. One exception:
YAML 1.1 reads `1e-05` as a text, so a float always gets its point.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any


def to_yaml(document: Mapping[str, Any]) -> str:
    """Return the YAML text of tables whose keys are words that YAML leaves texts.

    Values may be tables, lists, texts, finite numbers, truth values and None. Equal
    documents give equal texts.
    """
    return "\n".join(_lines(document, "")) + "\n"


def _lines(table: Mapping[str, Any], indent: str) -> Iterator[str]:
    for key, value in table.items():
        if isinstance(value, Mapping) and value:
            yield f"{indent}{key}:"
            yield from _lines(value, indent + "  ")
        else:
            yield f"{indent}{key}: {_flow(value)}"


def _flow(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {_flow(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_flow(inner) for inner in value) + "]"
    if isinstance(value, float):
        digits, e, exponent = repr(value).partition("e")
        return f"{digits}{'' if '.' in digits else '.0'}{e}{exponent}"
    return json.dumps(value, ensure_ascii=False)
