"""Change points: the exact cheapest split, silence on noise, planted changes, speed."""

import itertools
import math
import time
from functools import lru_cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from draftgate.stats import changepoint
from draftgate.stats.changepoint import (
    ChangePoint,
    FloatArray,
    change_points,
    levels_of,
    long_run_factor,
    noise_of,
    segment,
)

DEPENDENT = {"independent": 0.0, "rho 0.3": 0.3}


def noise(count: int, seed: int, *, rho: float = 0.0, outliers: bool = False) -> FloatArray:
    """Return stationary noise of variance 1; with outliers, one value in 30 is 5 to 20 off."""
    rng = np.random.default_rng(seed)
    steps = rng.normal(size=count)
    values = steps.copy()
    for place in range(1, count):
        values[place] = rho * values[place - 1] + math.sqrt(1.0 - rho**2) * steps[place]
    if outliers:
        off = rng.random(count) < 1 / 30
        values[off] += rng.choice([-1.0, 1.0], off.sum()) * rng.uniform(5.0, 20.0, off.sum())
    return values


def literal_cost(part: FloatArray, levels: FloatArray, clip_sd: float) -> float:
    """Return the least clipped square loss of one segment, level by level."""
    return min(
        sum(min((value - level) ** 2, clip_sd**2) for value in part.tolist())
        for level in levels.tolist()
    )


def split_cost(
    scaled: FloatArray, cuts: tuple[int, ...], levels: FloatArray, penalty: float, clip_sd: float
) -> float:
    """Return the cost of one split by its definition."""
    parts = np.split(scaled, cuts)
    return penalty * len(cuts) + sum(literal_cost(part, levels, clip_sd) for part in parts)


def literal_least(
    scaled: FloatArray, levels: FloatArray, penalty: float, clip_sd: float, min_segment: int
) -> float:
    """Return the least cost over all splits: optimal partitioning, segment by segment."""

    @lru_cache
    def upto(end: int) -> float:
        if end == 0:
            return -penalty
        return min(
            upto(start) + penalty + literal_cost(scaled[start:end], levels, clip_sd)
            for start in range(end)
            if end - start >= min_segment and (start == 0 or start >= min_segment)
        )

    return upto(scaled.size)


@settings(max_examples=60, deadline=None)
@given(
    values=st.lists(st.integers(-40, 40), min_size=5, max_size=16),
    penalty=st.sampled_from([0.5, 3.0, 12.0]),
    clip_sd=st.sampled_from([1.0, 3.0]),
    min_segment=st.integers(1, 4),
)
def test_split_costs_what_the_literal_optimum_costs(
    values: list[int], penalty: float, clip_sd: float, min_segment: int
) -> None:
    """No split is cheaper than the one found, and its segments are long enough."""
    scaled = np.array(values) / 7.0
    levels = levels_of(scaled, clip_sd)[::5]

    cuts = segment(scaled, levels, penalty, clip_sd, min_segment)

    got = split_cost(scaled, cuts, levels, penalty, clip_sd)
    assert got == pytest.approx(
        literal_least(scaled, levels, penalty, clip_sd, min_segment), abs=1e-9
    )
    lengths = np.diff([0, *cuts, scaled.size])
    assert lengths.min() >= min_segment


@pytest.mark.parametrize("seed", range(10))
def test_split_is_the_best_of_all_that_exist(seed: int) -> None:
    """On eleven values with a step, trying all 1,024 splits finds none cheaper."""
    scaled = noise(11, seed) + np.repeat([0.0, 4.0], [6, 5])
    levels = levels_of(scaled, 3.0)
    every = (
        cuts
        for size in range(11)
        for cuts in itertools.combinations(range(1, 11), size)
        if min(np.diff([0, *cuts, 11])) >= 2
    )

    best = min(every, key=lambda cuts: split_cost(scaled, cuts, levels, 4.0, 3.0))

    assert segment(scaled, levels, 4.0, 3.0, 2) == best


@pytest.mark.parametrize("seed", range(5))
def test_grid_of_levels_costs_next_to_nothing(seed: int) -> None:
    """The best level of the grid costs at most 0.0025 a value more than the mean does."""
    scaled = noise(300, seed)
    scaled -= np.median(scaled)

    on_grid = literal_cost(scaled, levels_of(scaled, 50.0), 50.0)

    assert on_grid - float(((scaled - scaled.mean()) ** 2).sum()) <= 0.0025 * 300


def test_levels_stay_few_on_a_long_drift() -> None:
    """A drift over 100,000 standard deviations gets 2,000 levels, from end to end."""
    levels = levels_of(np.linspace(0.0, 1e5, 5000), 4.0)

    assert levels.size == 2000
    assert (levels[0], levels[-1]) == (0.0, 1e5)


