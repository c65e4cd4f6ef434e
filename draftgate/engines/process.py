"""Child processes: start, watch, stop, and never leave one behind.

The only module that starts processes. Each child leads a session of its own,
so that Ctrl-C reaches draftgate alone and a stop reaches every descendant; it
is told by the kernel when draftgate dies without stopping it.
"""

import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from draftgate.clock import Clock
from draftgate.errors import EngineError

TERM_GRACE_S = 20.0
"""Time a server gets to end by itself; vLLM's CPU build was seen to need 1 to 3 s."""

_EXCEPTION = re.compile(r"\b[A-Z]\w*(Error|Exception): \S")

_GUARD = Path(__file__).with_name("guard.py")


@dataclass(frozen=True, slots=True)
class Ended:
    """A short program that has ended: its exit code and what it wrote."""

    code: int
    output: str
    errors: str


def run_tool(argv: Sequence[str], timeout_s: float) -> Ended:
    """Run a short program to its end, out of reach of Ctrl-C, and return what it said.

    Raises:
        EngineError: If it cannot be started, or takes longer than `timeout_s`.
    """
    try:
        done = subprocess.run(
            list(argv),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout_s,
            check=False,
            start_new_session=True,
        )
    except OSError as error:
        raise EngineError(f"cannot run {argv[0]!r}: {error}. Is it installed?") from error
    except subprocess.TimeoutExpired as error:
        raise EngineError(
            f"no answer to {' '.join(argv[:2])!r} within {timeout_s:g} s. Try it by hand."
        ) from error
    return Ended(done.returncode, done.stdout, done.stderr)


class ChildProcess:
    """A program with its log file.

    Args:
        name: What messages call it.
        argv: Program and arguments.
        env: Variables on top of this process's own.
        log_path: File that receives both output streams.
        clock: Used for the grace period only.
        term_grace_s: Time it gets to end by itself when stopped; what is left
            then is killed.

    Raises:
        EngineError: If it cannot be started.
    """

    def __init__(
        self,
        name: str,
        argv: Sequence[str],
        env: Mapping[str, str],
        log_path: Path,
        clock: Clock,
        *,
        term_grace_s: float = TERM_GRACE_S,
    ) -> None:
        self.name = name
        self.log_path = log_path
        self._clock = clock
        self._pause = threading.Event()
        self._term_grace_s = term_grace_s
        guarded = [sys.executable, "-I", str(_GUARD), str(os.getpid()), *argv]
        try:
            log_path.parent.mkdir(parents=True, exist_ok=True)
            with log_path.open("ab") as log:
                self._popen = subprocess.Popen(
                    guarded,
                    env={**os.environ, **env},
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
        except OSError as error:
            raise EngineError(
                f"{name}: cannot start {argv[0]!r}: {error}. Check the folder and the disk."
            ) from error

    @property
    def pid(self) -> int:
        """Process id, and id of the process group."""
        return self._popen.pid

    def exit_code(self) -> int | None:
        """Return the exit code, negative for a signal; None while it runs."""
        return self._popen.poll()

    def log_tail(self, lines: int = 15) -> str:
        """Return the last lines of its log, indented, after the first that names an exception.

        Where one process of a server fails, the others end with tracebacks of
        their own; what went wrong stands far above them.
        """
        if not self.log_path.exists():
            return "    (no log)"
        text = self.log_path.read_text(encoding="utf-8", errors="replace").splitlines()
        tail = text[-lines:]
        first = next((line for line in text[:-lines] if _EXCEPTION.search(line)), None)
        shown = tail if first is None else [first, "[...]", *tail]
        return "\n".join(f"    {line}" for line in shown) or "    (the log is empty)"

    def raise_if_dead(self) -> None:
        """Do nothing while it runs.

        Raises:
            EngineError: If it has ended, with its exit code and last log lines.
        """
        code = self.exit_code()
        if code is not None:
            raise EngineError(
                f"{self.name}: the server process ended with exit code {code}.\n"
                f"Last lines of {self.log_path}:\n{self.log_tail()}"
            )

    def wait(self, seconds: float) -> int | None:
        """Wait for its end for up to `seconds` and return the exit code or None."""
        try:
            return self._popen.wait(timeout=seconds)
        except subprocess.TimeoutExpired:
            return None

    def stop(self) -> None:
        """End it and all its descendants; returns when all are gone. Safe to call twice.

        It is asked to end (SIGTERM) and given its grace; whatever is left of
        its group or of the descendants it had is killed.

        Raises:
            EngineError: If one cannot be killed; the message names it.
        """
        family = self._family()
        if self.exit_code() is None:
            self._popen.send_signal(signal.SIGTERM)
            self.wait(self._term_grace_s)
        deadline_ns = self._clock.now_ns() + int(self._term_grace_s * 1e9)
        while left := {p for p in family | self._family() if _lives(p)}:
            if self._clock.now_ns() > deadline_ns:
                pids = ", ".join(str(process.pid) for process in left)
                raise EngineError(f"{self.name}: process {pids} cannot be killed; end it by hand.")
            for process in left:
                _kill(process)
            self._pause.wait(0.02)
        self._popen.wait()

    def _family(self) -> set[psutil.Process]:
        """Return the members of its group and its descendants, which may have left the group."""
        group = {process for process in psutil.process_iter() if _group(process) == self.pid}
        try:
            return group | set(psutil.Process(self.pid).children(recursive=True))
        except psutil.NoSuchProcess:
            return group


def _group(process: psutil.Process) -> int | None:
    try:
        return os.getpgid(process.pid)
    except ProcessLookupError:
        return None  # it ended between listing and asking


def _lives(process: psutil.Process) -> bool:
    """Return whether it still runs; a zombie has ended and only waits to be read."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _kill(process: psutil.Process) -> None:
    with contextlib.suppress(psutil.NoSuchProcess):  # it ended by itself meanwhile
        process.kill()
