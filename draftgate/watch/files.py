"""The two files of a watch: the reference it learned, and where it stands.

Both are JSON with a schema version, read strictly and written whole or not at all. A
reference outlives changes of settings; a state is for the settings it was written with.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from draftgate import codec
from draftgate.errors import BaselineError, MeasurementError, SpecError
from draftgate.files import write_text
from draftgate.stats.level import Level
from draftgate.watch.monitor import Monitor, Plan, Watched
from draftgate.watch.page import Group, Totals
from draftgate.watch.windows import WindowSize

SCHEMA = 1
"""Of both files. 1: the first."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class LearnedLevel:
    """One group's level, with when it was learned (ISO 8601)."""

    group: Group
    level: Level
    learned_at: str


@dataclass(frozen=True, slots=True)
class Reference:
    """What a server's windows are held against.

    Attributes:
        schema: Version of the file.
        window: How large the windows were that it was learned from.
        levels: One per group.
    """

    schema: int
    window: WindowSize
    levels: tuple[LearnedLevel, ...]


@dataclass(frozen=True, slots=True)
class KnownGroup:
    """A group in a state file."""

    group: Group
    watched: Watched


@dataclass(frozen=True, slots=True)
class KnownSeries:
    """A series in a state file."""

    group: Group
    rank: str
    totals: Totals


@dataclass(frozen=True, slots=True)
class State:
    """Where a watch stands.

    Attributes:
        schema: Version of the file.
        url: What is watched.
        plan: Its settings.
        saved_at: Time of day, ISO 8601, UTC.
        groups: What is known of each group.
        series: Latest totals of each series.
    """

    schema: int
    url: str
    plan: Plan
    saved_at: str
    groups: tuple[KnownGroup, ...]
    series: tuple[KnownSeries, ...]


def load_reference(path: Path, size: WindowSize) -> Reference:
    """Return a reference for windows of `size`.

    Raises:
        SpecError: If it is of windows of another size.
        BaselineError: If it cannot be read, or is none.
    """
    reference = _load(path, Reference, "reference", "Learn it again with --learn.")
    if reference.window != size:
        raise SpecError(
            f"reference {path}: learned from windows of {reference.window.text}, got windows of "
            f"{size.text}. Watch with those, or learn another file."
        )
    return reference


def save_reference(path: Path, reference: Reference) -> None:
    """Write a reference.

    Raises:
        MeasurementError: If it cannot be written.
    """
    _save(path, reference, "reference")


def load_state(path: Path, url: str, plan: Plan) -> State | None:
    """Return the state of a watch of this server with these settings; None without a file.

    Raises:
        SpecError: If it is of another server or other settings.
        BaselineError: If it cannot be read, or is none.
    """
    if not path.exists():
        return None
    state = _load(path, State, "state", "Move it away to begin anew.")
    if state.url != url or state.plan != plan:
        what = "server" if state.url != url else "settings"
        raise SpecError(
            f"state {path}: of another {what}, got {state.url} and expected {url} with the options "
            "given. Give those it was written with, or another file."
        )
    return state


def save_state(path: Path, url: str, monitor: Monitor, now: str) -> None:
    """Write where a watch stands.

    Raises:
        MeasurementError: If it cannot be written.
    """
    groups = tuple(KnownGroup(group, monitor.groups[group]) for group in sorted(monitor.groups))
    series = tuple(
        KnownSeries(group, rank, monitor.totals[group, rank])
        for group, rank in sorted(monitor.totals)
    )
    _save(path, State(SCHEMA, url, monitor.plan, now, groups, series), "state")


def resumed(state: State) -> Monitor:
    """Return the monitor that a state describes."""
    return Monitor(
        plan=state.plan,
        groups={known.group: known.watched for known in state.groups},
        totals={(known.group, known.rank): known.totals for known in state.series},
    )


def _load(path: Path, kind: type[T], what: str, remedy: str) -> T:
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        if isinstance(document, Mapping) and document.get("schema") != SCHEMA:
            raise BaselineError(
                f"{what} {path}: got schema {document.get('schema')!r}, expected {SCHEMA}. It is "
                f"of another version of draftgate. {remedy}"
            )
        return codec.decode(kind, document, what)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise BaselineError(f"{what} {path}: cannot be read ({reason}). {remedy}") from error


def _save(path: Path, record: Any, what: str) -> None:
    try:
        write_text(path, codec.to_lines(codec.encode(record)) + "\n")
    except OSError as error:
        raise MeasurementError(
            f"{what} {path}: cannot be written ({error.strerror or error}). Name another file."
        ) from error
