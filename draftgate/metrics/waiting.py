"""Waiting: what a request spends inside the engine before its first token.

Means over the requests that the engine counted while the window was open, by
its own counters; what the client and the way to the engine add is not in them.
"""

from draftgate.metrics.definition import Direction, metric
from draftgate.records import RunSamples
from draftgate.specs import SLO


@metric(
    "queue_time_mean_s",
    "queue time, mean",
    "s",
    Direction.LOWER,
    formula="summed time to be scheduled / requests scheduled, by the engine's counters",
    cause="queueing",
)
def queue_time_mean_s(run: RunSamples, slo: SLO) -> float | None:  # noqa: ARG001 - one signature for all
    """Return the mean time a request waited inside the engine."""
    if run.counters is None or not run.counters.queue_time_count:
        return None
    return run.counters.queue_time_sum_s / run.counters.queue_time_count


@metric(
    "prefill_time_mean_s",
    "prefill time, mean",
    "s",
    Direction.LOWER,
    formula="summed time from scheduled to first token / requests, by the engine's counters",
    cause="prefill",
)
def prefill_time_mean_s(run: RunSamples, slo: SLO) -> float | None:  # noqa: ARG001 - one signature for all
    """Return the mean time from being scheduled to the first token; absent if not counted."""
    counters = run.counters
    if counters is None or counters.prefill_time_sum_s is None or not counters.prefill_time_count:
        return None
    return counters.prefill_time_sum_s / counters.prefill_time_count
