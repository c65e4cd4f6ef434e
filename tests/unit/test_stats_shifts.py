"""Shifts of acceptance: what detectors are made of, and what they find in counts."""

import math

import numpy as np
import pytest

from draftgate.stats.level import Level, learn_level
from draftgate.stats.shifts import (
    BUDGET,
    Shift,
    Wanted,
    detector,
    log_length,
    moved,
    standardised,
)

WANTED = Wanted()
LEVEL = Level(math.log(2.5), 0.02, 0.0, 50, 4_000.0)


def shares(level: Level, shift: Shift, values: np.ndarray) -> np.ndarray:
    """Return the shares of a detector on log lengths of windows of the learned size."""
    z = (values - level.mean) / level.sd_bound
    return detector(level, shift, WANTED).shares(-z if shift.downward else z)


def test_length_is_one_plus_accepted_per_step() -> None:
    """1.5 accepted tokens a step make a length of 2.5."""
    assert log_length(np.array(150.0), np.array(100.0)) == pytest.approx(math.log(2.5))


def test_change_is_of_accepted_tokens_per_step() -> None:
    """Ten per cent fewer of 1.5 are 1.35, so the length goes to 2.35."""
    assert moved(math.log(2.5), -0.1) == pytest.approx(math.log(2.35))


def test_false_alarms_are_shared_out() -> None:
    """The inverse thresholds of all four add up to that of the run length."""
    thresholds = [detector(LEVEL, shift, WANTED).threshold for shift in Shift]

    assert sum(BUDGET.values()) == pytest.approx(1.0)
    assert sum(1 / t for t in thresholds) == pytest.approx(1 / WANTED.run_length)


def test_margin_holds_what_is_tolerated_and_what_may_be_off() -> None:
    """The margin is the tolerated change and the error of the mean, in bounds on the spread."""
    found = detector(LEVEL, Shift.DROP, WANTED)

    tolerated = LEVEL.mean - moved(LEVEL.mean, -WANTED.tolerated)
    assert found.margin == pytest.approx((tolerated + LEVEL.mean_error) / LEVEL.sd_bound)


def test_size_that_the_margin_hides_is_looked_for_at_twice_the_margin() -> None:
    """With wide windows the slow detector still has a shift above its margin."""
    wide = Level(math.log(1.3), 0.2, 0.0, 20, 100.0)
    found = detector(wide, Shift.SLIDE_DOWN, WANTED)

    assert found.shifts == (pytest.approx(2 * found.margin),)


def test_a_way_is_positive_for_its_shift() -> None:
    """A lower window is positive for a drop and negative for a rise, the less the smaller it is."""
    drop, rise = (
        standardised(LEVEL, shift, math.log(2.4), LEVEL.size) for shift in (Shift.DROP, Shift.RISE)
    )

    assert drop == -rise > 0
    assert standardised(LEVEL, Shift.DROP, math.log(2.4), LEVEL.size / 4) == pytest.approx(drop / 2)


@pytest.mark.parametrize("shift", list(Shift))
def test_unchanged_windows_keep_the_run_length(shift: Shift) -> None:
    """Over 60 references of 50 windows with 10,000 windows each: at most 1 alarm in 10,000 / share.

    600,000 windows may give 60 x budget alarms of one detector; no more are there.
    """
    rng = np.random.default_rng(10 + list(Shift).index(shift))
    alarms = 0
    for _ in range(60):
        level = learn_level(rng.normal(0.9, 0.02, 50), np.full(50, 1.0))
        hits = shares(level, shift, rng.normal(0.9, 0.02, (20, 500))) >= 1
        alarms += int(hits.any(axis=1).sum())

    assert alarms <= 60 * BUDGET[shift]


@pytest.mark.parametrize(
    ("shift", "change", "most"),
    [
        (Shift.DROP, -0.1, 5),
        (Shift.RISE, 0.1, 5),
        (Shift.SLIDE_DOWN, -0.05, 25),
        (Shift.SLIDE_UP, 0.05, 25),
    ],
)
def test_planted_change_is_found(shift: Shift, change: float, most: int) -> None:
    """Median delay over 500 streams with a spread of 2 % in the length, 50 windows learned."""
    rng = np.random.default_rng(20 + list(Shift).index(shift))
    delays = []
    for _ in range(25):
        level = learn_level(rng.normal(math.log(2.5), 0.02, 50), np.full(50, 1.0))
        values = rng.normal(math.log(2.5), 0.02, (20, 120))
        values[:, 20:] += moved(math.log(2.5), change) - math.log(2.5)
        hits = shares(level, shift, values)[:, 20:] >= 1
        delays += np.where(hits.any(axis=1), hits.argmax(axis=1) + 1, 1_000).tolist()

    assert np.median(delays) <= most


def test_the_other_way_is_not_alarmed() -> None:
    """A drop of 20 % raises neither of the upward detectors in 200 windows."""
    rng = np.random.default_rng(30)
    values = rng.normal(moved(LEVEL.mean, -0.2), 0.02, (20, 200))

    assert (shares(LEVEL, Shift.RISE, values) < 1).all()
    assert (shares(LEVEL, Shift.SLIDE_UP, values) < 1).all()


@pytest.mark.parametrize(
    "wrong",
    [
        {"change": 0.0},
        {"change": 1.0},
        {"slide": 0.2},
        {"tolerated": 0.06},
        {"tolerated": -0.1},
        {"run_length": 10.0},
    ],
)
def test_wishes_that_contradict_each_other_are_refused(wrong: dict[str, float]) -> None:
    """Sizes must be in order, the run length at least 100."""
    with pytest.raises(ValueError, match="got"):
        Wanted(**wrong)


def test_level_without_acceptance_has_no_detectors() -> None:
    """Where nothing is accepted, no relative change is defined."""
    with pytest.raises(ValueError, match="no drafts were accepted"):
        detector(Level(0.0, 0.01, 0.0, 50, 1.0), Shift.DROP, WANTED)
