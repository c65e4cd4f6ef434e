"""clean-host ends what draftgate left, and nothing else, and refuses a host that is not free."""

import mmap
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from draftgate.engines import docker
from tests.support.ci_host import Host, ended_process, sleeper, soon

FREE = ("--query-gpu", {"out": "0, 80000, 81000\n1, 80500, 81000\n"})
CROWDED = ("--query-gpu", {"out": "0, 80000, 81000\n1, 20000, 81000\n"})
USERS = ("--query-compute-apps", {"out": f"{os.getpid()}, 60000 MiB\n"})


@pytest.fixture
def host(tmp_path: Path) -> Host:
    """A host without Docker and with two free GPUs."""
    made = Host(tmp_path)
    made.stand_in("nvidia-smi", FREE, USERS)
    return made


def listed(host: Host, *rows: tuple[str, str]) -> None:
    """Let docker list containers by name and owner."""
    out = "".join(f"{name}\t{owner}\n" for name, owner in rows)
    host.stand_in("docker", ("ps --all", {"out": out}), ("rm", {}), ("info", {"code": 1}))


def removed(host: Host) -> list[str]:
    """Return the containers that were removed."""
    return [call["argv"][-1] for call in host.calls("docker") if call["argv"][0] == "rm"]


def test_containers_of_dead_sessions_are_removed(host: Host) -> None:
    """By draftgate's own labels of place and owner; a living session keeps its own."""
    listed(host, ("draftgate-a", ended_process()), ("draftgate-b", docker._owner()))

    ended = host.run("clean-host", "--before")

    assert ended.code == 0, ended.err
    asked = next(call["argv"] for call in host.calls("docker") if call["argv"][0] == "ps")
    assert f"label={docker.PLACE_LABEL}={docker._place()}" in asked
    assert docker.OWNER_LABEL in asked[-1]
    assert removed(host) == ["draftgate-a"]


def test_dry_run_only_tells(host: Host) -> None:
    """Containers, processes and shared memory are named and left alone."""
    owner = ended_process()
    listed(host, ("draftgate-a", owner))
    host.state.mkdir()
    (host.state / f"shm-{owner}").touch()
    (host.shm / "psm_new").touch()
    process = sleeper(DRAFTGATE_JOB=f"{docker._place()}/{owner}")

    ended = host.run("clean-host", "--before", "--dry-run")

    assert process.poll() is None
    process.kill()
    process.wait()
    assert ended.code == 0
    for told in ("container draftgate-a", f"end process {process.pid}", "shared memory psm_new"):
        assert told in ended.out
    assert removed(host) == []
    assert (host.shm / "psm_new").exists()


@pytest.fixture
def bystanders() -> Iterator[list[subprocess.Popen[bytes]]]:
    """Processes that are nobody's leftovers: unmarked, of a living job, of another machine."""
    gone, place = ended_process(), docker._place()
    started = [
        sleeper(),
        sleeper(DRAFTGATE_JOB=f"{place}/{docker._owner()}"),
        sleeper(DRAFTGATE_JOB=f"another-boot-1-0/{gone}"),
        sleeper(DRAFTGATE_JOBS=f"{place}/{gone}"),
    ]
    yield started
    for process in started:
        process.kill()
        process.wait()


def test_processes_of_dead_jobs_are_ended(
    host: Host, bystanders: list[subprocess.Popen[bytes]]
) -> None:
    """A process with the mark of a job that is gone is ended, and no other one."""
    left = sleeper(DRAFTGATE_JOB=f"{docker._place()}/{ended_process()}")

    ended = host.run("clean-host", "--after")

    assert ended.code == 0, ended.err
    assert left.wait(timeout=5) == -signal.SIGTERM
    assert [process.poll() for process in bystanders] == [None] * 4


def test_stubborn_process_is_killed(host: Host) -> None:
    """One that ignores SIGTERM is killed after its grace."""
    mark = {"DRAFTGATE_JOB": f"{docker._place()}/{ended_process()}"}
    ready = host.folder / "ready"
    left = subprocess.Popen(
        ["bash", "-c", f"trap '' TERM; touch {ready}; while :; do sleep 0.1; done"],
        env={**os.environ, **mark},
    )
    assert soon(ready)

    ended = host.run("clean-host", "--after", DRAFTGATE_TERM_GRACE_S="0")

    assert ended.code == 0, ended.err
    assert left.wait(timeout=5) == -signal.SIGKILL


