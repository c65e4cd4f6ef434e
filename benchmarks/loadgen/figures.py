"""What a load generator reports, and the same figures by the engine's own log.

Percentiles are interpolated here as numpy does by default, because that is what
the other tools do; draftgate's own are taken by `draftgate.calibration.compare`.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from draftgate.null_engine.sendlog import SentStream


@dataclass(frozen=True, slots=True)
class Figures:
    """Figures over all requests of a run; None where a tool gives none.

    Attributes:
        ttft_p50_s: Median time to first token.
        ttft_p99_s: Its 99th percentile.
        step_gap_p50_s: Median time between two chunks of one request.
        step_gap_p99_s: Its 99th percentile.
        per_token_p50_s: Median time per token after the first.
        per_token_p99_s: Its 99th percentile.
        tokens_per_step: Tokens of chunks after the first / number of these.
    """

    ttft_p50_s: float | None = None
    ttft_p99_s: float | None = None
    step_gap_p50_s: float | None = None
    step_gap_p99_s: float | None = None
    per_token_p50_s: float | None = None
    per_token_p99_s: float | None = None
    tokens_per_step: float | None = None


def true_figures(streams: Sequence[SentStream]) -> Figures:
    """Return the figures of what was truly sent.

    Time to first token counts from the engine's having read the request.

    Args:
        streams: The log of one run; answers without a step are left out.
    """
    steps = [(stream, stream.step_ns) for stream in streams if stream.step_ns.size]
    later = np.concatenate([stream.step_tokens[1:] for stream, _ in steps])
    ttft = _two([ns[0] - stream.arrived_ns for stream, ns in steps])
    gap = _two(np.concatenate([np.diff(ns) for _, ns in steps]))
    per_token = _two(
        [(ns[-1] - ns[0]) / stream.step_tokens[1:].sum() for stream, ns in steps if ns.size > 1]
    )
    tokens_per_step = float(later.mean()) if later.size else None
    return Figures(*ttft, *gap, *per_token, tokens_per_step)


def _two(values_ns: Sequence[float] | NDArray[np.int64]) -> tuple[float | None, float | None]:
    """Return median and 99th percentile in seconds; None of nothing."""
    if len(values_ns) == 0:
        return None, None
    p50, p99 = np.percentile(values_ns, (50, 99)) / 1e9
    return float(p50), float(p99)
