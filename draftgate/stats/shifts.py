"""Which way the acceptance of windows has moved, and whether fast or slowly.

Counts of windows in, four detectors over the log of mean acceptance length. Fast ones
look for the stated change and larger ones; slow ones for a smaller change that lasts,
which is what a slide over hours looks like at any time after its first hours. All four
share one average run length. Numbers only.
"""

import math
from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from draftgate.stats.edetector import EDetector
from draftgate.stats.level import Level

Floats = NDArray[np.floating[Any]]


class Shift(Enum):
    """What a detector looks for."""

    DROP = "drop"
    RISE = "rise"
    SLIDE_DOWN = "slide_down"
    SLIDE_UP = "slide_up"

    @property
    def downward(self) -> bool:
        """Whether acceptance has fallen."""
        return self in (Shift.DROP, Shift.SLIDE_DOWN)

    @property
    def slow(self) -> bool:
        """Whether it is small and lasts."""
        return self in (Shift.SLIDE_DOWN, Shift.SLIDE_UP)


BUDGET = {Shift.DROP: 0.3, Shift.RISE: 0.3, Shift.SLIDE_DOWN: 0.2, Shift.SLIDE_UP: 0.2}
"""Share of the false alarms that each may give; they add up to 1. A third less of the
evidence costs the fast ones 0.2 of a window (`benchmarks/watch/RESULTS.md`)."""

MULTIPLES, WEIGHTS = (1.0, 2.0, 4.0), (0.5, 0.25, 0.25)
"""Sizes that a fast detector looks for, as multiples of the stated change, and their shares."""

_LARGEST = 0.95
"""Relative fall beyond which sizes do not go on: acceptance can't fall by more than all."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What must be found, and how rarely it may be found where nothing is.

    Relative changes are of accepted tokens per verify step, so of the acceptance rate
    too where K stays the same.

    Attributes:
        change: Change that must be found fast, in (0, 1).
        slide: Smaller change that must be found if it lasts, in (0, change].
        tolerated: Change that is none, in [0, slide).
        run_length: Windows between false alarms, on average, all four together; >= 100.

    Raises:
        ValueError: If a setting is out of its range.
    """

    change: float = 0.10
    slide: float = 0.05
    tolerated: float = 0.005
    run_length: float = 10_000.0

    def __post_init__(self) -> None:
        """Check the settings."""
        if not 0 <= self.tolerated < self.slide <= self.change < 1:
            raise ValueError(
                "expected 0 <= tolerated < slide <= change < 1, got "
                f"{self.tolerated:g}, {self.slide:g} and {self.change:g}"
            )
        if not 100 <= self.run_length < math.inf:
            raise ValueError(f"run length must be >= 100 windows, got {self.run_length:g}")


def log_length(accepted: Floats, drafts: Floats) -> Floats:
    """Return log(1 + accepted / drafts): the log of mean acceptance length, bonus token in it."""
    return np.asarray(np.log1p(np.asarray(accepted) / np.asarray(drafts)))


def moved(level: float, change: float) -> float:
    """Return where a log length goes if accepted tokens per step change by `change`, > -1."""
    return math.log1p(math.expm1(level) * (1 + change))


def detector(level: Level, shift: Shift, wanted: Wanted) -> EDetector:
    """Return the detector of one kind of shift, in units of `level.sd_bound`.

    Its margin is what is tolerated and what the learned mean may be off. A size that the
    margin leaves less than half of is looked for at twice the margin instead.

    Raises:
        ValueError: If nothing was accepted at that level, so that no change is defined.
    """
    if not level.mean > 0:
        raise ValueError(f"no drafts were accepted at a log length of {level.mean:g}")
    sign = -1.0 if shift.downward else 1.0

    def size(change: float) -> float:
        change = min(change, _LARGEST) if shift.downward else change
        return abs(moved(level.mean, sign * change) - level.mean)

    margin = (size(wanted.tolerated) + level.mean_error) / level.sd_bound
    wanted_sizes = (wanted.slide,) if shift.slow else tuple(wanted.change * m for m in MULTIPLES)
    return EDetector(
        shifts=tuple(max(size(change) / level.sd_bound, 2 * margin) for change in wanted_sizes),
        weights=(1.0,) if shift.slow else WEIGHTS,
        margin=margin,
        threshold=wanted.run_length / BUDGET[shift],
    )


def standardised(level: Level, shift: Shift, value: float, size: float) -> float:
    """Return how far a window's log length lies the shift's way, in bounds on its spread.

    Args:
        level: What was learned.
        shift: Whose way counts.
        value: Log length of the window.
        size: Its verify steps, > 0.
    """
    away = (value - level.mean) / level.sd_at(size)
    return -away if shift.downward else away
