"""Prompts of an exact length for shape twins, whose tokenizer makes one token of each byte.

With the template of `draftgate.shapes.tokenizer` a prompt of `twin-512` is 512
tokens; with any other tokenizer it is some text of that many bytes, less a few.
Words are drawn by the seed and mean nothing.
"""

import random
from collections.abc import Callable

from draftgate.datasets import DATASETS, Prompt

LENGTHS = (512, 2048, 8192)
"""Prompt lengths in tokens, one dataset each."""

PROMPTS = 256
"""Prompts of a dataset: no stream of a window meets one twice."""

TEMPLATE_BYTES = len("user: " + "\n" + "assistant:")
"""What the template adds to one message of a user."""

_LETTERS = "etaoinshrdlucmfwypvbgkjqxz"


def _words(tokens: int, draw: random.Random) -> str:
    size = tokens - TEMPLATE_BYTES
    text = ""
    while len(text) < size:
        text += "".join(draw.choices(_LETTERS, k=draw.randint(2, 9))) + " "
    return text[: size - 1] + "."


def _register(tokens: int) -> Callable[[int], tuple[Prompt, ...]]:
    def prompts(seed: int) -> tuple[Prompt, ...]:
        draw = random.Random(seed * 1_000_003 + tokens)
        return tuple(
            Prompt(f"twin-{tokens}-{number:03d}", "twin", (("user", _words(tokens, draw)),))
            for number in range(1, PROMPTS + 1)
        )

    return DATASETS.register(f"twin-{tokens}")(prompts)


for _tokens in LENGTHS:
    _register(_tokens)
