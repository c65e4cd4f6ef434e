"""What the front counts, for Prometheus and for its own lines.

Everything is named `draftgate_serve_...`; what the values mean is in docs/serve.md. A
value that is not known is absent, never 0. Opens no socket: `draftgate.serve.front` has
the route.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from draftgate.clock import Clock
from draftgate.metrics.definition import percentile
from draftgate.serve.admission import Admission
from draftgate.serve.exchange import Exchange

PREFIX = "draftgate_serve_"

WINDOW_S = 60.0
"""Window of the gauge of p95: four scrapes at Prometheus' usual 15 s, so that none is missed."""

_MOST_VALUES = 10_000
"""Values that a window keeps at most, the latest: enough for 100 beyond p99, in 1 MB."""

_WAIT_MS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 30_000, 60_000)
_FIRST_S = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60)
_FULL_S = (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300)


class Recent:
    """The values of the last `window_s` seconds, at most the latest 10,000.

    Args:
        window_s: Length of the window.
        clock: Says what is recent.
    """

    def __init__(self, window_s: float, clock: Clock) -> None:
        self._window_ns = int(window_s * 1e9)
        self._clock = clock
        self._values: deque[tuple[int, float]] = deque(maxlen=_MOST_VALUES)

    def add(self, value: float) -> None:
        """Add a value that was seen now."""
        self._values.append((self._clock.now_ns(), value))

    def percentile(self, percent: float) -> float | None:
        """Return a percentile of them as metrics have it; None without any."""
        since_ns = self._clock.now_ns() - self._window_ns
        while self._values and self._values[0][0] < since_ns:
            self._values.popleft()
        return percentile((value for _, value in self._values), percent)


@dataclass(frozen=True, slots=True)
class ArmState:
    """What is told of one arm.

    Attributes:
        arm: Its name.
        up: Whether its engine is there.
        break_even: Tokens per step from which it pays at the present load; None where it is
            not judged.
        in_force: Whether new requests go to it, by class.
        tokens_per_step: Of its latest window, by class.
    """

    arm: str
    up: bool
    break_even: float | None
    in_force: Mapping[str, bool]
    tokens_per_step: Mapping[str, float]


