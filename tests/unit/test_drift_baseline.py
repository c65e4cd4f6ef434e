"""The store of acceptance: readable, exact, never half-written, written by one command."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from draftgate.baselines import baseline_path
from draftgate.cli import Exit, main
from draftgate.clock import ManualClock
from draftgate.drift.baseline import (
    TrafficSession,
    accept_traffic,
    acceptance_path,
    load_acceptance,
)
from draftgate.errors import BaselineError
from draftgate.records import RunSamples, TrafficAcceptance
from draftgate.runstore import RunDirectory, load_run
from tests.support.samples import make_environment, make_profile, make_runs
from tests.support.traffic import make_traffic

PROFILE = make_profile(concurrencies=(1,), repeats=2)
ALL = tuple(
    make_traffic(arm, kind, prompts=3)
    for arm in ("ngram", "draft_model")
    for kind in ("code", "chat")
)


def _session(traffic: tuple[TrafficAcceptance, ...] = ALL, run_id: str = "run-1") -> TrafficSession:
    return TrafficSession(run_id, PROFILE, make_environment(), traffic)


def _accept(root: Path, session: TrafficSession | None = None, **options: Any) -> Path:
    options = {"reason": "first", **options}
    return accept_traffic(root, session or _session(), clock=ManualClock(), **options)


def _run(
    root: Path, samples: tuple[RunSamples, ...] = (), traffic: tuple[TrafficAcceptance, ...] = ()
) -> Path:
    directory = RunDirectory.create(root / "runs", PROFILE, ["pytest"], ManualClock())
    directory.write_environment(make_environment())
    for run in samples:
        directory.add(run)
    if traffic:
        directory.write_acceptance(traffic)
    return directory.path


def test_steps_stay_with_their_prompts(tmp_path: Path) -> None:
    """Prompts are sorted in the file, and what their steps gave goes along."""
    values = (("b", 2.0), ("c", 3.0), ("a", 1.0))
    found = make_traffic(tokens_per_step=values, step_yields=((0, 2), (0, 3), (0, 1)))
    traffic = (found, replace(found, arm="draft_model"))

    held = load_acceptance(_accept(tmp_path, _session(traffic))).held("ngram", "chat")

    assert held is not None
    assert held.tokens_per_step == (("a", 1.0), ("b", 2.0), ("c", 3.0))
    assert held.step_yields == ((0, 1), (0, 2), (0, 3))


def test_accepted_measurements_come_back_equal(tmp_path: Path) -> None:
    """Every value of every prompt is there as it was measured."""
    held = load_acceptance(_accept(tmp_path))

    for found in ALL:
        assert held.held(found.arm, found.kind) == found
    assert held.held("ngram", "arithmetic") is None
    assert held.environment == make_environment()
    assert [(entry.reason, entry.run_id) for entry in held.accepted] == [("first", "run-1")]


def test_file_lies_beside_the_baseline_of_speed(tmp_path: Path) -> None:
    """Same folder, same stem, so that both are found together."""
    path = _accept(tmp_path)

    speed = baseline_path(tmp_path, make_environment(), PROFILE)
    assert path == speed.with_suffix(".acceptance.json")
    assert path == acceptance_path(tmp_path, make_environment(), PROFILE)


def test_file_reads_well_in_a_diff(tmp_path: Path) -> None:
    """One prompt a line, and a change of one prompt changes one line."""
    before = _accept(tmp_path).read_text().splitlines()
    changed = replace(
        ALL[0], tokens_per_step=(*ALL[0].tokens_per_step[:2], (ALL[0].tokens_per_step[2][0], 1.5))
    )
    after = _accept(tmp_path, _session((changed, *ALL[1:]))).read_text().splitlines()

    differing = [line for line, old in zip(after, before, strict=True) if line != old]
    assert [line.strip() for line in differing] == ['["code-002", 1.5]']
    assert max(map(len, after)) < 250


def test_file_does_not_depend_on_the_order_of_measuring(tmp_path: Path) -> None:
    """Arms, kinds and prompts are sorted."""
    turned = tuple(
        replace(found, tokens_per_step=found.tokens_per_step[::-1]) for found in reversed(ALL)
    )

    one, other = _accept(tmp_path / "a"), _accept(tmp_path / "b", _session(turned))

    assert one.read_text() == other.read_text()


def test_accept_replaces_and_extends(tmp_path: Path) -> None:
    """A new session replaces all; with `extend` what it lacks is kept."""
    _accept(tmp_path)
    code = tuple(make_traffic(f.arm, "code", prompts=3, factor=0.9) for f in ALL[::2])

    extended = load_acceptance(_accept(tmp_path, _session(code, "run-2"), extend=True))
    assert len(extended.traffic) == 4
    assert extended.held("ngram", "code") == code[0]
    assert extended.held("ngram", "chat") == ALL[1]
    assert [entry.run_id for entry in extended.accepted] == ["run-1", "run-2"]

    replaced = load_acceptance(_accept(tmp_path, _session(code, "run-3")))
    assert len(replaced.traffic) == 2
    assert [entry.run_id for entry in replaced.accepted] == ["run-3"]


@pytest.mark.parametrize("reason", ["", "  \n"])
def test_accept_wants_a_reason(tmp_path: Path, reason: str) -> None:
    """Nothing becomes the reference for no reason."""
    with pytest.raises(BaselineError, match="the reason is empty"):
        _accept(tmp_path, reason=reason)

    assert not list(tmp_path.iterdir())


def test_accept_refuses_invalid_measurements(tmp_path: Path) -> None:
    """One that cannot be used cannot become the reference."""
    broken = replace(ALL[0], invalid=("the server died",))

    with pytest.raises(
        BaselineError, match=r"1 of 4 measurements .*\(ngram on code: the server died\)"
    ):
        _accept(tmp_path, _session((broken, *ALL[1:])))


def test_accept_refuses_a_session_with_holes(tmp_path: Path) -> None:
    """An arm that one kind was not measured on is named."""
    with pytest.raises(BaselineError, match="no acceptance of draft_model on chat"):
        _accept(tmp_path, _session(ALL[:-1]))


def test_accept_on_an_unwritable_path_is_a_clear_error(tmp_path: Path) -> None:
    """A file where the folder should be gives one error that names the path."""
    (tmp_path / "baselines").write_text("")

    with pytest.raises(BaselineError, match="cannot be written"):
        _accept(tmp_path / "baselines")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"schema": 99}, "schema is 99, expected 1"),
        ({"profile": "other"}, "it is that of profile 'other'"),
        ({"surplus": 1}, "unknown keys"),
        ({"traffic": [{"arm": "ngram"}]}, "missing keys"),
        ({"environment": None}, "expected an object"),
    ],
)
def test_damaged_or_foreign_file_is_refused(
    tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    """A file that cannot be trusted is an error that says why, never an empty baseline."""
    path = _accept(tmp_path)
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))

    with pytest.raises(BaselineError, match=message):
        load_acceptance(path)


@pytest.mark.parametrize("text", ["", "{", "[]", "null"])
def test_broken_json_is_refused(tmp_path: Path, text: str) -> None:
    """Half a file or another document is an error that names the file."""
    path = _accept(tmp_path)
    path.write_text(text)

    with pytest.raises(BaselineError, match=r"example\.acceptance\.json: cannot be used"):
        load_acceptance(path)


def test_file_of_other_hardware_is_refused(tmp_path: Path) -> None:
    """A file copied into another machine's folder is found out."""
    path = _accept(tmp_path)
    moved = tmp_path / "cpu-other-4c" / path.parent.name / path.name
    moved.parent.mkdir(parents=True)
    path.rename(moved)

    with pytest.raises(BaselineError, match="it is that of hardware 'cpu-example-2c'"):
        load_acceptance(moved)


