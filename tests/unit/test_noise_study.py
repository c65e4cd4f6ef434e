"""The noise study on worlds that are known: what it finds, and what it must not find."""

import math
from dataclasses import replace

import pytest

from draftgate.compare.records import Pair
from draftgate.errors import MeasurementError
from draftgate.noise.quarantine import reasons_against
from draftgate.noise.records import GateNoise, NoiseStudy
from draftgate.stats.paired import Interval
from tests.support.noise import (
    ARM,
    GATES,
    MEDIAN,
    PROMPTS,
    RATE,
    STREAMS,
    TAIL,
    World,
    invalid,
    make_study,
    noise_pairs,
)


def _gate(study: NoiseStudy, metric: str) -> GateNoise:
    found = study.noise(ARM, STREAMS, metric)
    assert found is not None
    return found


def _holds(interval: Interval, value: float) -> bool:
    return interval.low < value < interval.high


def _without(pairs: tuple[Pair, ...], metric: str, *, starts: int) -> tuple[Pair, ...]:
    """Return the pairs without a metric in the base's first starts."""

    def strip(pair: Pair) -> Pair:
        cell = pair.base.cells[0]
        cell = replace(cell, values=tuple(v for v in cell.values if v[0] != metric))
        return replace(pair, base=replace(pair.base, cells=(cell,)))

    return tuple(strip(p) if n < starts else p for n, p in enumerate(pairs))


def test_known_spreads_come_back() -> None:
    """Between and within starts, and the pair's spread inside its interval."""
    study = make_study(noise_pairs(60, world=World(between_sd=0.02, within_sd=0.03)), trials=1)
    rate, tail, prompts = (_gate(study, gate.metric) for gate in (RATE, TAIL, PROMPTS))

    assert _holds(rate.pair_sd, math.sqrt(2) * 0.02)
    assert (rate.within_known, rate.within_sd) == (False, 0.0)
    assert rate.between_sd == pytest.approx(rate.pair_sd.estimate / math.sqrt(2), rel=1e-5)
    assert _holds(tail.pair_sd, math.sqrt(2) * math.hypot(0.02, 0.03))
    assert (tail.within_known, tail.within_sd) == (True, 0.03)
    assert tail.between_sd == pytest.approx(0.02, rel=0.5)
    assert tail.requests == 120
    assert _holds(prompts.pair_sd, math.sqrt(2) * 0.02 / 2)
    assert prompts.value == pytest.approx(2.0, abs=0.02)
    assert rate.value == pytest.approx(500.0, rel=0.02)


def test_more_noise_within_than_was_seen_leaves_none_between() -> None:
    """Runs whose requests explain more than all of the spread give 0, not a negative variance."""
    pairs = noise_pairs(world=World(between_sd=0.0, within_sd=0.001), seed=4)
    inflated = tuple(
        replace(
            pair,
            base=replace(
                pair.base,
                cells=(replace(pair.base.cells[0], spreads=((TAIL.metric, 0.5),)),),
            ),
        )
        for pair in pairs
    )

    assert _gate(make_study(inflated, (TAIL,), trials=1), TAIL.metric).between_sd == 0.0


def test_a_quiet_runner_is_not_quarantined() -> None:
    """Equal builds in plain noise: no reason, no effect of the place, no drift."""
    study = make_study()
    rate = _gate(study, RATE.metric)

    assert study.quarantine == ()
    assert study.notes == ()
    assert _holds(rate.first_effect, 0.0)
    assert rate.drift_per_hour is not None
    assert _holds(rate.drift_per_hour, 0.0)


def test_a_slower_place_is_found_and_is_no_reason_for_quarantine() -> None:
    """5 % in the first place shows as its effect and adds nothing to the spread."""
    study = make_study(noise_pairs(world=World(slot=0.05)))
    rate = _gate(study, RATE.metric)

    assert study.quarantine == ()
    assert _holds(rate.first_effect, 0.05)
    assert rate.first_effect.low > 0.03
    assert rate.pair_sd == _gate(make_study(), RATE.metric).pair_sd


@pytest.mark.parametrize("bias", [0.03, -0.03])
def test_a_biased_side_is_quarantined(bias: float) -> None:
    """3 % between equal builds, either way, is a reason that names the gate and the size."""
    study = make_study(noise_pairs(world=World(bias=bias)))

    assert any(
        reason.startswith(f"output_tokens_per_s of {ARM} at 8 streams: unchanged builds differ by ")
        for reason in study.quarantine
    )
    assert _holds(_gate(study, RATE.metric).loss, bias)


def test_a_bias_that_comes_and_goes_is_quarantined() -> None:
    """A side that is 4 % worse for six pairs and better for six cancels, but neighbours show it."""
    study = make_study(noise_pairs(world=World(between_sd=0.01, wave=0.04)), (RATE,))

    assert _gate(study, RATE.metric).symmetry_p > 0.5
    assert len(study.quarantine) == 1
    assert "neighbouring pairs lose alike" in study.quarantine[0]


@pytest.mark.parametrize("seed", [1, 2, 3, 4])
def test_heavy_tails_are_not_quarantined(seed: int) -> None:
    """Symmetric noise of Student's t with two degrees of freedom keeps the gate's level."""
    pairs = noise_pairs(seed=seed, world=World(degrees=2.0))

    assert make_study(pairs, (RATE, MEDIAN), trials=200).quarantine == ()


