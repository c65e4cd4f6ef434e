"""Another tool under one job: started, watched, ended if need be, and held against the log.

Knows none of the tools; `tools` says how each is started and read.
"""

import contextlib
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import psutil

from benchmarks.loadgen.figures import Figures, true_figures
from benchmarks.loadgen.job import Cores, Job
from benchmarks.loadgen.machine import on_cores
from benchmarks.loadgen.tools import Reported, Tool
from benchmarks.loadgen.treecpu import SAMPLE_S, TreeCpu
from draftgate.calibration.engine import NullEngineProcess
from draftgate.clock import SYSTEM_CLOCK
from draftgate.errors import MeasurementError
from draftgate.null_engine.sendlog import SentStream


@dataclass(frozen=True, slots=True)
class ForeignRun:
    """What one run of another tool left.

    Attributes:
        ended: Whether the command ended by itself in time.
        wall_s: How long the command took, start and report included.
        loaded_s: From its first request's arrival to the last byte sent to it.
        cpu_s: CPU seconds of its process tree within `loaded_s`.
        cpu_to_end_s: The same from the first arrival to the command's end, with
            whatever it puts off until requests have ended, and its report.
        sent_tokens: Tokens that the engine sent it.
        requests: Requests that reached the engine.
        reported: What it says; None if it did not end.
        true: The same figures by the engine's log.
    """

    ended: bool
    wall_s: float
    loaded_s: float
    cpu_s: float
    cpu_to_end_s: float
    sent_tokens: int
    requests: int
    reported: Reported | None
    true: Figures


def run_foreign(tool: Tool, job: Job, cores: Cores, *, timeout_s: float) -> ForeignRun:
    """Run a tool on the client's core against a fresh null engine.

    Args:
        tool: What to run; it must be installed.
        job: The load; one by number of requests, in a closed loop.
        cores: Where both sides run.
        timeout_s: Time after which the command is ended.

    Raises:
        MeasurementError: If the command fails, or leaves no report.
        EngineError: If the null engine could not be run.
    """
    with tempfile.TemporaryDirectory(prefix="loadgen-") as name:
        folder = Path(name)
        with on_cores(cores.engine):
            engine = NullEngineProcess((*job.engine, "--cpu", str(cores.engine)), folder)
        try:
            into = folder / "tool"
            into.mkdir()
            watched = _watch(
                tool.name, *tool.command(job, engine.url, into), into, cores, timeout_s
            )
        finally:
            engine.stop()
        reported = tool.read(into) if watched.ended else None
        return _result(watched, reported, engine.sent())


@dataclass(frozen=True, slots=True)
class _Watched:
    ended: bool
    wall_s: float
    cpu: TreeCpu


def _watch(
    name: str,
    argv: list[str],
    env: Mapping[str, str],
    into: Path,
    cores: Cores,
    timeout_s: float,
) -> _Watched:
    start_ns = SYSTEM_CLOCK.now_ns()
    with (into / "output.txt").open("wb") as output, on_cores(cores.client):
        process = subprocess.Popen(
            argv,
            env={**os.environ, **env},
            cwd=into,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    cpu = TreeCpu(process.pid)
    try:
        while process.poll() is None and _since_s(start_ns) < timeout_s:
            cpu.sample()
            time.sleep(SAMPLE_S)
        ended = process.poll() is not None
    finally:
        _end_tree(process)
    if ended and process.returncode != 0:
        said = (into / "output.txt").read_text(encoding="utf-8", errors="replace")
        raise MeasurementError(
            f"tool {name!r}: ended with code {process.returncode}:\n{said[-2000:]}"
        )
    return _Watched(ended, _since_s(start_ns), cpu)


def _since_s(start_ns: int) -> float:
    return (SYSTEM_CLOCK.now_ns() - start_ns) / 1e9


def _end_tree(process: subprocess.Popen[bytes]) -> None:
    """End whatever is left of a command, its children first looked up."""
    left = []
    with contextlib.suppress(psutil.NoSuchProcess):
        root = psutil.Process(process.pid)
        left = [*root.children(recursive=True), root]
    for one in left:
        with contextlib.suppress(psutil.NoSuchProcess):
            one.send_signal(signal.SIGKILL)
    process.wait()


def _result(
    watched: _Watched, reported: Reported | None, sent: tuple[SentStream, ...]
) -> ForeignRun:
    if not sent:
        raise MeasurementError("no request reached the null engine. Run the tool by hand.")
    first_ns = min(stream.arrived_ns for stream in sent)
    last_ns = max(int(np.max(stream.sent_ns, initial=first_ns)) for stream in sent)
    return ForeignRun(
        ended=watched.ended,
        wall_s=watched.wall_s,
        loaded_s=(last_ns - first_ns) / 1e9,
        cpu_s=watched.cpu.between_s(first_ns, last_ns),
        cpu_to_end_s=watched.cpu.between_s(first_ns, SYSTEM_CLOCK.now_ns()),
        sent_tokens=sum(int(stream.step_tokens.sum()) for stream in sent),
        requests=len(sent),
        reported=reported,
        true=true_figures(sent),
    )
