"""A function run in a process of our own, with its value or its error brought back.

Children die with their parent, also when that is killed. Knows nothing of load.
"""

import contextlib
import ctypes
import os
import signal
import sys
from collections.abc import Callable
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnContext, SpawnProcess
from typing import Any, TypeVar

from draftgate.errors import DraftgateError, MeasurementError

T = TypeVar("T")

_PR_SET_PDEATHSIG = 1  # <linux/prctl.h>

_END_WITHIN_S = 5.0


class ChildTask:
    """A process of ours that returns one value or raises one error here."""

    def __init__(
        self, context: SpawnContext, target: Callable[..., object], args: tuple[Any, ...]
    ) -> None:
        self._end, theirs = context.Pipe(duplex=False)
        self._process: SpawnProcess = context.Process(
            target=_serve, args=(theirs, os.getpid(), target, args), daemon=True
        )
        # Blocked while it starts: a Ctrl-C then ends it in `_serve`, not amid its imports.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            self._process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        theirs.close()
        self._answer: object = None

    @property
    def is_running(self) -> bool:
        """Whether it has neither answered nor died."""
        if self._answer is None and (self._end.poll() or not self._process.is_alive()):
            self._answer = self._receive()
        return self._answer is None

    @property
    def has_failed(self) -> bool:
        """Whether it has raised an error or died."""
        return not self.is_running and isinstance(self._answer, BaseException)

    def result(self, kind: type[T]) -> T:
        """Wait for its answer and return it.

        Raises:
            DraftgateError: What the process raised.
            MeasurementError: If it died.
        """
        if self._answer is None:
            self._answer = self._receive()
        self._process.join()
        if isinstance(self._answer, BaseException):
            raise self._answer
        assert isinstance(self._answer, kind), "each target returns one kind"
        return self._answer

    def _receive(self) -> object:
        try:
            return self._end.recv()
        except EOFError:
            self._process.join()
        return MeasurementError(
            f"a load generator process died with exit code {self._process.exitcode}. Its records "
            "are incomplete; is there enough memory? Measure again."
        )

    def kill(self) -> None:
        """Interrupt it, and end it if that is not enough."""
        if self._process.is_alive():
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._process.pid or 0, signal.SIGINT)
            self._process.join(_END_WITHIN_S)
            self._process.kill()
        self._process.join()
        self._end.close()


def _serve(
    answer: Connection, parent: int, target: Callable[..., object], args: tuple[Any, ...]
) -> None:
    """Do one thing in a new process and send back its value or its error."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it died before the line above
        sys.exit(1)
    os.setpgid(0, 0)  # Ctrl-C in a terminal reaches the parent alone, which passes it on once
    try:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        value = target(*args)
    except DraftgateError as error:
        answer.send(error)
    except KeyboardInterrupt:
        sys.exit(130)
    else:
        answer.send(value)
