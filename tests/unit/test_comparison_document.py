"""The JSON form of a comparison and its schema."""

import copy
import json
import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import jsonschema
import pytest

from draftgate.compare.records import Role, Scale, Stage, StageNumbers, StoredComparison
from draftgate.report.comparison import document, schema
from draftgate.report.comparison.document import DOCUMENT_VERSION, FORMAT
from draftgate.verdict import Outcome
from tests.support.comparisons import (
    gate_of,
    not_started,
    one_of_each,
    stored_comparison,
    with_gates,
)

COMPARISON = stored_comparison()

SITUATIONS = {
    "whole": COMPARISON,
    "each": one_of_each(COMPARISON),
    "not_started": not_started(COMPARISON),
    "no_gates": with_gates(COMPARISON, []),
    "budget": stored_comparison(ended="budget", notes=()),
}


def _validate(found: Any) -> None:
    jsonschema.Draft202012Validator(schema()).validate(found)


def _objects(node: Any) -> Iterator[dict[str, Any]]:
    """Yield every object of a JSON value."""
    if isinstance(node, dict):
        yield node
    for child in (
        node.values() if isinstance(node, dict) else node if isinstance(node, list) else ()
    ):
        yield from _objects(child)


def test_schema_is_a_schema() -> None:
    """The file keeps to draft 2020-12 itself."""
    jsonschema.Draft202012Validator.check_schema(schema())

    assert schema()["$schema"] == "https://json-schema.org/draft/2020-12/schema"


@pytest.mark.parametrize("name", SITUATIONS)
def test_document_keeps_to_the_schema(name: str) -> None:
    """Whatever a comparison holds, its document is valid and is JSON."""
    found = document(SITUATIONS[name])

    _validate(found)
    assert json.loads(json.dumps(found, allow_nan=False)) == found


def test_schema_leaves_nothing_open() -> None:
    """Each object lists all its fields, requires them, and allows no other."""
    described = [node for node in _objects(schema()) if "properties" in node and "type" in node]

    assert len(described) >= 10
    for node in described:
        assert node["additionalProperties"] is False
        assert node["required"] == list(node["properties"])


def test_document_has_the_fields_of_the_schema_in_its_order() -> None:
    """Each field that is described is there, at the top and in gates."""
    found = document(COMPARISON)

    assert list(found) == list(schema()["properties"])
    assert list(found["gates"][0]) == list(schema()["$defs"]["gate"]["properties"])


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("outcome", [outcome.value for outcome in Outcome]),
        ("scale", [scale.value for scale in Scale]),
        ("stage_number", [stage.value for stage in Stage]),
    ],
)
def test_enums_of_the_schema_are_the_code_s(name: str, values: list[object]) -> None:
    """A new member in the code needs one in the schema, and a new version."""
    assert schema()["$defs"][name]["enum"] == values


def test_every_enum_of_the_schema_is_known() -> None:
    """No other enum hides in the schema, but for two that the records spell as text."""
    enums = [node["enum"] for node in _objects(schema()) if "enum" in node]

    assert len(enums) == 5
    assert ["decided", "budget", "running", "interrupted"] in enums
    assert ["profile", "venv", "image", "git", "url"] in enums


def test_version_of_the_schema_is_the_code_s() -> None:
    """Format and version stand in both."""
    properties = schema()["properties"]

    assert properties["version"] == {"const": DOCUMENT_VERSION}
    assert properties["format"] == {"const": FORMAT}
    assert (document(COMPARISON)["format"], document(COMPARISON)["version"]) == (FORMAT, 1)