class Metrics:
    """All metrics of one front, in a registry of their own.

    Args:
        admission: Asked for what is in flight and queued.
        clock: Of the window.
    """

    def __init__(self, admission: Admission, clock: Clock) -> None:
        self.waits_ms = Recent(WINDOW_S, clock)
        registry = self._registry = CollectorRegistry()
        self._wait = Histogram(
            f"{PREFIX}queue_wait_ms",
            "Time in the front's queue, milliseconds, admitted requests.",
            buckets=_WAIT_MS,
            registry=registry,
        )
        self._first = Histogram(
            f"{PREFIX}first_token_seconds",
            "Arrival to first byte of the answer, streams.",
            buckets=_FIRST_S,
            registry=registry,
        )
        self._full = Histogram(
            f"{PREFIX}full_response_seconds",
            "Arrival to last byte, answers that are whole.",
            buckets=_FULL_S,
            registry=registry,
        )
        self._rejected = self._counter("rejected", "Requests the front answered itself.", "reason")
        self._cut = self._counter("cut", "Answers that are not whole.", "reason")
        self._responses = self._counter("responses", "Answers begun.", "status")
        self._tokens = self._counter("output_tokens", "Output tokens by the engine's counter.")
        self._switches = self._counter(
            "switches", "Changes of the arm in force.", "class", "reason"
        )
        self._probes = self._counter(
            "probes", "Requests that went to an arm to measure it.", "class", "arm"
        )
        self._restarts = self._counter("engine_restarts", "Engines that were ready again.", "arm")
        self._resent = self._counter(
            "resent", "Requests that another arm answered after one gave no answer.", "arm"
        )
        self._arms = _Arms()
        registry.register(_Gauges(admission, self.waits_ms))
        registry.register(self._arms)

    def take(self, exchange: Exchange) -> None:
        """Count a request that is over."""
        if exchange.waited_ms is not None:
            self._wait.observe(exchange.waited_ms)
            self.waits_ms.add(exchange.waited_ms)
        if exchange.stream and exchange.status == 200 and exchange.first_s is not None:
            self._first.observe(exchange.first_s)
        if exchange.whole:
            self._full.observe(exchange.total_s)
        if exchange.refused is not None:
            self._rejected.labels(exchange.refused).inc()
        if exchange.cut is not None:
            self._cut.labels(exchange.cut).inc()
        if exchange.arm is not None and exchange.tried and exchange.whole:
            self._resent.labels(exchange.arm).inc()
        if exchange.status is not None:
            self._responses.labels(str(exchange.status)).inc()

    def add_tokens(self, count: int) -> None:
        """Count output tokens that the engine's counter grew by."""
        self._tokens.inc(count)

    def arms_of(self, states: Callable[[], Iterable[ArmState]]) -> None:
        """Ask `states` for the arms from now on, whenever Prometheus asks."""
        self._arms.states = states

    def switched(self, kind: str, reason: str) -> None:
        """Count a change of the arm in force."""
        self._switches.labels(kind, reason).inc()

    def probed(self, kind: str, arm: str) -> None:
        """Count a request that went to an arm to measure it."""
        self._probes.labels(kind, arm).inc()

    def restarted(self, arm: str) -> None:
        """Count an engine that is ready again."""
        self._restarts.labels(arm).inc()

    def page(self) -> bytes:
        """Return everything as Prometheus text."""
        return generate_latest(self._registry)

    def _counter(self, name: str, about: str, *labels: str) -> Counter:
        return Counter(PREFIX + name, about, labels, registry=self._registry)


class _Gauges(Collector):
    """What is asked for when Prometheus asks."""

    def __init__(self, admission: Admission, waits_ms: Recent) -> None:
        self._admission = admission
        self._waits_ms = waits_ms

    def collect(self) -> Iterator[Metric]:
        """Yield every gauge."""
        admission = self._admission
        for name, about, value in (
            ("in_flight", "Requests at the engine.", admission.in_flight),
            ("queued", "Requests that wait.", admission.queued),
            ("draining", "1 once no more requests are taken.", int(admission.closed)),
        ):
            yield GaugeMetricFamily(PREFIX + name, about, value=value)
        p95 = self._waits_ms.percentile(95)
        family = GaugeMetricFamily(
            f"{PREFIX}queue_wait_ms_p95",
            f"p95 of the time in the queue, milliseconds, last {WINDOW_S:g} s.",
            labels=(),
        )
        if p95 is not None:
            family.add_metric((), p95)
        yield family


class _Arms(Collector):
    """What is known of the arms when Prometheus asks."""

    def __init__(self) -> None:
        self.states: Callable[[], Iterable[ArmState]] = tuple

    def collect(self) -> Iterator[Metric]:
        """Yield every gauge."""

        def gauge(name: str, about: str, *labels: str) -> GaugeMetricFamily:
            return GaugeMetricFamily(PREFIX + name, about, labels=labels)

        up = gauge("engine_up", "1 while an arm's engine is there.", "arm")
        mode = gauge("mode", "1 for the arm that new requests go to.", "class", "arm")
        steps = gauge("tokens_per_step", "Of the latest window.", "class", "arm")
        pays = gauge("break_even_tokens_per_step", "From which an arm pays now.", "arm")
        for state in self.states():
            up.add_metric((state.arm,), float(state.up))
            for kind, in_force in state.in_force.items():
                mode.add_metric((kind, state.arm), float(in_force))
            for kind, found in state.tokens_per_step.items():
                steps.add_metric((kind, state.arm), found)
            if state.break_even is not None:
                pays.add_metric((state.arm,), state.break_even)
        yield from (up, mode, steps, pays)
