"""What docs/drafts.md states about options, steps and recipe keys is what the code does."""

import argparse
import re
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from draftgate.cli.commands import CommandParser
from draftgate.cli.drafts import _specforge_options, _train_options
from draftgate.drafts import training
from draftgate.drafts.pipeline import STEPS
from draftgate.drafts.recipe import _TABLES, _TOP, ALGORITHMS, LOSSES, recipe_names
from draftgate.drafts.states import SAMPLES_PER_SHARD

ROOT = Path(__file__).parents[3]
GUIDE = (ROOT / "docs" / "drafts.md").read_text(encoding="utf-8")


def first_cells(head: str) -> list[str]:
    """Return the first words of the rows of the one table with this head line."""
    found = re.findall(rf"^{re.escape(head)}\n\|[ |-]+\n((?:\|.*\n)+)", GUIDE, re.MULTILINE)
    assert len(found) == 1, head
    return [row.split("`")[1].split()[0] for row in found[0].splitlines()]


@pytest.mark.parametrize(
    ("head", "fill"),
    [
        ("| option | meaning | default |", _train_options),
        ("| option of `specforge` | meaning | default |", _specforge_options),
    ],
)
def test_options_are_those_of_the_command(
    head: str, fill: Callable[[argparse.ArgumentParser], None]
) -> None:
    """Each table lists every option of its command, in the order of its help."""
    parser = CommandParser(fill=fill)
    parser.fill()
    known = [action.option_strings or ["RECIPE"] for action in parser._actions]

    assert first_cells(head) == [one[-1] for one in known[1:]]


@pytest.mark.parametrize("head", ["| step | does | leaves |", "| step | digest of |"])
def test_steps_are_those_of_the_pipeline(head: str) -> None:
    """Both tables go through all steps in order."""
    assert first_cells(head) == list(STEPS)


def test_keys_are_those_of_a_recipe() -> None:
    """The table lists every key, in the reader's order."""
    keys = [key for key in _TOP if key not in _TABLES]
    keys += [f"{table}.{key}" for table, (_, inner) in _TABLES.items() for key in inner]

    assert first_cells("| key | meaning |") == keys


@pytest.mark.parametrize("name", [*recipe_names(), *ALGORITHMS, *LOSSES])
def test_choice_is_named(name: str) -> None:
    """Recipes, algorithms and losses are called by their names."""
    assert f"`{name}`" in GUIDE


def test_numbers_are_those_of_the_code() -> None:
    """Sizes and counts in the text are the code's."""
    assert f"({SAMPLES_PER_SHARD} samples each)" in GUIDE
    assert f"At most {training.EVALUATED_TOKENS:,} tokens of held-out answers" in GUIDE
    assert (training.EVALUATIONS, training.LAST_RATE, training.SAVE_EVERY_S) == (8, 0.01, 60.0)


def test_versions_of_the_extra_are_pinned_alike() -> None:
    """Speculators and its connectors are released together."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]

    pins = [one for one in project["optional-dependencies"]["drafts"] if "==" in one]
    assert {one.partition("==")[2] for one in pins} == {"0.9.0"}
