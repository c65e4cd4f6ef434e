"""Why a stream is as fast as it is: three factors that multiply to its speed.

    tokens/s per stream = tokens per step / step time x decode share

The drafter moves tokens per step, the engine moves step time; whatever is not
decoding (prefill, queueing, first tokens) is the decode share, which is defined
so that the product is exact.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from draftgate.errors import MeasurementError
from draftgate.metrics import selection
from draftgate.metrics.definition import Direction, definition, metric
from draftgate.records import RunSamples
from draftgate.specs import SLO
from draftgate.stats.compare import Comparison, compare_runs

FACTORS = ("tokens_per_step", "step_time_s", "decode_share_ratio")


@dataclass(frozen=True, slots=True)
class Factors:
    """The decomposition of one run.

    Attributes:
        tokens_per_step: Mean tokens of the chunks that close a gap.
        step_time_s: Mean gap, seconds.
        decode_share_ratio: What is left so that the product is the speed.
        tokens_per_s_per_stream: The speed that is explained.
    """

    tokens_per_step: float
    step_time_s: float
    decode_share_ratio: float
    tokens_per_s_per_stream: float


@dataclass(frozen=True, slots=True)
class FactorChange:
    """How one factor changed and what that did to the speed.

    Attributes:
        metric: Name of the factor's metric.
        label: What it stands for: "acceptance", "step time", ...
        comparison: Candidate over base, of the factor itself.
        log_effect: Natural logarithm of its effect on speed; below 0 it slows.
        share: Its part of the summed log effects; may be negative or above 1
            where factors pull in different directions; 0 if the sum is 0.
    """

    metric: str
    label: str
    comparison: Comparison
    log_effect: float
    share: float


def decompose(run: RunSamples) -> Factors:
    """Return the three factors of a run's speed per stream.

    Raises:
        MeasurementError: If no gap between chunks lies in the window.
    """
    factors = _factors(run)
    if factors is None:
        raise MeasurementError(
            f"run {run.arm!r} at {run.concurrency} streams, repeat {run.repeat}: no two chunks of "
            "a served request lie in the window, so its speed has no factors. Ask for longer "
            "outputs or a longer window (workload.window_s)."
        )
    return factors


def compare_factors(
    base: Sequence[Mapping[str, float]],
    candidate: Sequence[Mapping[str, float]],
    *,
    confidence: float,
    factors: Sequence[str] = FACTORS,
    paired: bool = False,
) -> tuple[FactorChange, ...]:
    """Return the change of each factor between two sides, with its interval.

    Args:
        base: Metric values by name, one mapping per run, as from `compute_all`.
        candidate: The same for the other side.
        confidence: Two-sided coverage of each interval, in (0, 1).
        factors: Names of metrics whose changes multiply to the one explained.
        paired: As for `draftgate.stats.compare.compare_runs`.

    Returns:
        One per factor, in the order asked for.

    Raises:
        ValueError: As from `compare_runs`, or if a run lacks a factor.
    """
    comparisons = {
        name: compare_runs(
            _column(base, name),
            _column(candidate, name),
            higher_is_better=definition(name).direction is Direction.HIGHER,
            margin_ratio=0.0,
            confidence=confidence,
            paired=paired,
        )
        for name in factors
    }
    effects = {name: _log_effect(name, found) for name, found in comparisons.items()}
    total = sum(effects.values())
    return tuple(
        FactorChange(
            metric=name,
            label=str(definition(name).cause),
            comparison=found,
            log_effect=effects[name],
            share=effects[name] / total if total else 0.0,
        )
        for name, found in comparisons.items()
    )


def _column(runs: Sequence[Mapping[str, float]], name: str) -> list[float]:
    if not all(name in run for run in runs):
        raise ValueError(f"{name} was not measured in every run")
    return [run[name] for run in runs]


def _log_effect(name: str, found: Comparison) -> float:
    sign = 1.0 if definition(name).direction is Direction.HIGHER else -1.0
    return sign * math.log(found.estimate_ratio)


def _factors(run: RunSamples) -> Factors | None:
    gaps = list(selection.gaps_inside(run))
    if run.window is None or not gaps:
        return None
    tokens = sum(chunk.num_tokens for chunk in selection.chunks_inside(run))
    speed = tokens / run.window.length_s / run.concurrency
    tokens_per_step = sum(gap.tokens for gap in gaps) / len(gaps)
    step_time_s = sum(gap.seconds for gap in gaps) / len(gaps)
    return Factors(tokens_per_step, step_time_s, speed * step_time_s / tokens_per_step, speed)


def _register(name: str, title: str, unit: str, direction: Direction, **words: Any) -> None:
    @metric(name, title, unit, direction, **words)
    def compute(run: RunSamples, slo: SLO) -> float | None:  # noqa: ARG001 - one signature for all
        factors = _factors(run)
        return None if factors is None else float(getattr(factors, name))


_register(
    "tokens_per_step",
    "tokens per step",
    "tokens",
    Direction.HIGHER,
    formula="tokens of the chunks that close a gap in the window / gaps in the window",
    cause="acceptance",
)
_register(
    "step_time_s",
    "step time",
    "s",
    Direction.LOWER,
    formula="mean of the gaps in the window",
    cause="step time",
)
_register(
    "decode_share_ratio",
    "decode share",
    "",
    Direction.HIGHER,
    formula="tokens/s per stream x step time / tokens per step",
    cause="prefill or queueing",
)
_register(
    "tokens_per_s_per_stream",
    "tokens/s per stream",
    "tokens/s",
    Direction.HIGHER,
    formula="output tokens/s / streams = tokens per step / step time x decode share",
    cause=FACTORS,
)
