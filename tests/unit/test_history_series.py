"""Series: one value a night, unlike things apart, nothing dropped in silence."""

import math
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from draftgate.errors import BaselineError
from draftgate.history.records import NightRows
from draftgate.history.series import history_of, series
from tests.support.history import KEY, ROW, at, night, night_of, run_id, table_of


def nights(*values: tuple[float, ...]) -> list[NightRows]:
    """Return one night per tuple of runs."""
    return [night(number, runs) for number, runs in enumerate(values)]


def test_night_is_the_geometric_mean_of_its_runs() -> None:
    """Two runs of 50 and 200 are a night of 100, not of 125; one run is itself exactly."""
    history = history_of(table_of(nights((50.0, 200.0), (0.1,))))
    found = series(history, KEY)

    assert found.values == (pytest.approx(100.0), 0.1)
    assert [one.runs for one in found.nights] == [2, 1]
    assert found.times == (at(0), at(1))
    assert [one.run_id for one in found.nights] == [run_id(0), run_id(1)]
    assert found.is_log
    assert found.gaps == ()
    assert history.nights == 2
    assert history.notes == ()


def test_series_is_in_order_of_time_however_it_was_read() -> None:
    """The order of files and rows does not matter."""
    made = nights((1.0,), (2.0,), (3.0,))
    mixed = table_of([made[2], made[0], made[1]])

    assert series(history_of(mixed), KEY).values == (1.0, 2.0, 3.0)


@pytest.mark.parametrize(
    "change",
    [
        {"arm": "none"},
        {"role": "base"},
        {"concurrency": 1},
        {"metric": "step_time_s"},
        {"workload": "fedcba9876543210"},
        {"engine": "sglang"},
    ],
    ids=lambda change: next(iter(change)),
)
def test_unlike_rows_never_meet(change: dict[str, Any]) -> None:
    """Rows that differ in what decides comparability are two series."""
    rows = (ROW, replace(ROW, value=1.0, **change))
    history = history_of(table_of([night_of(0, rows)]))

    assert sorted(one.values for one in history.series) == [(1.0,), (100.0,)]
    assert series(history, KEY).values == (100.0,)
    assert series(history, replace(KEY, **change)).values == (1.0,)


@pytest.mark.parametrize("change", [{"hardware": "gpu"}, {"profile": "p"}, {"definitions": 2}])
def test_unlike_nights_never_meet(change: dict[str, Any]) -> None:
    """Neither do nights of other hardware, profiles or definitions."""
    history = history_of(table_of([night(0), replace(night(1, (1.0,)), **change)]))

    assert series(history, KEY).values == (100.0,)
    assert series(history, replace(KEY, **change)).values == (1.0,)


def test_versions_and_commits_stay_in_one_series() -> None:
    """What a new build does is the question, so it must not start a series."""
    later = replace(night(1, engine_version="0.33.0", commit="c0ffee"), draftgate="0.2.0")
    (found,) = history_of(table_of([night(0), later])).series

    assert [one.engine_version for one in found.nights] == ["0.32.0", "0.33.0"]
    assert [one.commit for one in found.nights] == ["", "c0ffee"]


def test_unknown_series_is_an_error() -> None:
    """Asking for what is not there does not give an empty series."""
    history = history_of(table_of([night(0)]))

    with pytest.raises(BaselineError, match="holds no series"):
        series(history, replace(KEY, arm="other"))


@pytest.mark.parametrize(
    ("value", "changes", "why"),
    [
        (math.nan, {}, "NaN"),
        (math.inf, {}, "inf"),
        (70.0, {"invalid": "event-loop lag of 80 ms"}, "event-loop lag of 80 ms"),
    ],
)
def test_night_without_a_usable_value_is_a_named_gap(
    value: float, changes: dict[str, Any], why: str
) -> None:
    """It has no point, and the reason is told."""
    made = [night(0), night(1, (value,), **changes), night(2)]
    found = series(history_of(table_of(made)), KEY)

    assert found.values == (100.0, 100.0)
    (gap,) = found.gaps
    assert (gap.run_id, gap.time, gap.why, gap.is_whole) == (run_id(1), at(1), why, True)


