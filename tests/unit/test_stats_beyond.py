"""Changes beyond a margin: exact, calibrated, two-sided, and able to fail."""

from itertools import combinations, product

import numpy as np
import pytest

from draftgate.stats.beyond import _exchange_p, _Test, pairs_beyond, strata_beyond
from draftgate.stats.compare import FloatArray

LEVEL = 0.05


def _values(rng: np.random.Generator, n: int) -> FloatArray:
    """Return skewed tokens per step, as prompts have them."""
    return 1.0 + rng.gamma(0.6, 0.7, n)


def _literal_flip_p(excess: FloatArray) -> float:
    """Return the share of all sign vectors whose sum reaches that of the data."""
    signs = product((1.0, -1.0), repeat=excess.size)
    sums = [sum(s * e for s, e in zip(vector, excess, strict=True)) for vector in signs]
    return float(np.mean([total >= excess.sum() - 1e-9 for total in sums]))


def _literal_exchange_p(larger: FloatArray, smaller: FloatArray) -> float:
    """Return the share of all ways to pick `larger` out of both whose mean lead reaches it."""
    pooled = [*larger, *smaller]
    reached = []
    for chosen in combinations(range(len(pooled)), len(larger)):
        rest = [value for i, value in enumerate(pooled) if i not in chosen]
        lead = np.mean([pooled[i] for i in chosen]) - np.mean(rest)
        reached.append(lead >= larger.mean() - smaller.mean() - 1e-9)
    return float(np.mean(reached))


@pytest.mark.parametrize("factor", [0.75, 1.35])
def test_pairs_agree_with_all_sign_vectors(factor: float) -> None:
    """Of ten pairs the p-value is that of all 1,024 sign vectors, or of t where that is larger."""
    rng = np.random.default_rng(3)
    base = _values(rng, 10)
    candidate = base * factor * rng.lognormal(0.0, 0.05, 10)
    excess = 0.95 * base - candidate if factor < 1 else candidate - 1.05 * base

    found = pairs_beyond(base, candidate, margin_ratio=0.05, level=LEVEL, seed=1)

    assert (found.worse, found.better) == (factor < 1, factor > 1)
    assert found.p_value >= 2 * _literal_flip_p(excess) - 1e-12
    assert found.p_value < LEVEL


def test_exchanges_agree_with_all_of_them() -> None:
    """Of one stratum of 6 and 7 the share of drawn exchanges is that of all 1,716."""
    rng = np.random.default_rng(4)
    larger, smaller = 1.3 + rng.exponential(1.0, 6), 1.0 + rng.exponential(1.0, 7)
    exact = _literal_exchange_p(larger, smaller)

    drawn = _exchange_p([larger], [smaller], np.array([0.4]), _Test(0.05, seed=1, draws=40_000))
    found = strata_beyond([smaller], [larger], [0.4], margin_ratio=0.0, level=0.9, seed=1)

    assert 0.02 < exact < 0.3
    assert drawn == pytest.approx(exact, abs=0.01)  # over 4 standard errors
    assert found.better
    assert found.p_value >= 2 * (exact - 0.01)


@pytest.mark.parametrize("margin", [0.0, 0.05])
@pytest.mark.parametrize("paired", [True, False])
def test_false_alarms_keep_the_level(margin: float, paired: bool) -> None:  # noqa: FBT001 - a case
    """In 500 unchanged sets of 24 skewed values alarms stay at or under 5 % and three errors."""
    rng = np.random.default_rng(11)
    alarms = 0
    for _ in range(500):
        shared = _values(rng, 24) if paired else 1.0
        sides = [shared * _values(rng, 24) for _ in range(2)]
        if paired:
            found = pairs_beyond(*sides, margin_ratio=margin, level=LEVEL, seed=1)
        else:
            split = [[side[:8], side[8:]] for side in sides]
            found = strata_beyond(*split, [0.5, 0.5], margin_ratio=margin, level=LEVEL, seed=1)
        alarms += found.worse or found.better

    assert alarms <= 500 * LEVEL + 3 * np.sqrt(500 * LEVEL * (1 - LEVEL))
    assert alarms > 0 or margin > 0


