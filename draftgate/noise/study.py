"""The noise study: what pairs of one build with itself say about this runner.

Pairs in, one record out; takes no pairs and opens no file. Equal pairs and an
equal seed give an equal study. Numbers are rounded to six digits, so that a
study that was stored and read back decides what the fresh one decides.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from draftgate.baselines import workload_digest
from draftgate.compare.losses import UnusableError, usable_pairs
from draftgate.compare.records import Gate, Pair, Stage
from draftgate.errors import MeasurementError
from draftgate.metrics import DEFINITIONS_VERSION
from draftgate.noise.advice import advise
from draftgate.noise.gates import look_plan, with_stand_ins
from draftgate.noise.quarantine import blind_spots, name_of, reasons_against
from draftgate.noise.records import NOISE_SCHEMA_VERSION, Advice, GateNoise, NoiseStudy
from draftgate.noise.values import GateSeries, gate_series
from draftgate.records import Environment
from draftgate.specs import CompareSpec, Profile
from draftgate.stats.confirm import FLIPS
from draftgate.stats.losses import BLOCK_PAIRS
from draftgate.stats.noise import (
    holm,
    lag_one,
    pair_spread,
    redrawn_suspects,
    serial_p,
    share_interval,
    symmetry_p,
    trend,
)
from draftgate.stats.paired import Interval

FEWEST_PAIRS = 8
"""Of an arm for a study: the spread is then known to within -35 and +115 %."""

TRIALS = 1000
"""Redrawn comparisons per gate: a rate of 1.4 % is known to within .8 points."""

_DIGITS = 6
_NO_ADVICE = Advice(0.0, (), None)


@dataclass(frozen=True, slots=True)
class StudySettings:
    """How a study is worked out.

    Attributes:
        seed: Of sign flips and redrawn comparisons.
        trials: Redrawn comparisons per gate.
        flips: Random sign vectors per p-value.
    """

    seed: int = 1
    trials: int = TRIALS
    flips: int = FLIPS


def study(
    pairs: Sequence[Pair],
    gates: Sequence[Gate],
    *,
    profile: Profile,
    environment: Environment,
    run_id: str,
    settings: StudySettings | None = None,
) -> NoiseStudy:
    """Return what pairs of unchanged builds say.

    p95 gates that could stand in for a p99 are measured beside the gates.

    Args:
        pairs: In the order in which they were taken, valid or not.
        gates: Every question of a comparison of this profile.
        profile: What was sent; its `compare` holds looks and levels.
        environment: Where.
        run_id: Run folder with the pairs.
        settings: Seed and number of trials.

    Raises:
        MeasurementError: If an arm has fewer than eight valid pairs, the
            clock went backwards, or no gate can be studied.
    """
    _check_pairs(pairs, gates)
    settings = settings or StudySettings()
    stand_ins = with_stand_ins(gates)
    measured, notes = [], []
    for gate in (*gates, *stand_ins):
        found = _studied(pairs, gate, profile.compare, settings)
        if isinstance(found, GateNoise):
            measured.append(replace(found, stand_in=gate in stand_ins))
        elif gate not in stand_ins:
            notes.append(found)
    if not measured:
        raise MeasurementError(
            f"noise study of {profile.name}: no gate can be studied ({' | '.join(notes[:3])}). "
            "Gate metrics that these arms have: [[compare.gate]] in the profile."
        )
    held_gates = _finished(measured, profile.compare, gates=len(gates))
    invalid = share_interval(sum(bool(pair.invalid) for pair in pairs), len(pairs))
    return NoiseStudy(
        schema=NOISE_SCHEMA_VERSION,
        definitions=DEFINITIONS_VERSION,
        profile=profile.name,
        workload=workload_digest(profile),
        environment=environment,
        started_at=min(s.started_at for p in pairs for s in (p.base, p.candidate)),
        run_id=run_id,
        plan=profile.compare,
        pairs=len(pairs),
        invalid=_rounded(invalid),
        gates=held_gates,
        quarantine=reasons_against(held_gates, invalid, profile.compare),
        notes=(*notes, *blind_spots(held_gates)),
    )


def _check_pairs(pairs: Sequence[Pair], gates: Sequence[Gate]) -> None:
    for arm in dict.fromkeys(gate.arm for gate in gates):
        of_arm = [pair for pair in pairs if pair.arm == arm]
        valid = usable_pairs(pairs, arm, Stage.SEARCH)
        if len(valid) < FEWEST_PAIRS:
            why = next((reason for pair in of_arm for reason in pair.invalid), "none was taken")
            raise MeasurementError(
                f"noise study: got {len(valid)} valid of {len(of_arm)} pairs of {arm}, expected "
                f"at least {FEWEST_PAIRS} ({why}). Take more: draftgate calibrate --gate"
            )


def _studied(
    pairs: Sequence[Pair], gate: Gate, plan: CompareSpec, settings: StudySettings
) -> GateNoise | str:
    """Return one gate's numbers, or why there are none."""
    try:
        series = gate_series(pairs, gate)
    except UnusableError as error:
        return f"{name_of(gate)}: not studied: {error}"
    if series is None:
        return f"{name_of(gate)}: not studied: no start has it"
    return _measure(series, gate, plan, settings)


