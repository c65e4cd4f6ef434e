"""`draftgate power`: what it prints, where, and each mistake with its next step."""

import json
from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from draftgate.cli import Exit, main
from draftgate.cli.power_table import print_power
from draftgate.compare.gates import gates_of
from draftgate.environment import describe
from draftgate.noise.power import power_table
from draftgate.noise.records import NoiseStudy
from draftgate.noise.store import noise_path, write_noise
from draftgate.specfile import load_profile
from tests.support.noise import ARM, STREAMS, World, make_study, noise_pairs

Captured = pytest.CaptureFixture[str]
PROFILE = load_profile("cpu-smollm2")


def _store(root: Path, *, requests: int = 12, bias: float = 0.0) -> NoiseStudy:
    """Store a study of this machine whose gates are those of an arm of the default profile."""
    gates = gates_of([PROFILE.arm(ARM)], (STREAMS,), PROFILE.compare)
    pairs = noise_pairs(world=World(within_sd=0.03, requests=requests, bias=bias))
    study = make_study(pairs, gates, trials=20, profile=PROFILE)
    study = replace(study, environment=describe("vllm 0.32.0"))
    write_noise(root, study, PROFILE)
    return study


def _printed(study: NoiseStudy) -> str:
    page = StringIO()
    print_power(study, power_table(study), Console(file=page, width=80))
    return page.getvalue()


def test_table_fits_80_columns(tmp_path: Path) -> None:
    """Every line, with the longest metric and all numbers, none of them cut off."""
    page = _printed(_store(tmp_path))

    assert max(map(len, page.splitlines())) <= 80
    assert "…" not in page
    assert "output_tokens_per_s" in page


def test_table_says_what_a_tail_needs(tmp_path: Path) -> None:
    """A p99 of 240 requests has no verdict; the p95 that is asked in its place is named."""
    page = _printed(_store(tmp_path))

    assert "ttft_p99_s: no verdict: 240 requests a side in all (12 per start), 299" in page
    assert "ttft_p95_s in its place finds " in page
    assert "ttft_p95_s" not in _printed(_store(tmp_path, requests=120))


def test_quarantine_stands_above_the_numbers(tmp_path: Path) -> None:
    """A runner that is not to be believed says so first."""
    page = _printed(_store(tmp_path, bias=0.05))

    assert page.index("QUARANTINED") < page.index("metric  ")
    assert "QUARANTINED" not in _printed(_store(tmp_path))


def test_command_prints_and_writes_the_same_rows(tmp_path: Path, capsys: Captured) -> None:
    """The numbers of the file are those of `power_table` for the asked pairs and loss."""
    study, target = _store(tmp_path), tmp_path / "power.json"
    words = ["power", "--baselines", str(tmp_path), "--pairs", "12", "--loss", "5%"]

    assert main([*words, "--json", str(target)]) == Exit.OK
    asked = gates_of(PROFILE.arms, PROFILE.workload.concurrencies, PROFILE.compare)
    rows = power_table(study, pairs=12, loss=0.05, gates=len(asked))
    document = json.loads(target.read_text())
    assert [row["power"] for row in document["gates"]] == [row.power for row in rows]
    assert document["environment"]["hardware"] == study.environment.hardware
    assert "12 pairs of stage one" in capsys.readouterr().out


def test_margins_of_the_command_line_count(tmp_path: Path, capsys: Captured) -> None:
    """A profile's gates may be narrowed after the study; only they are shown."""
    _store(tmp_path)
    gate = 'compare.gate=[{metric="ttft_p50_s", margin=0.02, limit=0.2}]'

    assert main(["power", "--baselines", str(tmp_path), "--set", gate]) == Exit.OK
    page = capsys.readouterr().out
    assert "20.0%" in page
    assert "output_tokens_per_s" not in page


def test_without_a_study_the_next_step_is_named(tmp_path: Path, capsys: Captured) -> None:
    """One line with the path that was looked at and the command that fills it."""
    assert main(["power", "--baselines", str(tmp_path)]) == Exit.NO_BASELINE
    line = capsys.readouterr().err
    assert str(noise_path(tmp_path, describe(""), PROFILE)) in line
    assert line.rstrip().endswith("draftgate calibrate --gate --profile cpu-smollm2")


@pytest.mark.parametrize("loss", ["5", "0", "five", "5%%", "120%", "-1%", "nan"])
def test_a_loss_that_is_no_share_is_refused(tmp_path: Path, capsys: Captured, loss: str) -> None:
    """The message has what was typed and an example."""
    _store(tmp_path)

    assert main(["power", "--baselines", str(tmp_path), f"--loss={loss}"]) == Exit.BAD_SPEC
    assert f"--loss got {loss!r}, expected a share" in capsys.readouterr().err
