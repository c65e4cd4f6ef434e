"""CPU time of a process and all its descendants, sampled while they run.

Other tools do not say what they use while requests are open, and the whole
command also holds imports, data sets and reports. So the tree's CPU time is
noted on the way, together with the clock that the null engine's log uses.
"""

import os
from pathlib import Path

import numpy as np
import psutil

from draftgate.clock import SYSTEM_CLOCK

SAMPLE_S = 0.02
_LOOK_EVERY = 25
"""Samples between two looks for new processes, half a second."""

_TICK_S = 1 / os.sysconf("SC_CLK_TCK")


class TreeCpu:
    """CPU seconds, user and system, of a process tree over time.

    Args:
        pid: The tree's root.
    """

    def __init__(self, pid: int) -> None:
        self._root = psutil.Process(pid)
        self._used_s: dict[int, float] = {pid: 0.0}
        self._t_ns: list[int] = []
        self._total_s: list[float] = []

    def sample(self) -> None:
        """Note the CPU time used up to now; processes that have ended keep what they had."""
        if len(self._t_ns) % _LOOK_EVERY == 0:
            self._look()
        for pid in self._used_s:
            used_s = _used_s(pid)
            if used_s is not None:
                self._used_s[pid] = used_s
        self._t_ns.append(SYSTEM_CLOCK.now_ns())
        self._total_s.append(sum(self._used_s.values()))

    def between_s(self, start_ns: int, end_ns: int) -> float:
        """Return the CPU seconds used from `start_ns` to `end_ns`, interpolated."""
        at = np.interp([start_ns, end_ns], self._t_ns, self._total_s)
        return float(at[1] - at[0])

    def _look(self) -> None:
        try:
            children = self._root.children(recursive=True)
        except psutil.NoSuchProcess:
            return
        for child in children:
            self._used_s.setdefault(child.pid, 0.0)


def _used_s(pid: int) -> float | None:
    """Return what a process has used; None once it is gone."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="ascii")
    except (FileNotFoundError, ProcessLookupError):
        return None
    words = stat.rpartition(")")[2].split()  # from state, field 3 of proc_pid_stat(5)
    return (int(words[11]) + int(words[12])) * _TICK_S
