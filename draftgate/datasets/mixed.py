"""Mixed traffic: the built-in kinds in turn.

Equal shares in every stretch of the workload, so that a window of any length
sees the same mixture.
"""

from itertools import chain

from draftgate.datasets import DATASETS, Prompt, shuffled
from draftgate.datasets.builtin import KINDS, stored


@DATASETS.register("mixed")
def mixed(seed: int) -> tuple[Prompt, ...]:
    """Return one prompt of each kind in turn, each kind in its own order.

    Stops when the shortest kind is used up, so that the shares stay equal.
    """
    by_kind = [shuffled(stored(kind), seed) for kind in KINDS]
    return tuple(chain.from_iterable(zip(*by_kind, strict=False)))
