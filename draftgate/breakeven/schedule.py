"""What follows from a map: the best drafts by streams, vLLM's schedule, and where methods cross.

All of it holds for a stated acceptance; speeds are predicted by the map's lines
and have to be measured before anyone believes them.
"""

import math
from collections.abc import Sequence
from itertools import pairwise

from draftgate.breakeven.pays import CellCost, Choice, PayMap
from draftgate.errors import SpecError
from draftgate.specs import NO_SPECULATION


def best_choices(pays: PayMap, acceptance: float, method: str) -> tuple[Choice, ...]:
    """Return the fastest number of drafts of one method at each number of streams, 0 included.

    Args:
        pays: The map.
        acceptance: Of each draft given those before it, in [0, 1].
        method: Draft method.

    Raises:
        SpecError: If the acceptance is outside [0, 1], or the map has no cell of the method.
    """
    cells = _cells_of(pays, acceptance, method)
    choices = []
    for streams in sorted({cell.streams for cell in cells}):
        base = pays.reference[streams]
        none = Choice(streams, NO_SPECULATION, 0, base, 1.0)
        own = (
            Choice(streams, method, cell.k, speed, speed / base)
            for cell in cells
            if cell.streams == streams
            for speed in (cell.speed(acceptance),)
        )
        choices.append(max((none, *own), key=lambda choice: choice.speed))
    return tuple(choices)


def _cells_of(pays: PayMap, acceptance: float, method: str) -> list[CellCost]:
    if not 0 <= acceptance <= 1:
        raise SpecError(f"acceptance: got {acceptance:g}, expected 0 to 1. Correct it.")
    cells = [cell for cell in pays.cells if cell.method == method]
    if not cells:
        known = ", ".join(dict.fromkeys(cell.method for cell in pays.cells)) or "none"
        raise SpecError(f"method {method!r}: got no cell of it in the map. It has: {known}.")
    return cells


def schedule(choices: Sequence[Choice], max_num_seqs: int) -> tuple[tuple[int, int, int], ...]:
    """Return vLLM's `num_speculative_tokens_per_batch_size`: (from, to, drafts), gapless from 1.

    Between two measured numbers of streams the switch is at their geometric
    mean, since cost grows by ratios; beyond the largest its drafts are kept.

    Args:
        choices: By streams, ascending, at least one.
        max_num_seqs: Largest batch, >= the largest number of streams.

    Raises:
        SpecError: If the largest batch is smaller than what was measured.
    """
    largest = choices[-1].streams
    if max_num_seqs < largest:
        raise SpecError(
            f"max_num_seqs: got {max_num_seqs}, expected at least the {largest} streams that were "
            "measured. Raise it."
        )
    ends = [math.isqrt(here.streams * after.streams) for here, after in pairwise(choices)]
    steps: list[tuple[int, int, int]] = []
    begin = 1
    for choice, end in zip(choices, [*ends, max_num_seqs], strict=True):
        if steps and steps[-1][2] == choice.k:
            steps[-1] = (steps[-1][0], end, choice.k)
        else:
            steps.append((begin, end, choice.k))
        begin = end + 1
    return tuple(steps)


def inflection(pays: PayMap, acceptance: float, first: str, second: str) -> str:
    """Return in a sentence where one method's best drafts stop being the faster.

    Args:
        pays: The map.
        acceptance: Of both, in [0, 1].
        first: A method.
        second: Another.

    Raises:
        SpecError: As `best_choices`.
    """
    best: dict[str, dict[int, float]] = {first: {}, second: {}}
    for name, fastest in best.items():
        for cell in _cells_of(pays, acceptance, name):
            fastest[cell.streams] = max(cell.speed(acceptance), fastest.get(cell.streams, 0.0))
    common = sorted(best[first].keys() & best[second].keys())
    if not common:
        return f"{first} and {second} were not measured at the same number of streams."
    ahead = [best[first][c] > best[second][c] for c in common]
    if all(ahead) or not any(ahead):
        winner, loser = (first, second) if ahead[0] else (second, first)
        streams = ", ".join(map(str, common))
        return f"{winner} is ahead of {loser} at all numbers of streams measured ({streams})."
    turns = [
        f"{common[i]} and {common[i + 1]}"
        for i in range(len(common) - 1)
        if ahead[i] != ahead[i + 1]
    ]
    winner, loser = (first, second) if ahead[0] else (second, first)
    return (
        f"{winner} is ahead of {loser} at {common[0]} streams; the lead changes between "
        f"{' streams, and between '.join(turns)} streams."
    )
