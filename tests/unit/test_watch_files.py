"""Reference and state files: what is written comes back, and what does not fit is refused."""

import json
from pathlib import Path

import pytest

from draftgate.errors import BaselineError, MeasurementError, SpecError
from draftgate.stats.level import Level
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
from draftgate.watch.monitor import Monitor, Plan
from draftgate.watch.page import Group, read_page
from draftgate.watch.windows import WindowSize
from tests.support.metrics_pages import Traffic

URL = "http://127.0.0.1:1/metrics"
LEVEL = LearnedLevel(Group("m", ""), Level(0.9, 0.02, 0.0, 50, 4_000.0), "2026-01-01")


def watched(windows: int) -> Monitor:
    """Return a monitor after some windows."""
    monitor, traffic = Monitor(Plan()), Traffic(1)
    for _ in range(windows):
        monitor.tick(read_page(traffic.serve(), "kind"), 10.0, "now")
    return monitor


@pytest.mark.parametrize("windows", [0, 10, 70])
def test_state_comes_back_whole(tmp_path: Path, windows: int) -> None:
    """Before, while and after learning: a restarted watch knows all that the old one knew."""
    monitor = watched(windows)
    save_state(tmp_path / "state.json", URL, monitor, "now")

    state = load_state(tmp_path / "state.json", URL, Plan())

    assert state is not None
    again = resumed(state)
    assert (again.groups, again.totals) == (monitor.groups, monitor.totals)
    assert list(tmp_path.iterdir()) == [tmp_path / "state.json"]


def test_watch_in_two_parts_is_like_one(tmp_path: Path) -> None:
    """Evidence after a restart of the watch is the same as without it."""
    traffic = Traffic(2)
    pages = [read_page(traffic.serve(), "kind") for _ in range(80)]
    whole, parts = Monitor(Plan()), Monitor(Plan())
    for number, page in enumerate(pages):
        whole.tick(page, 10.0, "now")
        if number == 65:
            save_state(tmp_path / "state.json", URL, parts, "now")
            state = load_state(tmp_path / "state.json", URL, Plan())
            assert state is not None
            parts = resumed(state)
        parts.tick(page, 10.0, "now")

    assert parts.groups == whole.groups


def test_state_that_is_not_there_is_none(tmp_path: Path) -> None:
    """The first start finds nothing."""
    assert load_state(tmp_path / "state.json", URL, Plan()) is None


@pytest.mark.parametrize(
    ("url", "plan"), [("http://other/metrics", Plan()), (URL, Plan(still_s=1.0))]
)
def test_state_of_something_else_is_refused(tmp_path: Path, url: str, plan: Plan) -> None:
    """Another server or other settings: the evidence would mean nothing."""
    save_state(tmp_path / "state.json", URL, Monitor(Plan()), "now")

    with pytest.raises(SpecError, match="of another"):
        load_state(tmp_path / "state.json", url, plan)


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"schema": 99}', json.dumps({"schema": SCHEMA, "surprise": 1})]
)
def test_damaged_state_is_refused(tmp_path: Path, text: str) -> None:
    """No half-read state becomes an empty one."""
    (tmp_path / "state.json").write_text(text)

    with pytest.raises(BaselineError, match="Move it away"):
        load_state(tmp_path / "state.json", URL, Plan())


def test_reference_comes_back(tmp_path: Path) -> None:
    """What was learned is read again."""
    reference = Reference(SCHEMA, WindowSize(), (LEVEL,))
    save_reference(tmp_path / "r.json", reference)

    assert load_reference(tmp_path / "r.json", WindowSize()) == reference


def test_reference_of_other_windows_is_refused(tmp_path: Path) -> None:
    """The spread of 100 requests says nothing of 50."""
    save_reference(tmp_path / "r.json", Reference(SCHEMA, WindowSize(), (LEVEL,)))

    with pytest.raises(SpecError, match="windows of 100 requests, got windows of 50 requests"):
        load_reference(tmp_path / "r.json", WindowSize(50))


def test_reference_with_an_impossible_level_is_refused(tmp_path: Path) -> None:
    """A spread of 0 in the file is damage."""
    save_reference(tmp_path / "r.json", Reference(SCHEMA, WindowSize(), (LEVEL,)))
    text = (tmp_path / "r.json").read_text().replace('"sd": 0.02', '"sd": 0.0')
    (tmp_path / "r.json").write_text(text)

    with pytest.raises(BaselineError, match="sd > 0"):
        load_reference(tmp_path / "r.json", WindowSize())


def test_file_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    """A folder that is a file."""
    (tmp_path / "file").write_text("")

    with pytest.raises(MeasurementError, match="cannot be written"):
        save_state(tmp_path / "file" / "state.json", URL, Monitor(Plan()), "now")
