"""Containers: an engine's command inside `docker run`, and no container left behind.

`docker run` stays in the foreground as the child process, so that log, exit
code and the guard of `process` are those of any server: the command passes
SIGTERM on to the container. What outlives even that is found by its labels at
the next start. Docker is asked by its own command; nothing here needs a
package, or Docker before a profile asks for it. Knows no engine.
"""

import os
import shutil
import uuid
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from draftgate.engines.adapter import Command
from draftgate.engines.process import run_tool
from draftgate.errors import EngineError
from draftgate.specs import DockerLaunch

ANSWER_S = 60.0
"""Patience with one question to the daemon; it answers in 0.03 s, and was seen to need
seconds to remove a container from a busy disk."""

IMAGE_LABEL = "draftgate.image"
PLACE_LABEL = "draftgate.place"
OWNER_LABEL = "draftgate.owner"

_PROC = Path("/proc")


class Container:
    """One container by name, from before it is started until it is gone.

    Args:
        arm: Name of the arm, part of the container's name.

    Attributes:
        name: Its name.
        pid: Its main process as this machine numbers it, once `locate` found it.
    """

    def __init__(self, arm: str) -> None:
        self.name = f"draftgate-{arm}-{uuid.uuid4().hex[:8]}"
        self.pid: int | None = None
        self._removed = False

    def owned(self, argv: Sequence[str]) -> tuple[str, ...]:
        """Return a `docker run` with the name and labels by which it is found again.

        They stay out of the command that is shown and stored: a person who
        repeats that one gets a container that no session takes for its own.
        """
        labels = (f"{PLACE_LABEL}={_place()}", f"{OWNER_LABEL}={_owner()}")
        ours = ("--name", self.name, *(part for label in labels for part in ("--label", label)))
        return (*argv[:2], *ours, *argv[2:])

    def locate(self) -> None:
        """Find its main process.

        There is none while it does not run, and where the daemon counts
        processes by itself: on another machine, in another namespace. A number
        is ours if the kernel files that process under the container's id.

        Raises:
            EngineError: If Docker does not answer.
        """
        form = "{{.State.Pid}} {{.Id}}"
        asked = run_tool(("docker", "inspect", "--format", form, self.name), ANSWER_S)
        pid, _, full_id = asked.output.strip().partition(" ")
        ours = asked.code == 0 and full_id and full_id in _read(_PROC / pid / "cgroup")
        self.pid = int(pid) if ours else None

    def remove(self) -> None:
        """End and remove it if it is still there. Safe to call twice.

        Raises:
            EngineError: If it cannot be removed; the message names it.
        """
        if not self._removed:
            _remove(self.name)
            self._removed = True


def find_image(arm: str, image: str) -> str:
    """Return the id of an image.

    Args:
        arm: What messages begin with.
        image: Name, tag, digest or id.

    Raises:
        EngineError: If there is no Docker here, its daemon does not answer, or
            it has no such image; each says what to do.
    """
    if shutil.which("docker") is None:
        raise EngineError(
            f'{arm}: engine.launch = "docker" needs the command docker, and PATH has none. '
            'Install Docker, or set launch = "process" or "url".'
        )
    asked = run_tool(("docker", "image", "inspect", "--format", "{{.Id}}", image), ANSWER_S)
    if asked.code == 0:
        return asked.output.strip()
    if "no such image" in asked.errors.lower():
        raise EngineError(
            f"{arm}: this machine has no image {image!r}, and a start pulls none. Run: "
            f"docker pull {image}"
        )
    raise EngineError(
        f"{arm}: docker did not answer: {' '.join(asked.errors.split())}. Is its daemon running, "
        "and may this user ask it?"
    )


def in_container(command: Command, launch: DockerLaunch, port: int, image_id: str) -> Command:
    """Return the `docker run` that runs `command` in an image.

    Args:
        command: What runs inside; its variables become the container's, and
            its folders are mounted read-only at their own paths.
        launch: The container.
        port: Where the server listens, inside and on this machine's loopback.
        image_id: Noted as a label, because a tag may move.
    """
    argv = ["docker", "run", "--rm", "--init", "--pull", "never"]
    argv += ["--label", f"{IMAGE_LABEL}={image_id}", "--network", launch.network]
    if launch.network != "host":
        argv += ["--publish", f"127.0.0.1:{port}:{port}"]
    argv += _hardware(launch)
    for mount in _mounts(command, launch):
        argv += ["--mount", mount]
    for name, value in command.env:
        argv += ["--env", f"{name}={value}"]
    entry, inner = command.argv[0], command.argv[1:]
    if launch.entrypoint is not None:
        entry, inner = launch.entrypoint, command.argv
    argv += [*launch.args, "--entrypoint", entry, launch.image, *inner]
    return replace(command, argv=tuple(argv), env=(), folders=())


