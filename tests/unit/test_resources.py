"""Use of the server's process tree, against processes whose use is known."""

import os
import signal
import subprocess
import sys
import time
import types
from collections.abc import Iterator

import pytest

from draftgate.clock import SYSTEM_CLOCK, ManualClock
from draftgate.resources import ResourceSampler

PARENT = """
import subprocess, sys
subprocess.run([sys.executable, "-c", sys.argv[1]])
"""
CHILD = """
import sys, time
held = bytearray(64_000_000)
print("ready", flush=True)
sys.stdin.readline()
end = time.process_time() + 0.3
while time.process_time() < end:
    pass
print("done", flush=True)
time.sleep(60)
"""


@pytest.fixture
def tree() -> Iterator[subprocess.Popen[str]]:
    """A parent whose child holds 64 MB and, told by a line, uses 0.3 s of CPU."""
    argv = [sys.executable, "-c", PARENT, CHILD]
    with subprocess.Popen(
        argv,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        try:
            yield process
        finally:
            os.killpg(process.pid, signal.SIGKILL)


def test_cpu_and_memory_are_those_of_the_whole_tree(tree: subprocess.Popen[str]) -> None:
    """A grandchild's CPU seconds and memory count as the server's."""
    assert tree.stdin is not None
    assert tree.stdout is not None
    sampler = ResourceSampler(tree.pid, SYSTEM_CLOCK)
    before_ns = time.monotonic_ns()
    sampler.start()
    tree.stdin.write("go\n")
    tree.stdin.flush()
    assert tree.stdout.readline() == "done\n"
    use = sampler.stop()
    wall_s = (time.monotonic_ns() - before_ns) / 1e9

    assert use.cpu_cores is not None
    assert use.cpu_cores * wall_s == pytest.approx(0.3, abs=0.1)
    assert use.rss_bytes is not None
    assert use.rss_bytes > 64_000_000


def test_server_elsewhere_has_unknown_use() -> None:
    """Without a process id nothing is known, which is not zero."""
    sampler = ResourceSampler(None, SYSTEM_CLOCK)
    sampler.start()

    use = sampler.stop()

    assert (use.cpu_cores, use.rss_bytes) == (None, None)


def test_dead_server_is_no_error() -> None:
    """A server that died in the window ends the meters without an exception."""
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
    sampler = ResourceSampler(process.pid, SYSTEM_CLOCK)
    sampler.start()

    use = sampler.stop()

    assert use.rss_bytes in (None, 0)


def test_window_of_no_length_has_no_rate() -> None:
    """Where no time passed there is no CPU share, rather than a division by zero."""
    sampler = ResourceSampler(None, ManualClock())
    sampler.start()

    assert sampler.stop().cpu_cores is None


def test_gpu_use_is_a_mean_power_and_memory_are_sums(monkeypatch: pytest.MonkeyPatch) -> None:
    """Over two GPUs: mean use as a ratio, power in watts summed, memory in bytes summed."""
    module = types.SimpleNamespace(
        NVMLError=RuntimeError,
        nvmlInit=lambda: None,
        nvmlDeviceGetCount=lambda: 2,
        nvmlDeviceGetHandleByIndex=lambda index: index,
        nvmlDeviceGetUtilizationRates=lambda i: types.SimpleNamespace(gpu=[40, 80][i]),
        nvmlDeviceGetPowerUsage=lambda i: [100_000, 250_000][i],
        nvmlDeviceGetMemoryInfo=lambda i: types.SimpleNamespace(used=[10, 20][i]),
    )
    monkeypatch.setitem(sys.modules, "pynvml", module)
    sampler = ResourceSampler(None, SYSTEM_CLOCK)
    sampler.start()

    use = sampler.stop()

    assert use.gpu_use_ratio == pytest.approx(0.6)
    assert use.gpu_power_w == pytest.approx(350.0)
    assert use.gpu_memory_bytes == 30
