"""The map itself: from a sweep's table to the cost of a step in every cell.

A cell is a method, a number of drafts and a number of streams. One with less
than two levels of acceptance, or without the reference, is told, never guessed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from draftgate.breakeven.model import (
    StepCost,
    break_even_acceptance,
    fit_step_cost,
    tokens_per_step,
)
from draftgate.errors import SpecError
from draftgate.specs import NO_SPECULATION

SPEED = "output_tokens_per_s"
LENGTH = "mean_acceptance_length"


@dataclass(frozen=True, slots=True)
class CellCost:
    """What is known of one cell.

    Attributes:
        method: Draft method.
        k: Drafts per step.
        streams: Closed-loop streams.
        cost: Its line.
        break_even: Acceptance from which on it is not slower than no drafts, in
            [0, 1]; None if it is slower at any.
    """

    method: str
    k: int
    streams: int
    cost: StepCost
    break_even: float | None

    def speed(self, acceptance: float) -> float:
        """Return output tokens per second of all streams at an acceptance in [0, 1]."""
        length = tokens_per_step(acceptance, self.k)
        return self.streams / self.cost.per_token_s(length)


@dataclass(frozen=True, slots=True)
class PayMap:
    """Where speculation pays, for one load on one machine.

    Attributes:
        reference: Output tokens per second without speculation, by streams.
        cells: By method, drafts and streams, ascending.
        left_out: What could not be said, one sentence each.
        note: What the numbers are of, as the sweep says; empty for real weights.
    """

    reference: Mapping[int, float]
    cells: tuple[CellCost, ...]
    left_out: tuple[str, ...]
    note: str


@dataclass(frozen=True, slots=True)
class Choice:
    """What is fastest at one number of streams.

    Attributes:
        streams: Closed-loop streams.
        method: `none` where no drafts are faster.
        k: 0 for none.
        speed: Output tokens per second, predicted; measured for none.
        over_none: That over no speculation.
    """

    streams: int
    method: str
    k: int
    speed: float
    over_none: float


def pay_map(group: Mapping[str, Any]) -> PayMap:
    """Return the map of one group of a sweep's `summary.json`.

    Args:
        group: An entry of `groups`.

    Raises:
        SpecError: If it holds no run without speculation.
    """
    rows = [row for row in group["rows"] if row["metrics"].get(SPEED)]
    reference = {
        row["streams"]: row["metrics"][SPEED]["mean"]
        for row in rows
        if row["method"] == NO_SPECULATION
    }
    if not reference:
        raise SpecError(
            f"group {group['name']!r}: got no run without speculation, expected one as the "
            "reference. Put the arm 'none' into the list and sweep again."
        )
    cells: list[CellCost] = []
    left_out: list[str] = []
    for key, points in sorted(_points(rows).items()):
        _enter(key, points, reference, cells, left_out)
    return PayMap(reference, tuple(cells), tuple(left_out), group["note"])


def _points(rows: Sequence[Mapping[str, Any]]) -> dict[tuple[str, int, int], list[Any]]:
    """Return (tokens per step, seconds per token) of each cell's levels of acceptance."""
    found: dict[tuple[str, int, int], list[Any]] = {}
    for row in rows:
        length = row["metrics"].get(LENGTH)
        if row["method"] != NO_SPECULATION and length is not None:
            per_token_s = row["streams"] / row["metrics"][SPEED]["mean"]
            key = (row["method"], row["k"], row["streams"])
            found.setdefault(key, []).append((length["mean"], per_token_s))
    return found


def _enter(
    key: tuple[str, int, int],
    points: Sequence[tuple[float, float]],
    reference: Mapping[int, float],
    cells: list[CellCost],
    left_out: list[str],
) -> None:
    method, k, streams = key
    where = f"{method} with K = {k} at {streams} streams"
    if streams not in reference:
        left_out.append(f"{where}: no run without speculation at as many streams.")
        return
    try:
        cost = fit_step_cost([p[0] for p in points], [p[1] for p in points])
    except ValueError as error:
        left_out.append(f"{where}: {error}")
        return
    if cost.step_s <= 0:
        left_out.append(f"{where}: a step took no time by the fit; the runs are too noisy.")
        return
    pays = break_even_acceptance(cost, streams / reference[streams], k)
    cells.append(CellCost(method, k, streams, cost, pays))
