"""Statistics of unchanged builds: against literal versions, and on noise that is known."""

import itertools
import math
from collections.abc import Callable

import numpy as np
import pytest
from scipy import stats

from draftgate.stats.losses import candidate_first
from draftgate.stats.noise import (
    holm,
    lag_one,
    pair_spread,
    redrawn_suspects,
    serial_p,
    share_interval,
    symmetry_p,
    trend,
)
from draftgate.stats.sequential import LookPlan

PLAN = LookPlan(0.01, 0.05)
Statistic = Callable[..., float]


def test_spread_agrees_with_least_squares_and_scipy() -> None:
    """Mean, effect and spread are those of numpy's least squares, the ends those of scipy."""
    rng = np.random.default_rng(2)
    first = candidate_first(24, seed=2)
    losses = rng.normal(0.01, 0.03, 24) + np.where(first, 0.02, -0.02)
    found = pair_spread(losses, first)

    design = np.column_stack([np.ones(24), np.where(first, 1.0, -1.0)])
    coefficients, rest, *_ = np.linalg.lstsq(design, losses)
    assert [found.mean.estimate, found.effect.estimate] == pytest.approx(coefficients)
    assert found.sd.estimate == pytest.approx(math.sqrt(rest[0] / 22))
    assert found.sd.low == pytest.approx(math.sqrt(rest[0] / stats.chi2.ppf(0.975, 22)))
    assert found.sd.high == pytest.approx(math.sqrt(rest[0] / stats.chi2.ppf(0.025, 22)))
    half = stats.t.ppf(0.975, 22) * math.sqrt(rest[0] / 22 / 24)
    assert found.effect.high - found.effect.estimate == pytest.approx(half)


def test_spread_of_equal_losses_is_a_point() -> None:
    """What only the order moves has no spread, and the effect is exact."""
    first = candidate_first(8, seed=1)
    found = pair_spread(np.where(first, 0.02, -0.02), first)

    assert (found.sd.low, found.sd.high) == (0.0, 0.0)
    assert found.effect.low == found.effect.high == pytest.approx(0.02)


def test_interval_of_the_spread_holds_its_coverage() -> None:
    """The true spread lies inside in 95 % of 1,000 studies of 12 pairs, to 2 points."""
    rng = np.random.default_rng(3)
    inside = 0
    for seed in range(1000):
        found = pair_spread(rng.normal(0, 0.03, 12), candidate_first(12, seed=seed))
        inside += found.sd.low < 0.03 < found.sd.high

    assert inside / 1000 == pytest.approx(0.95, abs=0.02)


def test_lag_one_agrees_with_its_definition() -> None:
    """Sum of neighbours' products over the sum of squares; 0 without variation."""
    values = np.array([1.0, 2.0, 4.0, 3.0])

    expected = (-1.5 * -0.5 + -0.5 * 1.5 + 1.5 * 0.5) / (1.5**2 + 0.5**2 + 1.5**2 + 0.5**2)
    assert lag_one(values) == pytest.approx(expected)
    assert lag_one(np.ones(4)) == 0.0


def test_trend_of_independent_values_is_scipys_regression() -> None:
    """Slope and interval are linregress's where neighbours are not alike."""
    hours = np.arange(6.0)
    levels = 0.5 * hours + np.array([0.1, -0.1, 0.1, -0.1, 0.1, -0.1])
    found, oracle = trend(levels, hours), stats.linregress(hours, levels)

    assert found.estimate == pytest.approx(oracle.slope)
    half = stats.t.ppf(0.975, 4) * oracle.stderr
    assert (found.low, found.high) == pytest.approx((oracle.slope - half, oracle.slope + half))


def test_trend_of_alike_neighbours_is_known_less_well() -> None:
    """A walk without a trend excludes 0 less often than plain least squares does."""
    rng = np.random.default_rng(4)
    hours = np.arange(40.0)
    walks = rng.normal(0, 1, (200, 40)).cumsum(axis=1)
    plain = sum(stats.linregress(hours, walk).pvalue < 0.05 for walk in walks)
    ours = sum(not found.low < 0.0 < found.high for found in (trend(w, hours) for w in walks))

    assert ours < plain / 2


