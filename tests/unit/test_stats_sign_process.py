"""The gate in one stage: its evidence, its rates and what it finds."""

import itertools
import math

import numpy as np
import pytest
from scipy import integrate

from draftgate.stats.sequential import Standing
from draftgate.stats.sign_process import SignPlan, sign_evidence, sign_stage

PLAN = SignPlan(margin=0.01, limit=0.05)


@pytest.mark.parametrize(("pairs", "hits"), [(1, 0), (1, 1), (5, 2), (13, 13), (30, 26)])
def test_evidence_is_the_average_bet(pairs: int, hits: int) -> None:
    """The closed form is the numerical mean over shares in (1/2, 1) of the product of bets."""
    literal, _ = integrate.quad(
        lambda p: 2 * (2 * p) ** hits * (2 * (1 - p)) ** (pairs - hits), 0.5, 1.0
    )

    assert math.exp(sign_evidence(np.arange(pairs) < hits)[-1]) == pytest.approx(literal)


@pytest.mark.parametrize("pairs", [1, 4, 10])
def test_evidence_is_fair(pairs: int) -> None:
    """Over all 2^n sign sequences of a fair coin the mean evidence is exactly 1."""
    worth = [
        math.exp(sign_evidence(np.array(signs))[-1])
        for signs in itertools.product((False, True), repeat=pairs)
    ]

    assert np.mean(worth) == pytest.approx(1.0)


@pytest.mark.parametrize("share", [0.01, 0.1, 0.5, 0.9])
def test_two_slots_of_a_block_gain_nothing(share: float) -> None:
    """A slot that decides every pair leaves evidence of at most 1 after each balanced block."""
    rng = np.random.default_rng(round(100 * share))
    hits = np.concatenate([rng.permutation([True, False]) for _ in range(15)])

    assert (sign_evidence(hits)[1::2] <= 0.0).all()


def test_false_stops_keep_their_rate() -> None:
    """Of 20,000 fair coins over 30 pairs at most 5 % ever reach 20, plus 4 sd (Ville)."""
    rng = np.random.default_rng(1)
    trials = 20_000
    hits = sum(
        bool((sign_evidence(row) >= math.log(20)).any()) for row in rng.random((trials, 30)) < 0.5
    )

    assert 0 < hits <= 0.05 * trials + 4 * math.sqrt(0.05 * trials)


def test_noise_never_stops_as_a_regression() -> None:
    """Of 2,000 unchanged builds with Cauchy noise of 1 % none stops as a regression."""
    rng = np.random.default_rng(2)
    found = [sign_stage(0.01 * rng.standard_cauchy(30), PLAN).standing for _ in range(2000)]

    assert Standing.SUSPECT not in found
    assert found.count(Standing.PASS) > 1900


def test_planted_loss_is_found() -> None:
    """A loss of 5 % at 2 % between starts is found in at least 88 % of 500 trials."""
    rng = np.random.default_rng(3)
    found = [sign_stage(rng.normal(0.051, 0.0283, 30), PLAN).standing for _ in range(500)]

    assert found.count(Standing.SUSPECT) >= 440


def test_stops_at_the_first_whole_block_that_reaches_the_bound() -> None:
    """Thirteen losses in a row are worth 1170; blocks of two decide at the fourteenth."""
    losses = [0.2] * 30
    single = SignPlan(margin=0.01, limit=0.05, decide_every=1)

    assert sign_stage(losses, single).pairs == 13
    assert sign_stage(losses, PLAN).pairs == 14
    assert sign_stage(losses, PLAN).standing is Standing.SUSPECT


def test_a_loss_at_the_margin_is_no_hit() -> None:
    """Ties go against the claim, of a regression and of a pass."""
    found = sign_stage([0.01] * 8, PLAN)
    at_limit = sign_stage([0.05] * 8, PLAN)

    assert found.above_margin == 0
    assert at_limit.log_pass_evidence < 0


@pytest.mark.parametrize(
    ("losses", "expected"),
    [
        ([0.0] * 30, (Standing.PASS, 8)),
        ([0.03, 0.06] * 15, (Standing.SUSPECT, 14)),
        ([0.0, 0.06] * 15, (Standing.INCONCLUSIVE, 30)),
        ([0.0, 0.06] * 5, (Standing.GO_ON, 10)),
    ],
)
def test_decides(losses: list[float], expected: tuple[Standing, int]) -> None:
    """All under the limit passes, all over the margin stops, a mixture stays open."""
    found = sign_stage(losses, PLAN)

    assert (found.standing, found.pairs) == expected


@pytest.mark.parametrize(
    ("losses", "message"), [([], "too few pairs, got 0"), ([math.nan], "NaN"), ([math.inf], "NaN")]
)
def test_refuses_bad_losses(losses: list[float], message: str) -> None:
    """No pair, NaN and infinity are named."""
    with pytest.raises(ValueError, match=message):
        sign_stage(losses, PLAN)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"limit": 0.01}, "limit must be above"),
        ({"margin": math.nan}, "limit must be above"),
        ({"stop_at": 1.0}, "stop_at"),
        ({"pass_at": 0.0}, "pass_at"),
        ({"decide_every": 0}, "decide_every"),
        ({"cap_pairs": 31}, "multiple"),
    ],
)
def test_plan_refuses(change: dict[str, float], message: str) -> None:
    """Settings out of range are named when the plan is made."""
    with pytest.raises(ValueError, match=message):
        SignPlan(**({"margin": 0.01, "limit": 0.05} | change))  # type: ignore[arg-type]


def test_evidence_refuses_no_pair() -> None:
    """Without a pair there is no evidence."""
    with pytest.raises(ValueError, match="at least one"):
        sign_evidence([])
