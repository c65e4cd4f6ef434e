"""The comparison of pairs: right, calibrated, and able to fail."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from draftgate.stats.compare import Comparison, FloatArray
from draftgate.stats.paired import compare_pairs, mean_interval

PAIRS = st.lists(st.tuples(st.floats(1.0, 8.0), st.floats(1.0, 8.0)), min_size=2, max_size=12).map(
    lambda pairs: ([b for b, _ in pairs], [c for _, c in pairs])
)


def _compare(
    base: object, candidate: object, confidence: float = 0.99, resamples: int = 999
) -> Comparison:
    return compare_pairs(
        base,  # type: ignore[arg-type]
        candidate,  # type: ignore[arg-type]
        confidence=confidence,
        seed=1,
        resamples=resamples,
    )


def _prompts(rng: np.random.Generator, n: int) -> FloatArray:
    """Return tokens per step of `n` prompts that differ widely, as chat and code do."""
    return 1.0 + rng.gamma(2.0, 0.4, n)


def _expanded(confidence: float, n: int) -> float:
    """Return the level at which a plain BCa interval is as wide as ours (Hesterberg 2015)."""
    quantile = np.sqrt(n / (n - 1)) * stats.t.ppf((1 + confidence) / 2, n - 1)
    return float(2 * stats.norm.cdf(quantile) - 1)


@pytest.mark.parametrize("confidence", [0.9, 0.95])
@pytest.mark.parametrize("n", [12, 60])
def test_interval_agrees_with_scipy(n: int, confidence: float) -> None:
    """Both ends are those of scipy's BCa bootstrap at the expanded level.

    The tolerance is about four standard errors of the ends' difference at 20,000 draws.
    """
    rng = np.random.default_rng(n)
    base = _prompts(rng, n)
    candidate = base * rng.lognormal(-0.05, 0.1, n)

    def ratio(b: FloatArray, c: FloatArray, axis: int) -> FloatArray:
        return np.asarray(c.mean(axis=axis) / b.mean(axis=axis))

    oracle = stats.bootstrap(
        (base, candidate),
        ratio,
        paired=True,
        n_resamples=20_000,
        confidence_level=_expanded(confidence, n),
        method="BCa",
        rng=np.random.default_rng(7),
    ).confidence_interval
    width = oracle.high - oracle.low

    found = _compare(base, candidate, confidence, resamples=20_000)

    assert found.estimate_ratio == pytest.approx(candidate.mean() / base.mean())
    assert found.low_ratio == pytest.approx(oracle.low, abs=0.04 * width)
    assert found.high_ratio == pytest.approx(oracle.high, abs=0.04 * width)
    assert (found.n_base, found.n_candidate) == (n, n)


def test_p_value_agrees_with_scipy() -> None:
    """The p-value is that of scipy's sign-flip test, up to the error of 20,000 flips."""
    rng = np.random.default_rng(6)
    base = _prompts(rng, 30)
    candidate = base + rng.normal(-0.03, 0.2, 30)
    oracle = stats.permutation_test(
        (candidate - base,),
        np.sum,
        permutation_type="samples",
        n_resamples=20_000,
        rng=np.random.default_rng(7),
    ).pvalue

    assert 0.05 < oracle < 0.95  # a p at either end would agree by itself
    assert _compare(base, candidate, resamples=20_000).p_value == pytest.approx(oracle, abs=0.02)


def test_mean_interval_agrees_with_scipy() -> None:
    """The interval of one mean is scipy's, too."""
    values = _prompts(np.random.default_rng(3), 40)
    oracle = stats.bootstrap(
        (values,),
        np.mean,
        n_resamples=20_000,
        confidence_level=_expanded(0.95, 40),
        method="BCa",
        rng=np.random.default_rng(7),
    ).confidence_interval

    found = mean_interval(values, confidence=0.95, seed=1, resamples=20_000)

    assert found.estimate == pytest.approx(values.mean())
    assert found.low == pytest.approx(oracle.low, abs=0.03 * (oracle.high - oracle.low))
    assert found.high == pytest.approx(oracle.high, abs=0.03 * (oracle.high - oracle.low))


@settings(deadline=None, max_examples=40)  # a busy machine is no failure
@given(pairs=PAIRS)
def test_interval_is_finite_and_draws_are_repeated(
    pairs: tuple[list[float], list[float]],
) -> None:
    """Whatever the pairs, the ends are finite, in order, and the same the second time."""
    found, again = _compare(*pairs, resamples=199), _compare(*pairs, resamples=199)

    assert found == again
    assert np.isfinite([found.low_ratio, found.high_ratio]).all()
    assert found.low_ratio <= found.high_ratio
    assert 0.0 < found.p_value <= 1.0


