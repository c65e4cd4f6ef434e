"""Pairs of starts of one build with itself, with a noise that is known."""

from dataclasses import dataclass, replace
from datetime import timedelta

import numpy as np
from numpy.typing import NDArray

from draftgate.compare.records import (
    CellValues,
    Gate,
    Pair,
    Role,
    Scale,
    ServerStart,
    Stage,
)
from draftgate.noise.records import NoiseStudy
from draftgate.noise.study import StudySettings, study
from draftgate.specs import Profile
from draftgate.stats.losses import candidate_first
from tests.support.samples import START, make_environment, make_profile

ARM, STREAMS = "ngram", 8
PROFILE = make_profile(concurrencies=(STREAMS,))

RATE = Gate(ARM, STREAMS, "output_tokens_per_s", Scale.RATIO, 0.01, 0.05)
MEDIAN = Gate(ARM, STREAMS, "ttft_p50_s", Scale.RATIO, 0.01, 0.05)
TAIL = Gate(ARM, STREAMS, "ttft_p99_s", Scale.RATIO, 0.02, 0.10)
PROMPTS = Gate(ARM, STREAMS, "tokens_per_step_by_prompt", Scale.ABSOLUTE, 0.02, 0.10)
GATES = (RATE, MEDIAN, TAIL, PROMPTS)

_WITHIN_FACTOR = {"ttft_p50_s": 0.3, "ttft_p95_s": 0.6, "ttft_p99_s": 1.0}


@dataclass(frozen=True, slots=True)
class World:
    """How starts of one build differ; logs of the value, positive is slower.

    Attributes:
        between_sd: Between starts.
        within_sd: Of a p99 from its own requests; less for lower percentiles.
        requests: Per start.
        slot: What the first place costs.
        bias: What being the candidate costs.
        wave: What being the candidate costs for six pairs, and gains for the next six.
        drift_per_hour: Of the machine; a pair takes two minutes.
        degrees: Of Student's t that noise between starts has; None for normal.
    """

    between_sd: float = 0.02
    within_sd: float = 0.0
    requests: int = 120
    slot: float = 0.0
    bias: float = 0.0
    wave: float = 0.0
    drift_per_hour: float = 0.0
    degrees: float | None = None


def noise_pairs(pairs: int = 24, *, seed: int = 1, world: World | None = None) -> tuple[Pair, ...]:
    """Return valid pairs of one arm at one number of streams, two minutes apart."""
    world = world or World()
    rng = np.random.default_rng(seed)
    found = []
    for slot, first in enumerate(candidate_first(pairs, seed=seed)):
        when = START + timedelta(minutes=2 * slot)
        known = world.drift_per_hour * slot / 30
        wave = world.wave * (1 if slot % 12 < 6 else -1)
        levels = {
            Role.BASE: known + world.slot * (not first),
            Role.CANDIDATE: known + world.slot * first + world.bias + wave,
        }
        starts = [
            ServerStart(role, when.isoformat(), 1.0, "vllm 0.32.0", (_cell(rng, world, level),))
            for role, level in levels.items()
        ]
        found.append(Pair(ARM, Stage.SEARCH, slot, 0, first, "example", *starts))
    return tuple(found)


def _cell(rng: np.random.Generator, world: World, level: float) -> CellValues:
    values = {"output_tokens_per_s": 500.0 / float(np.exp(level + _between(rng, world)[0]))}
    spreads = {}
    for metric, factor in _WITHIN_FACTOR.items():
        within = factor * world.within_sd
        noise = float(_between(rng, world)[0] + rng.normal(0, within))
        values[metric] = 0.1 * float(np.exp(level + noise))
        spreads[metric] = within
    prompts = [(f"chat-{n}", 2.0 - level + float(_between(rng, world)[0])) for n in range(4)]
    return CellValues(
        STREAMS, tuple(values.items()), world.requests, tuple(prompts), tuple(spreads.items())
    )


def _between(rng: np.random.Generator, world: World) -> NDArray[np.float64]:
    if world.degrees is None:
        return rng.normal(0, world.between_sd, 1)
    return world.between_sd * rng.standard_t(world.degrees, 1)


def invalid(pair: Pair) -> Pair:
    """Return the pair as one that could not be used."""
    return replace(pair, base=replace(pair.base, invalid=("the server died",)))


def make_study(
    pairs: tuple[Pair, ...] | None = None,
    gates: tuple[Gate, ...] = GATES,
    *,
    trials: int = 60,
    profile: Profile = PROFILE,
) -> NoiseStudy:
    """Return the study of these pairs; 24 pairs of the default world without any."""
    return study(
        noise_pairs() if pairs is None else pairs,
        gates,
        profile=profile,
        environment=make_environment(),
        run_id="run-1",
        settings=StudySettings(trials=trials, flips=4999),
    )
