"""The store of accepted runs that later runs are judged against.

One JSON file per (hardware, engine, profile), written by `accept` alone and made
to be read in a diff: one metric of one cell a line, one value per run. Holds
numbers per run, never only a mean. Knows nothing of how they are judged.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from draftgate.baselines.comparable import decisive
from draftgate.clock import Clock
from draftgate.codec import decode, encode, to_lines
from draftgate.errors import BaselineError
from draftgate.files import write_text
from draftgate.metrics import DEFINITIONS_VERSION
from draftgate.records import Environment
from draftgate.specs import SLO, Profile

# History: 1 first version.
BASELINE_SCHEMA_VERSION = 1

_RECORD = 'Record a new one: draftgate baseline accept --reason "..."'


@dataclass(frozen=True, slots=True)
class Accepted:
    """Who let these runs in, as far as a file can say: when, why and which.

    Attributes:
        time: ISO 8601, UTC.
        reason: As given on the command line.
        run_id: The run folder the values came from.
    """

    time: str
    reason: str
    run_id: str


def accepted(run_id: str, reason: str, clock: Clock) -> Accepted:
    """Return the entry of runs that are let in now.

    Raises:
        BaselineError: If the reason is empty.
    """
    if not reason.strip():
        raise BaselineError(
            "baseline accept: the reason is empty. Say why these runs are the new reference: "
            '--reason "..."'
        )
    return Accepted(clock.wall().isoformat(timespec="seconds"), reason.strip(), run_id)


def write_baseline(path: Path, text: str, kind: str = "baseline") -> None:
    """Write a file of the store, whole or not at all.

    Args:
        path: The file.
        text: What it is to hold.
        kind: What errors call it.

    Raises:
        BaselineError: If it cannot be written.
    """
    try:
        write_text(path, text)
    except OSError as error:
        raise BaselineError(
            f"{kind} {path}: cannot be written ({error.strerror or error}); what was there is "
            "unchanged. Free some space or check the folder's permissions, then accept again."
        ) from error


@dataclass(frozen=True, slots=True)
class Cell:
    """The accepted runs of one arm at one concurrency.

    Attributes:
        arm: Name of the arm.
        concurrency: Streams.
        runs: "run id#repeat" of each run.
        values: Metric name to one value per run, in the order of `runs`; None
            where that run had no such value.
    """

    arm: str
    concurrency: int
    runs: tuple[str, ...]
    values: Mapping[str, tuple[float | None, ...]]

    def per_run(self) -> tuple[dict[str, float], ...]:
        """Return one mapping per run, without what that run had no value for."""
        return tuple(
            {
                name: value
                for name, column in self.values.items()
                if (value := column[number]) is not None
            }
            for number in range(len(self.runs))
        )


@dataclass(frozen=True, slots=True)
class Baseline:
    """One baseline file.

    Attributes:
        path: The file.
        profile: Name of the profile.
        environment: Where the first of the runs were taken.
        workload: What was sent, as far as it decides comparability.
        arms: What was served, by arm, likewise.
        slo: Limits that goodput was computed under.
        accepted: One entry per session whose runs are held.
        cells: The runs.
    """

    path: Path
    profile: str
    environment: Environment
    workload: Mapping[str, Any]
    arms: Mapping[str, Any]
    slo: SLO
    accepted: tuple[Accepted, ...]
    cells: tuple[Cell, ...]

    def cell(self, arm: str, concurrency: int) -> tuple[Mapping[str, float], ...]:
        """Return metric values by name, one mapping per run; empty if none are held."""
        for cell in self.cells:
            if (cell.arm, cell.concurrency) == (arm, concurrency):
                return cell.per_run()
        return ()

    def comparable_with(self, environment: Environment, profile: Profile) -> "Baseline":
        """Return the part of the baseline that runs of `profile` here can be held against.

        Goodput under other limits is another metric, so it is left out if the
        limits differ; an arm the baseline does not know simply has no runs in it.

        Raises:
            BaselineError: If hardware, profile, workload or what an arm serves
                differ; the message says in what.
        """
        expect(self.path, "hardware", self.environment.hardware, environment.hardware)
        expect(self.path, "profile", self.profile, profile.name)
        deciding = decisive(profile)
        _expect_same(self.path, "workload", self.workload, deciding["workload"])
        for name, arm in deciding["arms"].items():
            _expect_same(self.path, f"arms.{name}", self.arms.get(name, arm), arm)
        if self.slo == profile.slo:
            return self
        return replace(self, cells=tuple(_without(cell, "goodput_per_s") for cell in self.cells))


def baseline_path(root: Path, environment: Environment, profile: Profile) -> Path:
    """Return the file for this hardware, engine and profile, there or not.

    The engine's version is no part of it: a new version is judged against the
    runs of the old one.
    """
    engines = "+".join(sorted({arm.engine.engine for arm in profile.arms}))
    return root / environment.hardware / engines / f"{profile.name}.json"


def find_baseline(root: Path, environment: Environment, profile: Profile) -> Baseline | None:
    """Return the baseline that applies here, or None if none was ever recorded.

    Raises:
        BaselineError: If there is one and it is damaged or does not fit.
    """
    path = baseline_path(root, environment, profile)
    if not path.exists():
        return None
    return load_baseline(path).comparable_with(environment, profile)


def load_baseline(path: Path) -> Baseline:
    """Read a baseline file.

    Raises:
        BaselineError: If it is absent, damaged, of another schema, holds
            metrics of other definitions, or lies where another belongs.
    """
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise BaselineError(
            f"baseline {path}: cannot be read ({error}). Expected JSON written by draftgate; "
            f"restore it from version control. {_RECORD}"
        ) from error
    held = document if isinstance(document, dict) else {}
    expect(path, "schema", held.get("schema"), BASELINE_SCHEMA_VERSION)
    expect(path, "metric definitions", held.get("definitions"), DEFINITIONS_VERSION)
    try:
        baseline = _from_document(path, held)
    except (ValueError, KeyError, TypeError) as error:
        raise BaselineError(
            f"baseline {path}: is damaged ({type(error).__name__}: {error}). Restore it from "
            f"version control. {_RECORD}"
        ) from error
    expect(path, "profile in the file", baseline.profile, path.stem)
    expect(path, "hardware in it", baseline.environment.hardware, path.parent.parent.name)
    return baseline


def to_text(baseline: Baseline) -> str:
    """Return the file of a baseline."""
    document = {
        "schema": BASELINE_SCHEMA_VERSION,
        "definitions": DEFINITIONS_VERSION,
        **{key: value for key, value in encode(baseline).items() if key != "path"},
    }
    return to_lines(document) + "\n"


def expect(path: Path, what: str, held: object, wanted: object) -> None:
    """Check that what a baseline holds is what is wanted.

    Raises:
        BaselineError: If it is not; the message says in what.
    """
    if held != wanted:
        raise BaselineError(
            f"baseline {path}: {what} is {held!r}, expected {wanted!r}; its numbers cannot be "
            f"compared. {_RECORD}"
        )


def _expect_same(
    path: Path, where: str, held: Mapping[str, Any], wanted: Mapping[str, Any]
) -> None:
    for key in sorted(held.keys() | wanted.keys()):
        expect(path, f"{where}.{key}", held.get(key), wanted.get(key))


def _without(cell: Cell, metric: str) -> Cell:
    kept = {name: column for name, column in cell.values.items() if name != metric}
    return replace(cell, values=kept)


def _from_document(path: Path, document: dict[str, Any]) -> Baseline:
    return Baseline(
        path=path,
        profile=decode(str, document["profile"], "profile"),
        environment=decode(Environment, document["environment"], "environment"),
        workload=_object(document["workload"], "workload"),
        arms={k: _object(v, f"arms.{k}") for k, v in _object(document["arms"], "arms").items()},
        slo=decode(SLO, document["slo"], "slo"),
        accepted=tuple(decode(Accepted, entry, "accepted") for entry in document["accepted"]),
        cells=tuple(_cell_from(cell) for cell in document["cells"]),
    )


def _object(value: Any, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"{where}: expected an object, got {value!r}")  # noqa: TRY004 - damaged data
    return value


def _cell_from(data: dict[str, Any]) -> Cell:
    runs = tuple(decode(str, run, "runs") for run in data["runs"])
    values = {name: _column(name, column, len(runs)) for name, column in data["values"].items()}
    return Cell(
        decode(str, data["arm"], "arm"),
        decode(int, data["concurrency"], "concurrency"),
        runs,
        values,
    )


def _column(name: str, column: Sequence[Any], length: int) -> tuple[float | None, ...]:
    values = tuple(None if value is None else decode(float, value, name) for value in column)
    if len(values) != length:
        raise ValueError(f"{name}: {len(values)} values for {length} runs")
    if not all(value is None or math.isfinite(value) for value in values):
        raise ValueError(f"{name}: expected finite numbers, got {values}")
    return values
