"""How one arm differs from another inside one run of a profile.

Arms are interleaved by repeat, so a slow minute of the machine hits repeat i of
every arm alike; the ratio of a pair is free of it. Takes one number per run by
its repeat, knows nothing of metrics. Verdicts against a baseline, whose runs are
not paired with ours, come from `draftgate.stats.compare` instead.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from scipy import special

CONFIDENCE = 0.95
"""Coverage of the intervals in a report: the customary level. Nothing is decided
by them, gates carry a level of their own."""


@dataclass(frozen=True, slots=True)
class Ratio:
    """Candidate over reference.

    Attributes:
        estimate: Geometric mean of the pairs' ratios; without pairs the ratio
            of the geometric means.
        low: Lower end of the interval; None where one run gives none.
        high: Upper end; None likewise.
        runs: Pairs behind it, or runs of the smaller side without pairs.
        paired: Whether repeats were paired.
    """

    estimate: float
    low: float | None
    high: float | None
    runs: int
    paired: bool

    @property
    def clear(self) -> bool:
        """Whether the interval leaves out 1, that is, no change."""
        return self.low is not None and self.high is not None and not self.low <= 1.0 <= self.high

    def inverse(self) -> "Ratio":
        """Return reference over candidate."""
        low = None if self.high is None else 1.0 / self.high
        high = None if self.low is None else 1.0 / self.low
        return Ratio(1.0 / self.estimate, low, high, self.runs, self.paired)


def ratio_of(base: Mapping[int, float], candidate: Mapping[int, float]) -> Ratio | None:
    """Return candidate over base, paired by repeat where both sides have it.

    The interval is the t interval of the mean of the pairs' log ratios, so
    ratios of factors multiply to the ratio of their product exactly. Repeats
    without a partner are left out. No pair at all leaves a ratio without
    interval: what pairing would have removed can't be told from the effect.

    Args:
        base: Value of each run of the reference by its repeat, >= 0.
        candidate: The same for the other arm.

    Returns:
        None where a side is empty or holds a value that is not above 0: a
        relative change from or to 0 is not defined.
    """
    if not base or not candidate or not all(map(_usable, (*base.values(), *candidate.values()))):
        return None
    shared = sorted(base.keys() & candidate.keys())
    if not shared:
        estimate = math.exp(_mean_log(candidate) - _mean_log(base))
        return Ratio(estimate, None, None, min(len(base), len(candidate)), paired=False)
    logs = np.array([math.log(candidate[repeat] / base[repeat]) for repeat in shared])
    middle = float(logs.mean())
    if logs.size < 2:
        return Ratio(math.exp(middle), None, None, 1, paired=True)
    error = float(logs.std(ddof=1)) / math.sqrt(logs.size)
    half = float(special.stdtrit(logs.size - 1, 0.5 + CONFIDENCE / 2)) * error
    low, high = math.exp(middle - half), math.exp(middle + half)
    return Ratio(math.exp(middle), low, high, int(logs.size), paired=True)


def _usable(value: float) -> bool:
    return math.isfinite(value) and value > 0.0


def _mean_log(values: Mapping[int, float]) -> float:
    return math.fsum(math.log(value) for value in values.values()) / len(values)
