"""Conditions with filters where only the likeliest tokens of rounded logits are known."""

import pytest

from draftgate.checks.conditions import DEFAULT, conditions
from draftgate.checks.filters import with_known_law
from draftgate.errors import SpecError


def test_default_filters_are_left_out_and_told() -> None:
    """Nobody asked for them by name, so the rest is checked and a line says what is missing."""
    told: list[str] = []

    kept = with_known_law(conditions(DEFAULT), "bfloat16", told.append)

    assert [entry.name for entry in kept] == ["T=0.8", "T=1", "T=1.5"]
    assert len(told) == 1
    assert "'T=0.8,top_p=0.95', 'T=1,top_k=16' are left out: got bfloat16" in told[0]


def test_named_filters_are_refused() -> None:
    """A check that somebody asked for is never left out without an error."""
    asked = conditions(["T=1", "T=1,top_k=40"])

    with pytest.raises(SpecError, match=r"conditions 'T=1,top_k=40': got float16 .* expected"):
        with_known_law(asked, "float16", pytest.fail)


def test_conditions_without_filters_stay() -> None:
    """Where nothing is filtered, nothing is left out and nothing told."""
    asked = conditions(["T=1", "T=1.5"])

    assert with_known_law(asked, "bfloat16", pytest.fail) == asked
