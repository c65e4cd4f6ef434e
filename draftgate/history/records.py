"""Vocabulary of the history: rows, nights, series, and items that changes open.

Frozen records only. A session (one run folder) is one night, its runs are the
replicates of that night, and a series is one number per night of things that
may be compared. Opens no file and decides nothing.
"""

from dataclasses import dataclass
from datetime import datetime

RUN_ROLE = "run"
"""Role of rows from a pytest session; rows of a comparison have that of their side."""


@dataclass(frozen=True, slots=True)
class Row:
    """One metric of one run, as a line of the history.

    Attributes:
        time: When the run (or server start) began, UTC.
        repeat: Running number within its arm, concurrency and role, from 0.
        engine: Registered engine name.
        engine_version: As the server reports it, without the name.
        arm: Name of the arm.
        role: `run`, `base` or `candidate`.
        concurrency: Closed-loop streams.
        metric: Registered metric name.
        value: In `unit`; may be NaN or infinite, which readers name.
        unit: "s", "tokens/s", ...; "" for a ratio.
        better: `higher`, `lower` or `neither`.
        commit: Of the repository under test; "" where none is known.
        workload: Digest of what was sent and served.
        requests: Served requests that ended in the window.
        invalid: Why the run cannot be used; "" if it can.
    """

    time: datetime
    repeat: int
    engine: str
    engine_version: str
    arm: str
    role: str
    concurrency: int
    metric: str
    value: float
    unit: str
    better: str
    commit: str
    workload: str
    requests: int
    invalid: str


@dataclass(frozen=True, slots=True)
class NightRows:
    """Everything that one run folder adds to the history: one file.

    Attributes:
        run_id: Name of the run folder.
        session_time: When the session began, UTC; orders the nights.
        hardware: Slug of the hardware.
        engines: Engine names joined by "+", a folder's name.
        profile: Name of the profile.
        draftgate: Version that took the numbers.
        definitions: Version of the metrics' definitions.
        rows: One per run and metric.
        notes: What is odd about it, for the person who appends.
    """

    run_id: str
    session_time: datetime
    hardware: str
    engines: str
    profile: str
    draftgate: str
    definitions: int
    rows: tuple[Row, ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, order=True)
class SeriesKey:
    """What has to be equal for two values to stand in one series.

    The versions of engine and draftgate are no part of it: what a new version
    does is what the history is for.
    """

    hardware: str
    engine: str
    profile: str
    role: str
    arm: str
    concurrency: int
    metric: str
    definitions: int
    workload: str


@dataclass(frozen=True, slots=True)
class Night:
    """One point of a series: one session.

    Attributes:
        run_id: The session.
        time: When it began, UTC.
        value: Mean of its runs: geometric on the log scale, else arithmetic.
        runs: Runs behind the value.
        engine_version: Of the server.
        commit: Of the repository under test; "" where none is known.
    """

    run_id: str
    time: datetime
    value: float
    runs: int
    engine_version: str
    commit: str


@dataclass(frozen=True, slots=True)
class Gap:
    """A night, or some runs of it, without a usable value.

    Attributes:
        run_id: The session.
        time: When it began, UTC.
        why: What is wrong, in a few words.
        is_whole: Whether nothing of the night could be used, so that it has no point.
    """

    run_id: str
    time: datetime
    why: str
    is_whole: bool


@dataclass(frozen=True, slots=True)
class Series:
    """One number per night, in time order.

    Attributes:
        key: What it is a series of.
        unit: Of the values.
        better: `higher`, `lower` or `neither`.
        is_log: Whether all values are above 0, so that means and changes are relative.
        nights: Points in order of time.
        gaps: What could not be used, and nights in between without a value.
        silent: Nights of the same profile after the last point; above 0 for a
            series that has ended, as after a change of the workload.
    """

    key: SeriesKey
    unit: str
    better: str
    is_log: bool
    nights: tuple[Night, ...]
    gaps: tuple[Gap, ...] = ()
    silent: int = 0

    @property
    def values(self) -> tuple[float, ...]:
        """One value per night."""
        return tuple(night.value for night in self.nights)

    @property
    def times(self) -> tuple[datetime, ...]:
        """When each night began, UTC."""
        return tuple(night.time for night in self.nights)


@dataclass(frozen=True, slots=True)
class Closure:
    """A person's word on an item: a file of its own.

    Attributes:
        schema: CLOSURE_SCHEMA_VERSION.
        id: The item.
        series: What the item was about.
        run: First run at the new level, as the item said when it was closed.
        change: The change in words, as it was when the item was closed.
        reason: Why nothing more is to be done.
        is_real: False if the level had not changed at all (a false alarm).
        by: Who closed it.
        at: Time of day, ISO 8601, UTC.
    """

    schema: int
    id: str
    series: SeriesKey
    run: str
    change: str
    reason: str
    is_real: bool
    by: str
    at: str


@dataclass(frozen=True, slots=True)
class Item:
    """A lasting change of a series' level, to be looked at by a person.

    Attributes:
        id: Twelve hex digits; the same on every night that sees the change.
        aliases: `id`, and the ids it may have had while its place was not settled,
            nearest first.
        series: The series.
        index: Position of `after` in the series.
        before: Last night at the old level.
        after: First night at the new level.
        level_before: Mean of up to 25 nights before, in the series' unit.
        level_after: Mean of up to 25 nights from there.
        change: level_after / level_before - 1, or their difference if the
            series is not on the log scale.
        low: Lower end of its 95 % interval.
        high: Upper end.
        direction: `worse`, `better` or `changed` where no way is better.
        nights: Nights since, the first included, up to the next change.
        closure: None while it is open.
    """

    id: str
    aliases: tuple[str, ...]
    series: Series
    index: int
    before: Night
    after: Night
    level_before: float
    level_after: float
    change: float
    low: float
    high: float
    direction: str
    nights: int
    closure: Closure | None = None

    @property
    def is_open(self) -> bool:
        """Whether nobody has closed it."""
        return self.closure is None
