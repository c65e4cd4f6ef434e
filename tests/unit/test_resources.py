"""Use of the server's process tree, against processes whose use is known."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from draftgate.clock import SYSTEM_CLOCK, ManualClock
from draftgate.resources import ResourceSampler
from tests.support.fake_nvml import FakeCard, fake_nvml

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
    cards = (
        FakeCard(use_percent=40, power_mw=100_000, memory_used=10),
        FakeCard(use_percent=80, power_mw=250_000, memory_used=20),
    )
    monkeypatch.setitem(sys.modules, "pynvml", fake_nvml(cards))
    sampler = ResourceSampler(None, SYSTEM_CLOCK)
    sampler.start()

    use = sampler.stop()

    assert use.gpu_use_ratio == pytest.approx(0.6)
    assert use.gpu_power_w == pytest.approx(350.0)
    assert use.gpu_memory_bytes == 30
    assert [gpu.index for gpu in use.gpus] == [0, 1]
    assert min(gpu.readings for gpu in use.gpus) >= 2


def test_a_card_that_does_not_tell_leaves_the_mean_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """What one of two cards does not say is unknown for both together, not taken for 0."""
    cards = (FakeCard(power_mw=100_000), FakeCard(power_mw=None))
    monkeypatch.setitem(sys.modules, "pynvml", fake_nvml(cards))
    sampler = ResourceSampler(None, SYSTEM_CLOCK)
    sampler.start()

    use = sampler.stop()

    assert use.gpu_power_w is None
    assert use.gpu_memory_bytes is not None
    assert [gpu.power_max_w for gpu in use.gpus] == [100.0, None]


def test_processes_of_others_on_a_gpu_are_tenants(
    tree: subprocess.Popen[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The server's own processes are none; a process that draftgate did not start is one."""
    (tmp_path / "dev").mkdir()
    # Left by its parent, as a process that somebody else started is.
    argv = ["sh", "-c", f"sleep 60 <> {tmp_path}/dev/nvidia0 >/dev/null & echo $!"]
    stranger = int(subprocess.run(argv, stdout=subprocess.PIPE, check=True).stdout)
    child = psutil.Process(tree.pid).children()[0].pid
    cards = (FakeCard(pids=(child,)), FakeCard(pids=(child, stranger)))
    monkeypatch.setitem(sys.modules, "pynvml", fake_nvml(cards))
    ours, elsewhere = (ResourceSampler(pid, SYSTEM_CLOCK) for pid in (tree.pid, None))
    try:
        for sampler in (ours, elsewhere):
            sampler.start()
        found = [[gpu.tenants for gpu in sampler.stop().gpus] for sampler in (ours, elsewhere)]
    finally:
        os.kill(stranger, signal.SIGKILL)

    assert found == [[(), (stranger,)], [(), ()]]
