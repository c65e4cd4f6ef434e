"""The three built-in kinds of traffic: chat, code and arithmetic.

Prompts of our own writing, suited to a small instruct model, kept as package
data in `prompts/<kind>.jsonl`. Some of each kind carry a text to rewrite or an
earlier turn, so that a drafter which copies has something to copy.
"""

from functools import cache
from importlib.resources import files

from draftgate.datasets import DATASETS, Prompt, shuffled
from draftgate.datasets.jsonl import parse_prompts

KINDS = ("chat", "code", "arithmetic")
"""The built-in kinds, in the order that `mixed` alternates them."""


@DATASETS.register("chat")
def chat(seed: int) -> tuple[Prompt, ...]:
    """Return everyday questions, short pieces of writing and texts to rework."""
    return shuffled(stored("chat"), seed)


@DATASETS.register("code")
def code(seed: int) -> tuple[Prompt, ...]:
    """Return small programs to write, explain, repair or continue."""
    return shuffled(stored("code"), seed)


@DATASETS.register("arithmetic")
def arithmetic(seed: int) -> tuple[Prompt, ...]:
    """Return word problems and step-by-step calculations."""
    return shuffled(stored("arithmetic"), seed)


@cache
def stored(kind: str) -> tuple[Prompt, ...]:
    """Return the prompts of one of `KINDS` in file order.

    Raises:
        SpecError: If the package data is damaged.
    """
    name = f"{kind}.jsonl"
    text = files("draftgate.datasets").joinpath("prompts", name).read_text(encoding="utf-8")
    return parse_prompts(text, source=name, kind=kind)
