"""The fingerprint: what names a baseline's folder, and what this machine says of itself."""

import os
import re
import sys
import types
from pathlib import Path

import psutil
import pytest

from draftgate import __version__, environment
from draftgate.environment import describe, hardware_slug


@pytest.mark.parametrize(
    ("gpus", "cpu", "cores", "slug"),
    [
        ((), "AMD EPYC 9B14", 2, "cpu-amd-epyc-9b14-2c"),
        (
            (),
            "Intel(R) Xeon(R) Platinum 8481C CPU @ 2.70GHz",
            8,
            "cpu-intel-xeon-platinum-8481c-8c",
        ),
        ((), "AMD Ryzen 9 7950X 16-Core Processor", 32, "cpu-amd-ryzen-9-7950x-16-core-32c"),
        ((), "", 4, "cpu-unknown-4c"),
        (("NVIDIA H200",), "AMD EPYC", 16, "1x-nvidia-h200"),
        (("NVIDIA A100-SXM4-80GB",) * 8, "AMD EPYC", 16, "8x-nvidia-a100-sxm4-80gb"),
    ],
)
def test_slug_holds_what_decides_speed(
    gpus: tuple[str, ...], cpu: str, cores: int, slug: str
) -> None:
    """GPUs by number and name, else the CPU with its cores; clock and trade marks are dropped."""
    assert hardware_slug(gpus, cpu, cores) == slug


@pytest.mark.parametrize("name", ["../../etc", "a/b\\c", "Ü\n\t ", "NUL:*?"])
def test_slug_is_one_safe_folder_name(name: str) -> None:
    """Whatever a machine calls itself, the slug is one plain path component."""
    assert re.fullmatch(r"cpu-[a-z0-9.-]+-1c", hardware_slug((), name, 1))
    assert "/" not in hardware_slug((name,), "", 1)


@pytest.mark.parametrize(
    ("name", "family", "told"),
    [
        ("AMD EPYC", "26", "AMD EPYC family 26 model 2"),
        ("AMD EPYC 9B14", "25", "AMD EPYC 9B14"),
        ("ARM", "", "ARM"),
    ],
)
def test_brand_alone_is_told_by_its_generation(name: str, family: str, told: str) -> None:
    """A name without a number gets family and model, so that unlike machines do not meet."""
    assert environment._named_generation(name, family, "2") == told


def test_description_is_of_this_machine() -> None:
    """Cores are those this process may use, packages are those installed, the engine as given."""
    found = describe("vllm 0.32.0")

    assert found.engine == "vllm 0.32.0"
    assert found.cpu_count == len(os.sched_getaffinity(0))
    assert found.memory_bytes == psutil.virtual_memory().total
    assert found.hardware == hardware_slug(found.gpus, found.cpu_model, found.cpu_count)
    assert dict(found.packages)["numpy"] == sys.modules["numpy"].__version__
    assert found == describe("vllm 0.32.0")


def test_machine_without_git_is_described_too(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Where git is not on PATH the version stands alone."""
    monkeypatch.setenv("PATH", str(tmp_path))

    assert describe("e").draftgate == __version__


def test_commit_is_told_where_there_is_no_git(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """What a bundle says of its commit stands beside the version; git, where there is one, wins."""
    monkeypatch.setenv("DRAFTGATE_COMMIT", "0123abcd")
    with_git = describe("e").draftgate
    monkeypatch.setenv("PATH", str(tmp_path))

    assert describe("e").draftgate == f"{__version__}+0123abcd"
    assert "0123abcd" not in with_git


class NVMLError(Exception):
    """What NVML raises."""


def nvml(monkeypatch: pytest.MonkeyPatch, *, driver: bool) -> types.SimpleNamespace:
    """Put a stand-in for NVML with two GPUs in place, with or without a driver."""

    def init() -> None:
        calls.append("init")
        if not driver:
            raise NVMLError

    calls: list[str] = []
    module = types.SimpleNamespace(
        NVMLError=NVMLError,
        nvmlInit=init,
        nvmlShutdown=lambda: calls.append("shutdown"),
        nvmlDeviceGetCount=lambda: 2,
        nvmlDeviceGetHandleByIndex=lambda index: index,
        nvmlDeviceGetName=lambda index: f"NVIDIA H{index}00",
        nvmlSystemGetDriverVersion=lambda: "580.1",
        calls=calls,
    )
    monkeypatch.setitem(sys.modules, "pynvml", module)
    return module


def test_gpus_and_driver_come_from_nvml(monkeypatch: pytest.MonkeyPatch) -> None:
    """Names and driver are read, and NVML is let go."""
    module = nvml(monkeypatch, driver=True)

    assert environment._gpus() == (("NVIDIA H000", "NVIDIA H100"), "580.1")
    assert module.calls == ["init", "shutdown"]


def test_library_without_a_driver_is_no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """An installed NVML binding on a machine without a GPU is no error."""
    nvml(monkeypatch, driver=False)

    assert environment._gpus() == ((), None)


def test_no_library_is_no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the binding there is no GPU to speak of."""
    monkeypatch.setitem(sys.modules, "pynvml", None)

    assert environment._gpus() == ((), None)
