"""Losses, stages and cells as the page of a comparison writes them.

Unlike the text forms, which tell changes of a metric, plots and their tables
tell losses: positive is worse, whatever the metric. Decides nothing.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass

from draftgate.compare.gates import BY_PROMPT
from draftgate.compare.records import Gate, Pair, Scale, Stage
from draftgate.metrics import Direction, definition
from draftgate.report.format import MINUS, MISSING, fixed
from draftgate.report.table import streams

STAGES = {Stage.SEARCH: "one", Stage.CONFIRM: "two"}
"""A stage as a word."""


@dataclass(frozen=True, slots=True)
class LossScale:
    """How losses of gates with one scale are shown: displayed value = loss * factor."""

    factor: float
    unit: str

    def text(self, loss: float | None) -> str:
        """Return the loss with its sign and without its unit; a gain is negative."""
        if loss is None or not math.isfinite(loss):
            return MISSING
        shown = loss * self.factor
        return _signed(shown, self._decimals(shown))

    def interval(self, low: float, high: float) -> str:
        """Return both ends in brackets, as `[+1.2, +3.4]`."""
        return f"[{self.text(low)}, {self.text(high)}]"

    def full(self, loss: float | None) -> str:
        """Return the loss with its unit, as in a sentence."""
        return MISSING if loss is None else f"{self.text(loss)} {self.unit}"

    def amount(self, loss: float) -> str:
        """Return a tolerated loss with its unit and without a sign."""
        return f"{loss * self.factor:.3g} {self.unit}"

    def _decimals(self, shown: float) -> int:
        return 3 if self.factor == 1.0 else 0 if abs(shown) >= 99.95 else 1


def loss_scale(scale: Scale) -> LossScale:
    """Return how losses are shown: percent, or tokens per step of the same prompts."""
    return LossScale(100.0, "%") if scale is Scale.RATIO else LossScale(1.0, "tokens")


def worse_when(metric: str) -> str:
    """Return `lower` or `higher`; empty where neither is worse."""
    if metric == BY_PROMPT:
        return "lower"
    return {Direction.HIGHER: "lower", Direction.LOWER: "higher"}.get(
        definition(metric).direction, ""
    )


def cell_title(arm: str, concurrency: int) -> str:
    """Return `ngram, 8 streams`."""
    return f"{arm}, {streams(concurrency)}"


def cells_of(gates: Iterable[Gate]) -> tuple[tuple[str, int], ...]:
    """Return every (arm, concurrency) that is asked about, in order."""
    return tuple(dict.fromkeys((gate.arm, gate.concurrency) for gate in gates))


def arms_of(gates: Iterable[Gate]) -> tuple[str, ...]:
    """Return every arm that is asked about, in order."""
    return tuple(dict.fromkeys(gate.arm for gate in gates))


def order_word(pair: Pair) -> str:
    """Return which side of a pair went first."""
    return "candidate" if pair.candidate_first else "base"


def stage_word(pair: Pair) -> str:
    """Return a pair's stage, and whether it was left out."""
    return STAGES[pair.stage] + (", left out" if pair.invalid else "")


def _signed(value: float, decimals: int) -> str:
    rounded = round(value, decimals)
    sign = "+" if rounded > 0 else MINUS if rounded < 0 else ""
    return f"{sign}{fixed(abs(rounded), decimals)}"
