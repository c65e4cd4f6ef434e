"""Other tools' rules on simulated starts, vectorised over comparisons.

Each returns, per comparison, whether it would report a loss. Values are log
levels, positive = worse; rules that look at relative changes get ratios.
"""

import importlib
import importlib.util
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special, stats

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]


def pytest_benchmark(base: Floats, candidate: Floats, *, threshold: float, use_min: bool) -> Flags:
    """`--benchmark-compare-fail=mean:5%` or `min:5%`: stored base, beyond x % fails."""
    times = [np.exp(side) for side in (base, candidate)]
    before, after = (t.min(axis=1) if use_min else t.mean(axis=1) for t in times)
    return np.asarray(after > before * (1 + threshold))


def benchstat(base: Floats, candidate: Floats, *, least_delta: float = 0.0) -> Flags:
    """Mann-Whitney U, exact and two-sided, p < 0.05; then the change of the medians counts."""
    n, m = base.shape[1], candidate.shape[1]
    u = np.zeros(base.shape[0])
    for column in candidate.T:
        u += (column[:, None] > base).sum(axis=1)
    null = _mann_whitney(n, m)
    tail = null[::-1].cumsum()[::-1]  # P(U >= u)
    p = np.minimum(1.0, 2 * tail[u.astype(int)])
    delta = np.median(candidate, axis=1) - np.median(base, axis=1)
    return np.asarray((p < 0.05) & (delta > math.log1p(least_delta)))


def _mann_whitney(n: int, m: int) -> Floats:
    """Return the null law of U by counting: H. Mann and D. Whitney (1947), recursion (2)."""
    ways = np.zeros((n + 1, m + 1, n * m + 1))
    ways[0, :, 0] = ways[:, 0, 0] = 1
    for i in range(1, n + 1):
        for j in range(1, m + 1):
            ways[i, j] = ways[i, j - 1]
            ways[i, j, j:] += ways[i - 1, j, : n * m + 1 - j]
    return np.asarray(ways[n, m] / ways[n, m].sum())


def pooled_welch(
    rng: np.random.Generator, base: Floats, candidate: Floats, *, requests: int, request_sd: float
) -> Flags:
    """Welch's t over all requests of all starts of a side, two-sided p < 0.05.

    Mean and variance of normal requests of a start are independent, N and chi-square,
    so they are drawn instead of the requests.
    """
    sides = []
    for levels in (base, candidate):
        means = levels + rng.normal(0, request_sd / math.sqrt(requests), levels.shape)
        squares = request_sd**2 * rng.chisquare(requests - 1, levels.shape)
        size = requests * levels.shape[1]
        total = squares.sum(axis=1) + requests * levels.shape[1] * means.var(axis=1)
        sides.append((means.mean(axis=1), total / (size - 1) / size, size - 1))
    (mean_b, part_b, df_b), (mean_c, part_c, df_c) = sides
    degrees = (part_b + part_c) ** 2 / (part_b**2 / df_b + part_c**2 / df_c)
    t = (mean_c - mean_b) / np.sqrt(part_b + part_c)
    return np.asarray((2 * special.stdtr(degrees, -np.abs(t)) < 0.05) & (t > 0))


def welch_starts(base: Floats, candidate: Floats) -> Flags:
    """Welch's t over starts, two-sided p < 0.05: the right unit, without pairs or margin."""
    found = stats.ttest_ind(candidate, base, axis=1, equal_var=False)
    return np.asarray((found.pvalue < 0.05) & (found.statistic > 0))


def otava_or_none() -> Any:
    """Return Otava's detector, or None where `apache-otava` is not importable."""
    if importlib.util.find_spec("otava") is None:
        return None
    return importlib.import_module("otava.analysis").compute_change_points


def otava(detect: Any, base: Floats, candidate: Floats) -> Flags:
    """Change points at Otava's defaults (window 50, p 0.001) in base followed by candidate.

    An alarm is a change point for the worse at the candidate's starts or one before.
    """
    alarms = []
    for before, after in zip(base, candidate, strict=True):
        points, _ = detect(np.exp(np.concatenate([before, after])).tolist())
        alarms.append(
            any(p.index >= before.size - 1 and p.stats.mean_2 > p.stats.mean_1 for p in points)
        )
    return np.array(alarms)