def test_shared_memory_of_a_dead_job_is_removed(host: Host) -> None:
    """Gone is what appeared during it, has a name of ours and is mapped by nobody."""
    host.state.mkdir()
    (host.state / f"shm-{ended_process()}").write_text("psm_before\n")
    for name in ("psm_before", "psm_new", "torch_1_2", "someone.else"):
        (host.shm / name).touch()
    used = host.shm / "psm_used"
    used.write_bytes(b"0" * mmap.PAGESIZE)
    with used.open("r+b") as file, mmap.mmap(file.fileno(), 0):
        ended = host.run("clean-host", "--after")

    assert ended.code == 0, ended.err
    assert {path.name for path in host.shm.iterdir()} == {"psm_before", "psm_used", "someone.else"}
    assert list(host.state.iterdir()) == []


def test_shared_memory_stays_while_another_job_lives(host: Host) -> None:
    """What is new may be the living job's own."""
    host.state.mkdir()
    (host.state / f"shm-{ended_process()}").touch()
    (host.state / f"shm-{docker._owner()}").touch()
    (host.shm / "psm_new").touch()

    ended = host.run("clean-host", "--before")

    assert ended.code == 0, ended.err
    assert (host.shm / "psm_new").exists()


def test_crowded_gpu_is_refused(host: Host) -> None:
    """With the GPU, the numbers and who holds the memory; no setting is touched."""
    host.stand_in("nvidia-smi", CROWDED, USERS)

    ended = host.run("clean-host", "--before")

    assert ended.code == 75
    assert "GPU 1: 20000 of 81000 MiB are free (25 %), 90 % are needed" in ended.out
    assert f"Process {os.getpid()} (" in ended.out
    assert ") holds 60000 MiB" in ended.out
    assert "GPU 0" not in ended.out
    flags = {arg for call in host.calls("nvidia-smi") for arg in call["argv"]}
    assert all(flag.startswith(("--query-", "--format=")) for flag in flags)


@pytest.mark.parametrize(
    ("settings", "mode"),
    [
        ({"DRAFTGATE_MIN_FREE_GPU": "0.2"}, "--before"),
        ({"DRAFTGATE_GPU": "none"}, "--before"),
        ({}, "--after"),
    ],
)
def test_crowded_gpu_is_let_pass(host: Host, settings: dict[str, str], mode: str) -> None:
    """Where less must be free, where no GPU is asked for, and after a job."""
    host.stand_in("nvidia-smi", CROWDED, USERS)

    ended = host.run("clean-host", mode, **settings)

    assert ended.code == 0, ended.out


def test_chosen_gpus_alone_are_looked_at(host: Host) -> None:
    """DRAFTGATE_GPUS goes to nvidia-smi as it is."""
    host.run("clean-host", "--before", DRAFTGATE_GPUS="0")

    assert "--id=0" in host.calls("nvidia-smi")[0]["argv"]


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ({"out": "0, [N/A], 81000\n"}, "memory is not told"),
        ({"out": ""}, "lists no GPU"),
        ({"code": 9, "err": "driver is not loaded"}, "driver is not loaded"),
    ],
)
def test_gpu_that_cannot_be_read_is_no_free_gpu(
    host: Host, answer: dict[str, Any], message: str
) -> None:
    """What is not known stops the job and says why."""
    host.stand_in("nvidia-smi", ("--query-gpu", answer), USERS)

    ended = host.run("clean-host", "--before")

    assert ended.code != 0
    assert message in ended.out + ended.err


def test_missing_nvidia_smi_names_the_way_out(host: Host) -> None:
    """A host without GPUs has to say so."""
    (host.bin / "nvidia-smi").unlink()

    ended = host.run("clean-host", "--before")

    assert ended.code == 1
    assert "DRAFTGATE_GPU=none" in ended.err


def test_refusal_is_shown_on_the_page_of_the_run(host: Host) -> None:
    """As GitHub's command, with its escapes."""
    host.stand_in("nvidia-smi", CROWDED, USERS)

    ended = host.run("clean-host", "--before", GITHUB_ACTIONS="true")

    assert ended.out.startswith("::error::")
    assert "(25 %25)" in ended.out


def test_full_disk_is_refused(host: Host) -> None:
    """With the place and what is free there."""
    ended = host.run("clean-host", "--before", DRAFTGATE_MIN_DISK_GB="999999999")

    assert ended.code == 75
    assert f"are free at {host.folder / 'repo'}" in ended.out
