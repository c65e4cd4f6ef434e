"""The session's state without pytest around it: order of runs, gates, what is told once."""

from collections import Counter
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from draftgate.errors import EngineError, SpecError
from draftgate.measure import run as run_module
from draftgate.plugin.asked import Options
from draftgate.plugin.session import FailedEarlierError, GateSession
from draftgate.runstore import load_run
from draftgate.specfile import load_profile
from draftgate.specs import GateSpec, Profile
from draftgate.verdict import Outcome, worst
from tests.support.flow import GATES, NONE, write_profile
from tests.support.samples import make_profile


def session(profile: Profile, folder: Path = Path("unused")) -> GateSession:
    """Return a session of `profile` that says nothing."""
    options = Options(
        runs=folder / "runs",
        baselines=folder / "baselines",
        require_baseline=False,
        require_verdict=False,
        argv=("pytest",),
    )
    return GateSession(lambda: profile, options, lambda _line: None)


def test_plan_holds_every_cell_once_a_repeat_and_alternates_arms() -> None:
    """Inside a repeat and a concurrency all arms follow each other, in changing order."""
    profile = make_profile(repeats=4)
    plan = session(profile).plan()

    assert set(Counter(plan).values()) == {1}
    assert len(plan) == 4 * 2 * 3
    blocks = [plan[i : i + 3] for i in range(0, len(plan), 3)]
    assert all(len({(run.repeat, run.concurrency) for run in block}) == 1 for block in blocks)
    assert all(len({run.arm for run in block}) == 3 for block in blocks)
    assert len({tuple(run.arm for run in block) for block in blocks}) > 1
    assert session(profile).plan() == plan


def test_plan_without_side_by_side_servers_groups_by_arm() -> None:
    """Where servers cannot live together each is started once a repeat."""
    plan = session(replace(make_profile(), keep_alive=False)).plan()

    arms = [run.arm for run in plan]
    changes = sum(before != after for before, after in pairwise(arms))
    assert changes <= 3 * 3 - 1


@pytest.mark.parametrize(
    ("metric", "told"),
    [("outptu_tokens_per_s", "output_tokens_per_s"), ("gpu_use_ratio", "no better direction")],
    ids=["unknown", "no-direction"],
)
def test_gate_that_can_never_be_judged_is_found_before_measuring(metric: str, told: str) -> None:
    """A misspelt metric, or one with no better direction, is an error at once."""
    profile = make_profile(gates=(GateSpec(metric, margin_ratio=0.1),))

    with pytest.raises(SpecError, match=told):
        session(profile).plan()


def test_failed_server_is_told_in_full_once(tmp_path: Path) -> None:
    """The first time with its log, then in one line; other arms are served."""
    path = write_profile(tmp_path / "p.toml", {"none": NONE, "broken": {"colour": "red"}})
    state = session(load_profile(str(path)), tmp_path)
    try:
        assert state.engine("none").model == "fake"

        with pytest.raises(EngineError, match=r"unknown key 'colour'") as first:
            state.engine("broken")
        with pytest.raises(FailedEarlierError) as second:
            state.engine("broken")
        assert state.engine("none").model == "fake"
    finally:
        state.finish()

    assert not isinstance(first.value, FailedEarlierError)
    assert str(second.value) == (
        "broken is not measured any more, after: broken: the server process ended with exit code 2."
    )


@pytest.mark.parametrize("disturbed", [0, 1, 2, 3])
def test_run_that_the_client_disturbed_is_taken_again(
    disturbed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Twice more at most; what is invalid stays on record and decides only without a usable run."""
    faults = iter([("lag",)] * disturbed + [()])
    monkeypatch.setattr(run_module, "client_faults", lambda _run, _margins: next(faults))
    path = write_profile(tmp_path / "p.toml", {"none": NONE}, repeats=3, gates=GATES)
    state = session(load_profile(str(path)), tmp_path)
    planned = state.plan()[0]
    try:
        run = state.measure(planned)
        verdicts = state.judge(planned.arm, planned.concurrency)
    finally:
        state.finish()

    assert state.run_path is not None
    stored = load_run(state.run_path).samples
    assert [bool(sample.invalid) for sample in stored] == ([True] * disturbed + [False])[:3]
    assert run == stored[-1]
    assert (worst(verdicts) is Outcome.INVALID_RUN) == (disturbed == 3)


def test_session_that_measures_nothing_leaves_nothing(tmp_path: Path) -> None:
    """Reading the profile and planning make no folder and start no server."""
    state = session(make_profile(), tmp_path)
    state.plan()
    state.finish()

    assert state.run_path is None
    assert list(tmp_path.iterdir()) == []
