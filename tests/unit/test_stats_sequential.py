"""Stage one of the gate: its looks, its error rate and what it finds."""

import math

import numpy as np
import pytest
from scipy import stats

from draftgate.stats.losses import candidate_first
from draftgate.stats.sequential import (
    LOOKS,
    LookPlan,
    Standing,
    overall_level,
    pairs_to_decide,
    smallest,
    stage_one,
)

PLAN = LookPlan(margin=0.01, limit=0.05)


def _literal(losses: np.ndarray[tuple[int], np.dtype[np.float64]]) -> tuple[Standing, int]:
    """Return the decision by scipy's tests, look by look, as the docstring has it."""
    for pairs in (8, 12, 16, 20):
        part = losses[:pairs]
        if stats.ttest_1samp(part, 0.01, alternative="greater").pvalue < 0.005:
            return Standing.SUSPECT, pairs
        upper = part.mean() + stats.t.ppf(0.9875, pairs - 1) * stats.sem(part)
        if upper < 0.05:
            return Standing.PASS, pairs
    return Standing.INCONCLUSIVE, 20


@pytest.mark.parametrize("seed", range(40))
def test_agrees_with_a_literal_version(seed: int) -> None:
    """Decision and pairs are those of scipy's tests at each look, for weak and strong losses."""
    rng = np.random.default_rng(seed)
    losses = rng.normal(rng.uniform(-0.02, 0.08), rng.uniform(0.01, 0.08), 20)
    found = stage_one(losses, PLAN)

    assert (found.standing, found.pairs) == _literal(losses)


@pytest.mark.parametrize(
    ("looks", "level", "overall"),
    [
        ((10, 20), 0.0294 / 2, 0.05 / 2),
        ((10, 20, 30), 0.0221 / 2, 0.05 / 2),
        ((10, 20, 30, 40), 0.0182 / 2, 0.05 / 2),
        ((10, 20, 30, 40, 50), 0.0158 / 2, 0.05 / 2),
    ],
)
def test_overall_level_agrees_with_pocock(
    looks: tuple[int, ...], level: float, overall: float
) -> None:
    """Pocock's nominal levels for 2 to 5 equal groups (1977, table 1) give 5 % two-sided."""
    assert overall_level(looks, level) == pytest.approx(overall, rel=0.005)


def test_overall_level_lies_between_one_look_and_boole() -> None:
    """One look has its nominal level; four have more, and less than four times as much."""
    assert overall_level((8,), 0.005) == pytest.approx(0.005)
    assert 0.005 < overall_level() < 4 * 0.005


def test_false_suspicion_keeps_its_rate() -> None:
    """At the margin, 4,000 metrics without a limit become suspect in 1.4 %, within 4 sd."""
    rng = np.random.default_rng(11)
    plan = LookPlan(margin=0.01, limit=0.0100001, pass_confidence=0.999999999)
    trials = 4000
    found = [stage_one(rng.normal(0.01, 0.03, 20), plan).standing for _ in range(trials)]
    hits = found.count(Standing.SUSPECT)

    assert abs(hits - 0.0137 * trials) < 4 * math.sqrt(0.0137 * trials)


def test_noise_passes() -> None:
    """Of 500 unchanged builds at 2 % between starts none stays open and at most 3 are suspect."""
    rng = np.random.default_rng(12)
    found = [stage_one(rng.normal(0, 0.0283, 20), PLAN) for _ in range(500)]
    standings = [look.standing for look in found]

    assert standings.count(Standing.PASS) >= 497
    assert standings.count(Standing.SUSPECT) <= 3
    assert np.mean([look.pairs for look in found]) < 9


def test_planted_loss_is_suspect() -> None:
    """A loss of 5 % at 2 % between starts is suspect in at least 97 % of 500 trials."""
    rng = np.random.default_rng(13)
    found = [stage_one(rng.normal(-math.log(0.95), 0.0283, 20), PLAN).standing for _ in range(500)]

    assert found.count(Standing.SUSPECT) >= 485


def test_loss_at_the_limit_rarely_passes() -> None:
    """Of 2,000 losses just at the limit at most 5 % pass, plus 4 sd."""
    rng = np.random.default_rng(14)
    found = [stage_one(rng.normal(0.05, 0.06, 20), PLAN).standing for _ in range(2000)]

    assert found.count(Standing.PASS) <= 0.05 * 2000 + 4 * math.sqrt(0.05 * 2000)