@pytest.mark.parametrize("outliers", [False, True], ids=["clean", "outliers"])
@pytest.mark.parametrize("count", [60, 120, 365])
@pytest.mark.parametrize("rho", DEPENDENT.values(), ids=DEPENDENT.keys())
def test_noise_alone_gives_no_change(count: int, rho: float, outliers: bool) -> None:  # noqa: FBT001 - parametrised
    """At most 2 of 100 series of noise alone have a change point."""
    alarms = sum(
        bool(change_points(noise(count, seed, rho=rho, outliers=outliers))) for seed in range(100)
    )

    assert alarms <= 2


@pytest.mark.parametrize("count", [60, 365])
def test_strong_dependence_is_rarely_taken_for_a_change(count: int) -> None:
    """At rho 0.6 at most 8 of 100 series have a change point, though their level wanders."""
    alarms = sum(bool(change_points(noise(count, seed, rho=0.6))) for seed in range(100))

    assert alarms <= 8


@pytest.mark.parametrize("outliers", [False, True], ids=["clean", "outliers"])
@pytest.mark.parametrize(("size", "after", "least"), [(2.0, 30, 40), (3.0, 15, 40), (2.0, 180, 40)])
def test_planted_change_is_found(size: float, after: int, least: int, outliers: bool) -> None:  # noqa: FBT001 - parametrised
    """Most of 50 planted changes are found within five values of their place, up or down."""
    place = 365 - after
    found = 0
    for seed in range(50):
        values = 100.0 + noise(365, seed, outliers=outliers)
        values[place:] += size if seed % 2 else -size
        found += any(abs(change.index - place) <= 5 for change in change_points(values))

    assert found >= least


def test_change_says_where_and_how_much() -> None:
    """A step from 100 to 110 with noise of 1 is one change with its levels, ratio and size."""
    values = np.repeat([100.0, 110.0], [80, 40]) + noise(120, 3)

    (change,) = change_points(values)

    assert change.index == 80
    assert change.before == np.median(values[:80])
    assert change.after == np.median(values[80:])
    assert change.ratio == change.after / change.before
    assert change.shift_sd == pytest.approx(10.0, rel=0.25)
    assert change.p_value < 1e-9


def test_an_episode_of_a_week_is_two_changes() -> None:
    """Seven nights six standard deviations off, then back: both edges are found."""
    values = noise(200, 4)
    values[120:127] += 6.0

    assert [change.index for change in change_points(values)] == [120, 127]


@pytest.mark.parametrize("length", [1, 2, 3])
def test_short_excursions_are_outliers(length: int) -> None:
    """Up to three values in a row, however far off, are no change."""
    values = noise(200, 4)
    values[120 : 120 + length] += 1000.0

    assert change_points(values) == ()


@pytest.mark.parametrize(("scale", "offset"), [(1e-9, 0.0), (1e9, 0.0), (-1.0, 0.0), (1.0, 1e4)])
def test_unit_and_origin_do_not_matter(scale: float, offset: float) -> None:
    """Scaled, mirrored or moved, a series changes at the same places."""
    values = np.repeat([0.0, 4.0, 1.0], 50) + noise(150, 6)

    moved = change_points(scale * values + offset)

    assert [change.index for change in moved] == [change.index for change in change_points(values)]
    assert len(moved) == 2


def test_exact_counts_change_without_noise() -> None:
    """A series without any noise changes exactly where its value does."""
    changes = change_points([3.0] * 30 + [4.0] * 30)

    assert changes == (ChangePoint(30, 3.0, 4.0, 4.0 / 3.0, changes[0].shift_sd, 0.0),)


def test_rounding_is_no_change() -> None:
    """A constant whose sums differ in the last bits has no change."""
    values = np.repeat([0.3, 0.1 + 0.2], 50)

    assert values[0] != values[-1]
    assert change_points(values) == ()


def test_constant_series_has_no_change() -> None:
    """Without any scatter there is nothing to find."""
    assert change_points([5.0] * 20) == ()


def test_ratio_is_absent_from_zero() -> None:
    """A level of 0 has no ratio."""
    (change,) = change_points([0.0] * 30 + [4.0] * 30)

    assert change.ratio is None


@pytest.mark.parametrize("slope_sd", [0.005, 0.01])
def test_slow_drift_is_no_chain_of_changes(slope_sd: float) -> None:
    """A drift of up to 3.65 standard deviations in a year splits the series, but is not kept."""
    drifting = [slope_sd * np.arange(365.0) + noise(365, seed) for seed in range(50)]

    assert sum(bool(change_points(values, alpha=1.0)) for values in drifting) >= 25
    assert sum(bool(change_points(values)) for values in drifting) <= 2


@pytest.mark.parametrize("seed", range(3))
def test_only_the_cuts_of_a_drift_are_dropped(seed: int) -> None:
    """A step before a slow drift stays, and everything that stays passes the local test."""
    values = noise(365, seed) + 0.01 * np.arange(365.0)
    values[60:] += 6.0

    kept = change_points(values)

    assert len(change_points(values, alpha=1.0)) >= 2
    assert [change.index for change in kept] == [60]
    assert kept[0].p_value <= 1e-3


