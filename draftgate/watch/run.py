"""Polling: read the page, let the monitor judge, store, export, wait, until told to end.

The only part of the monitor that does I/O besides its exporter. What is said about it
is left to the caller, who gets every event.
"""

import threading
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path

from draftgate.clock import Clock
from draftgate.engines.running import read_page_at
from draftgate.errors import EngineError, MeasurementError, SpecError
from draftgate.watch.exporter import exporting
from draftgate.watch.files import (
    SCHEMA,
    LearnedLevel,
    Reference,
    load_reference,
    load_state,
    resumed,
    save_reference,
    save_state,
)
from draftgate.watch.monitor import Event, Monitor, Plan
from draftgate.watch.page import Page, looked_for, read_page

MOST_TICKS = 4
"""Intervals that one wait counts for at most: a machine that slept did not see it stand still."""


@dataclass(frozen=True, slots=True)
class WatchSpec:
    """What to watch.

    Attributes:
        url: Metrics page.
        plan: What the monitor does.
        interval_s: Time between readings, > 0.
        kind_label: Label that holds the kind of traffic.
        reference: File with the levels; None to keep them to itself.
        state: File to go on from after a restart; None for none.
        listen: Address for Prometheus to ask; None to export nothing.
        duration_s: When to end by itself; None for not.
        until_learned: End once every group on the page has a level.
        api_key_env: Variable that holds a key for the page; None without.
    """

    url: str
    plan: Plan = field(default_factory=Plan)
    interval_s: float = 15.0
    kind_label: str = "kind"
    reference: Path | None = None
    state: Path | None = None
    listen: tuple[str, int] | None = None
    duration_s: float | None = None
    until_learned: bool = False
    api_key_env: str | None = None

    def __post_init__(self) -> None:
        """Check what one option can't check by itself.

        Raises:
            SpecError: If a time is not positive, or nothing could be judged.
        """
        for name, value in (("--interval", self.interval_s), ("--for", self.duration_s)):
            if value is not None and not 0 < value < float("inf"):
                raise SpecError(f"watch: {name} must be > 0 seconds, got {value:g}.")
        if self.plan.learn_windows is None and self.reference is None:
            raise SpecError(
                "watch: got neither a reference nor leave to learn one. Give --learn 50."
            )


@dataclass(frozen=True, slots=True)
class WatchHooks:
    """Whom to tell; all run between two readings.

    Attributes:
        on_start: Called once with the port of the exporter, 0 without one.
        on_event: Called with each event.
        on_reading: Called when readings begin to fail, with the error, and with None when
            they succeed again.
    """

    on_start: Callable[[Monitor, int], None]
    on_event: Callable[[Event], None]
    on_reading: Callable[[EngineError | None], None]


def run_watch(spec: WatchSpec, hooks: WatchHooks, clock: Clock, stop: threading.Event) -> Monitor:
    """Watch until the time is over, everything is learned or `stop` is set; return what is known.

    A first page that cannot be read ends it at once, because an address may be wrong; later
    ones are counted and tried again.

    Raises:
        SpecError: If a file does not fit the settings.
        BaselineError: If a file is damaged.
        EngineError: If the first page cannot be read, or says nothing of speculation.
        MeasurementError: If no level can be learned, or a file cannot be written.
    """
    monitor = begin(spec)
    lock = threading.Lock()
    with ExitStack() as stack:
        port = 0
        if spec.listen is not None:
            port = stack.enter_context(exporting(monitor, lock, *spec.listen))
        watching = _Watching(spec, hooks, clock, monitor, lock)
        watching.first()
        hooks.on_start(monitor, port)
        while not watching.over() and not stop.wait(spec.interval_s):
            watching.again()
    return monitor


