"""Resources: what the server used, what the engine reports of its cache, and whether the
client could have been what was measured.
"""

from collections.abc import Callable
from typing import Any

from draftgate.metrics.definition import Direction, metric
from draftgate.records import EngineCounters, RunSamples
from draftgate.specs import SLO


@metric(
    "client_cpu_ratio",
    "client CPU",
    "",
    Direction.LOWER,
    formula="CPU seconds of the load generator / seconds of the run",
)
def client_cpu_ratio(run: RunSamples, slo: SLO) -> float | None:  # noqa: ARG001 - one signature for all
    """Return the share of one core that the load generator used."""
    return run.client.cpu_s / run.client.wall_s if run.client.wall_s > 0 else None


@metric(
    "failed_ratio",
    "failed requests",
    "",
    Direction.LOWER,
    formula="failed requests / requests, whole run",
)
def failed_ratio(run: RunSamples, slo: SLO) -> float | None:  # noqa: ARG001 - one signature for all
    """Return the share of all requests of the run, warm-up included, that failed."""
    if not run.records:
        return None
    return sum(record.failure is not None for record in run.records) / len(run.records)


def _register(
    name: str,
    title: str,
    unit: str,
    formula: str,
    read: Callable[[RunSamples], Any],
    *,
    direction: Direction = Direction.LOWER,
) -> None:
    @metric(name, title, unit, direction, formula=formula)
    def compute(run: RunSamples, slo: SLO) -> float | None:  # noqa: ARG001 - one signature for all
        value = read(run)
        return None if value is None else float(value)


def _counters(run: RunSamples, read: Callable[[EngineCounters], float | None]) -> float | None:
    return None if run.counters is None else read(run.counters)


_register(
    "kv_use_max_ratio",
    "KV cache use, largest",
    "",
    "largest share of KV blocks in use that a scrape saw",
    lambda run: _counters(run, lambda counters: counters.kv_use_max_ratio),
)
_register(
    "server_cpu_cores",
    "server CPU",
    "cores",
    "CPU seconds of the server's process tree / window length",
    lambda run: run.resources.cpu_cores,
)
_register(
    "server_rss_bytes",
    "server memory",
    "bytes",
    "largest resident memory of the server's process tree seen in the window",
    lambda run: run.resources.rss_bytes,
)
_register(
    "gpu_use_ratio",
    "GPU use",
    "",
    "mean GPU use over the window, by NVML",
    lambda run: run.resources.gpu_use_ratio,
    direction=Direction.NEITHER,
)
_register(
    "gpu_power_w",
    "GPU power",
    "W",
    "mean GPU power over the window, by NVML",
    lambda run: run.resources.gpu_power_w,
)
_register(
    "gpu_memory_bytes",
    "GPU memory",
    "bytes",
    "largest GPU memory seen in the window, by NVML",
    lambda run: run.resources.gpu_memory_bytes,
)
_register(
    "client_lag_p99_s",
    "client lag, p99",
    "s",
    "p99 of how much later than asked a periodic timer of the load generator fired",
    lambda run: run.client.lag_p99_s,
)
_register(
    "client_read_delay_p99_s",
    "client read delay, p99",
    "s",
    "p99 of how long arrived bytes lay in the kernel before the load generator read them",
    lambda run: run.client.read_delay_p99_s,
)
_register(
    "client_send_delay_p99_s",
    "client send delay, p99",
    "s",
    "p99 of how much later than due a request was sent, connecting included",
    lambda run: run.client.send_delay_p99_s,
)
_register(
    "client_cpu_per_token_s",
    "client CPU per token",
    "s",
    "CPU seconds of the load generator until all sockets are closed / output tokens received",
    lambda run: run.client.cpu_per_token_s,
)