def test_run_that_is_left_out_is_named() -> None:
    """A night keeps its other runs and says how many are missing."""
    (found,) = history_of(table_of(nights((100.0, math.nan, 100.0)))).series

    assert found.values == (pytest.approx(100.0),)
    assert found.nights[0].runs == 2
    (gap,) = found.gaps
    assert (gap.why, gap.is_whole) == ("1 of 3 runs left out: NaN", False)


def test_night_that_lacks_the_metric_is_a_named_gap() -> None:
    """A metric that one night in between does not have is missed, those before it began not."""
    other = night(1, metric="step_time_s")
    found = history_of(table_of([night(0), other, night(2)])).series
    by_metric = {one.key.metric: one for one in found}

    assert [gap.why for gap in by_metric[KEY.metric].gaps] == ["no value"]
    assert by_metric["step_time_s"].gaps == ()
    assert by_metric["step_time_s"].silent == 1


def test_series_that_ended_says_so() -> None:
    """After a change of the workload the old series has nights without a value at its end."""
    changed = [night(number, workload="new") for number in (2, 3, 4)]
    history = history_of(table_of([*nights((1.0,), (2.0,)), *changed]))

    assert series(history, KEY).silent == 3
    assert series(history, KEY).gaps == ()
    assert series(history, replace(KEY, workload="new")).silent == 0


def test_night_of_another_profile_is_no_gap() -> None:
    """Only nights of the same profile on the same hardware are missed."""
    between = replace(night(1), profile="other")

    assert series(history_of(table_of([night(0), between, night(2)])), KEY).gaps == ()


def test_series_that_reaches_zero_is_on_the_raw_scale() -> None:
    """Zero is a value: nothing is dropped, and means are arithmetic."""
    found = series(history_of(table_of(nights((0.0, 4.0), (2.0, 8.0)))), KEY)

    assert not found.is_log
    assert found.values == (2.0, 5.0)
    assert found.gaps == ()


def test_zero_of_an_unusable_run_does_not_decide_the_scale() -> None:
    """An invalid run with 0 tokens/s leaves the series relative."""
    made = [night(0, (0.0,), invalid="no window"), night(1)]

    assert series(history_of(table_of(made)), KEY).is_log


def test_series_without_any_point_is_still_there() -> None:
    """All NaN: no night, one gap each."""
    found = series(history_of(table_of(nights((math.nan,), (math.nan,)))), KEY)

    assert found.nights == ()
    assert [gap.run_id for gap in found.gaps] == [run_id(0), run_id(1)]
    assert found.silent == 2


def test_clock_that_went_backwards_is_named_once() -> None:
    """One session at the wrong time among thirty: it is named, and no other."""
    order = [*range(10), *range(11, 30), 10]
    (note,) = history_of(table_of([night(number) for number in order])).notes

    assert run_id(10) in note
    assert run_id(11) not in note
    assert "clock" in note


def test_session_of_the_future_is_named_and_not_those_after_it() -> None:
    """A clock that was ahead for one night does not put the later nights in doubt."""
    ahead = replace(night(3), session_time=at(400))
    made = [*nights((1.0,), (1.0,), (1.0,)), ahead, *(night(number) for number in range(4, 20))]
    notes = history_of(table_of(made)).notes

    assert run_id(3) in notes[0]
    assert run_id(4) not in notes[0]


def test_profiles_have_an_order_each() -> None:
    """Nights of two profiles that were appended in turn contradict nothing."""
    made = [night(1), replace(night(0), profile="other"), night(2)]

    assert history_of(table_of(made)).notes == ()


def test_run_from_before_its_session_is_named() -> None:
    """A clock that was set back while a session ran is told."""
    early = night_of(0, [replace(ROW, time=at(0) - timedelta(minutes=5))])
    (note,) = history_of(table_of([early])).notes

    assert run_id(0) in note
    assert "clock went backwards" in note


def test_fewest_sessions_are_named() -> None:
    """Two that were swapped among many: taking out one of them is enough."""
    order = [0, 1, 2, 4, 3, 5, 6, 8, 7, 9]
    (note,) = history_of(table_of([night(number) for number in order])).notes

    assert sum(run_id(number) in note for number in (3, 4)) == 1
    assert sum(run_id(number) in note for number in (7, 8)) == 1
    assert sum(run_id(number) in note for number in order) == 2
