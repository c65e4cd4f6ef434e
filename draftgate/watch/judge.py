"""One group's windows against its level: evidence, alarms, and the learning before.

Pure: frozen state in, frozen state out. Knows neither pages nor clocks; what a window
is made of is decided in `draftgate.watch.windows`.
"""

from dataclasses import dataclass, replace

import numpy as np

from draftgate.errors import MeasurementError
from draftgate.stats.edetector import EDetector
from draftgate.stats.level import Level, learn_level
from draftgate.stats.shifts import Shift, Wanted, detector, log_length, moved, standardised
from draftgate.watch.totals import Growth

CLEARED = 0.5
"""Share of the evidence at which an alarm ends: the square root of what raised it, so that an
alarm does not come and go with each window."""

ROSE = 0.2
"""Share above which evidence counts as rising, to say since when: unchanged windows stay under
it nine times in ten (`tests/unit/test_watch_monitor.py`)."""

LEAST_SD = 1e-4
"""Floor of a window's spread in the log of length: 0.01 %, the digits that lines print. Drafts
that are always accepted in full do not differ at all."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """Where one detector stands.

    Attributes:
        shift: What it looks for.
        logs: Its state, one log per size looked for.
        share: Log evidence as a share of what alarms.
        rising_since: When it last rose from nearly none, ISO 8601; about when a change began.
        alarmed_at: When the alarm that stands was raised, ISO 8601; None without one.
    """

    shift: Shift
    logs: tuple[float, ...]
    share: float = 0.0
    rising_since: str | None = None
    alarmed_at: str | None = None


@dataclass(frozen=True, slots=True)
class Judged:
    """What is known about one group.

    Attributes:
        level: What its windows are held against; None until learned.
        learning: (log length, verify steps) of windows taken so far to learn from.
        evidence: One entry per `Shift`, once there is a level.
        windows: Windows seen, those of learning included.
        last: The latest of them.
    """

    level: Level | None = None
    learning: tuple[tuple[float, float], ...] = ()
    evidence: tuple[Evidence, ...] = ()
    windows: int = 0
    last: Growth | None = None

    @property
    def alarms(self) -> tuple[Shift, ...]:
        """Return the shifts whose alarm stands."""
        return tuple(one.shift for one in self.evidence if one.alarmed_at is not None)


def detectors(level: Level, wanted: Wanted) -> dict[Shift, EDetector]:
    """Return all detectors of a level.

    Raises:
        MeasurementError: If nothing was accepted at that level.
    """
    try:
        return {shift: detector(level, shift, wanted) for shift in Shift}
    except ValueError as error:
        raise MeasurementError(
            f"watch: the reference can't be used: {error}. Learn it while drafts are accepted."
        ) from error


def with_level(judged: Judged, level: Level, wanted: Wanted) -> Judged:
    """Return the group with a level and no evidence yet.

    Raises:
        MeasurementError: As `detectors`.
    """
    fresh = tuple(
        Evidence(shift, tuple(float(x) for x in found.start))
        for shift, found in detectors(level, wanted).items()
    )
    return replace(judged, level=level, learning=(), evidence=fresh)


def learn(judged: Judged, window: Growth, needed: int, wanted: Wanted) -> Judged:
    """Return the group after one more window to learn from; with its level after the last.

    Raises:
        MeasurementError: If the windows have no level.
    """
    value = float(log_length(np.array(window.accepted), np.array(window.drafts)))
    learning = (*judged.learning, (value, window.drafts))
    taken = replace(judged, learning=learning, windows=judged.windows + 1, last=window)
    if len(learning) < needed:
        return taken
    values, sizes = np.array(learning).T
    try:
        level = learn_level(values, sizes, LEAST_SD)
    except ValueError as error:
        raise MeasurementError(
            f"watch: nothing can be learned from {needed} windows: {error}. Learn again while "
            "traffic is as usual, or with larger windows."
        ) from error
    return with_level(taken, level, wanted)


def judge(judged: Judged, window: Growth, wanted: Wanted, now: str) -> Judged:
    """Return the group after one more window; it must have a level.

    Args:
        judged: The group so far.
        window: The new window, with verify steps.
        wanted: What its detectors look for.
        now: Time of day, ISO 8601; the label of alarms.
    """
    assert judged.level is not None, "judged without a level"
    level = judged.level
    found = detectors(level, wanted)
    value = float(log_length(np.array(window.accepted), np.array(window.drafts)))
    evidence = []
    for one in judged.evidence:
        z = standardised(level, one.shift, value, window.drafts)
        state = found[one.shift].advance(np.array(one.logs), np.array(z))
        share = float(found[one.shift].share(state))
        since = (one.rising_since or now) if share > ROSE else None
        evidence.append(
            Evidence(one.shift, tuple(state.tolist()), share, since, _alarmed(one, share, now))
        )
    return replace(judged, evidence=tuple(evidence), windows=judged.windows + 1, last=window)


def expected_windows(level: Level, shift: Shift, wanted: Wanted) -> float:
    """Return about how many windows the shift takes to alarm at its stated size."""
    found = detector(level, shift, wanted)
    plain = wanted.slide if shift.slow else wanted.change
    sign = -1 if shift.downward else 1
    away = abs(moved(level.mean, sign * plain) - level.mean)
    return found.expected_delay(away / level.sd_bound)


def _alarmed(one: Evidence, share: float, now: str) -> str | None:
    if one.alarmed_at is None:
        return now if share >= 1 else None
    return one.alarmed_at if share > CLEARED else None
