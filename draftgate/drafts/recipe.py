"""What a draft head is made of: a recipe, read from TOML.

Knows no step. Recipes that come with draftgate lie in `recipes/`; two that
share target, prompts and answers share those steps of the pipeline.
"""

import tomllib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from draftgate.errors import SpecError
from draftgate.specfile.table import Key, Place, number, read_table, show, suggestion
from draftgate.speculation.method import Rule, is_integer, is_number

RECIPE_SCHEMA = 1
# 1: first version.

ALGORITHMS = ("eagle3", "peagle")
LOSSES = ("kl_div", "ce", "tv", "lk_hybrid")
"""Losses of Speculators that a recipe may name, by its names."""

FOLDER = Path(__file__).parent / "recipes"


@dataclass(frozen=True, slots=True)
class PromptsRecipe:
    """Which prompts are answered.

    Attributes:
        written_per_kind: Prompts of the project's own writing of each kind.
        most_per_kind: At most this many of each kind of a file.
        held_out_ratio: Share that is never trained on, by a hash of the text.
    """

    written_per_kind: int
    most_per_kind: int
    held_out_ratio: float


@dataclass(frozen=True, slots=True)
class AnswersRecipe:
    """How the target answers.

    Attributes:
        temperatures: One answer to each prompt at each; 0 is greedy.
        max_tokens: Longest answer, tokens.
        max_length: Longest prompt and answer together, tokens.
    """

    temperatures: tuple[float, ...]
    max_tokens: int
    max_length: int


@dataclass(frozen=True, slots=True)
class HeadRecipe:
    """The shape of the head.

    Attributes:
        draft_vocab_size: Tokens that it can propose.
        layers: Decoder layers.
        depth: Tokens ahead that it learns to draft; K in service.
        layer_ids: Target layers whose input it reads; None for the usual three.
    """

    draft_vocab_size: int
    layers: int
    depth: int
    layer_ids: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class TrainingRecipe:
    """How it learns.

    Attributes:
        steps: Optimiser steps.
        tokens_per_step: Tokens of whole samples packed into a step, at most.
        learning_rate: Peak; a linear rise over `warmup_ratio` of the steps, then a
            cosine down to a hundredth.
        warmup_ratio: Share of the steps.
        losses: (name, weight) of Speculators' losses.
        step_decay: Weight of depth d is step_decay ** d.
        train_lm_head: Whether the output matrix learns too, or stays the target's rows.
        store_states: Whether the target's hidden states are written to disk once, or
            computed anew in each epoch.
        max_grad_norm: Length to which gradients are cut.
    """

    steps: int
    tokens_per_step: int
    learning_rate: float
    warmup_ratio: float
    losses: tuple[tuple[str, float], ...]
    step_decay: float
    train_lm_head: bool
    store_states: bool
    max_grad_norm: float


@dataclass(frozen=True, slots=True)
class Recipe:
    """All that decides a head.

    Attributes:
        name: Of the recipe and of the folder of its head.
        target: Name of the target, as in a profile.
        algorithm: One of `ALGORITHMS`.
        seed: Of prompts, sampling, initial weights and order.
        prompts: Which prompts are answered.
        answers: How the target answers.
        head: The shape of the head.
        training: How it learns.
    """

    name: str
    target: str
    algorithm: str
    seed: int
    prompts: PromptsRecipe
    answers: AnswersRecipe
    head: HeadRecipe
    training: TrainingRecipe


def recipe_names() -> tuple[str, ...]:
    """Return the names of the recipes that come with draftgate, sorted."""
    return tuple(sorted(path.stem for path in FOLDER.glob("*.toml")))


def load_recipe(name_or_path: str) -> Recipe:
    """Read a recipe by name, or from the path of a `.toml` file.

    Raises:
        SpecError: If there is none, or it is wrong; the message names file and key.
    """
    path = Path(name_or_path).expanduser()
    if not name_or_path.endswith(".toml"):
        path = FOLDER / f"{name_or_path}.toml"
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SpecError(
            f"recipe {name_or_path!r}: got no file that can be read at {path} ({error})."
            f"{suggestion(name_or_path, recipe_names())} Known: {', '.join(recipe_names())}; or "
            "give the path of a .toml file."
        ) from error
    return parse_recipe(text, str(path))


