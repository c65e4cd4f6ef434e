"""Evidence that a mean has moved, restarted at every value: a Shiryaev-Roberts e-detector.

Numbers in, numbers out. A change may begin at any value, so likelihood ratios that
begin at each are added up. Under the stated law that sum grows by at most 1 a value
on average, hence the mean number of values until it reaches A is at least A, whatever
else is true of them. Knows neither what the values are of nor when they came.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.floating[Any]]

CLIP = 4.0
"""Largest excess over the margin that counts, in standard deviations. One value then adds at
most 4^2 / 2 = 8 to the log of the evidence, so with a threshold above exp(8) = 2,981 no value
alarms by itself; three in 100,000 normal values reach it."""


@dataclass(frozen=True, slots=True)
class EDetector:
    """Looks for a rise of the mean of standardised values by one of several shifts.

    For a fall, feed it the values with their sign turned.

    Attributes:
        shifts: Means after the change that are looked for, in standard deviations,
            each > margin.
        weights: Share of each, > 0, adding up to 1.
        margin: Mean up to which nothing has changed, in standard deviations, >= 0.
        threshold: Evidence at which it alarms, > 1. A bound on the average run length:
            while means stay at or under `margin` and values are sub-Gaussian with
            variance 1, it takes that many values or more on average.
        clip: Largest excess over the margin that counts, > 0.

    Raises:
        ValueError: If a setting is out of its range.

    Source:
        J. Shin, A. Ramdas and A. Rinaldo, "E-detectors: a nonparametric framework for
        sequential change detection", New England J. Stat. Data Sci. 2 (2024), definition
        2.5 and theorem 2.4; S. W. Roberts, Technometrics 8 (1966) 411-430. Mixing over
        shifts and clipping from above only lowers the mean of an e-value.
    """

    shifts: tuple[float, ...]
    weights: tuple[float, ...]
    margin: float
    threshold: float
    clip: float = CLIP

    def __post_init__(self) -> None:
        """Check the settings."""
        if not self.shifts or len(self.shifts) != len(self.weights):
            raise ValueError(f"got {len(self.shifts)} shifts, {len(self.weights)} weights")
        if not 0 <= self.margin < min(self.shifts) or not math.isfinite(max(self.shifts)):
            raise ValueError(
                f"shifts must be finite and above the margin >= 0, got {self.shifts} and "
                f"{self.margin}"
            )
        if min(self.weights) <= 0 or abs(sum(self.weights) - 1) > 1e-9:
            raise ValueError(f"weights must be > 0 and add up to 1, got {self.weights}")
        if not 1 < self.threshold < math.inf or not 0 < self.clip < math.inf:
            raise ValueError(
                f"threshold must be > 1 and clip > 0, got {self.threshold} and {self.clip}"
            )

    @property
    def start(self) -> Floats:
        """State before the first value: logs of no evidence; shape (shifts,)."""
        return np.full(len(self.shifts), -np.inf)

    @property
    def steps(self) -> Floats:
        """Return b of each shift: what it exceeds the margin by, at most `clip`."""
        return np.minimum(np.asarray(self.shifts) - self.margin, self.clip)

    @property
    def margins(self) -> Floats:
        """Return the mean up to which each shift gathers nothing.

        The margin itself, as far as steps are not clipped. Beyond that it rises, so that
        evidence for a shift grows only past halfway from the margin to it, however small
        the spread is: b x - b^2 / 2 > 0 where the mean is over margin + b / 2.
        """
        halfway = (np.asarray(self.shifts) + self.margin) / 2
        return np.asarray(np.maximum(self.margin, halfway - self.clip / 2))

    def log_ratios(self, values: Floats) -> Floats:
        """Return each shift's log e-value of each value; shape (..., shifts).

        With x the excess over the shift's margin, at most `clip`: b x - b^2 / 2. Its
        exponential has a mean of at most 1 while the mean of the values is at most `margin`.
        """
        excess = np.minimum(np.asarray(values)[..., None] - self.margins, self.clip)
        return np.asarray(self.steps * excess - self.steps**2 / 2)

    def advance(self, state: Floats, values: Floats) -> Floats:
        """Return the state after one more value of each stream.

        Evidence is kept from growing past what alarms, so that it falls again as soon
        as the mean is back. That only lowers it.

        Args:
            state: As returned by `start` or this; shape (..., shifts).
            values: In standard deviations from the mean; shape (...).
        """
        cap = math.log(self.threshold) - np.log(self.weights)
        grown = np.logaddexp(0.0, state) + self.log_ratios(values)
        return np.asarray(np.minimum(grown, cap))

    def log_evidence(self, state: Floats) -> Floats:
        """Return the log of the evidence; shape (...)."""
        return np.asarray(np.logaddexp.reduce(state + np.log(self.weights), axis=-1))

    def share(self, state: Floats) -> Floats:
        """Return log evidence as a share of what alarms: 1 or more alarms, 0 and less is none."""
        return np.asarray(self.log_evidence(state) / math.log(self.threshold))

    def shares(self, values: Floats) -> Floats:
        """Return the share after each value of streams from the start; shape (..., n)."""
        paths = np.asarray(values)
        state = np.broadcast_to(self.start, (*paths.shape[:-1], len(self.shifts)))
        found = np.empty(paths.shape)
        for i in range(paths.shape[-1]):
            state = self.advance(state, paths[..., i])
            found[..., i] = self.share(state)
        return found

    def expected_delay(self, shift: float) -> float:
        """Return about how many values a lasting mean of `shift` takes to alarm; inf if never.

        The best single component: (log threshold - log weight) over its mean growth
        b x - b^2 / 2 (as in `log_ratios`), and at least 1. What had built up before the
        change, overshoot and clipping are left out.

        Source:
            First order of Wald's identity, as in Lorden, Ann. Math. Stat. 42 (1971) 1897.
        """
        steps = self.steps
        growth = steps * np.minimum(shift - self.margins, self.clip) - steps**2 / 2
        needed = math.log(self.threshold) - np.log(self.weights)
        delays = np.where(growth > 0, needed / np.where(growth > 0, growth, 1.0), np.inf)
        return float(max(1.0, delays.min()))
