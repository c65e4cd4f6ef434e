"""What a watch tells Prometheus: its own metrics, on a port of its own.

Builds them from the monitor when asked for them. Everything that names a group has the
labels `model_name` and `kind`. What the values mean is in docs/watch.md.
"""

import math
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from draftgate.errors import EngineError
from draftgate.watch.monitor import Alarm, Monitor, Watched
from draftgate.watch.page import Group

PREFIX = "draftgate_watch_"

LABELS = ("model_name", "kind")

_GAUGES = {
    "acceptance_ratio": "Accepted draft tokens / draft tokens, latest window.",
    "mean_acceptance_length": "1 + accepted draft tokens / verify steps, latest window.",
    "reference_mean_acceptance_length": "The same at the learned level.",
    "counters_quiet_seconds": "Seconds since the counters of speculation last moved.",
    "counters_still_seconds": "Seconds of traffic without a verify step since then.",
    "learning_windows": "Windows taken to learn from so far; gone once learned.",
}


class WatchCollector(Collector):
    """Metrics of one monitor.

    Args:
        monitor: Read whenever Prometheus asks, under `lock`.
        lock: Held by whoever changes the monitor.
    """

    def __init__(self, monitor: Monitor, lock: threading.Lock) -> None:
        self._monitor = monitor
        self._lock = lock

    def collect(self) -> Iterator[Metric]:
        """Yield every metric."""
        with self._lock:
            groups = dict(self._monitor.groups)
            read, scrapes = self._monitor.read, self._monitor.scrapes
            failures = self._monitor.failures
        yield GaugeMetricFamily(f"{PREFIX}up", "1 while a watch runs.", value=1)
        yield GaugeMetricFamily(
            f"{PREFIX}scrape_success", "Whether the latest page could be read.", value=float(read)
        )
        yield CounterMetricFamily(f"{PREFIX}scrapes", "Pages read.", value=scrapes)
        yield CounterMetricFamily(f"{PREFIX}scrape_failures", "Pages not read.", value=failures)
        yield from _of_groups(groups)


def _of_groups(groups: dict[Group, Watched]) -> Iterator[Metric]:
    gauges = {
        name: GaugeMetricFamily(PREFIX + name, about, labels=LABELS)
        for name, about in _GAUGES.items()
    }
    windows = CounterMetricFamily(f"{PREFIX}windows", "Windows judged or learned.", labels=LABELS)
    restarts = CounterMetricFamily(
        f"{PREFIX}restarts", "Times that the engine's counters began anew.", labels=LABELS
    )
    evidence = GaugeMetricFamily(
        f"{PREFIX}evidence_ratio",
        "Log evidence as a share of what alarms: 1 alarms.",
        labels=(*LABELS, "shift"),
    )
    alarms = GaugeMetricFamily(
        f"{PREFIX}alarm", "1 while the alarm stands.", labels=(*LABELS, "alarm")
    )
    for group, watched in sorted(groups.items()):
        labels = (group.model, group.kind)
        for name, value in values(watched).items():
            gauges[name].add_metric(labels, value)
        windows.add_metric(labels, watched.judged.windows)
        restarts.add_metric(labels, watched.restarts)
        for one in watched.judged.evidence:
            evidence.add_metric((*labels, one.shift.value), max(0.0, one.share))
        for alarm in Alarm:
            alarms.add_metric((*labels, alarm.value), float(alarm in watched.alarms))
    yield from (*gauges.values(), windows, restarts, evidence, alarms)


def values(watched: Watched) -> dict[str, float]:
    """Return the plain gauges of a group; what is not known is absent, never 0."""
    judged, found = watched.judged, {}
    if judged.last is not None:
        found["mean_acceptance_length"] = 1 + judged.last.accepted / judged.last.drafts
        if judged.last.draft_tokens > 0:
            found["acceptance_ratio"] = judged.last.accepted / judged.last.draft_tokens
    if judged.level is not None:
        found["reference_mean_acceptance_length"] = math.exp(judged.level.mean)
    else:
        found["learning_windows"] = float(len(judged.learning))
    found["counters_quiet_seconds"] = watched.quiet_s
    found["counters_still_seconds"] = watched.still_s
    return found


@contextmanager
def exporting(monitor: Monitor, lock: threading.Lock, host: str, port: int) -> Iterator[int]:
    """Serve the metrics of a monitor; yield the port.

    Args:
        monitor: Whose.
        lock: Held by whoever changes it.
        host: Address to listen on.
        port: Port; 0 takes a free one.

    Raises:
        EngineError: If the address cannot be had.
    """
    registry = CollectorRegistry()
    registry.register(WatchCollector(monitor, lock))
    try:
        server, thread = start_http_server(port, addr=host, registry=registry)
    except OSError as error:
        raise EngineError(
            f"watch: cannot listen on {host}:{port} ({error.strerror or error}). Give another "
            "address with --listen."
        ) from error
    try:
        yield int(server.server_address[1])
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