@pytest.mark.parametrize(("size", "factor"), [((5, 25), 1.0), ((25, 25), 4.0), ((12, 7), 1.0)])
def test_local_test_is_welch_with_wider_variances(size: tuple[int, int], factor: float) -> None:
    """The p-value is scipy's, of sides whose spread is stretched by the root of the factor."""
    left, right = noise(size[0], 12), 1.0 + 2.0 * noise(size[1], 13)
    stretched = [side.mean() + math.sqrt(factor) * (side - side.mean()) for side in (left, right)]

    expected = stats.ttest_ind(*stretched, equal_var=False).pvalue

    assert changepoint._welch_p(left, right, factor) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize(("rho", "low", "high"), [(0.0, 0.0, 0.45), (0.6, 0.2, 0.8)])
def test_noise_of_a_short_series_is_told_from_another(rho: float, low: float, high: float) -> None:
    """Of 400 series of 60 values at most 5 % have a rho outside a range that others keep."""
    found = [noise_of(noise(60, seed, rho=rho)).rho for seed in range(400)]

    assert sum(not low <= one <= high for one in found) <= 20


@pytest.mark.parametrize(("count", "after", "size"), [(60, 30, 5.0), (60, 10, 8.0), (120, 60, 4.0)])
def test_plain_step_of_a_short_series_is_found(count: int, after: int, size: float) -> None:
    """Of 200 steps far above independent noise at most 4 % stay unseen within 2 values."""
    missed = 0
    for seed in range(200):
        values = noise(count, seed)
        values[count - after :] += size
        missed += not any(abs(c.index - (count - after)) <= 2 for c in change_points(values))

    assert missed <= 8


@pytest.mark.parametrize("rho", [0.0, 0.3, 0.6])
def test_noise_is_estimated_past_changes_and_outliers(rho: float) -> None:
    """Three steps and outliers move neither the spread nor the correlation much."""
    values = np.repeat([0.0, 20.0, -5.0, 8.0], 500) + noise(2000, 9, rho=rho, outliers=True)

    estimate = noise_of(values)

    assert estimate.sd == pytest.approx(1.0, rel=0.15)
    assert estimate.rho == pytest.approx(rho, abs=0.12)
    assert estimate.inflation == (1.0 + estimate.rho) / (1.0 - estimate.rho)


@pytest.mark.parametrize(("rho", "factor"), [(0.0, 1.0), (0.3, 1.86), (0.6, 4.0)])
def test_long_run_factor_is_that_of_the_process(rho: float, factor: float) -> None:
    """On 20,000 values it is near (1 + rho) / (1 - rho), a little below for its few lags."""
    assert long_run_factor(noise(20_000, 10, rho=rho)) == pytest.approx(factor, rel=0.15)


def test_long_run_factor_weighs_lags_as_bartlett() -> None:
    """Eight values, two lags: 1 + 2 * 2/3 * 5/8 + 2 * 1/3 * 2/8 by hand."""
    assert long_run_factor(np.repeat([1.0, -1.0], 4)) == pytest.approx(2.0, abs=1e-12)


def test_long_run_factor_has_bounds() -> None:
    """Alternation never narrows it, and a slow wave widens it ninefold at most."""
    assert long_run_factor(np.tile([1.0, -1.0], 100)) == 1.0
    assert long_run_factor(np.sin(np.arange(20_000) / 2000.0)) == 9.0
    assert long_run_factor(np.zeros(10)) == 1.0


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_values_that_are_no_numbers_are_refused(bad: float) -> None:
    """NaN and infinities are named with their position."""
    with pytest.raises(ValueError, match="at position 7"):
        change_points([1.0] * 7 + [bad] + [1.0] * 7)


def test_too_few_values_are_refused() -> None:
    """Two segments' worth of values is the least."""
    with pytest.raises(ValueError, match="expected at least 10 values, got 9"):
        change_points([1.0] * 9)


def test_a_table_is_refused() -> None:
    """Only one value per run is a series."""
    with pytest.raises(ValueError, match=r"got shape \(5, 4\)"):
        change_points(np.ones((5, 4)))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("penalty", 0.0),
        ("penalty", math.nan),
        ("penalty", math.inf),
        ("min_segment", 1),
        ("clip_sd", 0.0),
        ("window", 1),
        ("alpha", 0.0),
        ("alpha", 1.5),
    ],
)
def test_settings_out_of_range_are_refused(name: str, value: float) -> None:
    """A setting that means nothing is named."""
    with pytest.raises(ValueError, match=name):
        change_points([1.0] * 20, **{name: value})


@pytest.mark.parametrize("kind", ["noise", "steps", "walk"])
def test_a_thousand_values_take_under_a_fifth_of_a_second(kind: str) -> None:
    """The best of three calls, so that a busy machine is not what is measured."""
    values = {
        "noise": noise(1000, 11),
        "steps": noise(1000, 11) + np.repeat(np.arange(20.0) % 3 * 6.0, 50),
        "walk": 5.0 * np.cumsum(noise(1000, 11)),
    }[kind]
    taken = []
    for _ in range(3):
        start = time.perf_counter()
        change_points(values)
        taken.append(time.perf_counter() - start)

    assert min(taken) < 0.2
