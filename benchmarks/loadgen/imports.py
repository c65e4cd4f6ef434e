"""How long `draftgate load` takes before it does anything, and what it imports."""

import statistics
import subprocess
import sys
from dataclasses import dataclass

from draftgate.clock import SYSTEM_CLOCK

HEAVY = ("torch", "vllm", "pandas")

_TIMES = 10
_LOAD = ("-m", "draftgate.cli", "load", "--help")
_GENERATOR = "import draftgate.loadtest, draftgate.load.generator"


@dataclass(frozen=True, slots=True)
class ImportTime:
    """Medians of ten runs, and what must not be imported.

    Attributes:
        python_s: A bare interpreter, wall time.
        help_s: `draftgate load --help` beyond that.
        generator_s: Importing the generator itself beyond that.
        heavy: Those of `HEAVY` that either of them imports.
    """

    python_s: float
    help_s: float
    generator_s: float
    heavy: tuple[str, ...]


def import_time() -> ImportTime:
    """Measure import times; files are in the page cache from the first run on."""
    python_s = _median_s("-c", "pass")
    loaded = _imported(*_LOAD) | _imported("-c", _GENERATOR)
    return ImportTime(
        python_s=python_s,
        help_s=_median_s(*_LOAD) - python_s,
        generator_s=_median_s("-c", _GENERATOR) - python_s,
        heavy=tuple(name for name in HEAVY if name in loaded),
    )


def _median_s(*args: str) -> float:
    _run(*args)
    times_s = []
    for _ in range(_TIMES):
        start_ns = SYSTEM_CLOCK.now_ns()
        _run(*args)
        times_s.append((SYSTEM_CLOCK.now_ns() - start_ns) / 1e9)
    return statistics.median(times_s)


def _imported(*args: str) -> set[str]:
    """Return the top-level names of all modules that a program imports."""
    lines = _run("-X", "importtime", *args).splitlines()
    names = (line.rpartition("|")[2].strip() for line in lines if line.startswith("import time:"))
    return {name.partition(".")[0] for name in names}


def _run(*args: str) -> str:
    done = subprocess.run([sys.executable, *args], capture_output=True, text=True, check=True)
    return done.stderr
