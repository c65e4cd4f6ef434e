"""The monitor on pages made by hand: alarms raised and cleared, restarts, gaps, clocks."""

import pytest

from draftgate.stats.level import Level
from draftgate.stats.shifts import Wanted
from draftgate.watch.monitor import MISSES, Alarm, Event, Monitor, Plan
from draftgate.watch.page import Group, Page, read_page
from draftgate.watch.windows import WindowSize
from tests.support.metrics_pages import MODEL, Counted, Traffic, vllm_page

PLAN = Plan(WindowSize(), Wanted(), learn_windows=50, still_s=60.0)
GROUP = Group("m", "")
EMPTY = Page({}, {})


class Watch:
    """A monitor with a clock of 10 s a reading."""

    def __init__(self, plan: Plan = PLAN) -> None:
        self.monitor = Monitor(plan)
        self.events: list[Event] = []

    def read(self, text: str | None, elapsed_s: float = 10.0) -> tuple[Event, ...]:
        """Take a page; None where it could not be read."""
        page = None if text is None else read_page(text, "kind")
        found = self.monitor.tick(page, elapsed_s, f"reading {self.monitor.scrapes}")
        self.events += found
        return found

    @property
    def alarms(self) -> tuple[Alarm, ...]:
        """Alarms of the plain group that stand."""
        return self.monitor.groups[GROUP].alarms


def learned(seed: int = 1) -> tuple[Watch, Traffic]:
    """Return a watch that has learned its level from 50 windows."""
    watch, traffic = Watch(), Traffic(seed)
    watch.read(traffic.page())
    for _ in range(50):
        watch.read(traffic.serve())
    assert watch.monitor.groups[GROUP].judged.level is not None
    return watch, traffic


def windows_until(watch: Watch, traffic: Traffic, alarm: Alarm, most: int = 60) -> int:
    """Return how many windows go by until the alarm stands."""
    for count in range(1, most + 1):
        watch.read(traffic.serve())
        if alarm in watch.alarms:
            return count
    raise AssertionError(f"no {alarm} in {most} windows")


def test_level_is_learned_and_told_once() -> None:
    """After 50 windows there is a level near the truth, by one event."""
    watch, _ = learned()

    level = watch.monitor.groups[GROUP].judged.level
    assert level is not None
    assert level.mean == pytest.approx(0.916, abs=0.02)
    assert [event.learned for event in watch.events].count(True) == 1


def test_unchanged_traffic_raises_nothing() -> None:
    """Of 200 further windows of each of three servers none alarms."""
    for seed in range(3):
        watch, traffic = learned(seed)
        for _ in range(200):
            watch.read(traffic.serve())
        assert [event.raised for event in watch.events if event.raised] == []


@pytest.mark.parametrize(("factor", "alarm"), [(0.9, Alarm.DROP), (1.1, Alarm.RISE)])
def test_change_of_a_tenth_is_raised_within_five_windows(factor: float, alarm: Alarm) -> None:
    """The median over nine servers, each with a reference of its own."""
    delays = []
    for seed in range(9):
        watch, traffic = learned(seed)
        traffic.per_step *= factor
        delays.append(windows_until(watch, traffic, alarm))

    assert sorted(delays)[4] <= 5


def test_drop_is_cleared_when_acceptance_is_back() -> None:
    """At the old level the alarm ends, and the other way is never alarmed."""
    watch, traffic = learned()
    traffic.per_step *= 0.9
    windows_until(watch, traffic, Alarm.DROP)
    traffic.per_step /= 0.9
    for _ in range(30):
        watch.read(traffic.serve())

    assert watch.alarms == ()
    assert Alarm.DROP in {alarm for event in watch.events for alarm in event.cleared}
    assert Alarm.RISE not in {alarm for event in watch.events for alarm in event.raised}


def test_alarm_tells_about_when_the_change_began() -> None:
    """The evidence of a drop rose in one of its first windows."""
    watch, traffic = learned()
    for _ in range(40):
        watch.read(traffic.serve())
    began = watch.monitor.scrapes
    traffic.per_step *= 0.85
    windows_until(watch, traffic, Alarm.DROP)

    (drop,) = [one for one in watch.monitor.groups[GROUP].judged.evidence if one.alarmed_at][:1]
    assert drop.rising_since is not None
    assert 0 <= int(drop.rising_since.split()[1]) - began <= 2


def test_evidence_of_unchanged_windows_is_seldom_rising() -> None:
    """In nine of ten of 400 unchanged windows no detector's evidence rises."""
    watch, traffic = learned()
    rising = 0
    for _ in range(400):
        watch.read(traffic.serve())
        evidence = watch.monitor.groups[GROUP].judged.evidence
        rising += sum(one.rising_since is not None for one in evidence)

    assert rising <= 0.1 * 4 * 400


def test_slow_slide_is_raised_before_a_tenth_is_lost() -> None:
    """A loss of 0.1 % a window alarms as a slide, and the level at which it does is told."""
    watch, traffic = learned()
    for _ in range(100):
        traffic.per_step *= 0.999
        watch.read(traffic.serve())
        if Alarm.SLIDE_DOWN in watch.alarms:
            break

    assert Alarm.SLIDE_DOWN in watch.alarms
    assert traffic.per_step > 0.9 * 1.5


def test_restart_is_told_and_moves_nothing() -> None:
    """Counters that begin anew give a window of what came since, and no alarm."""
    watch, traffic = learned()
    for _ in range(20):
        traffic.restart()
        watch.read(traffic.serve(120))

    assert watch.alarms == ()
    assert watch.monitor.groups[GROUP].restarts == 20
    assert sum(event.restarted for event in watch.events) == 20


