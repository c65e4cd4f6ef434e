"""The machine that a benchmark ran on, and whether anything else ran."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import psutil

from benchmarks.loadgen.job import Cores
from draftgate.clock import SYSTEM_CLOCK
from draftgate.environment import describe
from draftgate.errors import SpecError
from draftgate.records import Environment

MOST_BUSY_RATIO = 0.05
"""Share of all cores in use by others from which the numbers are in doubt."""

MOST_LOAD_AVERAGE = 0.5

_LOOK_S = 2.0


@dataclass(frozen=True, slots=True)
class Machine:
    """Where and when.

    Attributes:
        environment: Hardware, kernel, Python, packages; without the host's name.
        cores: Where client and engine run.
        commit: The checkout, with "+changes" if files differ from it.
        taken_at: Time of day, ISO 8601, UTC.
        load_average: Of the minute before.
        busy_ratio: Share of all cores in use over two seconds before.
    """

    environment: Environment
    cores: Cores
    commit: str
    taken_at: str
    load_average: float
    busy_ratio: float

    @property
    def was_quiet(self) -> bool:
        """Return whether nothing else ran, as far as can be seen."""
        return self.busy_ratio <= MOST_BUSY_RATIO and self.load_average <= MOST_LOAD_AVERAGE


def look() -> Machine:
    """Describe this machine as it is now; takes two seconds.

    Raises:
        SpecError: If there are fewer than two cores.
    """
    allowed = sorted(os.sched_getaffinity(0))
    if len(allowed) < 2:
        raise SpecError(f"loadgen: got cores {allowed}, expected two: one for each side.")
    return Machine(
        environment=replace(describe("null engine"), host=""),
        cores=Cores(client=allowed[0], engine=allowed[1]),
        commit=_commit(),
        taken_at=SYSTEM_CLOCK.wall().isoformat(timespec="seconds"),
        load_average=os.getloadavg()[0],
        busy_ratio=psutil.cpu_percent(interval=_LOOK_S) / 100,
    )


def keep_off(cores: Cores) -> None:
    """Move this process to a core that is not measured; to the engine's if there is none."""
    spare = sorted(os.sched_getaffinity(0) - {cores.client, cores.engine})
    os.sched_setaffinity(0, set(spare) or {cores.engine})


@contextmanager
def on_cores(*cores: int) -> Iterator[None]:
    """Let this process, and what is started inside the block, run on these cores alone."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def _commit() -> str:
    root = Path(__file__).parents[2]
    commit = _git(root, "rev-parse", "--short", "HEAD")
    changed = _git(root, "status", "--porcelain", "--untracked-files=no", "--", "draftgate")
    return f"{commit}+changes" if changed else commit


def _git(root: Path, *args: str) -> str:
    done = subprocess.run(["git", *args], cwd=root, capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else "unknown"