def test_drift_of_the_machine_is_measured() -> None:
    """Starts that get 10 % slower per hour: rate falls, latency rises, pairs hardly notice."""
    study = make_study(noise_pairs(60, world=World(drift_per_hour=0.1)), trials=1)
    rate, median = _gate(study, RATE.metric), _gate(study, MEDIAN.metric)

    assert rate.drift_per_hour is not None
    assert median.drift_per_hour is not None
    assert _holds(rate.drift_per_hour, -0.1)
    assert _holds(median.drift_per_hour, 0.1)
    assert rate.lag_one > 0.5
    assert study.quarantine == ()


def test_drift_is_that_of_both_sides() -> None:
    """With the sides' names exchanged the slope is the same."""
    pairs = noise_pairs()
    exchanged = tuple(
        replace(p, base=p.candidate, candidate=p.base, candidate_first=not p.candidate_first)
        for p in pairs
    )
    one, other = (
        _gate(make_study(given, (RATE,), trials=1), RATE.metric) for given in (pairs, exchanged)
    )

    assert one.drift_per_hour == other.drift_per_hour
    assert one.lag_one != other.lag_one


def test_pairs_that_could_not_be_used_are_counted() -> None:
    """8 of 32 invalid pairs are too many; the same pairs without them are none."""
    pairs = noise_pairs()
    lost = tuple(invalid(pair) for pair in pairs[:8])
    study = make_study(lost + pairs, (RATE,), trials=1)

    assert study.invalid.estimate == 0.25
    assert study.quarantine == ("25% of pairs could not be used; at most 20% may be",)


def test_false_suspects_above_what_is_promised_are_a_reason() -> None:
    """A lower end above three times the promise is named with both; one under it is not."""
    study = make_study(gates=(RATE,), trials=1)
    bad = replace(study.gates[0], suspects=Interval(0.10, 0.08, 0.12))
    good = replace(study.gates[0], suspects=Interval(0.05, 0.03, 0.07))

    assert reasons_against((good,), study.invalid, study.plan) == ()
    (reason,) = reasons_against((bad,), study.invalid, study.plan)
    assert "10.0% of redrawn comparisons become suspect, at least 8.0%" in reason


def test_few_pairs_say_what_they_cannot_see() -> None:
    """Eight pairs give a study, whose notes name the two checks that could not fail."""
    study = make_study(noise_pairs(8, world=World(bias=0.5)))

    assert study.quarantine == ()
    assert study.notes == (
        "with 8 pairs no bias can be shown at 1% over 5 gates; 10 pairs can",
        "fewer pairs than the last look: comparisons were not redrawn",
    )
    assert make_study(noise_pairs(10, world=World(bias=0.5))).quarantine != ()


def test_a_p95_is_measured_beside_its_p99() -> None:
    """The stand-in has the p99's margins and comes after all gates that were asked."""
    study = make_study(trials=1)

    assert [held.gate.metric for held in study.gates if held.stand_in] == ["ttft_p95_s"]
    assert study.gates[-1].gate == replace(TAIL, metric="ttft_p95_s")


def test_equal_pairs_give_an_equal_study() -> None:
    """Seeds decide every draw."""
    assert make_study() == make_study()


def test_gates_without_whole_values_are_named() -> None:
    """A metric that some starts lack is a note; none of the others suffers."""
    study = make_study(_without(noise_pairs(), MEDIAN.metric, starts=3), trials=1)

    assert study.noise(ARM, STREAMS, MEDIAN.metric) is None
    assert study.noise(ARM, STREAMS, RATE.metric) is not None
    assert study.notes == (
        f"ttft_p50_s of {ARM} at 8 streams: not studied: missing in 3 of 24 starts of the base",
    )


@pytest.mark.parametrize("value", [0.0, math.nan, -1.0])
def test_values_without_a_logarithm_are_named(value: float) -> None:
    """Zero, NaN and negative values leave no gate to study, and the message says which."""
    pairs = list(noise_pairs())
    cell = replace(pairs[3].base.cells[0], values=((RATE.metric, value),))
    pairs[3] = replace(pairs[3], base=replace(pairs[3].base, cells=(cell,)))

    with pytest.raises(MeasurementError, match=r"no gate can be studied .output_tokens_per_s of"):
        make_study(tuple(pairs), (RATE,))


def test_too_few_pairs_are_refused_with_the_reason() -> None:
    """Seven valid pairs make no study; the message has the count and why one was lost."""
    pairs = noise_pairs(8)
    pairs = (*pairs[:7], invalid(pairs[7]))

    with pytest.raises(MeasurementError, match=r"got 7 valid of 8 pairs of ngram.*server died"):
        make_study(pairs)


def test_a_clock_that_jumps_back_is_refused() -> None:
    """A pair that began before the one taken before it has no place in time."""
    pairs = list(noise_pairs())
    early = pairs[2].base.started_at
    pairs[9] = replace(
        pairs[9],
        base=replace(pairs[9].base, started_at=early),
        candidate=replace(pairs[9].candidate, started_at=early),
    )

    with pytest.raises(MeasurementError, match="the clock jumped"):
        make_study(tuple(pairs))


def test_servers_that_began_at_one_time_have_no_drift() -> None:
    """Without restarts there is no time to fit a slope over: None, not 0."""
    when = noise_pairs()[0].base.started_at
    pairs = tuple(
        replace(
            pair,
            base=replace(pair.base, started_at=when),
            candidate=replace(pair.candidate, started_at=when),
        )
        for pair in noise_pairs()
    )

    assert _gate(make_study(pairs, GATES[:1], trials=1), RATE.metric).drift_per_hour is None