def test_drop_after_a_restart_is_found() -> None:
    """A restart that brings a much worse draft alarms within three windows."""
    watch, traffic = learned()
    traffic.restart()
    traffic.per_step *= 0.75

    assert windows_until(watch, traffic, Alarm.DROP) <= 3


def test_counters_that_stand_still_under_traffic_alarm() -> None:
    """Tokens without verify steps for over a minute alarm; the first verify step ends it."""
    watch, traffic = learned()
    for _ in range(5):
        watch.read(traffic.idle(50))
    assert watch.alarms == ()
    watch.read(traffic.idle(50))
    assert watch.alarms == (Alarm.STILL,)

    watch.read(traffic.serve(1))
    assert watch.alarms == ()


def test_idle_server_does_not_stand_still() -> None:
    """Without traffic nothing has to be drafted, however long it lasts."""
    watch, traffic = learned()
    for _ in range(1_000):
        watch.read(traffic.page())

    assert watch.alarms == ()
    assert watch.monitor.groups[GROUP].quiet_s == 10_000


def test_group_that_is_gone_has_vanished_until_it_is_back() -> None:
    """Two pages in a row without it alarm, one does not; the evidence is kept."""
    watch, traffic = learned()
    before = watch.monitor.groups[GROUP].judged
    watch.read("up 1\n")
    assert watch.alarms == ()
    for _ in range(MISSES - 1):
        watch.read("up 1\n")
    assert watch.alarms == (Alarm.VANISHED,)

    watch.read(traffic.page())
    assert watch.alarms == ()
    assert watch.monitor.groups[GROUP].judged == before


def test_page_that_cannot_be_read_is_no_vanished_metric() -> None:
    """Failed readings are counted, and what came meanwhile is one larger window."""
    watch, traffic = learned()
    for _ in range(10):
        traffic.serve()
        watch.read(None)
    assert watch.alarms == ()
    assert (watch.monitor.read, watch.monitor.failures) == (False, 10)

    (event,) = watch.read(traffic.serve())
    assert event.after.judged.last is not None
    assert event.after.judged.last.requests == 1_100


def test_series_of_several_engines_are_one_group() -> None:
    """Growth of all ranks is added, and a restart of one does not hide the other."""
    ranks = [(("model_name", "m"), ("engine", str(rank))) for rank in range(2)]
    watch = Watch()
    both = [Counted(1_000, 500, 100), Counted(2_000, 900, 100)]
    watch.read(vllm_page(dict(zip(ranks, both, strict=True))))
    both = [Counted(400, 200, 60), both[1].after(drafts=400, accepted=300, requests=60)]
    (event,) = watch.read(vllm_page(dict(zip(ranks, both, strict=True))))

    assert event.restarted
    assert event.after.judged.last is not None
    assert (event.after.judged.last.drafts, event.after.judged.last.accepted) == (800, 500)


def test_kinds_are_judged_apart() -> None:
    """A kind whose acceptance falls alarms while the other does not."""
    traffics = {"chat": Traffic(1), "code": Traffic(2)}
    watch = Watch()

    def page() -> str:
        return vllm_page({(*MODEL, ("kind", k)): t.counted for k, t in traffics.items()})

    watch.read(page())
    for window in range(60):
        if window == 50:
            traffics["code"].per_step *= 0.8
        for traffic in traffics.values():
            traffic.serve()
        watch.read(page())

    groups = watch.monitor.groups
    assert Alarm.DROP in groups[Group("m", "code")].alarms
    assert groups[Group("m", "chat")].alarms == ()


def test_group_without_a_level_is_not_judged_where_none_is_to_be_learned() -> None:
    """Its windows are counted; nothing is learned and nothing alarms."""
    watch = Watch(Plan(learn_windows=None))
    traffic = Traffic(1)
    watch.read(traffic.page())
    for _ in range(60):
        watch.read(traffic.serve())

    judged = watch.monitor.groups[GROUP].judged
    assert (judged.level, judged.windows, judged.evidence) == (None, 60, ())


def test_level_that_cannot_be_learned_is_told_and_tried_again() -> None:
    """Windows that wander say so, and learning begins anew."""
    watch, traffic = Watch(), Traffic(1, per_step=0.5)
    watch.read(traffic.page())
    for _ in range(50):
        traffic.per_step *= 1.03
        watch.read(traffic.serve())

    (problem,) = [event.problem for event in watch.events if event.problem]
    assert "Learn again while traffic is as usual" in problem
    assert watch.monitor.groups[GROUP].judged.learning == ()


def test_group_of_a_reference_that_never_shows_has_vanished() -> None:
    """A level without its series on the page alarms."""
    watch = Watch()
    watch.monitor.give_level(GROUP, Level(0.9, 0.02, 0.0, 50, 4_000.0))
    for _ in range(MISSES):
        watch.read("up 1\n")

    assert watch.alarms == (Alarm.VANISHED,)


def test_clock_that_jumps_back_moves_nothing() -> None:
    """Time of day is a label: equal pages give equal states whatever it says."""
    one, other = Monitor(PLAN), Monitor(PLAN)
    traffic = Traffic(1)
    pages = [read_page(traffic.serve(), "kind") for _ in range(60)]
    for number, page in enumerate(pages):
        one.tick(page, 10.0, f"2026-01-01T00:{number:02d}")
        other.tick(page, 10.0, f"1999-01-01T00:{59 - number:02d}")

    assert one.groups == other.groups
