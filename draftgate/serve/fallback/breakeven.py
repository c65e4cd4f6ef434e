"""From which tokens per step an arm pays, at a number of running requests, by measured step times.

tokens/s of one stream = tokens per step / step time, times a share of decoding that arms
have alike. An arm is as fast as the reference, whose steps give one token each, where its
tokens per step are the ratio of the two step times. Reads a baseline; knows no engine.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from draftgate.baselines.stored import Baseline
from draftgate.errors import BaselineError, SpecError

METRIC = "step_time_s"


@dataclass(frozen=True, slots=True)
class StepTimes:
    """Step time of one arm by streams.

    Attributes:
        arm: Its name.
        streams: Numbers of streams, rising, >= 1; shape (n,), n >= 1.
        seconds: Mean step time at each, > 0, seconds; shape (n,).

    Raises:
        SpecError: If the two do not fit together, or a number is out of range.
    """

    arm: str
    streams: tuple[int, ...]
    seconds: tuple[float, ...]

    def __post_init__(self) -> None:
        """Check the numbers."""
        rising = list(self.streams) == sorted(set(self.streams))
        if not self.streams or len(self.streams) != len(self.seconds) or not rising:
            raise SpecError(
                f"step times of arm {self.arm!r}: got streams {self.streams} and "
                f"{len(self.seconds)} times, expected one time for each of some rising streams."
            )
        if min(self.streams) < 1 or not all(0 < one < float("inf") for one in self.seconds):
            raise SpecError(
                f"step times of arm {self.arm!r}: streams must be >= 1 and times > 0 s, got "
                f"{self.streams} and {self.seconds}."
            )

    def at(self, streams: float) -> float:
        """Return the step time at some streams, seconds: linear between those measured.

        Below the fewest and above the most that were measured it is that at the nearest.
        """
        return float(np.interp(streams, self.streams, self.seconds))


@dataclass(frozen=True, slots=True)
class BreakEven:
    """Step times of arms with speculation, and of the one without.

    Attributes:
        reference: The arm without.
        arms: The others.
        source: Where they come from, for messages.
    """

    reference: StepTimes
    arms: tuple[StepTimes, ...]
    source: str

    def tokens_per_step(self, arm: str, streams: float) -> float:
        """Return the tokens per step at which an arm is as fast as the reference.

        Args:
            arm: One of `arms`, or the reference itself, for which it is 1.
            streams: Requests that run, >= 0; interpolated as in `StepTimes.at`.

        Raises:
            KeyError: If the arm is none of them.
        """
        known = {one.arm: one for one in (*self.arms, self.reference)}
        return known[arm].at(streams) / self.reference.at(streams)


def break_even_of(baseline: Baseline, arms: Sequence[str], reference: str) -> BreakEven:
    """Return what a baseline says, by the mean step time of its runs in each cell.

    Args:
        baseline: Of the same target and hardware.
        arms: Arms with speculation.
        reference: The arm without.

    Raises:
        BaselineError: If it has no step time of one of them.
    """
    known = _step_times(baseline, reference)
    upper = tuple(_step_times(baseline, arm) for arm in arms)
    return BreakEven(known, upper, str(baseline.path))


def _step_times(baseline: Baseline, arm: str) -> StepTimes:
    found: dict[int, float] = {}
    for cell in baseline.cells:
        values = [run[METRIC] for run in cell.per_run() if METRIC in run]
        if cell.arm == arm and values:
            found[cell.concurrency] = float(np.mean(values))
    if not found:
        held = ", ".join(sorted({cell.arm for cell in baseline.cells})) or "none"
        raise BaselineError(
            f"baseline {baseline.path}: got no {METRIC} of arm {arm!r}, expected some at one or "
            f"more streams; it holds the arms {held}. Measure the arm (pytest -m perf) and accept "
            "the run (draftgate baseline accept), or name another file with --break-even."
        )
    return StepTimes(arm, tuple(sorted(found)), tuple(found[one] for one in sorted(found)))
