"""The e-detector: against its definition, its run length, and what it finds."""

import math

import numpy as np
import pytest

from draftgate.stats.edetector import EDetector

PLAIN = EDetector(shifts=(1.0, 2.0), weights=(0.5, 0.5), margin=0.2, threshold=500.0)


def literal(found: EDetector, values: list[float]) -> float:
    """Return the evidence by its definition: likelihood ratios from every start, summed."""
    total = 0.0
    for shift, weight in zip(found.shifts, found.weights, strict=True):
        step, margin = shift - found.margin, found.margin
        if step > found.clip:
            step, margin = found.clip, (shift + margin - found.clip) / 2
        ratios = [math.exp(step * min(z - margin, found.clip) - step**2 / 2) for z in values]
        total += weight * sum(math.prod(ratios[start:]) for start in range(len(values)))
    return total


@pytest.mark.parametrize("shifts", [(1.0, 2.0), (1.0, 9.0)])
@pytest.mark.parametrize("count", [1, 2, 7, 30])
def test_evidence_is_the_sum_over_starts(count: int, shifts: tuple[float, ...]) -> None:
    """The recursion gives the sum of products over all starts, as the definition does."""
    values = np.random.default_rng(count).normal(0.0, 1.0, count)
    found = EDetector(shifts, (0.5, 0.5), margin=0.2, threshold=500.0)

    shares = found.shares(values)

    assert shares[-1] * math.log(500.0) == pytest.approx(math.log(literal(found, values.tolist())))


@pytest.mark.parametrize("mean", [0.0, 0.2])
def test_sum_of_ratios_grows_by_at_most_one(mean: float) -> None:
    """At the margin each e-value has a mean of at most 1 (200,000 normal values, plus 4 sd)."""
    values = np.random.default_rng(1).normal(mean, 1.0, 200_000)

    ratios = np.exp(PLAIN.log_ratios(values))

    limit = 1 + 4 * ratios.std(axis=0) / math.sqrt(values.size)
    assert (ratios.mean(axis=0) <= limit).all()


def test_run_length_is_at_least_the_threshold() -> None:
    """In 400 unchanged streams at the margin, 20,000 values each, one alarm in 500 or fewer.

    The mean until an alarm is estimated by values per alarm. The bound is 500; the
    estimate may not be below it less 4 standard errors.
    """
    values = np.random.default_rng(2).normal(PLAIN.margin, 1.0, (400, 4_000))
    hits = PLAIN.shares(values) >= 1

    first = np.where(hits.any(axis=1), hits.argmax(axis=1) + 1, values.shape[1])
    alarms = int(hits.any(axis=1).sum())
    per_alarm = first.sum() / alarms
    assert alarms > 100
    assert per_alarm * (1 + 4 / math.sqrt(alarms)) >= 500


def test_noise_rarely_alarms_at_all() -> None:
    """Of 1,000 unchanged streams of 100 values at most 2 % alarm at a run length of 10,000."""
    found = EDetector((2.0,), (1.0,), 0.0, 10_000.0)
    values = np.random.default_rng(3).normal(0.0, 1.0, (1_000, 100))

    assert (found.shares(values) >= 1).any(axis=1).mean() <= 0.02


def test_planted_shift_is_found_in_the_expected_time() -> None:
    """A shift of 2 at value 50 is found by 999 of 1,000 streams, by half in the stated time."""
    found = EDetector((1.0, 2.0, 4.0), (0.5, 0.25, 0.25), 0.1, 30_000.0)
    values = np.random.default_rng(4).normal(0.0, 1.0, (1_000, 100))
    values[:, 50:] += 2.0

    hits = found.shares(values)[:, 50:] >= 1
    delays = np.where(hits.any(axis=1), hits.argmax(axis=1) + 1, 1_000)
    assert (delays < 1_000).sum() >= 999
    assert np.median(delays) == pytest.approx(found.expected_delay(2.0), abs=1.5)


def test_evidence_falls_again_after_the_shift() -> None:
    """After 500 values beyond the shift, 20 unchanged ones bring it under half."""
    found = EDetector((2.0,), (1.0,), 0.0, 10_000.0)
    values = np.concatenate([np.full(500, 3.0), np.zeros(20)])

    shares = found.shares(values)

    assert shares[499] == pytest.approx(1.0)
    assert shares[-1] < 0.5


def test_one_wild_value_does_not_alarm() -> None:
    """A value of a million standard deviations counts as the clip."""
    found = EDetector((0.5, 2.0, 800.0), (0.5, 0.25, 0.25), 0.1, 30_000.0)

    assert found.shares(np.array([1e6]))[0] < 1
    assert found.shares(np.array([1e6, 1e6]))[1] >= 1


@pytest.mark.parametrize("shift", [3.0, 30.0, 300.0])
def test_less_than_half_of_a_shift_gathers_nothing(shift: float) -> None:
    """However small the spread is, 45 % of the shift never alarms and all of it does at once."""
    found = EDetector((shift,), (1.0,), 0.0, 30_000.0)

    assert (found.shares(np.full(1_000, 0.45 * shift)) < 1).all()
    assert found.shares(np.full(3, shift))[-1] >= 1
    assert found.expected_delay(0.45 * shift) == math.inf


def test_shift_within_the_margin_is_never_found() -> None:
    """What is tolerated has no delay, however long it lasts."""
    assert PLAIN.expected_delay(0.2) == math.inf
    assert PLAIN.expected_delay(1e9) >= 1.0


@pytest.mark.parametrize(
    "wrong",
    [
        {"shifts": ()},
        {"weights": (1.0,)},
        {"margin": 1.0},
        {"margin": -0.1},
        {"weights": (0.5, 0.6)},
        {"weights": (1.0, 0.0)},
        {"threshold": 1.0},
        {"clip": 0.0},
        {"shifts": (1.0, math.inf)},
    ],
)
def test_settings_out_of_range_are_refused(wrong: dict[str, object]) -> None:
    """Each setting is checked, and the message says what was got."""
    good: dict[str, object] = {
        "shifts": (1.0, 2.0),
        "weights": (0.5, 0.5),
        "margin": 0.2,
        "threshold": 500.0,
    }
    with pytest.raises(ValueError, match="got"):
        EDetector(**{**good, **wrong})  # type: ignore[arg-type]