def _measure(
    series: GateSeries, gate: Gate, plan: CompareSpec, settings: StudySettings
) -> GateNoise:
    """Return one gate's numbers; p-values are not yet corrected, nothing is advised."""
    spread = pair_spread(series.held.losses, series.held.first)
    within = math.sqrt(float((series.within**2).mean())) if series.within.size else 0.0
    between = math.sqrt(max(0.0, spread.sd.estimate**2 / 2 - within**2))
    return GateNoise(
        gate=gate,
        stand_in=False,
        pairs=series.held.losses.size,
        value=series.value,
        requests=round(series.requests.size / float((1 / series.requests).sum())),
        loss=spread.mean,
        pair_sd=spread.sd,
        first_effect=spread.effect,
        between_sd=between,
        within_sd=within,
        within_known=bool(series.within.size),
        drift_per_hour=_drift(series),
        lag_one=lag_one(series.base),
        symmetry_p=symmetry_p(spread.adjusted, seed=settings.seed, flips=settings.flips),
        serial_p=serial_p(spread.adjusted, seed=settings.seed, flips=settings.flips),
        suspects=_suspects(series, gate, plan, settings),
        advice=_NO_ADVICE,
    )


def _drift(series: GateSeries) -> Interval | None:
    """Return the slope per hour; None for servers that all began at one time."""
    if series.hours[0] == series.hours[-1]:
        return None
    return trend((series.base + series.candidate) / 2, series.hours)


def _suspects(
    series: GateSeries, gate: Gate, plan: CompareSpec, settings: StudySettings
) -> Interval | None:
    if series.held.losses.size // BLOCK_PAIRS * BLOCK_PAIRS < plan.looks[-1]:
        return None
    hits = redrawn_suspects(
        series.held.losses,
        series.held.first,
        look_plan(gate, plan),
        trials=settings.trials,
        seed=settings.seed,
    )
    return share_interval(hits, settings.trials)


def _finished(
    measured: Sequence[GateNoise], plan: CompareSpec, *, gates: int
) -> tuple[GateNoise, ...]:
    """Return the gates with p-values corrected over all of them, advice, and rounded."""
    symmetry = holm([held.symmetry_p for held in measured])
    serial = holm([held.serial_p for held in measured])
    return tuple(
        _rounded_fields(
            replace(
                held,
                symmetry_p=symmetry[number],
                serial_p=serial[number],
                advice=advise(held, plan, gates=gates),
            )
        )
        for number, held in enumerate(measured)
    )


def _rounded_fields(held: GateNoise) -> GateNoise:
    kept = {field.name: getattr(held, field.name) for field in fields(held)}
    return replace(
        held, **{name: _rounded(value) for name, value in kept.items() if name != "gate"}
    )


def _rounded(value: Any) -> Any:
    """Return numbers in records and tuples to six digits, all else as it is."""
    if isinstance(value, float):
        return float(f"{value:.{_DIGITS}g}")
    if isinstance(value, tuple):
        return tuple(_rounded(item) for item in value)
    if isinstance(value, (Interval, Advice)):
        kept = {field.name: getattr(value, field.name) for field in fields(value)}
        return replace(value, **{name: _rounded(item) for name, item in kept.items()})
    return value
