"""Containers, without Docker: the command line, and what is made of each answer of `docker`."""

import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from draftgate.engines import ENGINES
from draftgate.engines.adapter import Command
from draftgate.engines.docker import (
    OWNER_LABEL,
    PLACE_LABEL,
    Container,
    find_image,
    in_container,
    remove_leftovers,
)
from draftgate.errors import EngineError
from draftgate.specs import DockerLaunch, EngineSpec, SpeculativeConfig

Stub = Callable[[str], Path]


@pytest.fixture
def stub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stub:
    """A function that puts a shell script as the only `docker` on PATH; its calls go to a file."""
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    calls = tmp_path / "calls"
    calls.touch()

    def write(body: str) -> Path:
        script = tmp_path / "bin" / "docker"
        script.parent.mkdir(exist_ok=True)
        script.write_text(f'#!/bin/sh\necho "$*" >> {calls}\n{body}\n')
        script.chmod(0o755)
        return calls

    return write


def run_line(launch: DockerLaunch, *argv: str, **fields: tuple[object, ...]) -> str:
    """Return the shell line of a command in a container, without what every one begins with."""
    command = in_container(Command(argv, **fields), launch, 8123, "sha256:1d")  # type: ignore[arg-type]
    begin = "docker run --rm --init --pull never --label draftgate.image=sha256:1d "
    assert command.render().startswith(begin)
    return command.render().removeprefix(begin)


def test_command_runs_whatever_the_entry_point_of_the_image() -> None:
    """Program first, as the entry point; the image; the arguments."""
    assert run_line(DockerLaunch("i:1"), "python3", "-m", "x") == (
        "--network host --entrypoint python3 i:1 -m x"
    )


def test_own_entry_point_gets_the_whole_command() -> None:
    """With an entry point the program is its first argument."""
    assert run_line(DockerLaunch("i:1", entrypoint="/banner.sh"), "python3", "-m", "x") == (
        "--network host --entrypoint /banner.sh i:1 python3 -m x"
    )


def test_every_setting_is_rendered() -> None:
    """GPUs, memory, network with the port on loopback, variables, extra arguments."""
    launch = DockerLaunch(
        "i:1",
        gpus=("0", "1"),
        network="bridge",
        volumes=("/data:/data", "hub:/hub:ro"),
        ipc="private",
        shm_size="8g",
        args=("--ulimit", "memlock=-1"),
    )

    assert run_line(launch, "p", env=(("A", "1 2"),)) == (
        "--network bridge --publish 127.0.0.1:8123:8123 --gpus '\"device=0,1\"' --ipc private "
        "--shm-size 8g --mount type=bind,source=/data,target=/data "
        "--mount type=volume,source=hub,target=/hub,readonly --env 'A=1 2' "
        "--ulimit memlock=-1 --entrypoint p i:1"
    )


def test_all_gpus_are_one_word() -> None:
    """Docker's own word for every GPU."""
    assert "--gpus all " in run_line(DockerLaunch("i:1", gpus=("all",)), "p")


def test_folders_are_mounted_where_they_are() -> None:
    """Read-only at the same path, so that arguments hold inside; a volume of the profile wins."""
    launch = DockerLaunch("i:1", volumes=("/other:/models/b",))
    folders = ("/models/a,1", "/models/b")

    assert run_line(launch, "p", folders=folders) == (
        "--network host "
        '--mount \'type=bind,"source=/models/a,1","target=/models/a,1",readonly\' '
        "--mount type=bind,source=/other,target=/models/b --entrypoint p i:1"
    )


def test_vllm_in_a_container_names_its_folders(tmp_path: Path) -> None:
    """Target and draft are mounted; the interpreter is the image's; no variable of this machine."""
    target, draft = tmp_path / "target", tmp_path / "draft"
    target.mkdir()
    draft.mkdir()
    spec = EngineSpec(
        "vllm",
        str(target),
        DockerLaunch("i:1", network="bridge"),
        speculative=SpeculativeConfig("draft_model", 3, str(draft)),
    )
    command = ENGINES.get("vllm").command(spec, 8123, print)

    assert command.argv[:3] == ("python3", "-m", "vllm.entrypoints.openai.api_server")
    assert command.folders == (str(target), str(draft))
    assert "--host 0.0.0.0 --port 8123" in command.render()
    assert [name for name, _ in command.env] == [
        "DO_NOT_TRACK",
        "HF_HUB_OFFLINE",
        "VLLM_NO_USAGE_STATS",
    ]


