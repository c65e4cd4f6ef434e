"""`draftgate calibrate` for real: short, against the null engine in a process of its own."""

import json
import os
import resource
from pathlib import Path

import psutil
import pytest

from draftgate.calibration.cell import CellPlan, Cores, run_cell
from draftgate.calibration.job import STREAMS
from draftgate.calibration.record import Calibration
from draftgate.calibration.store import calibration_path, load_calibration
from draftgate.cli import Exit, main
from draftgate.codec import decode
from draftgate.environment import describe
from draftgate.targets import CACHE_VARIABLE


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache folder of the test's own."""
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "cache"))
    return tmp_path / "cache"


def _null_engines() -> list[str]:
    lines = [" ".join(child.cmdline()) for child in psutil.Process().children(recursive=True)]
    return [line for line in lines if "null_engine" in line]


def test_calibrate_measures_stores_and_explains(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One short calibration: all cells, sane numbers, the same in both files, no process left.

    What was stored before is damaged; it is named and replaced.
    """
    hardware = describe("none").hardware
    calibration_path(hardware).parent.mkdir(parents=True)
    calibration_path(hardware).write_text("{")
    affinity, copy = os.sched_getaffinity(0), tmp_path / "out" / "calibration.json"

    assert main(["calibrate", "--seconds", "3", "--json", str(copy)]) == Exit.OK

    out, err = capsys.readouterr()
    stored = load_calibration(hardware)
    assert stored is not None
    assert decode(Calibration, json.loads(copy.read_text()), "copy") == stored
    assert [cell.streams for cell in stored.cells] == list(STREAMS)
    assert stored.probes
    for cell in (*stored.cells, *stored.probes):
        assert cell.errors.requests >= cell.streams
        assert cell.errors.wrong_tokens == 0
        assert 0 < cell.cpu_per_token_s < 0.01
        assert 0 < cell.parse_cpu_per_token_s < 0.01
        assert cell.tokens_per_s > 0
        assert cell.errors.true.tokens_per_step == 1.0
        assert cell.errors.chunks == cell.errors.tokens > 4 * cell.streams
    assert "can't be judged with this client here" in out
    assert f"stored: {calibration_path(hardware)}" in out
    assert "replacing what was there" in err
    assert "256 streams" in err
    assert os.sched_getaffinity(0) == affinity
    assert _null_engines() == []


def test_client_and_engine_can_share_a_core() -> None:
    """On one core a cell ends well too; nothing of the process is left changed."""
    core = min(os.sched_getaffinity(0))
    before = os.sched_getaffinity(0), resource.getrlimit(resource.RLIMIT_NOFILE)
    cell = run_cell(CellPlan(4, 0.6, Cores(core, core)))

    assert cell.errors.requests >= 8
    assert cell.errors.step_gap is not None
    assert (os.sched_getaffinity(0), resource.getrlimit(resource.RLIMIT_NOFILE)) == before
    assert _null_engines() == []


def test_too_little_time_is_a_wrong_option(cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The command says so in one line, and stores nothing."""
    assert main(["calibrate", "--seconds", "1"]) == Exit.BAD_SPEC

    assert capsys.readouterr().err.startswith("draftgate: calibrate: seconds must be from 3")
    assert not cache.exists()
