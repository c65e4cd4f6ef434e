"""Stage two of the gate: both tests, their rates and what they find."""

import itertools
import math

import numpy as np
import pytest
from scipy import stats

from draftgate.stats.confirm import sign_flip_p, stage_two
from draftgate.stats.losses import candidate_first


def test_few_pairs_are_flipped_in_every_way() -> None:
    """For 8 pairs p is the share of all 256 sign vectors whose sum reaches the observed one."""
    losses = np.random.default_rng(1).normal(0.02, 0.03, 8)
    excess = losses - 0.01
    sums = [float(np.dot(signs, excess)) for signs in itertools.product((-1, 1), repeat=8)]
    literal = np.mean([total >= excess.sum() - 1e-12 for total in sums])

    assert sign_flip_p(losses, margin=0.01, seed=1) == literal


def test_darwins_maize() -> None:
    """Fisher's own example: 863 of 32,768 sign vectors reach Darwin's sum (section 21)."""
    darwin = [49, -67, 8, 16, 6, 23, 28, 41, 14, 29, 56, 24, 75, 60, -48]

    assert sign_flip_p(darwin, margin=0.0, seed=1) == 863 / 32768


def test_many_pairs_agree_with_scipy() -> None:
    """For 24 pairs p is that of scipy's randomisation test, within 4 sd of both draws."""
    losses = np.random.default_rng(2).normal(0.012, 0.03, 24)
    oracle = stats.permutation_test(
        (losses,),
        np.sum,
        permutation_type="samples",
        alternative="greater",
        n_resamples=20_000,
        rng=np.random.default_rng(3),
    ).pvalue
    found = sign_flip_p(losses, margin=0.0, seed=1)

    assert abs(found - oracle) < 4 * math.sqrt(oracle / 20_000 + oracle / 99_999)


def test_p_of_random_flips_is_never_zero() -> None:
    """The observed signs count as one of the draws, so p is at least 1 / (flips + 1)."""
    assert sign_flip_p(np.ones(24), margin=0.0, seed=1, flips=99) == 0.01


def test_t_agrees_with_scipy() -> None:
    """The other p-value and the bound are those of scipy's one-sample test."""
    losses = np.random.default_rng(4).normal(0.02, 0.03, 24)
    oracle = stats.ttest_1samp(losses, 0.01, alternative="greater")
    found = stage_two(losses, margin=0.01, seed=1, flips=999)

    assert found.t_p == pytest.approx(oracle.pvalue)
    assert found.low == pytest.approx(oracle.confidence_interval(0.95).low)
    assert found.p_value == max(found.t_p, found.flip_p)


@pytest.mark.parametrize("heavy", [False, True])
def test_false_confirmation_keeps_its_rate(*, heavy: bool) -> None:
    """Of 2,000 losses at the margin at most 5 % are confirmed, plus 4 sd; normal or with t(2)."""
    rng = np.random.default_rng(5)
    trials = 2000
    noise = rng.standard_t(2, (trials, 24)) if heavy else rng.normal(0, 1, (trials, 24))
    found = [
        stage_two(0.01 + 0.03 * row, margin=0.01, seed=1, flips=199).confirmed for row in noise
    ]

    assert sum(found) <= 0.05 * trials + 4 * math.sqrt(0.05 * trials)


def test_noise_is_not_confirmed() -> None:
    """Of 500 unchanged builds at 2 % between starts at most 5 are confirmed."""
    rng = np.random.default_rng(6)
    found = [
        stage_two(rng.normal(0, 0.0283, 24), margin=0.01, seed=1, flips=199) for _ in range(500)
    ]

    assert sum(one.confirmed for one in found) <= 5


def test_planted_loss_is_confirmed() -> None:
    """A loss of 5 % at 2 % between starts is confirmed in at least 99 % of 300 trials."""
    rng = np.random.default_rng(7)
    found = [
        stage_two(rng.normal(0.051, 0.0283, 24), margin=0.01, seed=1, flips=499) for _ in range(300)
    ]

    assert sum(one.confirmed for one in found) >= 297


def test_one_wild_pair_confirms_nothing() -> None:
    """A single start that lost half is no regression, however far out."""
    losses = np.random.default_rng(8).normal(0, 0.001, 24)
    losses[5] = 0.7

    assert not stage_two(losses, margin=0.01, seed=1).confirmed


def test_order_effect_is_taken_out() -> None:
    """A slot that costs 20 % hides a loss of 5 % from 24 pairs unless the order is given."""
    first = candidate_first(24, seed=2)
    losses = np.random.default_rng(9).normal(0.051, 0.02, 24) + np.where(first, 0.2, -0.2)

    assert stage_two(losses, margin=0.01, seed=1, first=first).confirmed
    assert not stage_two(losses, margin=0.01, seed=1).confirmed


def test_equal_arguments_give_equal_results() -> None:
    """The seed settles the flips."""
    losses = np.random.default_rng(10).normal(0.03, 0.05, 24)

    assert stage_two(losses, margin=0.0, seed=3) == stage_two(losses, margin=0.0, seed=3)


@pytest.mark.parametrize(
    ("losses", "level", "message"),
    [
        ([0.1] * 5, 0.05, "losses of stage two: too few pairs, got 5"),
        ([0.1] * 5 + [math.nan], 0.05, "NaN"),
        ([0.1] * 6, 0.5, "level"),
        ([0.1] * 6, 0.0, "level"),
    ],
)
def test_refuses(losses: list[float], level: float, message: str) -> None:
    """Too few pairs, NaN and levels out of range are named."""
    with pytest.raises(ValueError, match=message):
        stage_two(losses, margin=0.0, seed=1, level=level)


def test_refuses_no_flips() -> None:
    """Without a flip there is no p-value."""
    with pytest.raises(ValueError, match="flips"):
        sign_flip_p([0.1] * 20, margin=0.0, seed=1, flips=0)