@pytest.mark.parametrize(("network", "host"), [("host", "127.0.0.1"), ("mine", "0.0.0.0")])
def test_server_listens_on_loopback_unless_a_network_lies_between(network: str, host: str) -> None:
    """On the machine's own network nobody else reaches the server."""
    spec = EngineSpec("fake", "t", DockerLaunch("i:1", network=network))

    assert f"--host {host} --port 1" in ENGINES.get("fake").command(spec, 1, print).render()


def test_name_and_owner_come_on_top_of_the_shown_command() -> None:
    """What is started carries a name of its own and labels that find it again."""
    one, two = Container("ngram"), Container("ngram")
    argv = one.owned(("docker", "run", "--rm", "i:1"))

    assert one.name.startswith("draftgate-ngram-")
    assert one.name != two.name
    assert argv[:4] == ("docker", "run", "--name", one.name)
    assert argv[-2:] == ("--rm", "i:1")
    labels = [argv[i + 1].partition("=")[0] for i, part in enumerate(argv) if part == "--label"]
    assert labels == [PLACE_LABEL, OWNER_LABEL]


def test_machine_without_docker_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names the key, the command, and what else can be done."""
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(EngineError, match=r'^none: engine\.launch = "docker" needs the command'):
        find_image("none", "i:1")


def test_image_is_found_by_its_id(stub: Stub) -> None:
    """The id is what docker says it is."""
    stub("echo sha256:1d")

    assert find_image("none", "i:1") == "sha256:1d"


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("Error response from daemon: No such image: i:1", r"no image 'i:1'.*docker pull i:1"),
        ("Cannot connect to the Docker daemon.\nIs it up?", r"Cannot connect .*Is it up\?\. Is"),
    ],
    ids=["no-image", "no-daemon"],
)
def test_refusal_is_told_in_one_line(stub: Stub, said: str, told: str) -> None:
    """No such image, or no daemon: what it was and what to do."""
    stub(f"echo {shlex.quote(said)} >&2; exit 1")

    with pytest.raises(EngineError, match=told) as caught:
        find_image("none", "i:1")
    assert "\n" not in str(caught.value)


def owner(argv: tuple[str, ...]) -> str:
    """Return the owner's label in a `docker run`."""
    return next(part.partition("=")[2] for part in argv if part.startswith(OWNER_LABEL))


def test_only_containers_of_dead_sessions_are_removed(stub: Stub) -> None:
    """A living owner, and one whose number a newer process has, are told apart."""
    ours = owner(Container("a").owned(("docker", "run")))
    code = "from draftgate.engines.docker import *; print(*Container('a').owned(('docker', 'run')))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    dead = owner(tuple(done.stdout.split()))
    reused = f"{os.getpid()}-1"
    rows = f"live\\t{ours}\\nended\\t{dead}\\nreused\\t{reused}\\n"
    calls, said = stub(f'[ "$1" = ps ] && printf {shlex.quote(rows)} || true'), []

    remove_leftovers(said.append)

    place, *removed = calls.read_text().splitlines()
    assert f"--filter label={PLACE_LABEL}=" in place
    assert removed == ["rm --force ended", "rm --force reused"]
    assert [line.split()[2] for line in said] == ["ended,", "reused,"]


def test_daemon_that_stops_answering_is_told(stub: Stub) -> None:
    """Leftovers that cannot be listed are an error, never taken for none."""
    stub("echo gone away >&2; exit 1")

    with pytest.raises(EngineError, match=r"docker ps failed: gone away\."):
        remove_leftovers(print)


@pytest.mark.parametrize(
    "said",
    ["Error: No such container: x", "removal of container x is already in progress"],
)
def test_container_that_is_gone_is_removed(stub: Stub, said: str) -> None:
    """It may have ended by itself; the second call asks nobody."""
    calls = stub(f"echo {shlex.quote(said)} >&2; exit 1")
    container = Container("a")

    container.remove()
    container.remove()

    assert calls.read_text() == f"rm --force {container.name}\n"


def test_container_that_stays_is_named(stub: Stub) -> None:
    """A container that may still run is an error with the command that removes it."""
    stub("echo cannot kill it >&2; exit 1")
    container = Container("a")

    with pytest.raises(EngineError, match=rf"cannot kill it.*docker rm --force {container.name}"):
        container.remove()


@pytest.mark.parametrize(
    "answer",
    [f"echo {os.getpid()} 1d1d1d1d1d", "echo 0 1d1d1d1d1d", "echo 999999999 1d1d", "exit 1"],
    ids=["another-process", "not-running", "no-such-process", "no-container"],
)
def test_foreign_process_numbers_are_not_taken(stub: Stub, answer: str) -> None:
    """A number that is no process of the container on this machine is left alone."""
    stub(answer)
    container = Container("a")

    container.locate()

    assert container.pid is None
