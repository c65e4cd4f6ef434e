"""A learned level: its numbers, its bounds, and when there is none."""

import math
import statistics

import numpy as np
import pytest

from draftgate.stats.level import Level, learn_level


def learned(values: list[float]) -> Level:
    """Return the level of values of equal size."""
    return learn_level(np.array(values), np.full(len(values), 50.0))


def test_mean_and_spread_are_the_plain_ones() -> None:
    """Where neighbours are not alike the spread is the standard deviation."""
    values = [1.0, 2.0, 1.5, 0.5, 1.2] * 6

    level = learned(values)

    assert level.mean == pytest.approx(statistics.fmean(values))
    assert level.sd == pytest.approx(statistics.stdev(values))
    assert (level.rho, level.count, level.size) == (0.0, 30, 50.0)


def test_bounds_hold_as_often_as_stated() -> None:
    """Over 4,000 references of 30 normal values each bound holds in 75 %, plus or minus 2 %."""
    rng = np.random.default_rng(1)
    sds, means = 0, 0
    for _ in range(4_000):
        values = rng.normal(0.7, 0.03, 30)
        deviation = float(values.std(ddof=1))
        level = Level(float(values.mean()), deviation, 0.0, 30, 1.0)
        sds += level.sd_bound >= 0.03
        means += level.mean - level.mean_error <= 0.7

    assert sds / 4_000 == pytest.approx(0.75, abs=0.02)
    assert means / 4_000 == pytest.approx(0.75, abs=0.02)


def test_neighbours_that_are_alike_make_the_spread_larger() -> None:
    """An autoregression with rho .6 gets about the spread of its long run, twice the plain one."""
    rng = np.random.default_rng(2)
    values = [0.0]
    for step in rng.normal(0.0, 1.0, 4_999):
        values.append(0.6 * values[-1] + step)

    level = learned(values)

    assert level.rho == pytest.approx(0.6, abs=0.05)
    assert level.sd / float(np.std(values)) == pytest.approx(2.0, abs=0.2)


def test_independent_values_are_seldom_called_alike() -> None:
    """Of 2,000 references of 50 independent values at most 7 % get a larger spread."""
    rng = np.random.default_rng(3)
    rows = rng.normal(0.0, 1.0, (2_000, 50))

    assert sum(learned(row.tolist()).rho > 0 for row in rows) <= 0.07 * 2_000


def test_small_windows_scatter_more_and_large_ones_no_less() -> None:
    """A quarter of the size doubles the bound; four times the size leaves it."""
    level = Level(0.7, 0.03, 0.0, 50, 100.0)

    assert level.sd_at(25.0) == pytest.approx(2 * level.sd_bound)
    assert level.sd_at(400.0) == level.sd_bound


def test_values_that_hardly_differ_get_the_floor() -> None:
    """Equal values are a level if a floor of the spread is given."""
    same = np.full(20, 1.5)

    assert learn_level(same, same, least_sd=1e-4).sd == 1e-4
    with pytest.raises(ValueError, match="sd > 0"):
        learn_level(same, same)


@pytest.mark.parametrize(
    ("values", "about"),
    [
        ([1.0] * 19, "20 values or more"),
        ([1.0] * 19 + [math.nan], "finite"),
        (list(range(200)), "wander"),
    ],
)
def test_what_has_no_level_is_refused(values: list[float], about: str) -> None:
    """Too few values, values that are no numbers and values that wander."""
    with pytest.raises(ValueError, match=about):
        learned(values)