def parse_recipe(text: str, source: str) -> Recipe:
    """Return the recipe in a TOML text.

    Raises:
        SpecError: If it is wrong; the message names `source` and the key.
    """
    try:
        raw = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise SpecError(f"recipe {source}: got text that is not TOML: {error}.") from error
    place = Place(source)
    top = read_table(raw, _TOP, place)
    if top.pop("schema") != RECIPE_SCHEMA:
        place.at("schema").fail(show(raw["schema"]), str(RECIPE_SCHEMA), "Correct the value.")
    tables = {
        name: made(**read_table(top.pop(name), keys, place.at(name)))
        for name, (made, keys) in _TABLES.items()
    }
    recipe = Recipe(**top, **tables)
    if recipe.answers.max_tokens >= recipe.answers.max_length:
        place.at("answers.max_length").fail(
            show(recipe.answers.max_length),
            f"more than max_tokens = {recipe.answers.max_tokens}",
            "A sample is a prompt and its answer.",
        )
    return recipe


def tiny(recipe: Recipe) -> Recipe:
    """Return the recipe cut down to minutes on two cores: every step, no useful head."""
    return replace(
        recipe,
        name=f"{recipe.name}-tiny",
        prompts=replace(recipe.prompts, written_per_kind=8, most_per_kind=8, held_out_ratio=0.2),
        answers=replace(recipe.answers, temperatures=(0.0,), max_tokens=32, max_length=256),
        head=replace(recipe.head, draft_vocab_size=1024),
        training=replace(recipe.training, steps=6, tokens_per_step=512, store_states=True),
    )


def _whole(low: int) -> Rule:
    return Rule(f"a whole number >= {low}", lambda v: is_integer(v) and v >= low)


def _one_of(*names: str) -> Rule:
    return Rule(f"one of {', '.join(names)}", lambda v: v in names, choices=names)


def _temperatures() -> Rule:
    return Rule(
        "a list of numbers >= 0 with 0 among them: held-out answers are measured greedily",
        lambda v: isinstance(v, list) and 0 in v and all(is_number(n) and n >= 0 for n in v),
        lambda v: tuple(float(n) for n in v),
    )


def _layer_ids() -> Rule:
    return Rule(
        "a list of layer numbers that rise",
        lambda v: (
            isinstance(v, list)
            and v != []
            and all(is_integer(n) and n >= 0 for n in v)
            and v == sorted(set(v))
        ),
        tuple,
    )


def _losses() -> Rule:
    def accepts(value: Any) -> bool:
        return (
            isinstance(value, dict)
            and value != {}
            and all(name in LOSSES and is_number(w) and w > 0 for name, w in value.items())
        )

    return Rule(
        f"a table of weights > 0 by loss, of {', '.join(LOSSES)}",
        accepts,
        lambda value: tuple(sorted((name, float(w)) for name, w in value.items())),
    )


_TEXT = Rule("a text that is not empty", lambda v: isinstance(v, str) and v != "")
_FLAG = Rule("true or false", lambda v: isinstance(v, bool))
_TABLE = Rule("a table", lambda v: isinstance(v, dict))

_TOP = {
    "schema": Key(_whole(1), required=True),
    "name": Key(_TEXT, required=True),
    "target": Key(_TEXT, required=True),
    "algorithm": Key(_one_of(*ALGORITHMS), required=True),
    "seed": Key(_whole(0), required=True),
    "prompts": Key(_TABLE, required=True),
    "answers": Key(_TABLE, required=True),
    "head": Key(_TABLE, required=True),
    "training": Key(_TABLE, required=True),
}

_TABLES: dict[str, tuple[Any, dict[str, Key]]] = {
    "prompts": (
        PromptsRecipe,
        {
            "written_per_kind": Key(_whole(0), required=True),
            "most_per_kind": Key(_whole(1), required=True),
            "held_out_ratio": Key(number(0, 1, above=True), required=True),
        },
    ),
    "answers": (
        AnswersRecipe,
        {
            "temperatures": Key(_temperatures(), required=True),
            "max_tokens": Key(_whole(2), required=True),
            "max_length": Key(_whole(8), required=True),
        },
    ),
    "head": (
        HeadRecipe,
        {
            "draft_vocab_size": Key(_whole(2), required=True),
            "layers": Key(_whole(1), required=True),
            "depth": Key(_whole(1), required=True),
            "layer_ids": Key(_layer_ids()),
        },
    ),
    "training": (
        TrainingRecipe,
        {
            "steps": Key(_whole(1), required=True),
            "tokens_per_step": Key(_whole(16), required=True),
            "learning_rate": Key(number(0, 1, above=True), required=True),
            "warmup_ratio": Key(number(0, 1), required=True),
            "losses": Key(_losses(), required=True),
            "step_decay": Key(number(0, 1, above=False), required=True),
            "train_lm_head": Key(_FLAG, required=True),
            "store_states": Key(_FLAG, required=True),
            "max_grad_norm": Key(number(0, above=True), required=True),
        },
    ),
}
