"""Child processes: start, watch, stop, and never leave one behind.

The only module that starts processes. Each child leads a session of its own,
so that Ctrl-C reaches draftgate alone and a stop reaches every descendant; it
is told by the kernel when draftgate dies without stopping it.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from draftgate.clock import Clock
from draftgate.errors import EngineError

TERM_GRACE_S = 20.0
"""Time a server gets to end by itself; vLLM's CPU build was seen to need 1 to 3 s."""

_GUARD = Path(__file__).with_name("guard.py")


class ChildProcess:
    """A program with its log file.

    Args:
        name: What messages call it.
        argv: Program and arguments.
        env: Variables on top of this process's own.
        log_path: File that receives both output streams.
        clock: Used for the grace period only.

    Raises:
        EngineError: If it cannot be started.
    """

    def __init__(
        self, name: str, argv: Sequence[str], env: Mapping[str, str], log_path: Path, clock: Clock
    ) -> None:
        self.name = name
        self.log_path = log_path
        self._clock = clock
        log_path.parent.mkdir(parents=True, exist_ok=True)
        guarded = [sys.executable, "-I", str(_GUARD), str(os.getpid()), *argv]
        try:
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
                f"{name}: cannot start {argv[0]!r}: {error}. Check the interpreter and the disk."
            ) from error

    @property
    def pid(self) -> int:
        """Process id, and id of the process group."""
        return self._popen.pid

    def exit_code(self) -> int | None:
        """Return the exit code, negative for a signal; None while it runs."""
        return self._popen.poll()

    def log_tail(self, lines: int = 15) -> str:
        """Return the last lines of its log, indented."""
        if not self.log_path.exists():
            return "    (no log)"
        text = self.log_path.read_text(encoding="utf-8", errors="replace").splitlines()
        return "\n".join(f"    {line}" for line in text[-lines:]) or "    (the log is empty)"

    def raise_if_dead(self) -> None:
        """Do nothing while it runs.

        Raises:
            EngineError: If it has ended, with its exit code and last log lines.
        """
        code = self.exit_code()
        if code is not None:
            raise EngineError(
                f"{self.name}: the server process ended with exit code {code}. Last lines of "
                f"{self.log_path}:\n{self.log_tail()}"
            )

    def wait(self, seconds: float) -> int | None:
        """Wait for its end for up to `seconds` and return the exit code or None."""
        try:
            return self._popen.wait(timeout=seconds)
        except subprocess.TimeoutExpired:
            return None

    def stop(self) -> None:
        """End it and all its descendants; returns when the whole group is gone."""
        if self.exit_code() is None:
            self._popen.send_signal(signal.SIGTERM)
            self.wait(TERM_GRACE_S)
        deadline_ns = self._clock.now_ns() + int(TERM_GRACE_S * 1e9)
        while self._signal_group(signal.SIGKILL) and self._clock.now_ns() < deadline_ns:
            self.wait(0.05)
        self._popen.wait()

    def _signal_group(self, number: int) -> bool:
        """Send a signal to the group; return whether anyone was left to get it."""
        try:
            os.killpg(self.pid, number)
        except ProcessLookupError:
            return False
        return True
