"""Runs taken in turn: what hits both sides of a pair cancels."""

import math

import numpy as np
import pytest
from scipy import stats

from draftgate.stats.compare import Comparison, compare_runs


def _compare(base: object, candidate: object, *, paired: bool = True) -> Comparison:
    return compare_runs(
        base,  # type: ignore[arg-type]
        candidate,  # type: ignore[arg-type]
        higher_is_better=True,
        margin_ratio=0.05,
        confidence=0.99,
        paired=paired,
    )


def _in_turn(rng: np.random.Generator, change: float) -> tuple[np.ndarray, np.ndarray]:
    """Twelve pairs whose common level drifts by 12 % and whose own noise is 3 %."""
    level = rng.normal(0, 0.12, 12)
    base, candidate = (level + rng.normal(0, 0.03, 12) for _ in range(2))
    return np.exp(base), np.exp(candidate + math.log(change))


def test_pairs_agree_with_scipy() -> None:
    """Interval and p-value are those of scipy's paired t test on the logs."""
    base, candidate = _in_turn(np.random.default_rng(1), 0.93)
    oracle = stats.ttest_rel(np.log(candidate), np.log(base))
    interval = oracle.confidence_interval(0.99)

    found = _compare(base, candidate)

    assert found.p_value == pytest.approx(oracle.pvalue, rel=1e-9)
    assert math.log(found.low_ratio) == pytest.approx(interval.low, rel=1e-9)
    assert math.log(found.high_ratio) == pytest.approx(interval.high, rel=1e-9)
    assert found.method == "paired t on logs"


def test_pairs_find_what_drift_hides() -> None:
    """A loss of 10 % under 12 % of common drift is beyond doubt in pairs and is not without."""
    base, candidate = _in_turn(np.random.default_rng(2), 0.9)

    assert _compare(base, candidate).high_ratio < 0.95
    assert _compare(base, candidate, paired=False).high_ratio > 0.95


def test_pairs_false_alarms_stay_at_the_stated_rate() -> None:
    """Of 4,000 same-versus-same comparisons about 1 %, at most 1.6 %, leave out "no change"."""
    rng = np.random.default_rng(3)
    trials = 4000

    found = (_compare(*_in_turn(rng, 1.0)) for _ in range(trials))
    wrong = sum(not c.low_ratio <= 1.0 <= c.high_ratio for c in found)

    assert wrong <= 0.016 * trials


def test_equal_pairs_are_a_point() -> None:
    """Pairs without any difference give an interval of no width and p = 1."""
    found = _compare([1.0, 2.0, 3.0], [1.0, 2.0, 3.0])

    assert (found.low_ratio, found.high_ratio, found.p_value) == (1.0, 1.0, 1.0)


def test_unequal_sides_cannot_be_paired() -> None:
    """Sides of different length are refused with both lengths."""
    with pytest.raises(ValueError, match="equally long, got 3 and 2"):
        _compare([1.0, 2.0, 3.0], [1.0, 2.0])
