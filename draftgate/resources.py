"""What the server's processes and the GPUs use while a window is open.

A thread looks every two seconds; CPU comes from the kernel's totals at both
ends, so the pace of looking does not blur it. Knows no engine.
"""

import os
import threading
from collections.abc import Callable
from typing import Any

import psutil

from draftgate.clock import Clock
from draftgate.gpus import open_reader, summarise
from draftgate.records import GpuReading, ResourceUse

PERIOD_S = 2.0
"""Pace of memory and GPU samples; one look over a vLLM server's tree costs about 1 ms."""


class ResourceSampler:
    """Watches one process tree from `start` to `stop`.

    Args:
        pid: Root of the tree; None for a server on another machine.
        clock: Timeline of the CPU share.
    """

    def __init__(self, pid: int | None, clock: Clock) -> None:
        self._pid = pid
        self._clock = clock
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="resources", daemon=True)
        self._rss: list[int] = []
        self._gpu: list[tuple[GpuReading, ...]] = []
        self._start: tuple[int, dict[int, float]] = (0, {})

    def start(self) -> None:
        """Begin to watch."""
        self._start = (self._clock.now_ns(), self._cpu_seconds())
        self._thread.start()

    def stop(self) -> ResourceUse:
        """Stop watching and return what was seen."""
        self._done.set()
        self._thread.join()
        start_ns, before = self._start
        wall_s = (self._clock.now_ns() - start_ns) / 1e9
        used_s = sum(value - before.get(pid, 0.0) for pid, value in self._cpu_seconds().items())
        known = self._pid is not None and wall_s > 0
        return ResourceUse(
            cpu_cores=used_s / wall_s if known else None,
            rss_bytes=max(self._rss, default=None),
            gpu_use_ratio=_mean(self._over_gpus("use_ratio", _mean)),
            gpu_power_w=_mean(self._over_gpus("power_w", sum)),
            gpu_memory_bytes=max(self._over_gpus("memory_used_bytes", sum), default=None),
            gpus=summarise(self._gpu, self._own()),
        )

    def _own(self) -> set[int] | None:
        """Return the processes that draftgate started; None if the server is none of them."""
        own = {process.pid for process in _tree(os.getpid())}
        return own if self._pid in own else None

    def _over_gpus(self, name: str, join: Callable[[list[Any]], Any]) -> list[Any]:
        """Return one value per look: that of all GPUs, left out where a card does not tell."""
        looks = ([getattr(one, name) for one in look] for look in self._gpu)
        return [join(look) for look in looks if None not in look]

    def _watch(self) -> None:
        read_gpus = open_reader()
        while True:
            if self._pid is not None:
                self._rss.append(_tree_sum(self._pid, lambda p: p.memory_info().rss))
            if read_gpus is not None:
                self._gpu.append(read_gpus())
            if self._done.wait(PERIOD_S):
                break
        if read_gpus is not None:
            self._gpu.append(read_gpus())  # what it has come to when the window has closed

    def _cpu_seconds(self) -> dict[int, float]:
        if self._pid is None:
            return {}
        seconds: dict[int, float] = {}
        for process in _tree(self._pid):
            value = _ask(process, lambda p: p.cpu_times().user + p.cpu_times().system)
            if value is not None:
                seconds[process.pid] = value
        return seconds


def _tree(pid: int) -> list[psutil.Process]:
    try:
        root = psutil.Process(pid)
        return [root, *root.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []  # the server died; whoever measures finds that out with its log


def _ask(process: psutil.Process, question: Callable[[psutil.Process], Any]) -> Any:
    try:
        return question(process)
    except psutil.NoSuchProcess:
        return None  # a helper process of the server ended between listing and asking


def _tree_sum(pid: int, question: Callable[[psutil.Process], int]) -> int:
    return sum(value for p in _tree(pid) if (value := _ask(p, question)) is not None)


def _mean(values: list[float]) -> float | None:
    return sum(values) / len(values) if values else None
