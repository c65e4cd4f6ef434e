"""Sweeps over scripted servers: all of it, stopped and gone on, killed, and servers that die."""

import json
import signal
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import pytest

from draftgate.clock import SYSTEM_CLOCK
from draftgate.errors import BaselineError, SpecError
from draftgate.runstore import load_run
from draftgate.sweep import (
    load_plan,
    open_sweep,
    run_sweep,
    summary_document,
    write_summary,
)
from draftgate.sweep.run import STOP_S
from tests.support.flow import NGRAM, NONE, Started, assert_clean, draftgate, write_profile

Scripts = Mapping[str, Mapping[str, object]]
GOOD: Scripts = {"none": NONE, "ngram": NGRAM}
DYING: Scripts = {"none": {**NONE, "die_after_requests": 1}, "ngram": NGRAM}


def write_list(folder: Path, scripts: Scripts = GOOD, *, repeats: int = 1, more: str = "") -> Path:
    """Write a list of one run for each scripted server, at one and two streams."""
    profile = write_profile(folder / "p.toml", scripts, repeats=repeats)
    profile.write_text(profile.read_text().replace("[1]", "[1, 2]"))
    runs = "".join(f'[[run]]\narm = "{name}"\n' for name in scripts)
    path = folder / "list.toml"
    path.write_text(f'schema = 1\nname = "l"\nprofile = "{profile}"\n{runs}{more}')
    return path


@dataclass
class JumpingClock:
    """The machine's clock, which a test can put forward."""

    ahead_s: float = 0.0

    def now_ns(self) -> int:
        """Return the time with what was put forward."""
        return SYSTEM_CLOCK.now_ns() + round(self.ahead_s * 1e9)

    def wall(self) -> datetime:
        """Return the time of day."""
        return SYSTEM_CLOCK.wall()


def lines(out: Path) -> list[dict[str, object]]:
    """Return the lines of results."""
    return [json.loads(line) for line in (out / "results.jsonl").read_text().splitlines()]


def test_a_sweep_measures_its_list(tmp_path: Path) -> None:
    """Each configuration starts once, each cell is one run, and the summary has all of them."""
    path = write_list(tmp_path)
    ended = draftgate(tmp_path, "sweep", str(path), "--out", "out")
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    (group,) = summary["groups"]
    stored = load_run(tmp_path / "out" / group["run"])

    assert ended.code == 0, ended.output
    assert [(row["arm"], row["streams"], row["runs"]) for row in group["rows"]] == [
        ("none", 1, 1),
        ("none", 2, 1),
        ("ngram", 1, 1),
        ("ngram", 2, 1),
    ]
    assert (group["not_run"], summary["stopped"]) == ([], None)
    assert 1.5 < group["rows"][2]["over_none"] < 3.0
    assert sorted(log.name for log in (stored.path / "logs").iterdir()) == ["ngram.log", "none.log"]
    assert len(stored.samples) == len(lines(tmp_path / "out")) == 4
    assert "Everything that was planned was run." in ended.output
    assert_clean(ended, tmp_path)


def test_a_sweep_stops_in_time_and_goes_on(tmp_path: Path) -> None:
    """What no longer fits is not begun and is told; the next call takes that and nothing else."""
    plan = load_plan(write_list(tmp_path, repeats=2))
    clock, out = JumpingClock(), tmp_path / "out"
    with open_sweep(out, plan) as state:

        def put_forward() -> None:
            clock.ahead_s = 1000.0 if len(state.rows) == 3 else 0.0

        whole = run_sweep(state, stop_after_s=STOP_S + 500.0, changed=put_forward, clock=clock)
        first, document = lines(out), summary_document(state)
    with open_sweep(out, plan) as state:
        rest = run_sweep(state)

    assert (whole, rest) == (False, True)
    assert len(first) == 3
    assert "time limit: none x2, run 2 takes about" in document["stopped"]
    assert [(item["arm"], len(item["cells"])) for item in document["groups"][0]["not_run"]] == [
        ("none", 1),
        ("ngram", 4),
    ]
    assert lines(out)[:3] == first
    assert len({(row["arm"], row["concurrency"], row["repeat"]) for row in lines(out)}) == 8
    assert len(lines(out)) == 8


def test_a_limit_that_fits_no_start_begins_nothing(tmp_path: Path) -> None:
    """Once a start is known to take longer than what is left, no server is started."""
    plan = load_plan(write_list(tmp_path))
    with open_sweep(tmp_path / "out", plan) as state:
        state.starts_s["fake-flow"] = 100.0
        run_sweep(state, stop_after_s=STOP_S + 50.0)
        document = summary_document(state)

    assert "the start of none and its first run takes about 100 s" in document["stopped"]
    assert not list((tmp_path / "out").rglob("*.log"))
    with (
        open_sweep(tmp_path / "out", plan) as state,
        pytest.raises(SpecError, match="expected more than 20 s"),
    ):
        run_sweep(state, stop_after_s=STOP_S)


def test_a_killed_sweep_goes_on(tmp_path: Path) -> None:
    """After SIGKILL no server is left, and a second call keeps what was measured and ends it."""
    path = write_list(tmp_path, repeats=2)
    argv = [sys.executable, "-m", "draftgate.cli", "sweep", str(path), "--out", "out"]
    started = Started(argv, cwd=tmp_path)
    started.read_until("none x2, run 1: ")
    started.send(signal.SIGKILL)
    killed = started.end()
    out = tmp_path / "out"
    before = lines(out)
    with (out / "results.jsonl").open("a") as log:
        log.write('{"group": "fake-fl')  # as a kill in the middle of a write leaves it
    told = json.loads((out / "summary.json").read_text())
    ended = draftgate(tmp_path, "sweep", str(path), "--out", "out")

    assert killed.code == -signal.SIGKILL
    assert len(before) >= 2
    assert len(told["groups"][0]["not_run"]) >= 1
    assert ended.code == 0, ended.output
    assert lines(out)[: len(before)] == before
    assert len(lines(out)) == 8
    assert_clean(killed, tmp_path / "out" / "runs")
    assert_clean(ended, tmp_path)