def test_run_folder_keeps_acceptance(tmp_path: Path) -> None:
    """What was measured is read back, the last writing stands, and none is none."""
    path = _run(tmp_path, traffic=ALL[:1])
    RunDirectory(path, path / "logs").write_acceptance(ALL)

    assert load_run(path).traffic == ALL
    assert load_run(_run(tmp_path)).traffic == ()


def test_damaged_acceptance_in_a_run_folder_is_refused(tmp_path: Path) -> None:
    """A run folder whose acceptance cannot be read is an error, not a run without it."""
    path = _run(tmp_path, traffic=ALL)
    (path / "acceptance.json").write_text('{"schema": 1, "traffic": [{}]}')

    with pytest.raises(BaselineError, match=r"acceptance\.json: cannot be read"):
        load_run(path)


@pytest.mark.parametrize(
    ("speed", "traffic", "files"),
    [
        (True, False, ["example.json"]),
        (False, True, ["example.acceptance.json"]),
        (True, True, ["example.acceptance.json", "example.json"]),
    ],
)
def test_command_accepts_what_the_run_holds(
    tmp_path: Path, *, speed: bool, traffic: bool, files: list[str]
) -> None:
    """Timed runs, acceptance or both become baselines by the one command."""
    run = _run(tmp_path, make_runs(PROFILE, requests=3) if speed else (), ALL if traffic else ())

    code = main(
        ["baseline", "accept", str(run), "--reason", "test", "--baselines", str(tmp_path / "b")]
    )

    assert code == Exit.OK
    assert sorted(path.name for path in (tmp_path / "b").rglob("*.json")) == files


def test_command_refuses_an_empty_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A run folder with neither is an error that says what to do."""
    code = main(["baseline", "accept", str(_run(tmp_path)), "--reason", "test"])

    assert code == Exit.NO_BASELINE
    assert "holds neither timed runs nor acceptance" in capsys.readouterr().err


def test_command_writes_all_or_nothing_of_a_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Unfit acceptance is found before the good speed beside it is written."""
    run = _run(tmp_path, make_runs(PROFILE, requests=3), ALL[:-1])

    code = main(
        ["baseline", "accept", str(run), "--reason", "test", "--baselines", str(tmp_path / "b")]
    )

    assert code == Exit.NO_BASELINE
    assert "no acceptance of draft_model on chat" in capsys.readouterr().err
    assert not (tmp_path / "b").exists()
