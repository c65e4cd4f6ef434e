"""Whole sessions on the fake engine, each in a process of its own, with what they left behind."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, SimpleQueue

import psutil

from draftgate.runstore import StoredRun, load_run

ROOT = Path(__file__).parents[2]
MARK = "DRAFTGATE_TEST_MARK"
TIMEOUT_S = 60.0
READ_S = 120.0

_ENVIRONMENT = {
    "COLUMNS": "200",
    "PYTHONDONTWRITEBYTECODE": "",  # each session would compile draftgate anew: a second
}

_PROFILE = """
schema = 1
name = "fake-flow"
description = "The scripted server."

[engine]
name = "fake"
startup_timeout_s = 20

[target]
model = "fake"

[workload]
dataset = "mixed"
concurrencies = [1]
repeats = {repeats}
window_s = 0.15
min_requests = 2
stagger_s = 0.0
stall_timeout_s = 5
run_timeout_s = 20

[workload.sampling]
max_tokens = 11
"""

GATES = """
[[gate]]
metric = "per_token_p50_s"
margin_ratio = 0.30
confidence = 0.9

[[gate]]
metric = "mean_acceptance_length"
margin_ratio = 0.10
confidence = 0.9
"""

NONE: dict[str, object] = {"step_s": 0.006, "ttft_s": 0.005}
NGRAM: dict[str, object] = {**NONE, "tokens_per_step": 2.5}


def arm(name: str, script: Mapping[str, object]) -> str:
    """Return the [[arm]] table of a fake server; all but `none` claim to be ngram."""
    method = "none" if name == "none" else "ngram"
    k = "" if method == "none" else "num_speculative_tokens = 3\n"
    env = f"env = {{DRAFTGATE_FAKE_CONFIG = '{json.dumps(dict(script))}'}}\n"
    return f'\n[[arm]]\nname = "{name}"\nmethod = "{method}"\n{k}{env}'


def write_profile(
    path: Path,
    arms: Mapping[str, Mapping[str, object]],
    *,
    repeats: int = 1,
    gates: str = "",
) -> Path:
    """Write a profile of fake servers to `path` and return it."""
    tables = "".join(arm(name, script) for name, script in arms.items())
    text = _PROFILE.format(repeats=repeats) + tables + gates
    path.write_text(text, encoding="utf-8")
    return path


@dataclass(frozen=True, slots=True)
class Ended:
    """A process that has ended.

    Attributes:
        code: Exit code.
        output: Both its streams.
        mark: Value of `MARK` in its environment and in its children's.
    """

    code: int
    output: str
    mark: str


def _inherited() -> dict[str, str]:
    """Return this environment without what makes pytest repeat whole messages in its summary."""
    return {name: value for name, value in os.environ.items() if name not in ("CI", "BUILD_NUMBER")}


class Started:
    """A process group of its own with a mark in its environment; output to one pipe.

    The pipe is read all the time: a process that says more than a pipe holds would stand still.
    """

    def __init__(self, argv: Sequence[str], *, cwd: Path = ROOT, **env: str) -> None:
        self.mark = uuid.uuid4().hex
        self._popen = subprocess.Popen(
            list(argv),
            cwd=cwd,
            env={**_inherited(), **_ENVIRONMENT, MARK: self.mark, **env},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self._lines: SimpleQueue[str] = SimpleQueue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        """Take all lines as they come, and an empty one at the end."""
        assert self._popen.stdout is not None
        with self._popen.stdout as output:
            for line in output:
                self._lines.put(line)
        self._lines.put("")

    def read_until(self, text: str) -> str:
        """Return the output, from where it was read last, up to the line that holds `text`."""
        lines: list[str] = []
        last = time.monotonic() + READ_S
        while not lines or text not in lines[-1]:
            try:
                line = self._lines.get(timeout=max(0.0, last - time.monotonic()))
            except Empty:
                line = ""
            assert line, f"ended, or {READ_S:.0f} s went by, without {text!r}:\n{''.join(lines)}"
            lines.append(line)
        return "".join(lines)

    def send(self, number: signal.Signals) -> None:
        """Send a signal to the process alone."""
        self._popen.send_signal(number)

    def end(self, timeout_s: float = TIMEOUT_S) -> Ended:
        """Wait for the end; the output is what was not read before."""
        code = self._popen.wait(timeout_s)
        self._reader.join(timeout_s)
        assert not self._reader.is_alive(), "something still holds the pipe open"
        lines = []
        while not self._lines.empty():
            lines.append(self._lines.get())
        return Ended(code, "".join(lines), self.mark)


def pytest_argv(folder: Path, profile: Path, *args: str) -> list[str]:
    """Return the command line of the main job with everything below `folder`."""
    argv = [sys.executable, "-m", "pytest", "tests/perf/test_main_job.py", "-p", "no:cacheprovider"]
    argv += ["--profile", str(profile), "--runs", str(folder / "runs")]
    return [*argv, "--baselines", str(folder / "baselines"), *args]


def main_job(folder: Path, profile: Path, *args: str, **env: str) -> Ended:
    """Run the main job to its end."""
    return Started(pytest_argv(folder, profile, *args), **env).end()


def draftgate(folder: Path, *args: str) -> Ended:
    """Run the `draftgate` command in `folder`."""
    return Started([sys.executable, "-m", "draftgate.cli", *args], cwd=folder).end()


def newest(folder: Path) -> StoredRun:
    """Return the latest run below `folder`."""
    return load_run(max((folder / "runs").glob("*/run.json"), key=_age).parent)


def _age(path: Path) -> int:
    return path.stat().st_mtime_ns


def orphans(mark: str, grace_s: float = 5.0) -> list[psutil.Process]:
    """Return the living processes that carry the mark, after some time to end."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get(MARK) == mark:
                found.append(process)
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue  # it ended meanwhile, or belongs to somebody else
    _, alive = psutil.wait_procs(found, timeout=grace_s)
    return alive


def assert_clean(ended: Ended, folder: Path) -> None:
    """Assert that nothing of a session is left that should not be: process, file, traceback."""
    assert [process.cmdline() for process in orphans(ended.mark)] == []
    assert [str(path) for path in folder.rglob("*.part")] == []
    assert "Traceback" not in ended.output, ended.output
    assert "INTERNALERROR" not in ended.output, ended.output
