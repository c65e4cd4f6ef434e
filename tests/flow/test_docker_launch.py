"""Sessions whose servers run in containers: measured, killed, interrupted, and none left behind."""

import json
import re
import shutil
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from draftgate.engines.running import launch
from draftgate.errors import EngineError
from draftgate.specs import Arm, EngineSpec
from tests.support.docker_image import (
    borrowing,
    containers,
    docker,
    docker_profile,
    imported_image,
    require_docker,
)
from tests.support.flow import (
    NGRAM,
    NONE,
    Started,
    assert_clean,
    main_job,
    newest,
    orphans,
    pytest_argv,
)


@pytest.fixture(scope="module")
def image() -> Iterator[str]:
    """An image for the fake server; what a failed test leaves running goes with it."""
    require_docker()
    with imported_image() as tag:
        yield tag
        for name in containers(tag):
            docker("rm", "--force", name)


def fake_arm(image: str, script: dict[str, object], **changes: Any) -> Arm:
    """Return an arm whose fake server runs in a container of `image`, changed as told."""
    env = (("DRAFTGATE_FAKE_CONFIG", json.dumps(script)),)
    container = replace(borrowing(image), **changes)
    return Arm("none", EngineSpec("fake", "t", container, env=env, startup_timeout_s=20))


def nothing(_line: str) -> None:
    """Take a line of progress."""


def soon(holds: Callable[[], bool]) -> bool:
    """Return whether something holds within 10 s."""
    pause = threading.Event()
    return any(holds() or pause.wait(0.1) for _ in range(100))


def write_entry(path: Path, then: str) -> Path:
    """Write an entry point that tells what it was given and goes on with `then`."""
    path.write_text(f'#!/bin/sh\necho "given $@"\n{then}\n')
    path.chmod(0o755)
    return path


def test_containers_are_measured_and_removed(tmp_path: Path, image: str) -> None:
    """A session like any other: numbers of the server itself, a command to repeat, its log."""
    profile = docker_profile(tmp_path / "fake.toml", image, {"none": NONE, "ngram": NGRAM})

    ended = main_job(tmp_path, profile)

    run = newest(tmp_path)
    assert ended.code == 0, ended.output
    assert [sample.invalid for sample in run.samples] == [(), ()]
    assert [(sample.resources.rss_bytes or 0) > 10e6 for sample in run.samples] == [True, True]
    assert None not in [sample.resources.cpu_cores for sample in run.samples]
    image_id = docker("image", "inspect", "--format", "{{.Id}}", image)
    start = f"docker run --rm --init --pull never --label draftgate.image={image_id} "
    assert run.commands["none"].startswith(start)
    assert "--name" not in run.commands["none"]
    assert f"none: {run.commands['none']}" in ended.output
    assert "listening on 127.0.0.1:" in (run.path / "logs" / "none.log").read_text()
    assert containers(image) == []
    assert_clean(ended, tmp_path)


def test_printed_command_starts_the_same_server(tmp_path: Path, image: str) -> None:
    """What is printed can be run by hand, and no later session takes it for a leftover."""
    profile = docker_profile(tmp_path / "fake.toml", image, {"none": NONE})
    assert main_job(tmp_path, profile).code == 0
    by_hand = Started(["sh", "-c", f"exec {newest(tmp_path).commands['none']}"])
    by_hand.read_until("listening on")

    ended = main_job(tmp_path, profile)

    assert ended.code == 0, ended.output
    assert len(containers(image)) == 1
    by_hand.send(signal.SIGTERM)
    by_hand.end()
    assert containers(image) == []


def test_server_is_watched_as_this_machine_numbers_it(tmp_path: Path, image: str) -> None:
    """The process id is the container's, with the server below it, until it is stopped."""
    engine = launch(fake_arm(image, {}), tmp_path / "none.log", nothing)
    try:
        engine.wait_ready(nothing)
        assert engine.pid is not None
        assert engine.child is not None
        assert engine.pid != engine.child.pid
        below = psutil.Process(engine.pid).children(recursive=True)
        assert ["fake_server" in " ".join(process.cmdline()) for process in below] == [True]
    finally:
        engine.stop()
        engine.stop()

    assert containers(image) == []
    with pytest.raises(EngineError, match="none: the server process ended with exit code 0"):
        engine.check_alive()


def test_death_while_starting_shows_exit_code_and_log(tmp_path: Path, image: str) -> None:
    """A server that dies in its container: its own exit code and its last words."""
    engine = launch(fake_arm(image, {"colour": "red"}), tmp_path / "none.log", nothing)
    try:
        with pytest.raises(EngineError) as caught:
            engine.wait_ready(nothing)
    finally:
        engine.stop()

    assert "none: the server process ended with exit code 2." in str(caught.value)
    assert "unknown key 'colour'" in str(caught.value)
    assert containers(image) == []


def test_program_that_the_image_lacks_is_told(tmp_path: Path, image: str) -> None:
    """Docker's own refusal stands in the error; nothing is left of the container."""
    arm = fake_arm(image, {}, python="/no/such/python")
    engine = launch(arm, tmp_path / "none.log", nothing)
    try:
        with pytest.raises(EngineError, match=r"exit code 127\.\n(.|\n)*/no/such/python"):
            engine.wait_ready(nothing)
    finally:
        engine.stop()

    assert containers(image) == []


def test_stop_ends_a_server_that_will_not(tmp_path: Path, image: str) -> None:
    """What ignores SIGTERM is removed with its container once its grace is over."""
    entry = write_entry(tmp_path / "entry", "trap '' TERM\nwhile true; do sleep 0.1; done")
    volumes = (*borrowing(image).volumes, f"{entry}:/entry:ro")
    arm = fake_arm(image, {}, entrypoint="/entry", volumes=volumes)
    engine = launch(arm, tmp_path / "none.log", nothing)
    assert engine.child is not None
    engine.child._term_grace_s = 0.3
    assert soon(lambda: "given " in (tmp_path / "none.log").read_text())

    engine.stop()

    assert containers(image) == []


