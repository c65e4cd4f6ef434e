"""The table of metrics: complete, documented, and what other modules rely on."""

import re
from pathlib import Path

import pytest

from draftgate.errors import SpecError
from draftgate.metrics import METRICS, Direction, definition
from draftgate.metrics.acceptance import POSITIONS

GLOSSARY = (Path(__file__).parents[2] / "docs" / "glossary.md").read_text(encoding="utf-8")
LISTED = set(re.findall(r"`([a-z0-9_]+)`", GLOSSARY))
UNITS = {"_s": "s", "_ratio": "", "_bytes": "bytes", "_cores": "cores", "_w": "W"}
POSITION = re.compile(r"acceptance_pos_(\d+)_ratio")


@pytest.mark.parametrize("name", METRICS.names())
def test_metric_has_a_glossary_entry(name: str) -> None:
    """Each registered metric stands in the glossary; positions by their first and last."""
    position = POSITION.fullmatch(name)
    if position and 1 < int(position[1]) < POSITIONS - 1:
        name = f"acceptance_pos_{POSITIONS - 1}_ratio"

    assert name in LISTED


@pytest.mark.parametrize("name", METRICS.names())
def test_metric_is_declared_in_full(name: str) -> None:
    """Title, formula and unit are there, and the unit is the one the name ends in."""
    entry = definition(name)
    ending = next((unit for suffix, unit in UNITS.items() if name.endswith(suffix)), entry.unit)
    rate = name.endswith("per_s")

    assert entry.name == name
    assert entry.title
    assert entry.formula
    assert entry.unit.endswith("/s") if rate else entry.unit == ending


@pytest.mark.parametrize("name", METRICS.names())
def test_metric_causes_are_factors_that_name_one(name: str) -> None:
    """What explains a metric is itself a metric with a better direction and a label."""
    cause = definition(name).cause
    factors = [definition(factor) for factor in cause] if isinstance(cause, tuple) else []

    assert all(isinstance(factor.cause, str) for factor in factors)
    assert all(factor.direction is not Direction.NEITHER for factor in factors)


def test_metric_unknown_lists_the_known() -> None:
    """A typo in a gate is answered with the names there are."""
    with pytest.raises(SpecError, match=r"unknown metric 'itl'\. Known: .*step_gap_p50_s"):
        definition("itl")


def test_glossary_positions_match_the_code() -> None:
    """The last position that the glossary names is the last one registered."""
    numbers = [int(number) for number in POSITION.findall(GLOSSARY)]

    assert max(numbers) == POSITIONS - 1
    assert f"Positions from\n  {POSITIONS} on" in GLOSSARY
