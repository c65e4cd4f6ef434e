"""What the server's processes and the GPUs use while a window is open.

A thread looks every two seconds; CPU comes from the kernel's totals at both
ends, so the pace of looking does not blur it. Knows no engine.
"""

import threading
from collections.abc import Callable
from typing import Any

import psutil

from draftgate.clock import Clock
from draftgate.records import ResourceUse

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
        self._gpu: list[tuple[float, float, int]] = []
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
            gpu_use_ratio=_mean([use for use, _, _ in self._gpu]),
            gpu_power_w=_mean([power for _, power, _ in self._gpu]),
            gpu_memory_bytes=max((memory for _, _, memory in self._gpu), default=None),
        )

    def _watch(self) -> None:
        read_gpus = _gpu_reader()
        while True:
            if self._pid is not None:
                self._rss.append(_tree_sum(self._pid, lambda p: p.memory_info().rss))
            if read_gpus is not None:
                self._gpu.append(read_gpus())
            if self._done.wait(PERIOD_S):
                return

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


def _gpu_reader() -> Callable[[], tuple[float, float, int]] | None:
    try:
        import pynvml  # noqa: PLC0415 - only where there may be a GPU
    except ImportError:
        return None
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return None  # no driver: no GPU to read
    handles = [pynvml.nvmlDeviceGetHandleByIndex(i) for i in range(pynvml.nvmlDeviceGetCount())]

    def read() -> tuple[float, float, int]:
        use = sum(pynvml.nvmlDeviceGetUtilizationRates(h).gpu for h in handles)
        power = sum(pynvml.nvmlDeviceGetPowerUsage(h) for h in handles)
        memory = sum(pynvml.nvmlDeviceGetMemoryInfo(h).used for h in handles)
        return use / len(handles) / 100, power / 1000, memory

    return read if handles else None
