"""The main job from the first run to a regression, on the fake engine, as a person runs it."""

import json
import re
from pathlib import Path

import pytest

from draftgate.metrics import compute_all
from draftgate.records import RunSamples
from draftgate.runstore import StoredRun
from draftgate.verdict import Outcome
from tests.support.flow import (
    GATES,
    NGRAM,
    NONE,
    Ended,
    Started,
    assert_clean,
    draftgate,
    main_job,
    newest,
    pytest_argv,
    write_profile,
)

BOTH = {"none": NONE, "ngram": NGRAM}


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Ended, StoredRun]:
    """A first session: its folder, what it printed and its run."""
    folder = tmp_path_factory.mktemp("flow")
    profile = write_profile(folder / "fake.toml", BOTH, repeats=3, gates=GATES)
    ended = main_job(folder, profile, "--benchmark-json", str(folder / "bench.json"))
    return folder, ended, newest(folder)


@pytest.fixture(scope="module")
def accepted(first: tuple[Path, Ended, StoredRun]) -> Path:
    """The folder of the first session, its run accepted as baseline."""
    folder, _, run = first
    done = draftgate(folder, "baseline", "accept", str(run.path), "--reason", "the first numbers")
    assert done.code == 0, done.output
    return folder


@pytest.fixture(scope="module")
def later(accepted: Path) -> dict[str, tuple[Ended, StoredRun]]:
    """Two sessions against that baseline, side by side: the same servers, and worse ones."""
    same = accepted / "fake.toml"
    worse = {"none": {**NONE, "step_s": 0.012}, "ngram": {**NGRAM, "tokens_per_step": 1.25}}
    profiles = {
        "same": (same, ["--require-baseline"]),
        "worse": (write_profile(accepted / "worse.toml", worse, repeats=3, gates=GATES), []),
    }
    started = {}
    for name, (profile, options) in profiles.items():
        runs = ["--runs", str(accepted / name / "runs")]
        started[name] = Started(pytest_argv(accepted, profile, *options, *runs))
    ended = {name: session.end() for name, session in started.items()}
    return {name: (end, newest(accepted / name)) for name, end in ended.items()}


def outcomes(run: StoredRun) -> dict[tuple[str, str], tuple[Outcome, tuple[str, ...]]]:
    """Return outcome and causes by (arm, metric)."""
    return {(v.arm, v.metric): (v.outcome, v.causes) for v in run.verdicts}


def test_first_session_is_green_and_says_that_it_judged_nothing(
    first: tuple[Path, Ended, StoredRun],
) -> None:
    """Without a baseline nothing fails, and NO_BASELINE says the command that records one."""
    folder, ended, run = first

    assert ended.code == 0, ended.output
    assert_clean(ended, folder)
    assert {v.outcome for v in run.verdicts} == {Outcome.NO_BASELINE}
    assert "draftgate baseline accept --reason" in ended.output
    assert "6 passed, 2 skipped" in ended.output


def test_every_run_and_command_is_stored(first: tuple[Path, Ended, StoredRun]) -> None:
    """The run folder holds all runs, the start commands, the logs and the report."""
    _, ended, run = first

    assert sorted((s.arm, s.repeat) for s in run.samples) == [
        (name, repeat) for name in ("ngram", "none") for repeat in range(3)
    ]
    assert all(s.invalid == () for s in run.samples)
    assert "draftgate.engines.fake_server" in run.commands["none"]
    assert run.environment.engine == "fake fake-1"
    assert {p.name for p in (run.path / "logs").iterdir()} == {"none.log", "ngram.log"}
    assert (run.path / "report.html").stat().st_size > 10_000
    assert f"report: {run.path / 'report.html'}" in ended.output


def test_progress_is_seen_while_tests_run(first: tuple[Path, Ended, StoredRun]) -> None:
    """Start commands, readiness and every run are told, though pytest captures output."""
    _, ended, _ = first

    assert re.search(
        r"\[draftgate\] none: \S*python\S* -m draftgate.engines.fake_server", ended.output
    )
    assert "[draftgate] ngram x1, run 3 of 3: measuring" in ended.output
    assert "Captured" not in ended.output


