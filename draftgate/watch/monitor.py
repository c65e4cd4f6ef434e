"""Everything between a page that was read and what is known after it. No I/O.

A monitor holds one server. `tick` takes a page, or None where none could be read, and
the seconds since the last one by a clock that never jumps; it returns what happened.
Time of day is a label only, so a clock that is set changes nothing.
"""

from dataclasses import dataclass, field, replace
from enum import Enum

from draftgate.errors import MeasurementError, SpecError
from draftgate.stats.level import FEWEST_VALUES, Level
from draftgate.stats.shifts import Wanted
from draftgate.watch.judge import Judged, judge, learn, with_level
from draftgate.watch.page import Group, Page, Totals
from draftgate.watch.totals import Growth, growth, restarted
from draftgate.watch.windows import WindowSize, gather

MISSES = 2
"""Readings in a row without a group after which it has vanished; one may fall into a restart."""


class Alarm(Enum):
    """What a group can be in."""

    DROP = "drop"
    RISE = "rise"
    SLIDE_DOWN = "slide_down"
    SLIDE_UP = "slide_up"
    STILL = "still"
    VANISHED = "vanished"


@dataclass(frozen=True, slots=True)
class Plan:
    """What a monitor does.

    Attributes:
        size: When a window is full.
        wanted: What detectors look for.
        learn_windows: Windows to learn a group's level from where it has none; None for
            not at all.
        still_s: Seconds of traffic without a verify step that are too many, > 0.

    Raises:
        SpecError: If a number is out of its range.
    """

    size: WindowSize = field(default_factory=WindowSize)
    wanted: Wanted = field(default_factory=Wanted)
    learn_windows: int | None = 50
    still_s: float = 120.0

    def __post_init__(self) -> None:
        """Check the numbers."""
        if self.learn_windows is not None and self.learn_windows < FEWEST_VALUES:
            raise SpecError(
                f"watch: --learn must be {FEWEST_VALUES} or more windows, got "
                f"{self.learn_windows}. 50 are a good number."
            )
        if not 0 < self.still_s < float("inf"):
            raise SpecError(f"watch: --still-after must be > 0 seconds, got {self.still_s:g}.")