def test_container_killed_in_a_run_spoils_that_run(tmp_path: Path, image: str) -> None:
    """`docker kill` in the middle: INVALID_RUN with exit code and log, the other arm goes on."""
    profile = docker_profile(
        tmp_path / "fake.toml", image, {"none": NONE, "ngram": NGRAM}, repeats=2
    )
    started = Started(pytest_argv(tmp_path, profile, "--set", "workload.window_s=1"))
    output = started.read_until("run 1 of 2: measuring")
    victim = re.findall(r"(\w+) x1, run 1 of 2: measuring", output)[0]
    (name,) = [name for name in containers(image) if name.startswith(f"draftgate-{victim}-")]

    docker("kill", name)
    ended = started.end()

    assert ended.code == 1, ended.output
    told = rf"\nINVALID_RUN: {victim}: the server process ended with exit code 137 during the run\."
    assert re.search(rf"{told}\nLast lines of \S+/{victim}\.log:\n +listening on", ended.output)
    usable = [sample.arm for sample in newest(tmp_path).samples if not sample.invalid]
    assert usable == [({"none", "ngram"} - {victim}).pop()] * 2
    assert containers(image) == []
    assert_clean(ended, tmp_path)


def test_ctrl_c_leaves_no_container(tmp_path: Path, image: str) -> None:
    """SIGINT in the middle of a run ends the session with code 2 and its containers with it."""
    profile = docker_profile(
        tmp_path / "fake.toml", image, {"none": NONE, "ngram": NGRAM}, repeats=50
    )
    started = Started(pytest_argv(tmp_path, profile))
    started.read_until("run 1 of 50: measuring")
    assert len(containers(image)) == 2

    started.send(signal.SIGINT)
    ended = started.end()

    assert ended.code == 2, ended.output
    assert containers(image) == []
    assert_clean(ended, tmp_path)


def test_ctrl_c_while_starting_leaves_no_container(tmp_path: Path, image: str) -> None:
    """SIGINT before the server is ready, held up by an entry point of the profile's: the same."""
    profile = docker_profile(tmp_path / "fake.toml", image, {"none": NONE})
    entry = write_entry(tmp_path / "entry", "exec sleep 60")
    volumes = [*borrowing(image).volumes, f"{entry}:/entry:ro"]
    keys = ("--set", "engine.docker.entrypoint=/entry", "--set", f"engine.docker.volumes={volumes}")
    started = Started(pytest_argv(tmp_path, profile, *keys))
    started.read_until("docker run")
    log = next((tmp_path / "runs").glob("*/logs/none.log"))
    assert soon(lambda: "given " in log.read_text())

    started.send(signal.SIGINT)
    ended = started.end()

    assert ended.code == 2, ended.output
    assert f"given {sys.executable} -m draftgate.engines.fake_server" in log.read_text()
    assert containers(image) == []
    assert_clean(ended, tmp_path)


def test_killed_session_takes_its_container_along(tmp_path: Path, image: str) -> None:
    """SIGKILL to pytest: its `docker run` is told by the kernel and tells the container."""
    profile = docker_profile(tmp_path / "fake.toml", image, {"none": NONE}, repeats=50)
    started = Started(pytest_argv(tmp_path, profile))
    started.read_until("run 1 of 50: measuring")

    started.send(signal.SIGKILL)
    ended = started.end()

    assert ended.code == -signal.SIGKILL
    assert soon(lambda: containers(image) == [])
    assert_clean(ended, tmp_path)


def test_leftover_is_removed_at_the_next_start(tmp_path: Path, image: str) -> None:
    """A container that outlived pytest and `docker run` alike is removed, and that is said."""
    profile = docker_profile(tmp_path / "fake.toml", image, {"none": NONE}, repeats=50)
    started = Started(pytest_argv(tmp_path, profile))
    started.read_until("run 1 of 50: measuring")
    clients = [p for p in orphans(started.mark, grace_s=0) if p.name() == "docker"]
    for client in clients:
        client.kill()
    started.send(signal.SIGKILL)
    started.end()
    (left,) = containers(image)

    ended = main_job(tmp_path, profile, "--set", "workload.repeats=1")

    assert len(clients) == 1
    assert ended.code == 0, ended.output
    assert f"removed container {left}, left by a session that was killed" in ended.output
    assert containers(image) == []


def test_missing_image_is_one_error(tmp_path: Path, image: str) -> None:
    """An image that is not there fails one test with what to run; nothing is pulled."""
    profile = docker_profile(tmp_path / "fake.toml", image, {"none": NONE}, repeats=2)

    ended = main_job(tmp_path, profile, "--set", "engine.docker.image=draftgate-gone:1")

    assert ended.code == 1, ended.output
    assert "1 failed" in ended.output
    assert "none: this machine has no image 'draftgate-gone:1', and a start pulls none. Run: " in (
        ended.output
    )
    assert_clean(ended, tmp_path)


def test_machine_without_docker_is_told(tmp_path: Path) -> None:
    """Without the command docker a session fails once and says what is missing."""
    profile = docker_profile(tmp_path / "fake.toml", "any", {"none": NONE}, repeats=2)

    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "git").symlink_to(str(shutil.which("git")))

    ended = main_job(tmp_path, profile, PATH=str(tmp_path / "bin"))

    assert ended.code == 1, ended.output
    assert "1 failed" in ended.output
    assert 'none: engine.launch = "docker" needs the command docker, and PATH has none.' in (
        ended.output
    )
    assert_clean(ended, tmp_path)
