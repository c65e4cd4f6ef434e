"""The paired ratio of the report: oracle, negative control, planted change, false alarms."""

import math

import numpy as np
import pytest
from scipy import stats

from draftgate.report.ratios import CONFIDENCE, ratio_of


def _sides(
    rng: np.random.Generator, runs: int, effect: float
) -> tuple[dict[int, float], dict[int, float]]:
    """Draw runs that share the machine's mood per repeat, candidate times `effect`."""
    mood = rng.normal(0.0, 0.2, runs)
    base = np.exp(mood + rng.normal(0.0, 0.01, runs))
    candidate = effect * np.exp(mood + rng.normal(0.0, 0.01, runs))
    return dict(enumerate(base.tolist())), dict(enumerate(candidate.tolist()))


def test_interval_is_that_of_scipys_paired_t_test() -> None:
    """Estimate and interval equal scipy's one-sample t interval of the log ratios."""
    base, candidate = _sides(np.random.default_rng(1), 6, 1.3)
    logs = [math.log(candidate[i] / base[i]) for i in range(6)]
    oracle = stats.ttest_1samp(logs, 0.0).confidence_interval(CONFIDENCE)

    ratio = ratio_of(base, candidate)

    assert ratio is not None
    assert ratio.estimate == pytest.approx(math.exp(sum(logs) / 6))
    assert ratio.low == pytest.approx(math.exp(oracle.low))
    assert ratio.high == pytest.approx(math.exp(oracle.high))


def test_same_against_same_is_rarely_clear() -> None:
    """Of 2000 comparisons without an effect 5 % look clear, give or take 1.4 %, which is
    three standard errors.
    """
    rng = np.random.default_rng(2)
    trials = 2000

    ratios = [ratio_of(*_sides(rng, 4, 1.0)) for _ in range(trials)]

    alarms = sum(ratio is not None and ratio.clear for ratio in ratios)
    assert 0.036 * trials <= alarms <= 0.064 * trials


def test_pairing_finds_what_the_mood_of_the_machine_hides() -> None:
    """A planted 10 % is clear in nearly all of 200 trials, with a machine that varies by 20 %."""
    rng = np.random.default_rng(3)

    ratios = [ratio_of(*_sides(rng, 4, 1.1)) for _ in range(200)]

    found = sum(r is not None and r.clear and 1.0 < r.estimate < 1.2 for r in ratios)
    assert found >= 190


def test_ratios_of_factors_multiply_to_that_of_their_product() -> None:
    """The decomposition is exact: the factors' estimates give the whole."""
    rng = np.random.default_rng(4)
    sides = [[dict(enumerate(rng.uniform(1, 2, 4).tolist())) for _ in range(2)] for _ in range(3)]
    product = [
        {i: math.prod(factor[side][i] for factor in sides) for i in range(4)} for side in range(2)
    ]

    factors = [ratio_of(*pair) for pair in sides]
    whole = ratio_of(*product)

    assert whole is not None
    estimates = [factor.estimate for factor in factors if factor is not None]
    assert len(estimates) == 3
    assert math.prod(estimates) == pytest.approx(whole.estimate, rel=1e-12)


def test_repeats_without_partner_are_left_out() -> None:
    """Only repeats that both sides have enter."""
    ratio = ratio_of({0: 1.0, 1: 1.0, 2: 50.0}, {0: 2.0, 1: 2.0, 3: 0.1})

    assert ratio is not None
    assert (ratio.estimate, ratio.runs, ratio.paired) == (pytest.approx(2.0), 2, True)


def test_one_pair_gives_no_interval() -> None:
    """One run says nothing about its own spread."""
    ratio = ratio_of({0: 2.0}, {0: 3.0})

    assert ratio is not None
    assert (ratio.estimate, ratio.low, ratio.high) == (pytest.approx(1.5), None, None)
    assert not ratio.clear


def test_no_shared_repeat_gives_a_ratio_without_interval() -> None:
    """Unpaired runs are compared by their geometric means, and say so."""
    ratio = ratio_of({0: 1.0, 1: 4.0}, {2: 3.0, 3: 12.0})

    assert ratio is not None
    assert (ratio.estimate, ratio.low, ratio.paired) == (pytest.approx(3.0), None, False)


@pytest.mark.parametrize("bad", [0.0, -1.0, math.nan, math.inf])
def test_what_has_no_relative_change_has_no_ratio(bad: float) -> None:
    """A value that is not a finite number above 0 gives no ratio, on either side."""
    assert ratio_of({0: bad}, {0: 1.0}) is None
    assert ratio_of({0: 1.0}, {0: bad}) is None
    assert ratio_of({}, {0: 1.0}) is None


def test_inverse_swaps_the_ends() -> None:
    """The inverse's interval is the inverted interval, the lower end first."""
    ratio = ratio_of({0: 1.0, 1: 1.1, 2: 0.9}, {0: 2.0, 1: 2.1, 2: 2.2})
    assert ratio is not None
    assert ratio.low is not None
    assert ratio.high is not None

    inverse = ratio.inverse()

    assert inverse.estimate == pytest.approx(1 / ratio.estimate)
    assert (inverse.low, inverse.high) == (
        pytest.approx(1 / ratio.high),
        pytest.approx(1 / ratio.low),
    )
