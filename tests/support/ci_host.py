"""A runner's host made of a folder: the scripts of gpu-ci with stand-ins for what a host has.

`docker`, `gh`, `nvidia-smi` and draftgate itself are small programs that note how they were called
and answer from files. Everything else on PATH is this machine's own, by name, so that
nothing of it is taken for theirs.
"""

import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
SHA = "a" * 40
DIGEST = f"sha256:{'d' * 64}"
BASE = f"ghcr.io/we/engine@{DIGEST}"
TIMEOUT_S = 60.0

_TOOLS = """
awk base64 basename bash cat cmp cp cut date df dirname env find flock git grep head hostname id jq
mkdir mktemp mv ps python3 readlink realpath rm sed sha256sum sleep sort tail touch tr uniq wc
"""

_STAND_IN = f"""#!{sys.executable} -I
import json, os, pathlib, sys
home = pathlib.Path(os.environ["CI_HOST"])
name = pathlib.Path(sys.argv[0]).name
call = {{"argv": sys.argv[1:], "job": os.environ.get("DRAFTGATE_JOB", "")}}
if "-" in sys.argv[1:] or "--password-stdin" in sys.argv[1:]:
    call["stdin"] = sys.stdin.read()
with open(home / f"{{name}}.calls", "a") as log:
    log.write(json.dumps(call) + "\\n")
answers = json.loads((home / f"{{name}}.json").read_text())
line = " ".join(sys.argv[1:])
for start, answer in answers:
    if start in line:
        break
else:
    sys.exit(f"{{name}}: no answer to: {{line}}")
if "file" in answer:
    sys.stdout.buffer.write(pathlib.Path(answer["file"]).read_bytes())
sys.stdout.write(answer.get("out", ""))
sys.stderr.write(answer.get("err", ""))
sys.exit(answer.get("code", 0))
"""


@dataclass(frozen=True, slots=True)
class Ended:
    """A script that has ended."""

    code: int
    out: str
    err: str


class Host:
    """A folder that stands for a host.

    Args:
        folder: Where it is built.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.bin = folder / "bin"
        self.scripts = folder / "repo" / "gpu-ci" / "scripts"
        self.state = folder / "state"
        self.output = folder / "output"
        self.summary = folder / "summary"
        self.shm = folder / "shm"
        self.bin.mkdir()
        self.shm.mkdir()
        shutil.copytree(ROOT / "gpu-ci" / "scripts", self.scripts)
        for tool in _TOOLS.split():
            found = shutil.which(tool)
            assert found is not None, f"the scripts need {tool}"
            (self.bin / tool).symlink_to(found)
        self.env = {
            "PATH": str(self.bin),
            "HOME": str(folder),
            "CI_HOST": str(folder),
            "DRAFTGATE_CI_STATE": str(self.state),
            "DRAFTGATE_SHM": str(self.shm),
            "DRAFTGATE_GPU_WAIT_S": "0",
            "DRAFTGATE_MIN_DISK_GB": "0",
            "DRAFTGATE_TERM_GRACE_S": "5",
            "DRAFTGATE_LOCK_WAIT_S": "0",
            "DRAFTGATE_VENV": str(folder / "venv"),
            "GITHUB_OUTPUT": str(self.output),
            "GITHUB_STEP_SUMMARY": str(self.summary),
            "GITHUB_REPOSITORY": "we/engine",
            "GH_TOKEN": "t0ken",
        }

    def program(self, name: str, text: str, *, folder: Path | None = None) -> Path:
        """Write an executable file and return it."""
        path = (folder or self.bin) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        path.write_text(text)
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        return path

    def stand_in(self, name: str, *answers: tuple[str, dict[str, Any]]) -> None:
        """Put a program on PATH; each answer is given to a command line that holds its text."""
        (self.folder / f"{name}.json").write_text(json.dumps(answers))
        self.program(name, _STAND_IN)

    def replace_script(self, name: str) -> None:
        """Put a script that only notes its call in the place of one of ours."""
        text = f'#!/bin/bash\necho "$*" >>"$CI_HOST/{name}.calls"\n'
        self.program(name, text, folder=self.scripts)

    def calls(self, name: str) -> list[dict[str, Any]]:
        """Return how a stand-in was called, in order."""
        path = self.folder / f"{name}.calls"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    @contextmanager
    def start(self, script: str, *args: str, **env: str) -> Iterator[subprocess.Popen[str]]:
        """Start a script in a session of its own, all of which is ended afterwards."""
        process = subprocess.Popen(
            [str(self.scripts / script), *args],
            env={**self.env, **env},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        try:
            yield process
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate()

    def run(self, script: str, *args: str, **env: str) -> Ended:
        """Run a script to its end."""
        with self.start(script, *args, **env) as process:
            out, err = process.communicate(timeout=TIMEOUT_S)
        return Ended(process.returncode, out, err)

    def outputs(self) -> dict[str, str]:
        """Return what a script handed on to later jobs."""
        lines = self.output.read_text().splitlines() if self.output.exists() else []
        return dict(line.split("=", 1) for line in lines)


def soon(path: Path) -> bool:
    """Return whether a file appears within 10 s."""
    pause = threading.Event()
    return any(path.exists() or pause.wait(0.02) for _ in range(500))


def settings(host: Host, **changes: Any) -> None:
    """Write gate.json with two images, changed as told."""
    given = json.loads((ROOT / "gpu-ci" / "gate.json").read_text())
    given |= {"base_image": BASE, "candidate_image": "reg.local:5000/we/engine:pr-{sha}"}
    (host.folder / "repo" / "gpu-ci" / "gate.json").write_text(json.dumps(given | changes))


def ended_process() -> str:
    """Return an owner, as labels and marks spell one, that is gone."""
    process = subprocess.Popen(["sleep", "60"])
    stat_line = Path(f"/proc/{process.pid}/stat").read_text()
    process.kill()
    process.wait()
    return f"{process.pid}-{stat_line.rpartition(')')[2].split()[19]}"


def sleeper(**env: str) -> subprocess.Popen[bytes]:
    """Start a process that does nothing, with variables of its own."""
    return subprocess.Popen(["sleep", "60"], env={**os.environ, **env}, start_new_session=True)
