"""Mixed traffic: the built-in kinds in turn.

Equal shares in every stretch of the workload, so that a window of any length
sees the same mixture.
"""

from itertools import chain, zip_longest

from draftgate.datasets import DATASETS, Prompt, shuffled
from draftgate.datasets.builtin import KINDS, stored


@DATASETS.register("mixed")
def mixed(seed: int) -> tuple[Prompt, ...]:
    """Return one prompt of each kind in turn, each kind in its own order.

    Every prompt occurs, whatever the seed: a kind with more prompts than the
    others would go on alone at the end.
    """
    in_turn = chain.from_iterable(zip_longest(*(shuffled(stored(kind), seed) for kind in KINDS)))
    return tuple(prompt for prompt in in_turn if prompt is not None)
