"""The comparison of two samples of runs: right, calibrated, and able to fail."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from draftgate.stats.compare import Comparison, compare_runs

VALUES = st.lists(st.floats(0.01, 1e6), min_size=2, max_size=8)


def _compare(
    base: object, candidate: object, confidence: float = 0.95, margin_ratio: float = 0.05
) -> Comparison:
    return compare_runs(
        base,  # type: ignore[arg-type]
        candidate,  # type: ignore[arg-type]
        higher_is_better=True,
        margin_ratio=margin_ratio,
        confidence=confidence,
    )


@pytest.mark.parametrize("sizes", [(2, 2), (3, 3), (3, 10), (12, 4)])
@pytest.mark.parametrize("confidence", [0.8, 0.95, 0.99])
def test_compare_agrees_with_scipy(sizes: tuple[int, int], confidence: float) -> None:
    """Interval and p-value are those of scipy's Welch test on the logs."""
    rng = np.random.default_rng(sum(sizes))
    base = rng.lognormal(3.0, 0.05, sizes[0])
    candidate = rng.lognormal(3.1, 0.12, sizes[1])
    oracle = stats.ttest_ind(np.log(candidate), np.log(base), equal_var=False)
    interval = oracle.confidence_interval(confidence)

    found = _compare(base, candidate, confidence)

    assert found.p_value == pytest.approx(oracle.pvalue, rel=1e-9)
    assert math.log(found.low_ratio) == pytest.approx(interval.low, rel=1e-9)
    assert math.log(found.high_ratio) == pytest.approx(interval.high, rel=1e-9)
    assert found.estimate_ratio == pytest.approx(stats.gmean(candidate) / stats.gmean(base))
    assert (found.n_base, found.n_candidate) == sizes


@settings(deadline=None)  # a busy machine is no failure
@given(base=VALUES, candidate=VALUES)
def test_compare_swapped_sides_give_the_inverse(base: list[float], candidate: list[float]) -> None:
    """Naming either side the base tells the same story."""
    there, back = _compare(base, candidate), _compare(candidate, base)

    assert math.log(there.estimate_ratio) == pytest.approx(-math.log(back.estimate_ratio), abs=1e-9)
    assert there.p_value == pytest.approx(back.p_value, abs=1e-9)
    assert there.low_ratio <= there.estimate_ratio <= there.high_ratio


@settings(deadline=None)  # a busy machine is no failure
@given(base=VALUES, candidate=VALUES, scale=st.sampled_from([1e-9, 1e-3, 1e6]))
def test_compare_does_not_depend_on_the_unit(
    base: list[float], candidate: list[float], scale: float
) -> None:
    """Seconds or nanoseconds: the ratio and its interval stay."""
    scaled = _compare([v * scale for v in base], [v * scale for v in candidate])
    plain = _compare(base, candidate)

    assert math.log(scaled.estimate_ratio) == pytest.approx(
        math.log(plain.estimate_ratio), abs=1e-9
    )


def test_compare_false_alarms_stay_at_the_stated_rate() -> None:
    """On 4,000 pairs of same-versus-same samples of 3 runs, 99 % intervals miss 1 in under 1.6 %.

    The asserted bound is the stated 1 % plus about four standard errors of a
    share over 4,000 trials. With lognormal runs Welch's test is somewhat
    conservative at 3 + 3, so the share lies below 1 %.
    """
    rng = np.random.default_rng(2)
    trials = 4000
    samples = rng.lognormal(0.0, 0.03, (trials, 2, 3))

    alarms = 0
    for base, candidate in samples:
        found = _compare(base, candidate, confidence=0.99)
        alarms += not found.low_ratio <= 1.0 <= found.high_ratio

    assert 0 < alarms / trials < 0.016


def test_compare_finds_nothing_in_noise() -> None:
    """Pure noise of 30 % over 200 pairs of 4 runs yields a p below 0.001 at most twice."""
    rng = np.random.default_rng(3)
    samples = rng.lognormal(0.0, 0.3, (200, 2, 4))

    found = sum(_compare(base, candidate).p_value < 0.001 for base, candidate in samples)

    assert found <= 2