def test_benchmark_json_has_every_metric(first: tuple[Path, Ended, StoredRun]) -> None:
    """extra_info of each benchmark holds exactly the metrics of its run."""
    folder, _, run = first
    found = json.loads((folder / "bench.json").read_text())["benchmarks"]
    slo = run.profile.slo

    def name(sample: RunSamples) -> str:
        return f"test_run[r{sample.repeat}-c{sample.concurrency}-{sample.arm}]"

    assert {entry["name"]: entry["extra_info"] for entry in found} == {
        name(sample): pytest.approx(compute_all(sample, slo)) for sample in run.samples
    }


def test_planted_truth_is_measured(first: tuple[Path, Ended, StoredRun]) -> None:
    """Steps of 6 ms and 2.5 tokens per step are what the metrics say."""
    _, _, run = first
    values = {s.arm: compute_all(s, run.profile.slo) for s in run.samples}

    assert values["none"]["tokens_per_step"] == 1.0
    assert values["ngram"]["mean_acceptance_length"] == pytest.approx(2.5, abs=0.15)
    assert values["none"]["step_gap_p50_s"] == pytest.approx(0.006, rel=0.35)


def test_report_is_made_again_from_the_records(first: tuple[Path, Ended, StoredRun]) -> None:
    """`draftgate report` writes the newest run's pages again from Parquet and JSON alone."""
    folder, _, run = first
    names = ("report.html", "report.md")
    before = _without(names, run.path, folder)
    for name in names:
        (run.path / name).unlink()

    done = draftgate(folder, "report")

    assert done.code == 0, done.output
    assert f"report: runs/{run.id}/report.html" in done.output
    assert _without(names, run.path, folder) == before
    assert "fake-flow" in before["report.md"]


def _without(names: tuple[str, ...], path: Path, folder: Path) -> dict[str, str]:
    """Return the pages with paths below `folder` made relative to it."""
    return {name: (path / name).read_text().replace(f"{folder}/", "") for name in names}


def test_accepted_baseline_is_one_readable_file(accepted: Path) -> None:
    """Accepting writes one JSON with every run's values and the reason."""
    files = [path for path in (accepted / "baselines").rglob("*") if path.is_file()]

    assert [path.name for path in files] == ["fake-flow.json"]
    assert "the first numbers" in files[0].read_text()


def test_unchanged_engine_passes(accepted: Path, later: dict[str, tuple[Ended, StoredRun]]) -> None:
    """A second session of the same servers finds no regression and judges every gate."""
    ended, run = later["same"]

    found = outcomes(run)
    assert ended.code == 0, ended.output
    assert set(found) == {
        ("none", "per_token_p50_s"),
        ("ngram", "per_token_p50_s"),
        ("ngram", "mean_acceptance_length"),
    }
    assert Outcome.PASS in {outcome for outcome, _ in found.values()}
    assert Outcome.REGRESSION not in {outcome for outcome, _ in found.values()}
    assert_clean(ended, accepted)


def test_planted_faults_are_regressions_with_their_cause(
    accepted: Path, later: dict[str, tuple[Ended, StoredRun]]
) -> None:
    """Steps twice as long name step time, fewer tokens per step name acceptance."""
    ended, run = later["worse"]

    found = outcomes(run)
    assert ended.code == 1
    assert found["none", "per_token_p50_s"] == (Outcome.REGRESSION, ("step time",))
    assert found["ngram", "per_token_p50_s"] == (Outcome.REGRESSION, ("acceptance",))
    assert found["ngram", "mean_acceptance_length"][0] is Outcome.REGRESSION
    assert "REGRESSION per_token_p50_s: " in ended.output
    assert_clean(ended, accepted)


def test_no_file_and_no_line_of_a_session_holds_a_secret(tmp_path: Path) -> None:
    """Planted in the profile's variables: gone from the run folder and from what is printed."""
    env = '\n[engine.env]\nHF_TOKEN = "hf_planted-0"\nDB_PASSWORD = "planted-1 x"\n'
    profile = write_profile(tmp_path / "fake.toml", {"none": NONE}, gates=env)

    ended = main_job(tmp_path, profile)

    files = [path for path in (tmp_path / "runs").rglob("*") if path.is_file()]
    held = {path.name: path.read_bytes() for path in files}
    assert {"run.json", "report.html", "report.md"} <= held.keys(), ended.output
    assert [name for name, data in held.items() if b"planted" in data] == []
    assert "planted" not in ended.output
