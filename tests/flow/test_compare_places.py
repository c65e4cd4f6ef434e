"""`draftgate compare` between places that a build can come from: images, venvs, git refs, URLs."""

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from draftgate.compare.run import load_comparison
from draftgate.compare.store import newest
from draftgate.engines.fake_server import FakeConfig
from tests.support.docker_image import (
    containers,
    docker,
    docker_profile,
    imported_image,
    require_docker,
)
from tests.support.fake import fake_server
from tests.support.flow import NGRAM, NONE, Ended, assert_clean, draftgate, write_profile

COMPARE = """
[compare]
looks = [4]
confirm_pairs = 6

[[compare.gate]]
metric = "tokens_per_step_by_prompt"
margin = 0.02
limit = 0.1
"""
"""Tokens per step of the scripted server do not depend on how busy this machine is."""


def compared(folder: Path, ended: Ended) -> tuple[str, ...]:
    """Return the engines' start commands of the newest comparison after checking that it passed."""
    assert ended.code == 0, ended.output
    assert_clean(ended, folder)
    found = newest(folder / "runs")
    assert found is not None
    stored = load_comparison(found)
    assert len(stored.pairs) == 4
    return tuple(line for line in ended.output.splitlines() if line.startswith(("base-", "candid")))


@pytest.fixture
def profile(tmp_path: Path) -> Path:
    """A profile of one scripted server that drafts."""
    return write_profile(tmp_path / "fake.toml", {"ngram": NGRAM}, gates=COMPARE)


@pytest.fixture(scope="module")
def images() -> Iterator[tuple[str, str]]:
    """Two tags of an image for the scripted server."""
    require_docker()
    with imported_image() as tag:
        other = f"{tag}-next"
        docker("tag", tag, other)
        yield tag, other
        for name in containers(tag):
            docker("rm", "--force", name)
        docker("rmi", other)


def test_images_are_compared_in_containers(tmp_path: Path, images: tuple[str, str]) -> None:
    """Each side runs in containers of its own image, and none is left."""
    path = docker_profile(tmp_path / "fake.toml", images[0], {"ngram": NGRAM})
    path.write_text(path.read_text() + COMPARE)

    done = draftgate(
        tmp_path,
        *("compare", f"image:{images[0]}", f"image:{images[1]}", "--profile", str(path)),
    )

    commands = compared(tmp_path, done)
    assert all("docker run" in line for line in commands if "fake_server" in line)
    assert containers(images[0]) == []


def test_venv_is_a_side(tmp_path: Path, profile: Path) -> None:
    """The interpreter of a venv runs its side's servers."""
    venv = tmp_path / "venv"
    (venv / "bin").mkdir(parents=True)
    (venv / "bin" / "python").symlink_to(sys.executable)
    (venv / "lib").symlink_to(Path(sys.prefix) / "lib")
    shutil.copy(Path(sys.prefix) / "pyvenv.cfg", venv)

    done = draftgate(tmp_path, "compare", "profile", str(venv), "--profile", str(profile))

    commands = compared(tmp_path, done)
    started = [line for line in commands if line.startswith("candidate-") and "--config" in line]
    assert started
    assert all(str(venv / "bin" / "python") in line for line in started)


def test_recipe_of_a_git_ref_is_a_side(tmp_path: Path, profile: Path) -> None:
    """The profile as it was committed is compared with the one in the working tree."""
    for words in (
        ("init", "-q"),
        ("add", profile.name),
        ("-c", "user.name=t", "-c", "user.email=t@example.org", "commit", "-qm", "first"),
    ):
        subprocess.run(["git", *words], cwd=tmp_path, check=True)
    profile.write_text(profile.read_text().replace("The scripted server.", "Changed since."))

    done = draftgate(tmp_path, "compare", "git:HEAD", "profile", "--profile", str(profile))

    compared(tmp_path, done)


def test_live_servers_are_compared_and_left_alone(tmp_path: Path, profile: Path) -> None:
    """Two URLs are loaded in turn; the report says that nothing was restarted."""
    config = FakeConfig(step_s=0.003, tokens_per_step=2.5, method="ngram", k=3)
    with fake_server(config) as one, fake_server(config) as other:
        done = draftgate(
            tmp_path,
            *("compare", one.url, other.url, "--profile", str(profile), "--arm", "ngram"),
        )

        compared(tmp_path, done)
        assert "was not restarted" in done.output


def test_live_servers_of_one_arm_of_several(tmp_path: Path) -> None:
    """An address without a name serves the arm of `--arm`, whatever other arms the profile has."""
    profile = write_profile(tmp_path / "fake.toml", {"none": NONE, "ngram": NGRAM}, gates=COMPARE)
    config = FakeConfig(step_s=0.003, tokens_per_step=2.5, method="ngram", k=3)
    with fake_server(config) as one, fake_server(config) as other:
        done = draftgate(
            tmp_path,
            *("compare", one.url, other.url, "--profile", str(profile), "--arm", "ngram"),
        )

    compared(tmp_path, done)
