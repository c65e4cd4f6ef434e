"""The script that fills the model cache, run by `sh` with a stand-in for the hub's client."""

import os
import subprocess
from pathlib import Path

import pytest

from tests.support.manifests import ROOT


@pytest.fixture
def hub(tmp_path: Path) -> Path:
    """A folder with a client of the hub that writes down what it is asked for."""
    client = tmp_path / "hf"
    client.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/asked\n', encoding="utf-8")
    client.chmod(0o755)
    return tmp_path


def fetch(hub: Path, draft: str) -> subprocess.CompletedProcess[str]:
    """Run fetch.sh for a target from the hub and a draft."""
    return subprocess.run(
        ["sh", str(ROOT / "base" / "fetch.sh")],
        env={
            "PATH": f"{hub}:{os.environ['PATH']}",
            "MODEL": "maker/target",
            "MODEL_REVISION": "abc",
            "DRAFT_MODEL": draft,
            "DRAFT_REVISION": "def",
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def test_fetch_downloads_what_has_a_hub_id(hub: Path) -> None:
    """Both models come at their revision."""
    ended = fetch(hub, "maker/head")

    assert ended.returncode == 0, ended.stderr
    assert (hub / "asked").read_text(encoding="utf-8").splitlines() == [
        "download maker/target --revision abc",
        "download maker/head --revision def",
    ]


def test_fetch_demands_what_has_a_path(hub: Path) -> None:
    """A head on the volume is not downloaded; a missing one is an error that says what to do."""
    head = hub / "head"
    missing = fetch(hub, str(head))
    head.mkdir()
    (head / "config.json").touch()
    there = fetch(hub, str(head))

    assert missing.returncode == 1
    assert f"expected a model in {head}, got no config.json there" in missing.stderr
    assert there.returncode == 0, there.stderr
    assert "head" not in (hub / "asked").read_text(encoding="utf-8")