@pytest.mark.parametrize("factor", [0.85, 1.15])
def test_planted_change_is_found_in_each_of_10_sets(factor: float) -> None:
    """A change of 15 % of 72 pairs with 10 % noise is found at a level of 1e-4, with its sign."""
    rng = np.random.default_rng(12)
    for _ in range(10):
        base = _values(rng, 72)
        candidate = base * factor * rng.lognormal(0.0, 0.1, 72)
        found = pairs_beyond(base, candidate, margin_ratio=0.05, level=1e-4, seed=1)

        assert (found.worse, found.better) == (factor < 1, factor > 1)


def test_a_change_within_the_margin_is_none() -> None:
    """A loss of 4 % that is known exactly is not one of more than 5 %."""
    base = _values(np.random.default_rng(1), 40)

    found = pairs_beyond(base, base * 0.96, margin_ratio=0.05, level=LEVEL, seed=1)

    assert (found.p_value, found.worse, found.better) == (1.0, False, False)


def test_strata_see_a_loss_that_the_mix_hides() -> None:
    """Both strata lose 20 %, the plain mean rises: found worse."""
    rng = np.random.default_rng(2)
    low, high = rng.normal(1.2, 0.05, 40), rng.normal(3.0, 0.1, 40)
    base, candidate = [low, high[:10]], [low[:10] * 0.8, high * 0.8]
    assert np.concatenate(candidate).mean() > np.concatenate(base).mean()

    found = strata_beyond(base, candidate, [0.5, 0.5], margin_ratio=0.05, level=1e-3, seed=1)

    assert found.worse


def test_equal_arguments_give_equal_results() -> None:
    """Draws are seeded."""
    rng = np.random.default_rng(7)
    base, candidate = _values(rng, 30) * 1.5, _values(rng, 30)

    found, again = (
        strata_beyond([base], [candidate], [1.0], margin_ratio=0.0, level=LEVEL, seed=1)
        for _ in range(2)
    )

    assert found == again


@pytest.mark.parametrize(
    ("base", "candidate", "message"),
    [
        ([1.0, 2.0], [1.0], "two or more pairs, got 2 base and 1 candidate"),
        ([1.0], [1.0], "two or more pairs"),
        ([1.0, 0.0], [1.0, 1.0], "base: expected finite numbers above 0"),
        ([1.0, 2.0], [1.0, float("nan")], "candidate: expected finite numbers above 0"),
        ([[1.0]], [1.0], "values in a row"),
    ],
)
def test_what_has_no_answer_is_refused(base: object, candidate: object, message: str) -> None:
    """Unpaired, too few, not finite or not positive: an error, never a number."""
    with pytest.raises(ValueError, match=message):
        pairs_beyond(base, candidate, margin_ratio=0.0, level=LEVEL, seed=1)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"margin_ratio": 1.0}, "margin_ratio"),
        ({"margin_ratio": -0.1}, "margin_ratio"),
        ({"level": 0.0}, "level"),
        ({"level": 1.0}, "level"),
    ],
)
def test_impossible_settings_are_refused(settings: dict[str, float], message: str) -> None:
    """A margin of 100 % or no level at all is a mistake that must not pass."""
    arguments = {"margin_ratio": 0.05, "level": LEVEL, **settings}

    with pytest.raises(ValueError, match=f"{message} must be"):
        pairs_beyond([1.0, 2.0], [1.0, 2.0], seed=1, **arguments)


@pytest.mark.parametrize(
    ("base", "candidate", "weights"),
    [([], [], []), ([[1.0, 2.0]], [], [1.0]), ([[1.0, 2.0]], [[1.0, 2.0]], [])],
)
def test_strata_that_do_not_fit_are_refused(
    base: object, candidate: object, weights: object
) -> None:
    """Both sides and the weights name the same strata."""
    with pytest.raises(ValueError, match="expected the same strata"):
        strata_beyond(base, candidate, weights, margin_ratio=0.0, level=LEVEL, seed=1)  # type: ignore[arg-type]


def test_a_stratum_of_one_value_is_refused() -> None:
    """One value says nothing about its own spread."""
    one, two = np.array([1.0]), np.array([1.0, 2.0])

    with pytest.raises(ValueError, match="two or more values in every stratum"):
        strata_beyond([two], [one], [1.0], margin_ratio=0.0, level=LEVEL, seed=1)
