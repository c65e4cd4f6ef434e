"""The decomposition of a changed mean: exact, with intervals that hold, mix apart from within."""

import numpy as np
import pytest
from scipy import stats

from draftgate.stats.poststratified import Sample, decompose, mix_p

MEANS = np.array([1.2, 2.0, 3.1])


def _sample(
    rng: np.random.Generator, shares: list[float], n: int, factors: tuple[float, ...] = (1, 1, 1)
) -> Sample:
    strata = rng.choice(3, n, p=shares)
    values = MEANS[strata] * np.array(factors)[strata] * rng.lognormal(0.0, 0.25, n)
    return Sample(values, strata)


def _literal(base: Sample, candidate: Sample) -> tuple[float, float, float]:
    """Return mix, within and post-stratified ratio by loops over strata and units."""
    shares, means = [], []
    for side in (base, candidate):
        groups = {
            k: [v for v, s in zip(side.values, side.strata, strict=True) if s == k]
            for k in range(3)
        }
        shares.append([len(groups[k]) / len(side.values) for k in range(3)])
        means.append([sum(groups[k]) / len(groups[k]) if groups[k] else None for k in range(3)])
    mix = within = above = below = 0.0
    for k in range(3):
        w0, w1, m0, m1 = shares[0][k], shares[1][k], means[0][k], means[1][k]
        if m0 is None or m1 is None:
            mix += (w1 - w0) * ((m0 or 0.0) + (m1 or 0.0))
            continue
        mix += (w1 - w0) * (m0 + m1) / 2
        within += (w0 + w1) / 2 * (m1 - m0)
        above += (w0 + w1) / 2 * m1
        below += (w0 + w1) / 2 * m0
    return mix, within, above / below


def _decompose(base: Sample, candidate: Sample, confidence: float = 0.95, resamples: int = 499):
    return decompose(base, candidate, confidence=confidence, seed=1, resamples=resamples)


@pytest.mark.parametrize("shares", [[0.2, 0.3, 0.5], [0.5, 0.5, 0.0]])
def test_parts_are_those_of_loops_and_add_up(shares: list[float]) -> None:
    """Mix, within and ratio agree with the literal version; a stratum that is gone is mix."""
    rng = np.random.default_rng(1)
    base, candidate = _sample(rng, [0.6, 0.2, 0.2], 50), _sample(rng, shares, 40, (0.9, 1, 1.2))
    mix, within, ratio = _literal(base, candidate)

    found = _decompose(base, candidate)

    assert found.mix.estimate == pytest.approx(mix)
    assert found.within.estimate == pytest.approx(within)
    assert found.ratio.estimate == pytest.approx(ratio)
    assert found.mix.estimate + found.within.estimate == pytest.approx(found.change)
    assert found.change == pytest.approx(np.mean(candidate.values) - np.mean(base.values))
    assert sum(found.within_strata) == pytest.approx(within)


def test_swapped_periods_turn_the_signs() -> None:
    """Neither period is special: swapped, each part changes its sign."""
    rng = np.random.default_rng(2)
    base, candidate = _sample(rng, [0.6, 0.2, 0.2], 50), _sample(rng, [0.2, 0.2, 0.6], 60)

    forth, back = _decompose(base, candidate), _decompose(candidate, base)

    assert forth.mix.estimate == pytest.approx(-back.mix.estimate)
    assert forth.within.estimate == pytest.approx(-back.within.estimate)


def test_published_example() -> None:
    """Two strata of known rates and shares give Kitagawa's components, worked by hand.

    Shares .5/.5 -> .25/.75, means 2/4 -> 1/5: mix = -.25 * 1.5 + .25 * 4.5 = .75,
    within = .375 * -1 + .625 * 1 = .25, change = 4 - 3 = 1.
    """
    base = Sample([2.0, 2.0, 4.0, 4.0], [0, 0, 1, 1])
    candidate = Sample([1.0, 5.0, 5.0, 5.0], [0, 1, 1, 1])

    found = _decompose(base, candidate)

    assert (found.mix.estimate, found.within.estimate, found.change) == (0.75, 0.25, 1.0)
    assert found.within_strata == (-0.375, 0.625)


