"""The map and what follows from it, as plain values and as Markdown."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from draftgate.breakeven.pays import CellCost, PayMap
from draftgate.breakeven.schedule import best_choices, inflection, schedule
from draftgate.codec import encode
from draftgate.report.format import MISSING, number, percent, times
from draftgate.report.markdown import escaped

DOCUMENT_SCHEMA = 1
# 1: reference, cells, methods with best drafts and schedule by acceptance, crossings.

NEVER = "never"
SCHEDULE_KEY = "num_speculative_tokens_per_batch_size"
"""vLLM's name of the schedule (`vllm/config/speculative.py`)."""


def document(pays: PayMap, acceptances: Sequence[float], max_num_seqs: int) -> dict[str, Any]:
    """Return the whole map as plain values.

    Args:
        pays: The map.
        acceptances: For each the best drafts and the schedule are worked out.
        max_num_seqs: Largest batch of the schedules.

    Raises:
        SpecError: As `best_choices` and `schedule`.
    """
    methods = tuple(dict.fromkeys(cell.method for cell in pays.cells))
    pairs = [(a, b) for i, a in enumerate(methods) for b in methods[i + 1 :]]
    return {
        "schema": DOCUMENT_SCHEMA,
        "note": pays.note,
        "reference": [{"streams": c, "tokens_per_s": v} for c, v in sorted(pays.reference.items())],
        "cells": [encode(cell) for cell in pays.cells],
        "left_out": list(pays.left_out),
        "choices": [
            _choice(pays, method, acceptance, max_num_seqs)
            for acceptance in acceptances
            for method in methods
        ],
        "crossings": [
            {"acceptance": acceptance, "said": inflection(pays, acceptance, first, second)}
            for acceptance in acceptances
            for first, second in pairs
        ],
    }


def _choice(pays: PayMap, method: str, acceptance: float, max_num_seqs: int) -> dict[str, Any]:
    best = best_choices(pays, acceptance, method)
    return {
        "method": method,
        "acceptance": acceptance,
        "best": [encode(choice) for choice in best],
        SCHEDULE_KEY: [list(s) for s in schedule(best, max_num_seqs)],
    }


def markdown(pays: PayMap, shown: Mapping[str, Any]) -> str:
    """Return the map as Markdown: break-even acceptance, then what is best at each acceptance.

    Args:
        pays: The map.
        shown: Its `document`.
    """
    return "\n".join(_lines(pays, shown)) + "\n"


def _lines(pays: PayMap, shown: Mapping[str, Any]) -> Iterator[str]:
    if pays.note:
        yield f"**{escaped(pays.note)}**"
        yield ""
    yield "## Break-even acceptance"
    yield ""
    yield (
        "Acceptance of each draft, given those before it, from which on drafts are not slower "
        "than none."
    )
    yield ""
    streams = sorted({cell.streams for cell in pays.cells})
    yield "| method | K | " + " | ".join(f"{c} streams" for c in streams) + " |"
    yield "| :-- | --: |" + " --: |" * len(streams)
    by_place = {(cell.method, cell.k, cell.streams): cell for cell in pays.cells}
    for method, k in dict.fromkeys((cell.method, cell.k) for cell in pays.cells):
        cells = [_break_even(by_place.get((method, k, c))) for c in streams]
        yield f"| {escaped(method)} | {k} | " + " | ".join(cells) + " |"
    yield ""
    for choice in shown["choices"]:
        yield from _choice_lines(choice)
    yield from (f"- At acceptance {c['acceptance']:g}: {c['said']}" for c in shown["crossings"])
    yield from (f"- Left out: {escaped(reason)}" for reason in pays.left_out)


def _break_even(cell: CellCost | None) -> str:
    if cell is None:
        return MISSING
    return NEVER if cell.break_even is None else percent(cell.break_even)


def _choice_lines(choice: Mapping[str, Any]) -> Iterator[str]:
    yield f"## Best drafts of {escaped(choice['method'])} at acceptance {choice['acceptance']:g}"
    yield ""
    yield "Predicted from the lines above; measure the schedule before you rely on it."
    yield ""
    yield "| streams | K | tokens/s | over none |"
    yield "| --: | --: | --: | --: |"
    for best in choice["best"]:
        cells = (
            str(best["streams"]),
            str(best["k"]),
            number(best["speed"]),
            times(best["over_none"]),
        )
        yield "| " + " | ".join(cells) + " |"
    yield ""
    yield f"`{SCHEDULE_KEY} = {choice[SCHEDULE_KEY]}`"
    yield ""
