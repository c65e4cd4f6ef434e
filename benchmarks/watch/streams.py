"""Many streams of windows at once, each with a reference of its own; the product's rule.

The product judges one stream at a time. Here the same sums are kept for thousands, as
arrays; `check` holds both against each other before anything is measured.
"""

import math
from dataclasses import dataclass

import numpy as np
from scipy import stats

from benchmarks.watch.pools import Floats
from draftgate.stats import level as levels
from draftgate.stats.edetector import CLIP
from draftgate.stats.level import Level, learn_level
from draftgate.stats.shifts import (
    BUDGET,
    MULTIPLES,
    WEIGHTS,
    Shift,
    Wanted,
    detector,
    standardised,
)

SHIFTS = tuple(Shift)

NDArrayInt = np.ndarray[tuple[int, ...], np.dtype[np.int_]]


@dataclass(frozen=True, slots=True)
class Bank:
    """The detectors of many streams.

    Attributes:
        mean: Learned log length; shape (streams,).
        sd: Bound on the spread; shape (streams,).
        size: Verify steps of a learned window; shape (streams,).
        margin: Of each size, in bounds on the spread; shape (streams, 4, 3).
        steps: What sizes exceed the margin by; shape (streams, 4, 3).
        cap: Evidence that each size may have at most; shape (4, 3).
        weights: Share of each size; shape (4, 3), 0 where a detector has fewer.
    """

    mean: Floats
    sd: Floats
    size: Floats
    margin: Floats
    steps: Floats
    cap: Floats
    weights: Floats

    def away(self, values: Floats, sizes: Floats) -> Floats:
        """Return windows in bounds on the spread, upward; shape (streams,)."""
        scale = self.sd * np.sqrt(np.maximum(1.0, self.size / sizes))
        return np.asarray((values - self.mean) / scale)

    def run(self, values: Floats, sizes: Floats) -> NDArrayInt:
        """Return the window at which each detector first alarms; shape (streams, 4), 0 never.

        Args:
            values: Log lengths; shape (streams, windows).
            sizes: Verify steps; shape (streams, windows).
        """
        sign = np.array([-1.0 if shift.downward else 1.0 for shift in SHIFTS])
        evidence = np.zeros(self.steps.shape)
        first = np.zeros(self.margin.shape[:2], dtype=int)
        thresholds = (self.cap * self.weights).max(axis=1)
        half = self.steps**2 / 2
        for t in range(values.shape[1]):
            z = self.away(values[:, t], sizes[:, t])[:, None] * sign
            excess = np.minimum(z[:, :, None] - self.margin, CLIP)
            evidence = np.minimum((1 + evidence) * np.exp(self.steps * excess - half), self.cap)
            hit = (evidence * self.weights).sum(axis=2) >= thresholds * (1 - 1e-12)
            first[(first == 0) & hit] = t + 1
        return first


def learn(values: Floats, sizes: Floats, wanted: Wanted, least_sd: float = 1e-4) -> Bank:
    """Return the bank of references; arrays of shape (streams, windows)."""
    count = values.shape[1]
    learned = [learn_level(v, s, least_sd) for v, s in zip(values, sizes, strict=True)]
    mean = np.array([one.mean for one in learned])
    sd = np.array([one.sd for one in learned])
    freedom = count - 1
    bound = sd * math.sqrt(freedom / stats.chi2.ppf(1 - levels.CONFIDENCE, freedom))
    error = stats.t.ppf(levels.CONFIDENCE, freedom) * sd / math.sqrt(count)
    steps = np.zeros((mean.size, len(SHIFTS), len(MULTIPLES)))
    margin = np.zeros(steps.shape)
    weights = np.zeros((len(SHIFTS), len(MULTIPLES)))
    for i, shift in enumerate(SHIFTS):
        sign = -1.0 if shift.downward else 1.0
        nothing = (_size(mean, sign * wanted.tolerated) + error) / bound
        changes = (wanted.slide,) if shift.slow else tuple(wanted.change * m for m in MULTIPLES)
        weights[i, : len(changes)] = (1.0,) if shift.slow else WEIGHTS
        for j, change in enumerate(changes):
            size = _size(mean, max(sign * change, -0.95)) / bound
            size = np.maximum(size, 2 * nothing)
            steps[:, i, j] = np.minimum(size - nothing, CLIP)
            margin[:, i, j] = np.maximum(nothing, (size + nothing - CLIP) / 2)
    thresholds = np.array([wanted.run_length / BUDGET[shift] for shift in SHIFTS])
    cap = thresholds[:, None] / np.where(weights > 0, weights, 1.0) * (weights > 0)
    return Bank(mean, bound, np.array([o.size for o in learned]), margin, steps, cap, weights)


def check(values: Floats, sizes: Floats, reference: int, wanted: Wanted) -> None:
    """Fail unless the product alarms at the same windows in every stream."""
    bank = learn(values[:, :reference], sizes[:, :reference], wanted)
    found = bank.run(values[:, reference:], sizes[:, reference:])
    for row in range(values.shape[0]):
        level = learn_level(values[row, :reference], sizes[row, :reference], 1e-4)
        ours = [
            _product(level, s, values[row, reference:], sizes[row, reference:], wanted)
            for s in SHIFTS
        ]
        if ours != found[row].tolist():
            raise SystemExit(f"stream {row}: product {ours}, simulation {found[row].tolist()}")


def _product(level: Level, shift: Shift, values: Floats, sizes: Floats, wanted: Wanted) -> int:
    z = [standardised(level, shift, v, s) for v, s in zip(values, sizes, strict=True)]
    hits = np.flatnonzero(detector(level, shift, wanted).shares(np.array(z)) >= 1 - 1e-9)
    return int(hits[0]) + 1 if hits.size else 0


def _size(mean: Floats, change: float) -> Floats:
    return np.asarray(np.abs(np.log1p(np.expm1(mean) * (1 + change)) - mean))