def test_intervals_hold_the_truth_as_often_as_stated() -> None:
    """Over 300 pairs of periods, 95 % intervals of each part miss it in 2 to 9 %."""
    rng = np.random.default_rng(3)
    before, after, factors = [0.6, 0.2, 0.2], [0.2, 0.3, 0.5], (0.9, 1.0, 1.1)
    lift = np.exp(0.25**2 / 2)
    m0, m1 = MEANS * lift, MEANS * np.array(factors) * lift
    w0, w1 = np.array(before), np.array(after)
    truth = ((w1 - w0) @ (m0 + m1) / 2, (w0 + w1) / 2 @ (m1 - m0))
    misses = np.zeros(2)
    for _ in range(300):
        found = _decompose(_sample(rng, before, 120), _sample(rng, after, 120, factors))
        misses += [
            not part.low <= true <= part.high
            for part, true in zip((found.mix, found.within), truth, strict=True)
        ]

    assert (misses / 300 > 0.02).all()
    assert (misses / 300 < 0.09).all()


def test_moved_mix_shows_no_change_within() -> None:
    """Planted: shares turn round, nothing else. The mix is found, the ratio stays near 1."""
    rng = np.random.default_rng(4)

    found = _decompose(_sample(rng, [0.8, 0.1, 0.1], 300), _sample(rng, [0.1, 0.1, 0.8], 300))

    assert found.mix.low > 1.0
    assert found.within.low < 0.0 < found.within.high
    assert found.ratio.low < 1.0 < found.ratio.high


def test_mix_p_agrees_with_scipy() -> None:
    """With many units the p-value is that of the chi-squared law."""
    oracle = stats.chi2_contingency([[60, 80, 60], [75, 85, 40]], correction=False).pvalue

    assert 0.01 < oracle < 0.1
    assert mix_p([60, 80, 60], [75, 85, 40], seed=1) == pytest.approx(oracle, abs=0.004)


def test_mix_p_keeps_its_level_for_few_units() -> None:
    """Of 2,000 pairs of periods with 15 units and a rare stratum, at most 5 % have p <= 5 %."""
    rng = np.random.default_rng(5)
    law = [0.1, 0.3, 0.6]
    pairs = (rng.multinomial(15, law, 2) for _ in range(2000))
    alarms = sum(mix_p(*pair, seed=1, draws=399) <= 0.05 for pair in pairs)

    assert 0 < alarms <= 100 + 3 * np.sqrt(95)


@pytest.mark.parametrize(
    ("base", "candidate", "message"),
    [
        (Sample([], []), Sample([1.0], [0]), "base: expected one stratum"),
        (Sample([1.0], [0, 1]), Sample([1.0], [0]), "got 2 strata for 1 values"),
        (Sample([1.0], [-1]), Sample([1.0], [0]), "from 0"),
        (Sample([0.0], [0]), Sample([1.0], [0]), "finite numbers above 0"),
        (Sample([1.0], [0]), Sample([1.0], [1]), "no stratum is in both"),
    ],
)
def test_what_has_no_answer_is_refused(base: Sample, candidate: Sample, message: str) -> None:
    """Empty, unfitting, not positive, nothing in common: an error, never a number."""
    with pytest.raises(ValueError, match=message):
        _decompose(base, candidate)


@pytest.mark.parametrize("settings", [{"confidence": 99.0}, {"resamples": 0}])
def test_impossible_settings_are_refused(settings: dict[str, float]) -> None:
    """99 for 99 %, or no draws at all, is a mistake that must not pass."""
    one = Sample([1.0], [0])

    with pytest.raises(ValueError, match="must be"):
        _decompose(one, one, **settings)


def test_counts_that_do_not_fit_are_refused() -> None:
    """A period without units has no shares."""
    with pytest.raises(ValueError, match="expected counts of the same strata"):
        mix_p([0, 0], [1, 2], seed=1)