def test_compare_finds_a_planted_change() -> None:
    """A loss of 10 % under 1 % of noise is found in all of 200 pairs of 4 runs, at its size."""
    rng = np.random.default_rng(4)
    samples = rng.lognormal(0.0, 0.01, (200, 2, 4))

    found = [_compare(base, candidate * 0.9, 0.99) for base, candidate in samples]

    assert all(one.high_ratio < 1.0 for one in found)
    assert np.mean([one.estimate_ratio for one in found]) == pytest.approx(0.9, rel=0.002)
    covered = sum(one.low_ratio <= 0.9 <= one.high_ratio for one in found)
    assert covered >= 194  # 198 expected; 4 is over two standard errors


@pytest.mark.parametrize(("candidate", "p_value"), [([2.0, 2.0], 1.0), ([1.0, 1.0, 1.0], 0.0)])
def test_compare_without_any_spread_is_a_point(candidate: list[float], p_value: float) -> None:
    """Exact numbers give an interval of no width, and no made-up uncertainty."""
    found = _compare([2.0, 2.0, 2.0], candidate)

    assert found.low_ratio == found.estimate_ratio == found.high_ratio
    assert found.estimate_ratio == pytest.approx(candidate[0] / 2.0)
    assert found.p_value == p_value


def test_compare_of_equal_values_without_exact_logs_is_a_point() -> None:
    """Rounding in the mean of equal logs is no spread."""
    assert _compare([0.1] * 3, [0.1] * 7).p_value == 1.0


def test_compare_with_one_constant_side_uses_the_other_spread() -> None:
    """Spread on one side is enough for an interval."""
    found = _compare([2.0, 2.0, 2.0], [2.0, 2.1, 1.9])

    assert found.low_ratio < 1.0 < found.high_ratio


def test_compare_survives_a_tiny_spread() -> None:
    """A spread near the limit of floats neither divides by zero nor turns into NaN."""
    found = _compare([1.0, 1.0 + 1e-15], [1.0, 1.0 + 1e-15])

    assert math.isfinite(found.low_ratio)
    assert found.p_value == pytest.approx(1.0)


def test_compare_gives_an_infinite_end_where_floats_end() -> None:
    """Two wild runs on each side rule nothing out, and are no crash."""
    found = _compare([1.0, 1e6], [1.0, 2e6], confidence=0.9999)

    assert found.low_ratio == 0.0
    assert found.high_ratio == math.inf


@pytest.mark.parametrize(
    ("base", "candidate", "message"),
    [
        ([1.0], [1.0, 2.0], "base: expected at least 2 values, one per run, got 1"),
        ([1.0, 2.0], [], "candidate: expected at least 2 values"),
        ([1.0, float("nan")], [1.0, 2.0], "base: expected finite numbers"),
        ([1.0, 2.0], [1.0, float("inf")], "candidate: expected finite numbers"),
        ([1.0, 2.0], [0.0, 2.0], "candidate: expected values above 0"),
        ([1.0, -2.0], [1.0, 2.0], "base: expected values above 0"),
        ([[1.0, 2.0]], [1.0, 2.0], r"base: expected one value per run, got shape \(1, 2\)"),
    ],
)
def test_compare_refuses_what_has_no_answer(base: object, candidate: object, message: str) -> None:
    """Too few, not finite or not positive: an error that names the side, never a number."""
    with pytest.raises(ValueError, match=message):
        _compare(base, candidate)


@pytest.mark.parametrize("confidence", [0.0, 1.0, 99.0, float("nan")])
def test_compare_refuses_an_impossible_confidence(confidence: float) -> None:
    """99 for 99 % is a mistake that must not pass."""
    with pytest.raises(ValueError, match="confidence must be in"):
        _compare([1.0, 2.0], [1.0, 2.0], confidence)


@pytest.mark.parametrize("margin", [-0.1, float("nan")])
def test_compare_refuses_an_impossible_margin(margin: float) -> None:
    """A margin below zero is a mistake."""
    with pytest.raises(ValueError, match="margin_ratio must be >= 0"):
        _compare([1.0, 2.0], [1.0, 2.0], margin_ratio=margin)