_GONE = object()
"""Stands for a field that is taken out."""


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("outcome", "REGRESSION"),
        ("version", 2),
        ("extra", 1),
        ("gates/0/extra", 1),
        ("gates/0/concurrency", 0),
        ("gates/0/stage_one/p_value", 1.5),
        ("gates/0/change/low", "1 %"),
        ("pairs/0/stage", 3),
        ("pairs/0/base/ready_s", "18"),
        ("base/kind", "docker"),
        ("ended", "done"),
        ("family_level_ratio", None),
        ("notes", _GONE),
        ("gates/0/adjusted_p", _GONE),
        ("environment/hardware", _GONE),
        ("plan/seed", _GONE),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_wrong_document_fails(path: str, value: object) -> None:
    """A wrong value, a field too many and a missing one are refused."""
    found = copy.deepcopy(document(COMPARISON))
    *way, name = path.split("/")
    node: Any = found
    for step in way:
        node = node[int(step) if isinstance(node, list) else step]
    if value is _GONE:
        del node[name]
    else:
        node[name] = value

    with pytest.raises(jsonschema.ValidationError):
        _validate(found)


def _gate_document(comparison: StoredComparison, outcome: Outcome) -> dict[str, Any]:
    index = comparison.result.gates.index(gate_of(comparison, outcome))
    found: dict[str, Any] = document(comparison)["gates"][index]
    return found


def test_gate_holds_loss_and_change() -> None:
    """Stages hold losses as the records do, the change turns them into the metric's direction."""
    gate = gate_of(COMPARISON, Outcome.REGRESSION)
    found = _gate_document(COMPARISON, Outcome.REGRESSION)

    assert gate.search is not None
    assert gate.confirm is not None
    assert found["higher_is_better"] is True
    assert found["change"] == {
        "estimate": -gate.confirm.loss,
        "low": -gate.confirm.high,
        "high": -gate.confirm.low,
    }
    assert found["stage_one"]["loss"] == gate.search.loss
    assert found["stage_one"]["pair_losses"] == list(gate.search.losses)
    assert found["stage_two"]["loss_low"] == gate.confirm.low
    assert found["adjusted_p"] == gate.adjusted_p
    assert (found["unit"], found["change_unit"]) == ("tokens/s", "ratio")


def test_difference_has_its_unit() -> None:
    """Acceptance by prompt is in tokens, and holds the positions where it moved."""
    found = next(
        gate
        for gate in document(COMPARISON)["gates"]
        if gate["scale"] == "absolute" and gate["outcome"] == "regression"
    )

    assert (found["change_unit"], found["unit"], found["margin"]) == ("tokens", "tokens", 0.02)
    assert found["cause"]["positions"][0] == {
        "position": 0,
        "base_ratio": 0.62,
        "candidate_ratio": 0.57,
        "difference_low_ratio": -0.061,
        "difference_high_ratio": -0.039,
    }
    assert [factor["named"] for factor in found["cause"]["factors"]] == [True, False, False]


def test_gate_without_numbers_has_nulls() -> None:
    """What was never measured is null, never 0."""
    found = _gate_document(COMPARISON, Outcome.INVALID_RUN)

    for name in ("base_value", "candidate_value", "change", "stage_one", "stage_two", "adjusted_p"):
        assert found[name] is None
    assert found["green"] is False


def test_numbers_that_json_lacks_are_null() -> None:
    """Infinite bounds and NaN become null, and the document stays valid."""
    gate = gate_of(COMPARISON, Outcome.PASS)
    numbers = StageNumbers(4, math.nan, -math.inf, math.inf, math.nan, (0.1, math.inf))
    comparison = with_gates(COMPARISON, [replace(gate, search=numbers)])

    found = document(comparison)

    _validate(found)
    assert found["gates"][0]["change"] == {"estimate": None, "low": None, "high": None}
    assert found["gates"][0]["stage_one"]["pair_losses"] == [0.1, None]
    json.dumps(found, allow_nan=False)


def test_sides_hold_what_their_servers_reported() -> None:
    """Labels, engines and every pair, with why it could not be used."""
    found = document(COMPARISON)

    for role in Role:
        assert found[role.value]["arms"] == ["none", "ngram", "draft_model"]
    assert found["base"]["engines"] == ["vllm 0.31.0"]
    assert len(found["pairs"]) == 85
    assert [pair["invalid"] for pair in found["pairs"] if pair["invalid"]] == [
        ["candidate: event-loop lag of 80 ms"]
    ]
