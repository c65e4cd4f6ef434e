"""Tail percentiles of a run: their bound and their spread."""

import math

import numpy as np
import pytest
from scipy import stats

from draftgate.stats.tail import quantile_sd_log, requests_for_bound, upper_quantile_bound


@pytest.mark.parametrize(
    ("share", "confidence", "requests"),
    [(0.99, 0.95, 299), (0.95, 0.95, 59), (0.9, 0.95, 29), (0.99, 0.99, 459), (0.5, 0.75, 2)],
)
def test_requests_for_bound_are_wilks(share: float, confidence: float, requests: int) -> None:
    """The published sample sizes, and the definition on both sides of each."""
    found = requests_for_bound(share, confidence=confidence)

    assert found == requests
    assert 1 - share**found >= confidence > 1 - share ** (found - 1)


@pytest.mark.parametrize("requests", [299, 473, 1000, 2000])
def test_upper_bound_is_the_first_order_statistic_that_suffices(requests: int) -> None:
    """The rank is the smallest whose binomial tail, by scipy, holds 95 %."""
    values = np.arange(1.0, requests + 1)
    np.random.default_rng(1).shuffle(values)
    rank = int(upper_quantile_bound(values, 0.99))

    assert stats.binom.cdf(rank - 1, requests, 0.99) >= 0.95
    assert stats.binom.cdf(rank - 2, requests, 0.99) < 0.95


@pytest.mark.parametrize("law", ["uniform", "standard_exponential", "standard_cauchy"])
def test_upper_bound_keeps_its_rate(law: str) -> None:
    """Of 2,000 runs of 400 requests at most 5 % lie below the true p99, plus 4 sd; any law."""
    true = {"uniform": stats.uniform, "standard_exponential": stats.expon}.get(law, stats.cauchy)
    rng = np.random.default_rng(2)
    misses = sum(
        upper_quantile_bound(getattr(rng, law)(size=400), 0.99) < true.ppf(0.99)
        for _ in range(2000)
    )

    assert 0 < misses <= 0.05 * 2000 + 4 * math.sqrt(0.05 * 2000)


@pytest.mark.parametrize(("share", "requests"), [(0.5, 101), (0.95, 200), (0.99, 200)])
def test_sd_is_that_of_a_bootstrap(share: float, requests: int) -> None:
    """The closed form is what 20,000 resamples give, within 4 %."""
    rng = np.random.default_rng(3)
    values = rng.lognormal(0, 0.25, requests)
    resamples = np.log(values[rng.integers(0, requests, (20_000, requests))])
    drawn = np.quantile(resamples, share, axis=1, method="inverted_cdf").std()

    assert quantile_sd_log(values, share) == pytest.approx(drawn, rel=0.04)


def test_sd_finds_the_true_one() -> None:
    """Its mean over 400 runs of 1,000 requests is the true spread of the p99, within 10 %."""
    rng = np.random.default_rng(4)
    runs = rng.lognormal(0, 0.25, (400, 1000))
    true = np.log(np.quantile(runs, 0.99, axis=1, method="inverted_cdf")).std()

    assert np.mean([quantile_sd_log(run, 0.99) for run in runs]) == pytest.approx(true, rel=0.1)


def test_equal_requests_have_no_spread() -> None:
    """Noise of zero is found as zero."""
    assert quantile_sd_log([2.0] * 50, 0.99) == 0.0


def test_a_longer_tail_has_a_larger_sd() -> None:
    """One in fifty requests ten times as slow makes the p99 at least five times less certain."""
    rng = np.random.default_rng(5)
    calm = rng.lognormal(0, 0.05, 1000)
    stalled = np.where(np.arange(1000) % 90 == 0, 10 * calm, calm)

    assert quantile_sd_log(stalled, 0.99) > 5 * quantile_sd_log(calm, 0.99)


def test_too_few_requests_are_named() -> None:
    """298 requests have no upper bound of the p99, and the message says how many it takes."""
    with pytest.raises(ValueError, match="p99: got 298, expected at least 299"):
        upper_quantile_bound(np.ones(298), 0.99)


@pytest.mark.parametrize(
    ("values", "share", "message"),
    [
        ([1.0], 0.99, "at least 2"),
        ([1.0, 0.0], 0.99, "above 0"),
        ([1.0, -1.0], 0.99, "above 0"),
        ([1.0, math.nan], 0.99, "NaN"),
        ([], 0.99, "one value per request"),
        ([1.0, 2.0], 1.0, "share"),
    ],
)
def test_sd_refuses(values: list[float], share: float, message: str) -> None:
    """Too few values, zero, negative, NaN and shares out of range are named."""
    with pytest.raises(ValueError, match=message):
        quantile_sd_log(values, share)


@pytest.mark.parametrize(("share", "confidence"), [(0.0, 0.95), (1.0, 0.95), (0.99, 1.0)])
def test_requests_for_bound_refuses(share: float, confidence: float) -> None:
    """Shares and confidences out of range are refused."""
    with pytest.raises(ValueError, match="must be in"):
        requests_for_bound(share, confidence=confidence)
