"""gpu-run and bundle: what they call, where from, and what they say when something is missing."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from draftgate.bundle import unpack
from draftgate.bundle.pack import PackRequest, pack
from draftgate.bundle.recipe import Recipe
from draftgate.bundle.resolve import Runner
from tests.support.fake_uv import write_fake_uv
from tests.support.flow import NGRAM, NONE, ROOT, write_profile

GPU_RUN = ROOT / "gpu-ci" / "scripts" / "gpu-run"
BUNDLE = ROOT / "gpu-ci" / "scripts" / "bundle"


def run(*argv: str | Path, **env: str) -> subprocess.CompletedProcess[str]:
    """Run a script to its end, from a folder that is not the checkout."""
    return subprocess.run(
        [str(word) for word in argv],
        env={**os.environ, **env},
        cwd="/",
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.fixture
def venv(tmp_path: Path) -> Path:
    """A venv whose command `draftgate` prints what it is given."""
    program = tmp_path / "venv" / "bin" / "draftgate"
    program.parent.mkdir(parents=True)
    program.write_text('#!/bin/sh\necho "called: $*"\n')
    program.chmod(0o755)
    return tmp_path / "venv"


@pytest.mark.parametrize(
    ("script", "command"), [(GPU_RUN, "sweep"), (BUNDLE, "bundle pack")], ids=["gpu-run", "bundle"]
)
def test_scripts_call_the_command_of_the_venv(venv: Path, script: Path, command: str) -> None:
    """Arguments go through as they are."""
    ended = run(script, "x y", "--out", "z", DRAFTGATE_VENV=str(venv))

    assert (ended.returncode, ended.stdout) == (0, f"called: {command} x y --out z\n")


def test_a_folder_that_is_no_bundle_is_told(tmp_path: Path) -> None:
    """gpu-run names the folder and how to make one."""
    ended = run(GPU_RUN, "--bundle", tmp_path, "list.toml")

    assert ended.returncode == 1
    assert f"--bundle {tmp_path}: there is no file activate in it" in ended.stderr
    assert f"python3 PARTS/unpack.py {tmp_path}" in ended.stderr


def test_a_sweep_runs_from_a_bundle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Packed with a fake uv, unpacked and started by gpu-run, a sweep measures scripted servers."""
    write_fake_uv(tmp_path / "path", pins=[], files={"held/__init__.py": ""})
    monkeypatch.setenv("PATH", f"{tmp_path / 'path'}{os.pathsep}{os.environ['PATH']}")
    here = f"{sys.version_info[0]}.{sys.version_info[1]}"
    recipe = Recipe("acme-1", "Imaginary.", ("acme",), env=(("ACME", "1"),))
    pack(PackRequest(recipe, runner=Runner(here)), tmp_path / "parts")
    unpack([tmp_path / "parts"], tmp_path / "engine")
    profile = write_profile(tmp_path / "p.toml", {"none": NONE, "ngram": NGRAM})
    path = tmp_path / "list.toml"
    path.write_text(
        f'schema = 1\nname = "l"\nprofile = "{profile}"\n[[run]]\narm = "none"\n'
        '[[run]]\narm = "ngram"\n'
    )
    out = tmp_path / "out"
    ended = run(GPU_RUN, "--bundle", tmp_path / "engine", path, "--out", out)

    assert ended.returncode == 0, ended.stderr
    assert "Everything that was planned was run." in ended.stdout
    assert (
        shlex.quote(str(tmp_path / "engine" / "site"))
        in (tmp_path / "engine" / "activate").read_text()
    )