def begin(spec: WatchSpec) -> Monitor:
    """Return the monitor to start with, from the state and the reference where there are any.

    Raises:
        SpecError: If a file does not fit, or the reference is missing and none is to be learned.
        BaselineError: If a file is damaged.
    """
    state = load_state(spec.state, spec.url, spec.plan) if spec.state else None
    monitor = resumed(state) if state else Monitor(spec.plan)
    if spec.reference is None:
        return monitor
    if spec.reference.exists():
        for known in load_reference(spec.reference, spec.plan.size).levels:
            held = monitor.groups.get(known.group)
            if held is None or held.judged.level != known.level:
                monitor.give_level(known.group, known.level)
    elif spec.plan.learn_windows is None:
        raise SpecError(
            f"watch: --reference {spec.reference} does not exist. Give --learn 50 with it to write "
            "it from the next 50 windows."
        )
    return monitor


def _demand_requests(page: Page, url: str) -> None:
    """Refuse a page on which no window could ever become full.

    Raises:
        EngineError: If a series counts no requests.
    """
    for (group, _), totals in page.series.items():
        if totals.requests is None:
            raise EngineError(
                f"watch: {url} counts no requests for {group.name}, so windows of requests never "
                "fill. Give --window-steps 5000 to count verify steps."
            )


class _Watching:
    """One watch between its readings."""

    def __init__(
        self,
        spec: WatchSpec,
        hooks: WatchHooks,
        clock: Clock,
        monitor: Monitor,
        lock: threading.Lock,
    ) -> None:
        self._spec, self._hooks, self._clock = spec, hooks, clock
        self._monitor, self._lock = monitor, lock
        self._start_ns = self._last_ns = clock.now_ns()
        self._reading = True

    def first(self) -> None:
        """Read once; nothing has happened yet."""
        page = self._read()
        if not page.series and not self._monitor.groups:
            raise EngineError(
                f"watch: {self._spec.url} has no counters of speculation; looked for "
                f"{looked_for()}. Is speculation on, and is this the engine's metrics page?"
            )
        if self._spec.plan.size.requests is not None:
            _demand_requests(page, self._spec.url)
        self._take(page)

    def again(self) -> None:
        """Read once more."""
        try:
            page = self._read()
        except EngineError as error:
            if self._reading:
                self._hooks.on_reading(error)
            self._reading = False
            self._take(None)
            return
        if not self._reading:
            self._hooks.on_reading(None)
        self._reading = True
        self._take(page)

    def over(self) -> bool:
        """Whether it is time to end."""
        elapsed_s = (self._clock.now_ns() - self._start_ns) / 1e9
        if self._spec.duration_s is not None and elapsed_s >= self._spec.duration_s:
            return True
        groups = self._monitor.groups.values()
        return self._spec.until_learned and all(one.judged.level is not None for one in groups)

    def _read(self) -> Page:
        text = read_page_at(self._spec.url, "watch", self._spec.api_key_env)
        return read_page(text, self._spec.kind_label)

    def _take(self, page: Page | None) -> None:
        now_ns = self._clock.now_ns()
        elapsed_s = (now_ns - self._last_ns) / 1e9
        self._last_ns = now_ns
        now = self._clock.wall().isoformat(timespec="seconds")
        with self._lock:
            events = self._monitor.tick(
                page, min(elapsed_s, MOST_TICKS * self._spec.interval_s), now
            )
        for event in events:
            self._hooks.on_event(event)
            if event.problem is not None and self._spec.until_learned:
                raise MeasurementError(event.problem)
        if self._spec.reference is not None and any(event.learned for event in events):
            self._keep(events, now)
        if self._spec.state is not None:
            save_state(self._spec.state, self._spec.url, self._monitor, now)

    def _keep(self, events: tuple[Event, ...], now: str) -> None:
        """Add newly learned levels to the reference file."""
        path, size = self._spec.reference, self._spec.plan.size
        assert path is not None, "nowhere to keep a reference"
        old = load_reference(path, size) if path.exists() else Reference(SCHEMA, size, ())
        new = tuple(
            LearnedLevel(event.group, event.after.judged.level, now)
            for event in events
            if event.learned and event.after.judged.level is not None
        )
        groups = {known.group for known in new}
        kept = tuple(known for known in old.levels if known.group not in groups)
        save_reference(path, replace(old, levels=(*kept, *new)))
