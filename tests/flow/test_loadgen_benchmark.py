"""The benchmark of the load generator runs, and its report tells what misses a goal."""

import copy
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.loadgen import report

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return what the cheapest cell left: 32 streams for two seconds, stalled on purpose."""
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("client and engine need a core each")
    folder = tmp_path_factory.mktemp("loadgen")
    options = ["--quick", "--only", "stall", "--tools", "draftgate", "--out", str(folder)]
    subprocess.run(
        [sys.executable, "-m", "benchmarks.loadgen.run", *options],
        cwd=ROOT,
        check=True,
        capture_output=True,
        timeout=120,
    )
    return folder


@pytest.fixture
def document(out: Path) -> dict[str, Any]:
    """Return a copy of the raw results."""
    return copy.deepcopy(json.loads((out / "results.json").read_text(encoding="utf-8")))


def test_a_cell_runs_and_is_held_against_the_log(document: dict[str, Any]) -> None:
    """All chunks are matched; stalls delay reads by milliseconds, and the kernel's stamps less.

    How much less depends on what else the machine does, so it is not judged here.
    """
    (run,) = document["runs"]
    errors, by_read = run["result"]["errors"], run["result"]["errors_by_read"]

    assert errors["tokens"] == run["result"]["client"]["output_tokens"] >= 32 * 128
    assert errors["wrong_tokens"] == 0
    assert by_read["arrival"]["max_s"] > 0.006
    assert errors["arrival"]["p50_s"] < by_read["arrival"]["p50_s"]


def test_results_are_written_as_a_page(out: Path, document: dict[str, Any]) -> None:
    """RESULTS.md is what the raw results give, with machine and commit."""
    page = (out / "RESULTS.md").read_text(encoding="utf-8")

    assert page == report.markdown(document)
    assert document["machine"]["environment"]["cpu_model"] in page
    assert document["machine"]["commit"] in page


@pytest.mark.parametrize(("error_s", "word"), [(49e-6, "met"), (51e-6, "**MISSED**")])
def test_a_goal_that_is_missed_is_shown_as_missed(
    document: dict[str, Any], error_s: float, word: str
) -> None:
    """A step-gap error just above the limit is shown as missed, one just below as met."""
    document["runs"][0]["result"]["errors"]["step_gap"]["p99_s"] = error_s

    page = report.markdown(document)

    (row,) = (line for line in page.splitlines() if "stalled for 8 ms every 100 ms |" in line)
    assert row.endswith(f"| {word} |")


def test_what_was_not_run_meets_no_goal(document: dict[str, Any]) -> None:
    """Cells that are absent from the results are shown as not run."""
    document["runs"].clear()

    goals = report.markdown(document).partition("## Goals")[2]

    assert goals.strip().startswith("0 met, 0 missed, ")
