"""The error over all gates together: corrected levels, bounds and their rates."""

import math

import numpy as np
import pytest

from draftgate.stats.confirm import stage_two
from draftgate.stats.family import (
    STAGE_ONE_LEVEL,
    evidence_needed,
    false_alarm_bound,
    judge_family,
)
from draftgate.stats.sequential import LOOKS, SUSPECT_LEVEL, overall_level


def _literal(suspects: list[float], gates: int) -> list[bool]:
    """Return Holm's rejections, step by step, of both stages' p-values and 1 elsewhere."""
    values = [STAGE_ONE_LEVEL * p for p in suspects] + [1.0] * (gates - len(suspects))
    rejected = [False] * gates
    for step, place in enumerate(sorted(range(gates), key=values.__getitem__)):
        if values[place] > 0.002 / (gates - step):
            break
        rejected[place] = place < len(suspects) and suspects[place] < 0.05
    return rejected[: len(suspects)]


@pytest.mark.parametrize("seed", range(20))
def test_agrees_with_holm_step_by_step(seed: int) -> None:
    """The rejected suspects are those of Holm's procedure written out over all gates."""
    rng = np.random.default_rng(seed)
    suspects = (10 ** rng.uniform(-5, 0, 12)).tolist()
    gates = int(rng.integers(12, 60))

    assert list(judge_family(suspects, gates=gates).rejected) == _literal(suspects, gates)


def test_holms_adjusted_p_values() -> None:
    """With one stage and four p-values, Holm's adjusted ones are 4, 3, 2 and 1 times them."""
    found = judge_family([0.01, 0.04, 0.03, 0.005], gates=4, stage_one_level=1.0, family_level=0.05)

    assert found.adjusted == pytest.approx((0.03, 0.06, 0.06, 0.02))
    assert found.rejected == (True, False, False, True)


@pytest.mark.parametrize(
    ("gates", "level"), [(1, 0.05), (2, 0.05), (3, 0.002 / 0.042), (48, 0.002 / 0.672)]
)
def test_level_of_the_first_suspect(gates: int, level: float) -> None:
    """Up to two gates need no correction; with 48 the first suspect is judged at 0.3 %."""
    assert judge_family([0.0], gates=gates).levels == pytest.approx((level,))


def test_a_loss_in_many_gates_makes_the_last_one_easier() -> None:
    """What is rejected no longer counts: 0.004 is too much alone and enough after 40 others."""
    alone = judge_family([0.004], gates=48)
    after = judge_family([*[1e-5] * 40, 0.004], gates=48)

    assert alone.rejected == (False,)
    assert all(after.rejected)


def test_stage_one_level_covers_the_boundary() -> None:
    """The constant lies above normal theory and below Boole's bound over the looks."""
    assert overall_level() < STAGE_ONE_LEVEL < len(LOOKS) * SUSPECT_LEVEL


def test_uncorrected_bound() -> None:
    """48 gates at 5 % in stage two may raise a false alarm in 3.4 % of comparisons."""
    assert false_alarm_bound(48) == pytest.approx(0.0336)
    assert false_alarm_bound(10_000) == 1.0


@pytest.mark.parametrize("shared", [0.0, 0.9])
def test_noise_in_a_family_keeps_its_rate(shared: float) -> None:
    """Of 40,000 families of 48 gates at the margin at most 2 % are rejected at a level of 2 %,
    plus 4 sd, with independent gates and with gates that share 90 % of their variance.

    Stage one is played by a coin at its bound, stage two by uniform p-values.
    """
    from scipy import special

    rng = np.random.default_rng(round(10 * shared))
    trials, gates = 40_000, 48
    hits = 0
    for _ in range(trials // 4000):
        parts = rng.normal(0, 1, (2, 4000, 1)), rng.normal(0, 1, (2, 4000, gates))
        both = special.ndtr(math.sqrt(shared) * parts[0] + math.sqrt(1 - shared) * parts[1])
        suspect = both[0] < STAGE_ONE_LEVEL
        hits += sum(
            any(judge_family(p[s].tolist(), gates=gates, family_level=0.02).rejected)
            for p, s in zip(both[1], suspect, strict=True)
            if s.any()
        )

    assert 0 < hits <= 0.02 * trials + 4 * math.sqrt(0.02 * trials)


def test_planted_loss_survives_the_correction() -> None:
    """A loss of 5 % at 2 % between starts is rejected among 48 gates in 97 % of 200 trials."""
    rng = np.random.default_rng(3)
    found = [
        stage_two(rng.normal(0.051, 0.0283, 24), margin=0.01, seed=1, flips=9999)
        for _ in range(200)
    ]

    assert sum(judge_family([one.p_value], gates=48).rejected[0] for one in found) >= 194


def test_no_suspect_is_no_regression() -> None:
    """Without a suspect there is nothing to judge."""
    assert judge_family([], gates=48).rejected == ()


def test_evidence_for_many_gates() -> None:
    """One gate at 0.1 % stops at 1,000; 48 gates at 0.2 % at 24,000."""
    assert evidence_needed(1, family_level=0.001) == pytest.approx(1000)
    assert evidence_needed(48) == pytest.approx(24_000)


@pytest.mark.parametrize(
    ("suspects", "settings", "message"),
    [
        ([0.1, 0.1], {"gates": 1}, "2 suspects"),
        ([], {"gates": 0}, "gates must be >= 1"),
        ([math.nan], {"gates": 1}, "p-values"),
        ([-0.1], {"gates": 1}, "p-values"),
        ([0.1], {"gates": 1, "family_level": 0.0}, "family_level"),
        ([0.1], {"gates": 1, "stage_one_level": math.nan}, "stage_one_level"),
        ([0.1], {"gates": 1, "confirm_level": 2.0}, "confirm_level"),
    ],
)
def test_refuses(suspects: list[float], settings: dict[str, float], message: str) -> None:
    """More suspects than gates, p-values that are none and levels out of range are named."""
    with pytest.raises(ValueError, match=message):
        judge_family(suspects, **settings)  # type: ignore[arg-type]


def test_bounds_refuse_no_gates() -> None:
    """A comparison has at least one gate."""
    with pytest.raises(ValueError, match="gates"):
        false_alarm_bound(0)
    with pytest.raises(ValueError, match="gates"):
        evidence_needed(0)
