"""A null engine in a process of its own, with its log once it has ended.

Knows how it is started, awaited and stopped; what it does is its script's
affair.
"""

import re
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

from draftgate.clock import SYSTEM_CLOCK
from draftgate.engines.process import ChildProcess
from draftgate.errors import EngineError
from draftgate.null_engine.sendlog import SentStream, read_log

_START_WITHIN_S = 30.0
"""Starting took 0.3 s on an idle machine; this is for a very busy one."""

_LOOK_S = 0.02
_ADDRESS = re.compile(r"^listening on (\S+)$", re.MULTILINE)


class NullEngineProcess:
    """A running null engine.

    Args:
        options: As for `draftgate null-engine`, without `--log`.
        folder: Where it may write; it must exist and hold no other engine's files.

    Attributes:
        url: Its base address.

    Raises:
        EngineError: If it cannot be started, or ends at once.
    """

    def __init__(self, options: Sequence[str], folder: Path) -> None:
        self._log_path = folder / "sent.log"
        argv = (sys.executable, "-m", "draftgate.null_engine", "--log", str(self._log_path))
        self._child = ChildProcess(
            "null engine", (*argv, *options), {}, folder / "null-engine.txt", SYSTEM_CLOCK
        )
        try:
            self.url = f"http://{self._await_address()}"
        except BaseException:
            self._child.stop()
            raise

    def _await_address(self) -> str:
        pause, deadline_ns = threading.Event(), SYSTEM_CLOCK.now_ns() + _START_WITHIN_S * 1e9
        while SYSTEM_CLOCK.now_ns() < deadline_ns:
            found = _ADDRESS.search(self._child.log_path.read_text(encoding="utf-8"))
            if found is not None:
                return found[1]
            self._child.raise_if_dead()
            pause.wait(_LOOK_S)
        raise EngineError(
            f"null engine: not listening after {_START_WITHIN_S:g} s. Is the machine too busy?\n"
            f"{self._child.log_tail()}"
        )

    def stop(self) -> None:
        """End it; its log is whole when this returns. Safe to call twice."""
        self._child.stop()

    def sent(self) -> tuple[SentStream, ...]:
        """Return what it sent; call this once it has been stopped.

        Raises:
            MeasurementError: If it left no whole log, as when it was killed.
        """
        return read_log(self._log_path)
