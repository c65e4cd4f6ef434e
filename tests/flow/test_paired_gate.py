"""`pytest -m perf --against SIDE` on the scripted engine: one test per gate, judged in pairs."""

import json
import sys
from pathlib import Path

import pytest

from tests.support.flow import NGRAM, ROOT, Ended, Started, assert_clean, write_profile

COMPARE = """
[compare]
looks = [4]
confirm_pairs = 6

[[compare.gate]]
metric = "tokens_per_step_by_prompt"
margin = 0.02
limit = 0.1
"""
FEWER = json.dumps({**NGRAM, "tokens_per_step": 1.25})


@pytest.fixture
def profile(tmp_path: Path) -> Path:
    """A profile of one scripted server that drafts, gated by its acceptance alone."""
    return write_profile(tmp_path / "fake.toml", {"ngram": NGRAM}, gates=COMPARE)


def session(folder: Path, profile: Path, *options: str) -> Ended:
    """Run the performance tests against a base."""
    argv = [
        sys.executable,
        "-m",
        "pytest",
        "tests/perf/test_gate.py",
        "tests/perf/test_main_job.py",
    ]
    argv += ["-p", "no:cacheprovider", "--profile", str(profile), "--runs", str(folder / "runs")]
    argv += ["--baselines", str(folder / "baselines"), *options]
    return Started(argv, cwd=ROOT).end()


def test_same_build_passes_and_the_main_job_stands_back(tmp_path: Path, profile: Path) -> None:
    """One gate passes in pairs; runs against the stored baseline are not taken as well."""
    done = session(tmp_path, profile, "--against", "profile")

    assert done.code == 0, done.output
    assert "1 passed, 2 skipped" in done.output
    assert "PASS" in done.output
    assert len(list((tmp_path / "runs").glob("*/report.html"))) == 1
    assert_clean(done, tmp_path)


def test_worse_candidate_fails_with_its_cause(tmp_path: Path, profile: Path) -> None:
    """Half of the accepted tokens gone is a REGRESSION that names acceptance."""
    worse = f"arm.ngram.env.DRAFTGATE_FAKE_CONFIG='{FEWER}'"

    done = session(tmp_path, profile, "--against", "profile", "--candidate", worse)

    assert done.code == 1, done.output
    assert "REGRESSION: tokens per step by prompt" in done.output
    assert "acceptance" in done.output
    assert_clean(done, tmp_path)


def test_without_a_base_there_is_nothing_to_judge(tmp_path: Path, profile: Path) -> None:
    """Without --against the gate's test is skipped."""
    done = session(tmp_path, profile, "-k", "test_gate")

    assert "1 skipped" in done.output, done.output
    assert not (tmp_path / "runs").exists()


def test_wrong_base_stops_pytest_before_it_collects(tmp_path: Path, profile: Path) -> None:
    """A side that is no side is a usage error with the forms there are."""
    done = session(tmp_path, profile, "--against", "nowhere/bin/python")

    assert done.code == 4, done.output
    assert "nowhere/bin/python" in done.output
    assert not (tmp_path / "runs").exists()
