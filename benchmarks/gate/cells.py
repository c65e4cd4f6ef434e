"""What the simulations share: a cell, its randomness, its losses, and rates with intervals."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special

from benchmarks.gate.scenarios import Floats, Metric, Scenario, paired_levels
from draftgate.stats.losses import BLOCK_PAIRS

SEED = 20_004
GATES = 48
FLIPS = 9_999
CHUNK = 20_000
CHECKED = 100
"""Cases per cell in which the product's own functions must say the same."""

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Cell:
    """One simulated question."""

    scenario: Scenario
    metric: Metric
    loss: float
    trials: int

    def place(self) -> Row:
        """Return how rows name the cell."""
        return {"scenario": self.scenario.name, "metric": self.metric.name, "loss": self.loss}

    def rng(self, purpose: int) -> np.random.Generator:
        """Return randomness that depends on the cell and the purpose alone."""
        text = f"{self.scenario.name}/{self.metric.name}/{self.loss}"
        return np.random.default_rng([SEED, purpose, *text.encode()])

    def chunks(self) -> Iterator[int]:
        """Yield sizes that add up to the trials."""
        yield from (min(CHUNK, self.trials - done) for done in range(0, self.trials, CHUNK))


def rate(hits: int, trials: int) -> Row:
    """Return a rate with its 95 % interval (Clopper and Pearson, Biometrika 26 (1934))."""
    beta = special.betaincinv
    return {
        "hits": int(hits),
        "trials": int(trials),
        "rate": hits / trials,
        "low": float(beta(hits, trials - hits + 1, 0.025)) if hits else 0.0,
        "high": float(beta(hits + 1, trials - hits, 0.975)) if hits < trials else 1.0,
    }


def measured(
    rng: np.random.Generator, cell: Cell, shape: tuple[int, int], block: int = BLOCK_PAIRS
) -> tuple[Floats, NDArray[np.bool_]]:
    """Return losses of pairs and whether the candidate went first; shape (trials, pairs)."""
    pairs = paired_levels(rng, cell.scenario, shape, block)
    change = cell.metric.measure(rng, pairs.candidate) - cell.metric.measure(rng, pairs.base)
    return change + cell.metric.log(cell.loss), pairs.first
