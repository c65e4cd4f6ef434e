"""What the gate can show: power against loss, pairs and requests."""

import math

import numpy as np
import pytest
from scipy import special, stats

from draftgate.stats.power import (
    Design,
    Noise,
    gate_power,
    pairs_needed,
    requests_needed,
    smallest_loss,
    t_power,
)

MARGIN = math.log(1.02)
LOSS = math.log(1.1)
TAIL = Noise(between_sd_log=0.02, within_sd_log=0.066, requests=200)


@pytest.mark.parametrize(("pairs", "excess"), [(4, 1.0), (20, 0.5), (24, 0.8)])
def test_t_power_agrees_with_scipy(pairs: int, excess: float) -> None:
    """The power is the survival function of scipy's noncentral t."""
    bound = stats.t.ppf(0.995, pairs - 1)
    oracle = stats.nct.sf(bound, pairs - 1, excess * math.sqrt(pairs))

    assert t_power(excess, 1.0, pairs, 0.005) == pytest.approx(oracle)


@pytest.mark.parametrize("excess", [0.0, 100.0])
def test_t_power_at_its_ends(excess: float) -> None:
    """At the margin the power is the level; far beyond it is 1."""
    assert t_power(excess, 1.0, 20, 0.005) == pytest.approx(0.005 if excess == 0.0 else 1.0)


def test_noise_alone_is_found_at_the_product_of_levels() -> None:
    """A loss at the margin is a REGRESSION in .005 * .05 of comparisons."""
    found = gate_power(TAIL, loss_log=MARGIN, margin_log=MARGIN, requests=200)

    assert found == pytest.approx(0.005 * 0.05)


def test_power_agrees_with_simulated_runs() -> None:
    """10 % in the p99 of 200 lognormal requests: theory within 6 points of 4,000 simulations.

    The p99 is the exact order statistic of each start; its spread is not normal.
    """
    rng = np.random.default_rng(1)

    def losses(pairs: int) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
        uniform = rng.beta(198, 3, (2, 4000, pairs))
        starts = 0.25 * special.ndtri(uniform) + rng.normal(0, 0.02, uniform.shape)
        return np.asarray(starts[1] - starts[0] + LOSS)

    first = stats.ttest_1samp(losses(20), MARGIN, axis=1, alternative="greater").pvalue < 0.005
    second = stats.ttest_1samp(losses(24), MARGIN, axis=1, alternative="greater").pvalue < 0.05
    within = float((0.25 * special.ndtri(rng.beta(198, 3, 100_000))).std())
    theory = gate_power(Noise(0.02, within, 200), loss_log=LOSS, margin_log=MARGIN, requests=200)

    assert float((first & second).mean()) == pytest.approx(theory, abs=0.06)


def test_pairs_needed_is_the_first_number_that_suffices() -> None:
    """The power reaches 80 % at the number and not one pair before."""
    pairs = pairs_needed(TAIL, loss_log=LOSS, margin_log=MARGIN, requests=200)

    assert pairs is not None

    def power(n: int) -> float:
        design = Design(n, max(24, math.ceil(1.2 * n)))
        return gate_power(TAIL, loss_log=LOSS, margin_log=MARGIN, requests=200, design=design)

    assert power(pairs) >= 0.8 > power(pairs - 1)


def test_requests_needed_is_the_first_number_that_suffices() -> None:
    """The power reaches 80 % at the number and not one request before."""
    requests = requests_needed(TAIL, loss_log=LOSS, margin_log=MARGIN)

    assert requests is not None

    def power(n: int) -> float:
        return gate_power(TAIL, loss_log=LOSS, margin_log=MARGIN, requests=n)

    assert power(requests) >= 0.8 > power(requests - 1)


def test_smallest_loss_is_found_with_the_power() -> None:
    """The gate finds the loss with 80 % and one of 1e-4 less more rarely."""
    loss = smallest_loss(TAIL, margin_log=MARGIN, requests=200)

    assert loss is not None
    assert gate_power(TAIL, loss_log=loss, margin_log=MARGIN, requests=200) >= 0.8
    assert gate_power(TAIL, loss_log=loss - 1e-4, margin_log=MARGIN, requests=200) < 0.8


def test_more_requests_do_not_help_against_the_starts() -> None:
    """Where starts alone differ by 10 %, no number of requests finds 10 %; pairs do."""
    noise = Noise(between_sd_log=0.1, within_sd_log=0.066, requests=200)

    assert requests_needed(noise, loss_log=LOSS, margin_log=MARGIN) is None
    assert pairs_needed(noise, loss_log=LOSS, margin_log=MARGIN, requests=200) is not None


def test_a_tolerated_loss_needs_no_number() -> None:
    """A loss within the margin is never found, however many pairs or requests."""
    assert pairs_needed(TAIL, loss_log=MARGIN, margin_log=MARGIN, requests=200) is None
    assert requests_needed(TAIL, loss_log=MARGIN, margin_log=MARGIN) is None


def test_a_lower_level_needs_more() -> None:
    """In a family of 48 gates more pairs are needed than alone."""
    strict = Design(confirm_level=0.003)
    alone = pairs_needed(TAIL, loss_log=LOSS, margin_log=MARGIN, requests=200)
    family = pairs_needed(TAIL, loss_log=LOSS, margin_log=MARGIN, requests=200, design=strict)

    assert alone is not None
    assert family is not None
    assert family > alone


@pytest.mark.parametrize(("requests", "sd"), [(200, 0.066), (800, 0.033)])
def test_pair_spread_adds_both_parts(requests: int, sd: float) -> None:
    """Within a start the spread halves with four times the requests; between starts it stays."""
    assert TAIL.pair_sd_log(requests) == pytest.approx(math.sqrt(2 * (0.02**2 + sd**2)))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"between_sd_log": math.nan}, "between_sd_log"),
        ({"between_sd_log": -0.1}, "between_sd_log"),
        ({"between_sd_log": 0.1, "within_sd_log": math.inf}, "within_sd_log"),
        ({"between_sd_log": 0.0}, "both spreads are 0"),
        ({"between_sd_log": 0.1, "requests": 0}, "requests"),
    ],
)
def test_noise_refuses(settings: dict[str, float], message: str) -> None:
    """Spreads that are NaN, negative, infinite or both zero are named."""
    with pytest.raises(ValueError, match=message):
        Noise(**settings)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"stage_one_pairs": 1}, "at least 2 pairs"),
        ({"stage_two_pairs": 0}, "at least 2 pairs"),
        ({"suspect_level": 0.0}, "suspect_level"),
        ({"confirm_level": 0.5}, "confirm_level"),
    ],
)
def test_design_refuses(settings: dict[str, float], message: str) -> None:
    """Sizes and levels out of range are named."""
    with pytest.raises(ValueError, match=message):
        Design(**settings)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("loss", "requests", "power", "message"),
    [
        (math.nan, 200, 0.8, "finite"),
        (0.1, 0, 0.8, "requests"),
        (0.1, 200, 1.0, "power"),
    ],
)
def test_questions_refuse(loss: float, requests: int, power: float, message: str) -> None:
    """A loss that is no number, no request and a power of 1 are named."""
    with pytest.raises(ValueError, match=message):
        pairs_needed(TAIL, loss_log=loss, margin_log=MARGIN, requests=requests, power=power)