def remove_leftovers(progress: Callable[[str], None]) -> None:
    """Remove containers of sessions that are gone, of this user on this machine alone.

    A session that was killed together with its `docker run` leaves one. Those
    of living sessions, other users, other machines and other namespaces stay.

    Raises:
        EngineError: If Docker does not answer, or one cannot be removed.
    """
    form = f'{{{{.Names}}}}\t{{{{.Label "{OWNER_LABEL}"}}}}'
    mine = f"label={PLACE_LABEL}={_place()}"
    listed = run_tool(("docker", "ps", "--all", "--filter", mine, "--format", form), ANSWER_S)
    if listed.code != 0:
        raise EngineError(f"docker ps failed: {' '.join(listed.errors.split())}.")
    for line in listed.output.splitlines():
        name, _, owner = line.partition("\t")
        if not _lives(owner):
            _remove(name)
            progress(f"removed container {name}, left by a session that was killed")


def _hardware(launch: DockerLaunch) -> list[str]:
    argv: list[str] = []
    if launch.gpus:
        every = launch.gpus == ("all",)
        # Docker reads the value as a line of CSV, so a list needs quotes of its own.
        argv += ["--gpus", "all" if every else f'"device={",".join(launch.gpus)}"']
    if launch.ipc is not None:
        argv += ["--ipc", launch.ipc]
    if launch.shm_size is not None:
        argv += ["--shm-size", launch.shm_size]
    return argv


def _mounts(command: Command, launch: DockerLaunch) -> list[str]:
    given = [volume.split(":") for volume in launch.volumes]
    taken = {target for _, target, *_ in given}
    own = [_mount(folder, folder, "ro") for folder in command.folders if folder not in taken]
    return own + [_mount(*parts) for parts in given]


def _mount(source: str, target: str, mode: str = "rw") -> str:
    """Return the value of --mount, which unlike --volume makes no folder where there is none."""
    kind = "bind" if source.startswith("/") else "volume"
    fields = [f"type={kind}", f"source={source}", f"target={target}"]
    fields += ["readonly"] if mode == "ro" else []
    return ",".join(_csv(field) for field in fields)


def _csv(field: str) -> str:
    quoted = field.replace('"', '""')
    return f'"{quoted}"' if "," in field or '"' in field else field


def _remove(name: str) -> None:
    """Remove a container in any state; one that is gone, or just going, is no error."""
    asked = run_tool(("docker", "rm", "--force", name), ANSWER_S)
    gone = ("no such container", "already in progress")
    if asked.code != 0 and not any(words in asked.errors.lower() for words in gone):
        raise EngineError(
            f"container {name} could not be removed: {' '.join(asked.errors.split())}. It may "
            f"still run; remove it by hand: docker rm --force {name}"
        )


def _place() -> str:
    """Return where a process number means one process: this boot, namespace and user."""
    boot = _read(_PROC / "sys" / "kernel" / "random" / "boot_id").strip()
    namespace = (_PROC / "self" / "ns" / "pid").readlink().name.strip("pid:[]")
    return f"{boot}-{namespace}-{os.getuid()}"


def _owner() -> str:
    """Return this process as a label; numbers are used again, so with its time of birth."""
    return f"{os.getpid()}-{_born(str(os.getpid()))}"


def _lives(owner: str) -> bool:
    pid, _, born = owner.partition("-")
    return pid.isdecimal() and _born(pid) == born


def _born(pid: str) -> str:
    """Return a process's start in clock ticks since boot; empty if it has ended (proc(5))."""
    fields = _read(_PROC / pid / "stat").rpartition(")")[2].split()
    return fields[19] if fields and fields[0] not in ("Z", "X") else ""


def _read(path: Path) -> str:
    """Return a file of /proc, empty if its process has ended."""
    try:
        return path.read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""
