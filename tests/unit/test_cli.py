"""The `draftgate` command: each subcommand, and an exit code and one line for each mistake."""

import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from draftgate.cli import Exit, main
from draftgate.cli.exits import exit_for
from draftgate.clock import ManualClock
from draftgate.errors import BaselineError, EngineError, MeasurementError, SpecError
from draftgate.runstore import RunDirectory
from draftgate.specfile import profile_names
from draftgate.verdict import Outcome
from tests.support.flow import NONE, Started, assert_clean, write_profile
from tests.support.samples import make_environment, make_profile, make_runs

Captured = pytest.CaptureFixture[str]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder that is the working directory."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def stored_run(root: Path, *, day: int = 1) -> Path:
    """Write a whole but small run folder and return it."""
    clock = ManualClock()
    clock.start = clock.start.replace(day=day)
    profile = make_profile(concurrencies=(1,))
    directory = RunDirectory.create(root, profile, ["pytest"], clock)
    directory.write_environment(make_environment())
    for run in make_runs(profile, requests=2):
        directory.add(run)
    return directory.path


def complaint(capsys: Captured) -> str:
    """Return the one line that was written to standard error, and nothing to standard output."""
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("draftgate: ")
    assert err.count("\n") == 1, err
    return err


def test_profiles_are_listed_with_their_description(capsys: Captured) -> None:
    """Each profile that comes with draftgate is one line."""
    assert main(["profiles"]) == Exit.OK

    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == list(profile_names())
    assert all(len(line.split()) > 3 for line in lines)


def test_version_is_printed(capsys: Captured) -> None:
    """--version prints name and version and ends well."""
    with pytest.raises(SystemExit) as ended:
        main(["--version"])

    assert ended.value.code == 0
    assert re.fullmatch(r"draftgate \d+\.\d+\.\d+\S*\n", capsys.readouterr().out)


def test_command_is_required(capsys: Captured) -> None:
    """Without a subcommand the usage is shown and the code is that of a wrong option."""
    with pytest.raises(SystemExit) as ended:
        main([])

    assert ended.value.code == Exit.BAD_SPEC
    assert "usage: draftgate" in capsys.readouterr().err


def test_prepare_names_each_model_once(here: Path, capsys: Captured) -> None:
    """Targets and drafts of all arms are resolved; a folder resolves to itself."""
    (here / "model").mkdir()
    profile = write_profile(here / "p.toml", {"none": NONE, "ngram": NONE})
    profile.write_text(profile.read_text().replace('model = "fake"', 'model = "./model"'))

    assert main(["prepare", "--profile", str(profile)]) == Exit.OK

    assert capsys.readouterr().out == f"{here / 'model'}: {here / 'model'}\n"


def test_report_writes_the_pages_of_the_newest_run(here: Path, capsys: Captured) -> None:
    """Without a name the newest folder below runs/ is taken."""
    older, newer = stored_run(here / "runs", day=1), stored_run(here / "runs", day=2)

    assert main(["report"]) == Exit.OK

    assert (newer / "report.html").exists()
    assert (newer / "report.md").exists()
    assert not (older / "report.html").exists()
    assert f"report: runs/{newer.name}/report.html" in capsys.readouterr().out


def test_accept_writes_the_baseline_and_says_where(here: Path, capsys: Captured) -> None:
    """The one writer of baselines writes one file and prints its path."""
    run = stored_run(here / "runs")

    code = main(["baseline", "accept", str(run), "--reason", "first", "--baselines", "kept"])

    assert code == Exit.OK
    (path,) = (p for p in (here / "kept").rglob("*") if p.is_file())
    assert capsys.readouterr().out == f"baseline: {path.relative_to(here)}\n"
    assert '"first"' in path.read_text()


def test_accept_wants_a_reason(here: Path, capsys: Captured) -> None:
    """No reason, no baseline: neither left out nor empty."""
    run = stored_run(here / "runs")
    with pytest.raises(SystemExit) as ended:
        main(["baseline", "accept", str(run)])
    assert ended.value.code == Exit.BAD_SPEC
    capsys.readouterr()

    assert main(["baseline", "accept", str(run), "--reason", " "]) != Exit.OK

    assert "reason" in complaint(capsys)
    assert not (here / "baselines").exists()