def test_ctrl_c_keeps_what_was_measured(tmp_path: Path) -> None:
    """An interrupted sweep stops its server, says so in the summary, and ends with code 130."""
    path = write_list(tmp_path, repeats=2)
    argv = [sys.executable, "-m", "draftgate.cli", "sweep", str(path), "--out", "out"]
    started = Started(argv, cwd=tmp_path)
    started.read_until("none x1, run 1: ")
    started.send(signal.SIGTERM)
    ended = started.end()
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())

    assert ended.code == 130
    assert summary["stopped"] == "interrupted"
    assert summary["groups"][0]["rows"][0]["runs"] >= 1
    assert_clean(ended, tmp_path)


def test_a_server_that_dies_ends_its_configuration_alone(tmp_path: Path) -> None:
    """It is noted with its reason, the others are measured, and the next call tries it last."""
    path = write_list(tmp_path, DYING)
    ended = draftgate(tmp_path, "sweep", str(path), "--out", "out")
    (group,) = json.loads((tmp_path / "out" / "summary.json").read_text())["groups"]
    again = draftgate(tmp_path, "sweep", str(path), "--out", "out")

    assert (ended.code, again.code) == (5, 5)
    assert [row["runs"] for row in group["rows"]] == [0, 0, 1, 1]
    assert [item["arm"] for item in group["not_run"]] == ["none"]
    assert "the server process ended with exit code" in group["not_run"][0]["reason"]
    assert group["rows"][2]["over_none"] is None
    assert "ngram x1" not in again.output
    assert_clean(again, tmp_path)


def test_a_server_that_does_not_start_ends_its_configuration_alone(tmp_path: Path) -> None:
    """A start that fails is told like a death, and the configurations after it are measured."""
    path = write_list(tmp_path, {"none": {**NONE, "no_such_key": 1}, "ngram": NGRAM})
    ended = draftgate(tmp_path, "sweep", str(path), "--out", "out")
    (group,) = json.loads((tmp_path / "out" / "summary.json").read_text())["groups"]

    assert ended.code == 5
    assert [row["runs"] for row in group["rows"]] == [0, 0, 1, 1]
    assert "Not run:" in (tmp_path / "out" / "summary.md").read_text()


def test_a_list_may_grow_but_not_change(tmp_path: Path) -> None:
    """New configurations are measured beside the old; one that became another is refused."""
    out = tmp_path / "out"
    with open_sweep(out, load_plan(write_list(tmp_path, {"none": NONE}))) as state:
        run_sweep(state)
    with open_sweep(out, load_plan(write_list(tmp_path))) as state:
        grown = run_sweep(state)
        write_summary(state)
        directory = next(iter(state.directories.values())).path
    faster = load_plan(write_list(tmp_path, {**GOOD, "none": {**NONE, "step_s": 0.001}}))
    smaller = load_plan(write_list(tmp_path, {"none": NONE}))

    assert grown
    assert [arm.name for arm in load_run(directory).profile.arms] == ["none", "ngram"]
    assert len(load_run(directory).samples) == 4
    with pytest.raises(SpecError, match="configuration 'none' is another"), open_sweep(out, faster):
        pass
    with pytest.raises(SpecError, match="configuration 'ngram' is gone"), open_sweep(out, smaller):
        pass


def test_a_folder_is_one_sweep_s_at_a_time(tmp_path: Path) -> None:
    """A second process, another thing's folder and a damaged state are each told and refused."""
    plan = load_plan(write_list(tmp_path))
    with (
        open_sweep(tmp_path / "out", plan),
        pytest.raises(SpecError, match="another process has it open"),
        open_sweep(tmp_path / "out", plan),
    ):
        pass
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "file").touch()
    with (
        pytest.raises(SpecError, match="holds something else"),
        open_sweep(tmp_path / "mine", plan),
    ):
        pass
    (tmp_path / "out" / "sweep.json").write_text("{")
    with pytest.raises(BaselineError, match="cannot be read"), open_sweep(tmp_path / "out", plan):
        pass


def test_reports_of_twins_say_so(tmp_path: Path) -> None:
    """Table and document of a sweep on a twin begin with what is true and what is forced."""
    path = write_list(tmp_path, more='[[run]]\narm = "ngram"\nacceptance = 0.5\nk = 2\n')
    profile = tmp_path / "p.toml"
    profile.write_text(profile.read_text().replace('model = "fake"', 'model = "shape-tiny"'))
    ended = draftgate(tmp_path, "sweep", str(path), "--out", "out", "--summary-only")
    (group,) = json.loads((tmp_path / "out" / "summary.json").read_text())["groups"]

    words = "acceptance forced to 0.5/0.25 by position (ngram-k2-a0.5)"
    assert ended.code == 6
    assert group["note"].startswith("Shapes true, weights random, ")
    assert words in group["note"]
    assert "Shapes true, weights random" in (tmp_path / "out" / "summary.md").read_text()
    assert {item["reason"] for item in group["not_run"]} == {"not begun"}
