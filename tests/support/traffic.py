"""Synthetic measurements of acceptance by kind of traffic, with known properties."""

from dataclasses import replace
from typing import Any

import numpy as np

from draftgate.records import SpeculationCounters, TrafficAcceptance, TrafficSetting

SETTING = TrafficSetting(
    target="smollm2-135m-instruct",
    dtype="bfloat16",
    quantization=None,
    options=(("prompt_lookup_max", 4),),
    max_tokens=48,
    temperature=0.0,
    concurrency=8,
    prompts="0123456789abcdef",
)


def make_traffic(
    arm: str = "ngram",
    kind: str = "chat",
    *,
    prompts: int = 60,
    factor: float = 1.0,
    noise: float = 0.0,
    seed: int = 1,
    **changes: Any,
) -> TrafficAcceptance:
    """Return a measurement; equal prompts have equal values but for `factor` and `noise`.

    Args:
        arm: Name of the arm, which is its method too.
        kind: Kind of traffic.
        prompts: Number of prompts.
        factor: What every value is multiplied by.
        noise: Standard deviation of a factor's logarithm, drawn per prompt.
        seed: Seed of the noise.
        changes: Fields to replace.
    """
    own = 1.0 + np.random.default_rng(99).gamma(2.0, 0.4, prompts)
    values = own * factor * np.exp(np.random.default_rng(seed).normal(0.0, noise, prompts))
    found = TrafficAcceptance(
        arm=arm,
        method=arm,
        num_speculative_tokens=3,
        kind=kind,
        setting=SETTING,
        tokens_per_step=tuple((f"{kind}-{i:03d}", float(v)) for i, v in enumerate(values)),
        counters=SpeculationCounters(1000, 3000, 1140, (520, 380, 240)),
    )
    return replace(found, **changes)