def test_accept_refuses_a_damaged_run(here: Path, capsys: Captured) -> None:
    """A run that cannot be read whole becomes no baseline."""
    run = stored_run(here / "runs")
    next((run / "samples").iterdir()).write_bytes(b"PAR1")

    code = main(["baseline", "accept", str(run), "--reason", "r"])

    assert code == Exit.NO_BASELINE
    assert "cannot be read" in complaint(capsys)
    assert not (here / "baselines").exists()


@pytest.mark.parametrize(
    ("argv", "code", "told"),
    [
        (["report"], Exit.BAD_SPEC, "none under runs/"),
        (["report", "nowhere"], Exit.NO_BASELINE, "nowhere/run.json"),
        (["baseline", "accept", "--reason", "r"], Exit.BAD_SPEC, "none under runs/"),
        (["prepare", "--profile", "cpu-smolm2"], Exit.BAD_SPEC, "cpu-smollm2"),
        (["engine", "--arm", "ngrm"], Exit.BAD_SPEC, "has no arm 'ngrm'. It has: none, ngram"),
        (["engine", "--set", "workload.repaets=2"], Exit.BAD_SPEC, "repaets"),
        (["engine", "--set", "nonsense"], Exit.BAD_SPEC, "got no KEY=VALUE"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, list) else "",
)
@pytest.mark.usefixtures("here")
def test_mistake_is_one_line_and_a_code(
    argv: list[str], code: Exit, told: str, capsys: Captured
) -> None:
    """Whatever is wrong with the input is one line that names it, and no traceback."""
    assert main(argv) == code

    assert told in complaint(capsys)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (SpecError("s"), Exit.BAD_SPEC),
        (EngineError("e"), Exit.ENGINE),
        (MeasurementError("m"), Exit.UNUSABLE_RUN),
        (BaselineError("b"), Exit.NO_BASELINE),
        (KeyboardInterrupt(), Exit.INTERRUPTED),
    ],
    ids=lambda value: type(value).__name__,
)
def test_each_kind_of_error_has_its_code(
    error: BaseException, code: Exit, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    """The code says whose fault it was."""

    def fail(_args: object) -> int:
        raise error

    monkeypatch.setattr("draftgate.cli.profiles.run_profiles", fail)

    assert main(["profiles"]) == code
    complaint(capsys)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["ctrl-c", "sigterm"])
def test_engine_serves_until_it_is_stopped(tmp_path: Path, number: signal.Signals) -> None:
    """`draftgate engine` prints the address, keeps the server, and takes it along in the end."""
    profile = write_profile(tmp_path / "p.toml", {"none": NONE})
    argv = [sys.executable, "-m", "draftgate.cli", "engine", "--profile", str(profile)]
    started = Started(argv, cwd=tmp_path)
    before = started.read_until("(Ctrl-C stops it)")

    started.send(number)
    ended = started.end()

    assert ended.code == Exit.INTERRUPTED
    assert re.search(r"http://127\.0\.0\.1:\d+/v1  model fake", before)
    assert ended.output == "draftgate: interrupted\n"
    assert_clean(ended, tmp_path)


def test_engine_that_does_not_start_is_told_with_its_log(tmp_path: Path) -> None:
    """A server that dies while starting: its own code, its log in the message, nothing left."""
    profile = write_profile(tmp_path / "p.toml", {"none": {"colour": "red"}})
    argv = [sys.executable, "-m", "draftgate.cli", "engine", "--profile", str(profile)]

    ended = Started(argv, cwd=tmp_path).end()

    assert ended.code == Exit.ENGINE
    assert "draftgate: none: the server process ended with exit code 2." in ended.output
    assert "unknown key 'colour'" in ended.output
    assert_clean(ended, tmp_path)


def test_installed_command_is_the_same_program() -> None:
    """The console script runs what `python -m draftgate.cli` runs."""
    script = Path(sys.executable).with_name("draftgate")
    done = subprocess.run([script, "--version"], capture_output=True, text=True, check=True)

    assert done.stdout.startswith("draftgate ")


def test_command_starts_fast() -> None:
    """Showing the help imports none of the slow packages."""
    code = (
        "import sys; from draftgate.cli import _parser; _parser().format_help();"
        "print([m for m in ('matplotlib', 'scipy', 'pandas', 'pyarrow') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout == "[]\n"


@pytest.mark.parametrize("outcome", list(Outcome))
def test_every_outcome_has_an_exit_code(outcome: Outcome) -> None:
    """Green outcomes end with 0 and no other one does."""
    assert (exit_for(outcome) is Exit.OK) == outcome.green
