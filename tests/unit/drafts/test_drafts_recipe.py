"""Recipes: those that come along load, and each mistake is one clear error."""

import re
from pathlib import Path

import pytest

from draftgate.drafts.pipeline import STEPS
from draftgate.drafts.recipe import FOLDER, load_recipe, parse_recipe, recipe_names, tiny
from draftgate.errors import SpecError

TEXT = (FOLDER / "smollm2-eagle3.toml").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", recipe_names())
def test_shipped_recipe_loads(name: str) -> None:
    """A recipe that comes along is whole and bears its file's name."""
    recipe = load_recipe(name)

    assert recipe.name == name
    assert recipe.algorithm in name


def test_shipped_recipes_share_prompts_and_answers() -> None:
    """Heads of one target are trained on the same words, so these steps are made once."""
    recipes = [load_recipe(name) for name in recipe_names()]

    shared = {(one.target, one.seed, one.prompts, one.answers) for one in recipes}
    assert len(shared) == len({one.target for one in recipes})


def test_recipe_is_read_from_a_path(tmp_path: Path) -> None:
    """A name that ends in .toml is a path."""
    path = tmp_path / "mine.toml"
    path.write_text(TEXT, encoding="utf-8")

    assert load_recipe(str(path)) == load_recipe("smollm2-eagle3")


@pytest.mark.parametrize(
    ("old", "new", "key", "got", "expected"),
    [
        ("layers = 1", "layer = 1", "head.layer", "an unknown key", "one of draft_vocab_size"),
        ("layers = 1", "", "head.layers", "nothing", "a whole number >= 1"),
        ("layers = 1", "layers = 1.5", "head.layers", "1.5", "a whole number >= 1"),
        ("layers = 1", 'layers = "1"', "head.layers", "'1'", "a whole number >= 1"),
        ("layers = 1", "layers = true", "head.layers", "true", "a whole number >= 1"),
        ("layers = 1", "layers = 1\nlayer_ids = []", "head.layer_ids", "[]", "a list of layer"),
        ("layers = 1", "layers = 1\nlayer_ids = [3, 2]", "head.layer_ids", "[3, 2]", "that rise"),
        ('"eagle3"', '"eagle2"', "algorithm", "'eagle2'", "one of eagle3, peagle"),
        ("schema = 1", "schema = 2", "schema", "2", "1"),
        (
            "kl_div = 1.0",
            "mse = 1.0",
            "training.losses",
            "{'mse': 1.0, 'ce': 0.5}",
            "of kl_div, ce, tv",
        ),
        (
            "kl_div = 1.0",
            "kl_div = 0",
            "training.losses",
            "{'kl_div': 0, 'ce': 0.5}",
            "weights > 0",
        ),
        ("ratio = 0.02", "ratio = 1.0", "prompts.held_out_ratio", "1.0", "a number > 0 and < 1"),
        ("[0.0, 0.8]", "[0.8]", "answers.temperatures", "[0.8]", "0 among them"),
        ("[0.0, 0.8]", "0.0", "answers.temperatures", "0.0", "a list of numbers >= 0"),
        ("length = 768", "length = 256", "answers.max_length", "256", "more than max_tokens = 256"),
        (
            "train_lm_head = true",
            "train_lm_head = 1",
            "training.train_lm_head",
            "1",
            "true or false",
        ),
    ],
)
def test_mistake_is_named(old: str, new: str, key: str, got: str, expected: str) -> None:
    """The error names file, key, what was got and what was expected, in one line."""
    assert TEXT.count(old) == 1

    with pytest.raises(SpecError) as raised:
        parse_recipe(TEXT.replace(old, new), "mine.toml")

    assert re.match(
        rf"mine\.toml: {re.escape(key)}: got {re.escape(got)}, expected .*{re.escape(expected)}",
        str(raised.value),
    ), raised.value
    assert "\n" not in str(raised.value)


def test_misspelled_key_gets_a_suggestion() -> None:
    """A near miss names the key that was meant."""
    with pytest.raises(SpecError, match="Did you mean 'step_decay'"):
        parse_recipe(TEXT.replace("step_decay", "step_decoy"), "mine.toml")


@pytest.mark.parametrize("name", ["smollm2-eagle", "no/such/file.toml"])
def test_unknown_recipe_lists_the_known(name: str) -> None:
    """A name or path without a file says what there is."""
    with pytest.raises(SpecError, match=f"Known: {', '.join(recipe_names())}") as raised:
        load_recipe(name)

    assert f"recipe {name!r}: got no file" in str(raised.value)


def test_text_that_is_not_toml_is_refused() -> None:
    """Broken TOML says so, with the file."""
    with pytest.raises(SpecError, match=r"recipe mine\.toml: got text that is not TOML"):
        parse_recipe("schema = ", "mine.toml")


@pytest.mark.parametrize("name", recipe_names())
def test_tiny_changes_every_step_and_no_kind(name: str) -> None:
    """A tiny recipe has other prompts, answers, head and training, and drafts as the whole one."""
    whole, small = load_recipe(name), tiny(load_recipe(name))

    assert (small.algorithm, small.target, small.seed) == (
        whole.algorithm,
        whole.target,
        whole.seed,
    )
    assert (small.head.depth, small.head.layers) == (whole.head.depth, whole.head.layers)
    assert small.name == f"{name}-tiny"
    assert small.prompts != whole.prompts
    assert small.answers != whole.answers
    assert small.head != whole.head
    assert small.training.steps < 10
    assert small.training.store_states, f"of {STEPS}, hidden-states would do nothing"