@pytest.mark.parametrize("statistic", [symmetry_p, serial_p])
def test_p_values_agree_with_all_sign_vectors(statistic: Statistic) -> None:
    """Both p-values are the share of all sign vectors that reach as far."""
    losses = np.array([0.03, 0.02, -0.01, 0.04, 0.05, 0.02])
    flipped = np.array(list(itertools.product((1, -1), repeat=6))) * np.abs(losses)
    reached = {
        symmetry_p: np.abs(flipped.sum(axis=1)) >= abs(losses.sum()) - 1e-12,
        serial_p: (flipped[:, 1:] * flipped[:, :-1]).sum(axis=1)
        >= (losses[1:] * losses[:-1]).sum() - 1e-12,
    }

    assert statistic(losses, seed=1) == pytest.approx(reached[statistic].mean())


@pytest.mark.parametrize("degrees", [1, 2, 1000])
@pytest.mark.parametrize("statistic", [symmetry_p, serial_p])
def test_p_values_hold_their_level_with_heavy_tails(statistic: Statistic, degrees: int) -> None:
    """At 5 % at most 8 % of 400 studies are off, for normal and for Cauchy losses."""
    rng = np.random.default_rng(degrees)
    losses = rng.standard_t(degrees, (400, 10))
    rejected = np.mean([statistic(row, seed=1) <= 0.05 for row in losses])

    assert 0.015 < rejected < 0.08


def test_holm_agrees_with_published_steps() -> None:
    """Sorted p-values times what is left, never falling, in the order given."""
    assert holm([0.04, 0.01, 0.03]) == pytest.approx((0.06, 0.03, 0.06))
    assert holm([0.9, 0.8]) == (1.0, 1.0)
    assert holm([]) == ()


@pytest.mark.parametrize(("hits", "trials"), [(0, 10), (3, 50), (10, 10)])
def test_share_interval_agrees_with_scipy(hits: int, trials: int) -> None:
    """The ends are those of scipy's exact binomial interval."""
    found = share_interval(hits, trials)
    oracle = stats.binomtest(hits, trials).proportion_ci(method="exact")

    assert (found.low, found.high) == pytest.approx((oracle.low, oracle.high))
    assert found.estimate == hits / trials


def test_redrawn_suspects_keep_the_level_on_average() -> None:
    """Over 40 studies of normal noise that never passes the rate is near 1.4 %."""
    rng = np.random.default_rng(6)
    found = [
        redrawn_suspects(
            rng.normal(0, 0.1, 24), candidate_first(24, seed=seed), PLAN, trials=30, seed=seed
        )
        for seed in range(40)
    ]

    assert 0.004 < sum(found) / 1200 < 0.026


def test_redrawn_suspects_see_a_pattern_in_time() -> None:
    """Noise that turns its sign from pair to pair fools t at the first look in a 36th of orders."""
    first = candidate_first(24, seed=1)
    by_place = np.where(np.arange(24) % 2, -0.02, 0.02) * np.linspace(1, 1.1, 24)
    losses = np.where(first, by_place, -by_place)

    assert redrawn_suspects(losses, first, PLAN, trials=300, seed=1) > 4 * 300 * 0.014 / 3


def test_redrawn_suspects_do_not_depend_on_sides_names() -> None:
    """Losses with all names exchanged give the same count: a bias of a side cannot show here."""
    rng = np.random.default_rng(8)
    first = candidate_first(24, seed=2)
    losses = rng.normal(0, 0.1, 24)
    exchanged = tuple(not place for place in first)

    found = redrawn_suspects(losses, first, PLAN, trials=100, seed=5)
    assert found == redrawn_suspects(-losses, exchanged, PLAN, trials=100, seed=5)


def test_bad_input_is_named() -> None:
    """Shapes, ranges and too few pairs are errors, never a number."""
    with pytest.raises(ValueError, match="not all at one"):
        trend(np.zeros(4), np.ones(4))
    with pytest.raises(ValueError, match="in runs of 4"):
        redrawn_suspects(np.zeros(24), candidate_first(24, seed=1), PLAN, trials=0, seed=1)
    with pytest.raises(ValueError, match="too few pairs, got 19"):
        redrawn_suspects(np.zeros(19), candidate_first(19, seed=1), PLAN, trials=1, seed=1)
    with pytest.raises(ValueError, match=r"p-values must be in \[0, 1\]"):
        holm([math.nan])
    with pytest.raises(ValueError, match="11 of 10"):
        share_interval(11, 10)
