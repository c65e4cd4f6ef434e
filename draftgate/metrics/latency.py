"""Latency: time to first token, step gap, time per token, end to end.

Three different things are often called "inter-token latency"; here the step gap
is between chunks and the per-token time divides by tokens. Each is given as p50,
p90, p95 and p99 over the requests (or gaps) of one run.
"""

from collections.abc import Callable, Iterable

from draftgate.metrics import selection
from draftgate.metrics.definition import PERCENTILES, Direction, metric, percentile
from draftgate.records import RunSamples
from draftgate.specs import SLO

Values = Callable[[RunSamples], Iterable[float]]


def ttft_values(run: RunSamples) -> list[float]:
    """Return the times to first token of requests sent in the window, seconds."""
    times = (selection.ttft_s(record) for record in selection.sent_inside(run))
    return [time for time in times if time is not None]


def step_gap_values(run: RunSamples) -> list[float]:
    """Return the gaps between chunks that have both ends in the window, seconds."""
    return [gap.seconds for gap in selection.gaps_inside(run)]


def per_token_values(run: RunSamples) -> list[float]:
    """Return the per-token times of requests that ended in the window, seconds."""
    times = (selection.per_token_s(record) for record in selection.ended_inside(run))
    return [time for time in times if time is not None]


def e2e_values(run: RunSamples) -> list[float]:
    """Return the end-to-end times of requests that ended in the window, seconds."""
    return [selection.e2e_s(record) for record in selection.ended_inside(run)]


def sample_counts(run: RunSamples) -> dict[str, int]:
    """Return how many values stand behind the percentiles of each family.

    With fewer than 100 the p99 is the maximum and says little; a report that
    shows it should show this count too.
    """
    return {name: len(list(values(run))) for name, (_, values, _, _) in _FAMILIES.items()}


_DECODE = ("tokens_per_step", "step_time_s")
_FAMILIES: dict[str, tuple[str, Values, str, str | tuple[str, ...]]] = {
    "ttft": (
        "time to first token",
        ttft_values,
        "first chunk - sent; requests sent in the window",
        "prefill or queueing",
    ),
    "step_gap": (
        "step gap",
        step_gap_values,
        "chunk - chunk before it in the same request; both in the window",
        "step time",
    ),
    "per_token": (
        "time per token",
        per_token_values,
        "(last chunk - first chunk) / tokens after the first chunk; requests ended in the window",
        _DECODE,
    ),
    "e2e": (
        "end-to-end time",
        e2e_values,
        "last byte - sent; requests ended in the window",
        (*_DECODE, "decode_share_ratio"),
    ),
}


def _register(family: str, percent: int) -> None:
    title, values, formula, cause = _FAMILIES[family]

    @metric(
        f"{family}_p{percent}_s",
        f"{title}, p{percent}",
        "s",
        Direction.LOWER,
        formula=f"p{percent} of ({formula})",
        cause=cause,
    )
    def compute(run: RunSamples, slo: SLO) -> float | None:  # noqa: ARG001 - one signature for all
        return percentile(values(run), percent)


for _family in _FAMILIES:
    for _percent in PERCENTILES:
        _register(_family, _percent)
