"""The drift tests and their baseline from end to end, against the scripted server."""

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from draftgate.datasets.builtin import KINDS
from draftgate.runstore import load_run
from draftgate.verdict import Outcome

ROOT = Path(__file__).parents[2]

PROFILE = """
schema = 1
name = "scripted"
description = "The scripted server with drafts of known worth"

[engine]
name = "fake"

[engine.env]
DRAFTGATE_FAKE_CONFIG = '{"tokens_per_step": 2.5, "step_s": 0.001, "ttft_s": 0.001}'

[target]
model = "fake"

[[arm]]
name = "none"
method = "none"

[[arm]]
name = "draft_model"
method = "draft_model"
model = "target"
num_speculative_tokens = 3

[workload]
dataset = "mixed"
concurrencies = [1]

[workload.sampling]
max_tokens = 8
"""


SAMPLED = tuple(f"draft_model on {kind} at T={t}" for kind in KINDS for t in ("0.7", "1"))
"""Places of sampled traffic: reported in each run, judged where the baseline holds them."""


@dataclass(frozen=True, slots=True)
class Folder:
    """A folder to run the drift tests and the command in."""

    path: Path

    @property
    def newest(self) -> Path:
        """The run folder that was made last."""
        return max((self.path / "runs").iterdir(), key=lambda run: run.stat().st_mtime_ns)

    def drift(self, *options: str) -> subprocess.CompletedProcess[str]:
        """Run the drift tests."""
        places = ("--runs", f"{self.path}/runs", "--baselines", f"{self.path}/baselines")
        profile = self.path / "scripted.toml"
        profile.write_text(PROFILE, encoding="utf-8")
        pytest_ = (sys.executable, "-m", "pytest", "-rA", "-p", "no:cacheprovider")
        command = (*pytest_, "tests/drift", "--profile", str(profile), *places, *options)
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)

    def accept(self, reason: str) -> subprocess.CompletedProcess[str]:
        """Accept the newest run."""
        command = (sys.executable, "-m", "draftgate.cli", "baseline", "accept", str(self.newest))
        places = ("--baselines", f"{self.path}/baselines", "--reason", reason)
        return subprocess.run((*command, *places), capture_output=True, text=True, check=False)


def _ended(run: subprocess.CompletedProcess[str]) -> str:
    """Return pytest's last line without the time it took."""
    return run.stdout.strip().splitlines()[-1].strip("= ").partition(" in ")[0]


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> tuple[Folder, str]:
    """A folder whose first run, 2.5 tokens per step, was accepted, and what pytest said then."""
    folder = Folder(tmp_path_factory.mktemp("drift"))
    run = folder.drift()
    assert run.returncode == 0, run.stdout + run.stderr
    accepted = folder.accept("first")
    assert accepted.returncode == 0, accepted.stderr
    return folder, run.stdout


def test_first_run_measures_and_has_no_baseline(first: tuple[Folder, str]) -> None:
    """Without a baseline all is measured, told, stored and skipped; the planted fault is found."""
    folder, told = first

    assert "9 passed, 3 skipped" in told
    assert told.count("SKIPPED [1]") == told.count("NO_BASELINE tokens_per_step") == 3
    assert (
        "[draftgate] draft_model on code: 2.47 tokens per step [2.47, 2.47], acceptance 49 %, "
        "by position 100/47/0 %"
    ) in told
    assert "weakened: tokens per step -30 %" in told
    stored = load_run(folder.newest)
    kinds = [found.kind for found in stored.traffic]
    assert sorted(kinds) == sorted([*KINDS, *(place.partition(" on ")[2] for place in SAMPLED)])
    assert {verdict.outcome for verdict in stored.verdicts} == {Outcome.NO_BASELINE}
    assert (folder.newest / "report.html").exists()


def test_later_run_is_judged_kind_by_kind(first: tuple[Folder, str]) -> None:
    """An equal history gives PASS, a better one REGRESSION, a worse one IMPROVEMENT."""
    folder, _ = first
    (path,) = folder.path.glob("baselines/*/fake/scripted.acceptance.json")
    held = json.loads(path.read_text(encoding="utf-8"))
    for found in held["traffic"]:
        factor = {"code": 1.2, "arithmetic": 0.8}.get(found["kind"], 1.0)
        found["tokens_per_step"] = [[p, value * factor] for p, value in found["tokens_per_step"]]
    path.write_text(json.dumps(held), encoding="utf-8")

    run = folder.drift("-m", "not slow", "--require-baseline")

    assert _ended(run) == "1 failed, 9 passed, 2 deselected", run.stdout + run.stderr
    stored = load_run(folder.newest)
    assert {verdict.arm: verdict.outcome for verdict in stored.verdicts} == {
        "draft_model on chat": Outcome.PASS,
        "draft_model on code": Outcome.REGRESSION,
        "draft_model on arithmetic": Outcome.IMPROVEMENT,
        **dict.fromkeys(SAMPLED, Outcome.PASS),
    }
    assert stored.baseline == str(path)
