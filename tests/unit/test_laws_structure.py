"""Structured output without its grammar engine: grammars for choices, and a clear refusal."""

import sys

import pytest

from draftgate.errors import SpecError
from draftgate.laws import structure
from draftgate.laws.parameters import Structure


def test_choices_become_one_rule() -> None:
    """Quotes, backslashes and line ends in choices are escaped, other letters kept."""
    found = structure._choices(("ja", 'say "no"', "a\\b\n", "é"))

    assert found == r'root ::= "ja" | "say \"no\"" | "a\\b\n" | "é"'


def test_a_missing_grammar_engine_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without xgrammar the error says what to install and what works without it."""
    monkeypatch.setitem(sys.modules, "xgrammar", None)

    with pytest.raises(SpecError, match=r"needs the package xgrammar.*pip install xgrammar"):
        structure.Masks(Structure(kind="json_object"), tokenizer=None, size=8)
