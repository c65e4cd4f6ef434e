"""What `watch` prints: a line per window, and one per change of state."""

import math
from datetime import datetime
from typing import TYPE_CHECKING

from draftgate.cli.exits import say
from draftgate.clock import SYSTEM_CLOCK
from draftgate.stats.shifts import Shift
from draftgate.watch.judge import expected_windows
from draftgate.watch.monitor import Alarm, Event, Monitor, Watched
from draftgate.watch.page import Group

if TYPE_CHECKING:
    from draftgate.errors import EngineError
    from draftgate.watch.run import WatchSpec

SLOW_WINDOWS = 20.0
"""Expected windows to a drop above which larger windows are suggested: four times the goal."""

ABOUT = {
    Alarm.DROP: "acceptance has fallen",
    Alarm.RISE: "acceptance has risen",
    Alarm.SLIDE_DOWN: "acceptance is lower, a little and for long",
    Alarm.SLIDE_UP: "acceptance is higher, a little and for long",
    Alarm.STILL: "requests run but nothing is drafted",
    Alarm.VANISHED: "its counters are gone from the page",
}


class Lines:
    """Prints, and remembers whether there was an alarm."""

    def __init__(self, spec: "WatchSpec") -> None:
        self._spec = spec
        self.alarmed = False

    def start(self, monitor: Monitor, port: int) -> None:
        """Say what is watched."""
        _print(f"watching {self._spec.url}, windows of {self._spec.plan.size.text}")
        if self._spec.listen is not None:
            _print(f"metrics at http://{self._spec.listen[0]}:{port}/metrics")
        for group, watched in sorted(monitor.groups.items()):
            if watched.judged.level is not None:
                self._level(group, watched)
            elif self._spec.plan.learn_windows is None:
                _print(f"{group.name}: no reference; give --learn 50 to learn one. Not judged.")
            for alarm in watched.alarms:
                self.alarmed = True
                _print(f"{group.name}: ALARM {alarm.value} still stands: {ABOUT[alarm]}")

    def event(self, event: Event) -> None:
        """Say what happened to a group."""
        name = event.group.name
        if event.restarted:
            _print(f"{name}: the engine was restarted; its counters began anew")
        if event.window:
            _print(f"{name}: {window_text(event.after, self._spec.plan.learn_windows)}")
        if event.problem is not None:
            _print(f"{name}: {event.problem} Learning begins anew.")
        if event.learned:
            self._level(event.group, event.after)
        for alarm in event.raised:
            self.alarmed = True
            _print(f"{name}: ALARM {alarm.value}: {ABOUT[alarm]}{_since(event.after, alarm)}")
        for alarm in event.cleared:
            _print(f"{name}: over: {alarm.value}")

    def reading(self, error: "EngineError | None") -> None:
        """Say that the page can't be read, or can be again."""
        if error is not None:
            say(f"draftgate: {error} Trying again every {self._spec.interval_s:g} s.")
        else:
            _print("the metrics page answers again")

    def _level(self, group: Group, watched: Watched) -> None:
        level, wanted = watched.judged.level, self._spec.plan.wanted
        assert level is not None, "a level was announced"
        drop, slide = (
            expected_windows(level, shift, wanted) for shift in (Shift.DROP, Shift.SLIDE_DOWN)
        )
        _print(
            f"{group.name}: reference length {math.exp(level.mean):.3f} "
            f"(spread of a window {level.sd:.1%}, {level.count} windows); a drop of "
            f"{wanted.change:.0%} takes about {_count(drop)} windows to show, a lasting one of "
            f"{wanted.slide:.0%} about {_count(slide)}"
        )
        if drop > SLOW_WINDOWS:
            _print(
                f"{group.name}: windows of {self._spec.plan.size.text} scatter much; larger ones, "
                "or a larger --change, show a drop in fewer"
            )


def window_text(watched: Watched, learn_windows: int | None) -> str:
    """Return the line of a group's latest window."""
    judged = watched.judged
    last = judged.last
    assert last is not None, "a line without a window"
    parts = [f"window {judged.windows}: length {1 + last.accepted / last.drafts:.3f}"]
    if last.draft_tokens > 0:
        parts.append(f"rate {last.accepted / last.draft_tokens:.3f}")
    if last.requests > 0:
        parts.append(f"{last.requests:.0f} requests")
    if judged.level is not None and judged.evidence:
        parts.append(f"reference {math.exp(judged.level.mean):.3f}")
        parts += [f"{one.shift.value} {max(0.0, one.share):.0%}" for one in judged.evidence]
    elif learn_windows is not None:
        parts.append(f"learning {len(judged.learning)} of {learn_windows}")
    return ", ".join(parts)


def _since(watched: Watched, alarm: Alarm) -> str:
    """Return about when it began, where that is known."""
    rising = {one.shift.value: one.rising_since for one in watched.judged.evidence}
    since = rising.get(alarm.value)
    if since is None:
        return ""
    return f", since about {_local(datetime.fromisoformat(since))}"


def _count(windows: float) -> str:
    return f"{windows:.0f}" if math.isfinite(windows) else "endless"


def _print(line: str) -> None:
    stamp = _local(SYSTEM_CLOCK.wall())
    print(f"{stamp} {line}", flush=True)


def _local(at: datetime) -> str:
    return at.astimezone().strftime("%H:%M:%S")