@pytest.mark.parametrize("n", [16, 60])
def test_false_alarms_stay_near_the_stated_rate(n: int) -> None:
    """On 2,000 same-versus-same sets of 16 or 60 pairs, 99 % intervals leave out 1 in under 2.6 %.

    Measured on 3,000 other sets it was 1.8 %, more than the stated 1 % because
    the prompts are skewed; the bound adds three standard errors over 2,000.
    """
    rng = np.random.default_rng(11)
    trials, alarms = 2000, 0
    for _ in range(trials):
        base = _prompts(rng, n)
        candidate = base * rng.lognormal(0.0, 0.1, n) / np.exp(0.005)
        found = _compare(base, candidate, resamples=999)
        alarms += not found.low_ratio <= 1.0 <= found.high_ratio

    assert 0.002 < alarms / trials < 0.026


def test_noise_is_not_called_a_loss() -> None:
    """Of 500 same-versus-same sets with every third prompt changed, none shows a loss above 5 %."""
    rng = np.random.default_rng(13)
    for _ in range(500):
        base = _prompts(rng, 60)
        noise = rng.lognormal(0.0, 0.2, 60)
        found = _compare(base, np.where(rng.random(60) < 1 / 3, base * noise, base), resamples=299)

        assert found.high_ratio > 0.95


def test_planted_loss_is_found_at_its_size() -> None:
    """A loss of 15 % on a third of 60 prompts is found in all of 200 sets, at 5 % of the whole."""
    rng = np.random.default_rng(14)
    estimates, covered = [], 0
    for _ in range(200):
        base = _prompts(rng, 60)
        candidate = base * rng.lognormal(0.0, 0.01, 60)
        candidate[:20] *= 0.85
        found = _compare(base, candidate)
        estimates.append(found.estimate_ratio)
        covered += found.low_ratio <= 0.95 <= found.high_ratio
        assert found.high_ratio < 1.0
        assert found.p_value < 0.01

    assert np.mean(estimates) == pytest.approx(0.95, abs=0.003)
    assert covered >= 194  # 198 expected; 4 is over two standard errors


def test_equal_pairs_are_a_point() -> None:
    """An unchanged greedy run gives the same numbers again, and no made-up uncertainty."""
    values = _prompts(np.random.default_rng(1), 60)

    found = _compare(values, values)

    assert (found.estimate_ratio, found.low_ratio, found.high_ratio) == (1.0, 1.0, 1.0)
    assert found.p_value == 1.0


def test_equal_loss_in_every_pair_is_a_point() -> None:
    """Where candidate / base is the same everywhere, only rounding differs between draws."""
    values = _prompts(np.random.default_rng(1), 60)

    found = _compare(values, values * 0.9)

    assert found.low_ratio == found.estimate_ratio == found.high_ratio
    assert found.estimate_ratio == pytest.approx(0.9)
    assert found.p_value < 0.01


def test_one_changed_pair_is_no_certainty() -> None:
    """A single prompt that lost half its acceptance gives an interval that reaches no change."""
    base = np.full(60, 2.0)
    candidate = base.copy()
    candidate[7] = 1.0

    found = _compare(base, candidate)

    assert found.low_ratio < found.estimate_ratio < found.high_ratio == pytest.approx(1.0)
    assert found.p_value > 0.5


@pytest.mark.parametrize(
    ("base", "candidate", "message"),
    [
        ([1.0, 2.0], [1.0, 2.0, 3.0], "expected pairs, got 2 base and 3 candidate"),
        ([1.0], [1.0], "base: expected at least 2 values"),
        ([[1.0, 2.0]], [1.0, 2.0], "base: expected at least 2 values in a row"),
        ([1.0, 0.0], [1.0, 2.0], "base: expected finite numbers above 0"),
        ([1.0, 2.0], [1.0, float("nan")], "candidate: expected finite numbers above 0"),
    ],
)
def test_what_has_no_answer_is_refused(base: object, candidate: object, message: str) -> None:
    """Too few, unpaired, not finite or not positive: an error, never a number."""
    with pytest.raises(ValueError, match=message):
        _compare(base, candidate)


@pytest.mark.parametrize(("confidence", "resamples"), [(99.0, 99), (0.0, 99), (0.9, 0)])
def test_impossible_settings_are_refused(confidence: float, resamples: int) -> None:
    """99 for 99 %, or no draws at all, is a mistake that must not pass."""
    with pytest.raises(ValueError, match="must be"):
        _compare([1.0, 2.0], [1.0, 2.0], confidence, resamples)