@dataclass(frozen=True, slots=True)
class Watched:
    """One group as it stands.

    Attributes:
        judged: Its windows, level and evidence.
        gathered: Growth that makes no window yet.
        quiet_s: Seconds since its counters last moved.
        still_s: Seconds with traffic and without a verify step since then.
        still: Whether that alarm stands.
        missed: Readings in a row that lacked it.
        restarts: Times that its counters began anew.
    """

    judged: Judged = field(default_factory=Judged)
    gathered: Growth = field(default_factory=Growth)
    quiet_s: float = 0.0
    still_s: float = 0.0
    still: bool = False
    missed: int = 0
    restarts: int = 0

    @property
    def alarms(self) -> tuple[Alarm, ...]:
        """Return the alarms that stand."""
        found = [Alarm(shift.value) for shift in self.judged.alarms]
        found += [Alarm.STILL] if self.still else []
        return (*found, *([Alarm.VANISHED] if self.missed >= MISSES else []))


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that happened to a group.

    Attributes:
        group: To which.
        before: The group before.
        after: The group now.
        window: A window became full; `after` has judged it.
        learned: Its level was learned by that window.
        restarted: Its counters began anew.
        problem: Why no level could be learned; learning begins anew.
    """

    group: Group
    before: Watched
    after: Watched
    window: bool = False
    learned: bool = False
    restarted: bool = False
    problem: str | None = None

    @property
    def raised(self) -> tuple[Alarm, ...]:
        """Return the alarms that are new."""
        return tuple(one for one in self.after.alarms if one not in self.before.alarms)

    @property
    def cleared(self) -> tuple[Alarm, ...]:
        """Return the alarms that are over."""
        return tuple(one for one in self.before.alarms if one not in self.after.alarms)

    @property
    def matters(self) -> bool:
        """Whether there is anything to say."""
        return bool(self.window or self.learned or self.restarted or self.raised or self.cleared)


@dataclass(slots=True)
class Monitor:
    """What is known about one server; changed by `tick` alone.

    Attributes:
        plan: What it does.
        groups: Every group ever seen or given a level.
        totals: Latest totals of each series.
        read: Whether the latest page could be read.
        scrapes: Pages read.
        failures: Pages that could not be read.
    """

    plan: Plan
    groups: dict[Group, Watched] = field(default_factory=dict)
    totals: dict[tuple[Group, str], Totals] = field(default_factory=dict)
    read: bool = False
    scrapes: int = 0
    failures: int = 0

    def give_level(self, group: Group, level: Level) -> None:
        """Hold a group against this level from now on.

        Raises:
            MeasurementError: If the level is of no use.
        """
        watched = self.groups.get(group, Watched())
        judged = with_level(watched.judged, level, self.plan.wanted)
        self.groups[group] = replace(watched, judged=judged)

    def tick(self, page: Page | None, elapsed_s: float, now: str) -> tuple[Event, ...]:
        """Take one reading and return what happened, in order of the groups.

        Args:
            page: What was read; None where nothing could be.
            elapsed_s: Seconds since the last reading, by a clock that never jumps.
            now: Time of day, ISO 8601; a label.
        """
        self.read = page is not None
        if page is None:
            self.failures += 1
            for group, watched in self.groups.items():
                self.groups[group] = replace(watched, quiet_s=watched.quiet_s + elapsed_s)
            return ()
        self.scrapes += 1
        here = {group for group, _ in page.series}
        events = []
        for group in sorted(here | set(self.groups)):
            before = self.groups.get(group, Watched())
            if group in here:
                event = self._seen(group, before, page, elapsed_s, now)
            else:
                event = Event(group, before, _missed(before, elapsed_s))
            self.groups[group] = event.after
            if event.matters:
                events.append(event)
        self.totals.update(page.series)
        return tuple(events)

    def _seen(self, group: Group, before: Watched, page: Page, elapsed_s: float, now: str) -> Event:
        more, anew = Growth(), False
        for at, after in page.series.items():
            old = self.totals.get(at)
            if at[0] == group and old is not None:
                more += growth(old, after)
                anew = anew or restarted(old, after)
        busy = more.generated > 0 or more.requests > 0 or _running(page, group) > 0
        timed = _timed(before, more, elapsed_s, self.plan.still_s, busy=busy)
        gathered, window = gather(before.gathered, more, self.plan.size)
        judged, problem = before.judged, None
        if window is not None:
            judged, problem = self._judged(before.judged, window, now)
        return Event(
            group,
            before,
            replace(
                timed, judged=judged, gathered=gathered, missed=0, restarts=timed.restarts + anew
            ),
            window=window is not None,
            learned=before.judged.level is None and judged.level is not None,
            restarted=anew,
            problem=problem,
        )

    def _judged(self, judged: Judged, window: Growth, now: str) -> tuple[Judged, str | None]:
        """Return the group after a window, and why it could not be learned from."""
        if judged.level is not None:
            return judge(judged, window, self.plan.wanted, now), None
        seen = replace(judged, windows=judged.windows + 1, last=window)
        if self.plan.learn_windows is None:
            return seen, None
        try:
            return learn(judged, window, self.plan.learn_windows, self.plan.wanted), None
        except MeasurementError as error:
            return replace(seen, learning=()), str(error)


def _timed(
    watched: Watched, more: Growth, elapsed_s: float, limit_s: float, *, busy: bool
) -> Watched:
    """Return the group with its clocks set: they stop where nothing runs."""
    if more.drafts > 0:
        return replace(watched, quiet_s=0.0, still_s=0.0, still=False)
    still_s = watched.still_s + elapsed_s * busy
    return replace(
        watched,
        quiet_s=watched.quiet_s + elapsed_s,
        still_s=still_s,
        still=watched.still or still_s >= limit_s,
    )


def _missed(watched: Watched, elapsed_s: float) -> Watched:
    return replace(watched, missed=watched.missed + 1, quiet_s=watched.quiet_s + elapsed_s)


def _running(page: Page, group: Group) -> float:
    own = page.running.get(group)
    return page.running.get(Group(group.model, ""), 0.0) if own is None else own