def test_order_effect_is_taken_out() -> None:
    """A slot that costs 10 % hides a loss of 5 % from 8 pairs unless the order is given."""
    rng = np.random.default_rng(15)
    first = candidate_first(8, seed=1)
    losses = rng.normal(0.051, 0.01, 8) + np.where(first, 0.1, -0.1)

    assert stage_one(losses, PLAN, first=first).standing is Standing.SUSPECT
    assert stage_one(losses, PLAN).standing is Standing.GO_ON


def test_beyond_the_margin_is_never_green() -> None:
    """A loss of 3 % that is known to 0.1 % is suspect, although 5 % is ruled out too."""
    losses = 0.03 + 0.001 * np.array([-1.0, 1.0] * 4)
    found = stage_one(losses, PLAN)

    assert found.high < PLAN.limit
    assert found.standing is Standing.SUSPECT


@pytest.mark.parametrize(("pairs", "needed"), [(2, 6), (7, 1), (10, 2), (19, 1)])
def test_between_looks_it_goes_on(pairs: int, needed: int) -> None:
    """Nothing is decided between looks; it says how many pairs the next one needs."""
    losses = np.array([0.2, -0.2] * 10)[:pairs]
    found = stage_one(losses, PLAN)

    assert (found.standing, found.pairs, found.pairs_needed) == (Standing.GO_ON, pairs, needed)


def test_later_pairs_change_nothing() -> None:
    """What comes after the look that decided is not looked at."""
    losses = np.random.default_rng(3).normal(0, 0.005, 8)
    found = stage_one(losses, PLAN)

    assert found.standing is Standing.PASS
    assert stage_one([*losses, *[1.0] * 12], PLAN) == found


def test_undecided_says_how_many_pairs_would_decide() -> None:
    """With mean and spread kept, the named number decides and one pair less does not."""
    losses = 0.03 + 0.1 * np.array([1.0, -1.0] * 10)
    found = stage_one(losses, PLAN)
    total = found.pairs + found.pairs_needed
    spread = losses.std(ddof=1)

    def decides(n: int) -> bool:
        upper = stats.t.ppf(0.9875, n - 1) * spread / math.sqrt(n) < 0.05 - losses.mean()
        return bool(
            upper or stats.t.ppf(0.995, n - 1) * spread / math.sqrt(n) < losses.mean() - 0.01
        )

    assert found.standing is Standing.INCONCLUSIVE
    assert decides(total)
    assert not decides(total - 1)
    assert pairs_to_decide(losses, PLAN) == total


@pytest.mark.parametrize(("truth", "low", "high"), [(7, 1, 100), (1, 1, 3), (3, 1, 3)])
def test_smallest_finds_the_first(truth: int, low: int, high: int) -> None:
    """The first number from which on a condition holds is found, at either end too."""
    assert smallest(lambda n: n >= truth, low, high) == truth
    assert smallest(lambda n: n > high, low, high) is None


@pytest.mark.parametrize(
    ("losses", "message"),
    [([0.1], "too few pairs, got 1"), ([0.1, math.nan], "NaN"), ([0.1, math.inf], "NaN or inf")],
)
def test_refuses_bad_losses(losses: list[float], message: str) -> None:
    """Too few pairs, NaN and infinity are named."""
    with pytest.raises(ValueError, match=message):
        stage_one(losses, PLAN)


def test_refuses_an_order_of_another_length() -> None:
    """An order for other pairs is refused before any look."""
    with pytest.raises(ValueError, match="order of 3 pairs for 4 losses"):
        stage_one([0.1, 0.2, 0.1, 0.2], PLAN, first=[True, False, True])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"limit": 0.01}, "limit must be above"),
        ({"margin": math.nan}, "finite"),
        ({"looks": ()}, "looks must rise"),
        ({"looks": (1, 4)}, "looks must rise"),
        ({"looks": (8, 8)}, "looks must rise"),
        ({"suspect_level": 0.5}, "suspect_level"),
        ({"pass_confidence": 1.0}, "pass_confidence"),
    ],
)
def test_plan_refuses(change: dict[str, object], message: str) -> None:
    """Settings out of range are named when the plan is made."""
    with pytest.raises(ValueError, match=message):
        LookPlan(**({"margin": 0.01, "limit": 0.05} | change))  # type: ignore[arg-type]


@pytest.mark.parametrize(("looks", "level"), [((8, 4), 0.005), (LOOKS, 0.0)])
def test_overall_level_refuses(looks: tuple[int, ...], level: float) -> None:
    """Looks that fall and levels out of range are refused."""
    with pytest.raises(ValueError, match="got"):
        overall_level(looks, level)
