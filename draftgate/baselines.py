"""The store of accepted runs that later runs are judged against.

One JSON file per (hardware, engine, profile), written by `accept` alone and made
to be read in a diff: one metric of one cell a line, one value per run. Holds
numbers per run, never only a mean. Knows nothing of how they are judged.
"""

import hashlib
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from draftgate.clock import Clock
from draftgate.codec import decode, encode, to_lines
from draftgate.datasets import with_prompts_digest
from draftgate.errors import BaselineError
from draftgate.files import write_text
from draftgate.metrics import DEFINITIONS_VERSION, compute_all
from draftgate.records import Environment, RunSamples
from draftgate.specs import SLO, Profile, WorkloadSpec

# History: 1 first version.
BASELINE_SCHEMA_VERSION = 1

_RECORD = 'Record a new one: draftgate baseline accept --reason "..."'
_DIGITS = 6
"""Significant digits of stored values: far below the spread of any timing, and
short enough to read."""

_FREE_WORKLOAD = frozenset(
    # How often, at which loads, how patiently and from where: none changes what one cell measures.
    {
        "concurrencies",
        "repeats",
        "stall_timeout_s",
        "run_timeout_s",
        "max_failure_share",
        "client_processes",
    }
)
_FREE_ENGINE = frozenset(
    # How the server is brought up. These may differ, because whether they matter
    # is what a comparison with the baseline is for.
    {"launch", "args", "env", "plugins", "startup_timeout_s"}
)
_FIRST_PROMPTS = {
    "arithmetic": "add390baa2d21062",
    "chat": "4ee3f7f5eb765ce4",
    "code": "b00473d011e421f8",
    "mixed": "6ea4cf0a2553f5b8",
}
"""What the built-in datasets held since the first baseline. Records from before digests were kept
name the dataset alone and mean these: prompts/*.jsonl have not changed since (git log), and the
acceptance baseline of that time holds the same digests."""

_FREE_SPECULATIVE = frozenset({"model"})  # a newly trained draft head is judged, not refused


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
        _expect(self.path, "hardware", self.environment.hardware, environment.hardware)
        _expect(self.path, "profile", self.profile, profile.name)
        deciding = _deciding(profile)
        _expect_same(self.path, "workload", self.workload, deciding["workload"])
        for name, arm in deciding["arms"].items():
            _expect_same(self.path, f"arms.{name}", self.arms.get(name, arm), arm)
        if self.slo == profile.slo:
            return self
        return replace(self, cells=tuple(_without(cell, "goodput_per_s") for cell in self.cells))


@dataclass(frozen=True, slots=True)
class Session:
    """Runs of one invocation that are to become a baseline.

    Attributes:
        run_id: Name of their run folder.
        profile: What was asked for.
        environment: Where.
        samples: All runs.
    """

    run_id: str
    profile: Profile
    environment: Environment
    samples: tuple[RunSamples, ...]


def baseline_path(root: Path, environment: Environment, profile: Profile) -> Path:
    """Return the file for this hardware, engine and profile, there or not.

    The engine's version is no part of it: a new version is judged against the
    runs of the old one.
    """
    engines = "+".join(sorted({arm.engine.engine for arm in profile.arms}))
    return root / environment.hardware / engines / f"{profile.name}.json"


def workload_digest(profile: Profile) -> str:
    """Return a short hash of what decides whether two runs can be compared.

    That is what is sent, prompts included, and what each arm serves; not the
    description, gates or limits, not how often or how the server is started, and
    not which draft model is used, because that is what a comparison may be about.

    Raises:
        SpecError: If the prompts of a workload that was not sent yet can't be read.
    """
    text = json.dumps(_deciding(profile), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


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
    _expect(path, "schema", held.get("schema"), BASELINE_SCHEMA_VERSION)
    _expect(path, "metric definitions", held.get("definitions"), DEFINITIONS_VERSION)
    try:
        baseline = _from_document(path, held)
    except (ValueError, KeyError, TypeError) as error:
        raise BaselineError(
            f"baseline {path}: is damaged ({type(error).__name__}: {error}). Restore it from "
            f"version control. {_RECORD}"
        ) from error
    _expect(path, "profile in the file", baseline.profile, path.stem)
    _expect(path, "hardware in it", baseline.environment.hardware, path.parent.parent.name)
    return baseline


def accept(
    root: Path, session: Session, *, reason: str, clock: Clock, extend: bool = False
) -> Path:
    """Make the runs of `session` the baseline, and return its file.

    Args:
        root: Folder of all baselines.
        session: The runs; every cell of the profile must be there and valid.
        reason: Why these are the new reference; goes into the file.
        clock: Source of the time of acceptance.
        extend: Add to the runs that are held instead of replacing them.

    Raises:
        BaselineError: If the reason is empty, a run is invalid or missing, or,
            with `extend`, the held runs are of another kind or include these;
            or if the file cannot be written.
    """
    if not reason.strip():
        raise BaselineError(
            "baseline accept: the reason is empty. Say why these runs are the new reference: "
            '--reason "..."'
        )
    _check_complete(session)
    path = baseline_path(root, session.environment, session.profile)
    entry = Accepted(clock.wall().isoformat(timespec="seconds"), reason.strip(), session.run_id)
    new = _build(path, session, entry)
    if extend:
        new = _merge(load_baseline(path).comparable_with(session.environment, session.profile), new)
    try:
        write_text(path, _to_text(new))
    except OSError as error:
        raise BaselineError(
            f"baseline {path}: cannot be written ({error.strerror or error}); what was there is "
            "unchanged. Free some space or check the folder's permissions, then accept again."
        ) from error
    return path


def _check_complete(session: Session) -> None:
    invalid = [
        f"{run.arm} at concurrency {run.concurrency}, repeat {run.repeat}: {'; '.join(run.invalid)}"
        for run in session.samples
        if run.invalid
    ]
    if invalid:
        raise BaselineError(
            f"run {session.run_id}: {len(invalid)} of {len(session.samples)} runs are invalid and "
            f"cannot become a baseline ({' | '.join(invalid[:3])}). Measure again."
        )
    profile = session.profile
    got = {(run.arm, run.concurrency) for run in session.samples}
    asked = [(arm.name, c) for arm in profile.arms for c in profile.workload.concurrencies]
    missing = [f"{arm} at concurrency {c}" for arm, c in asked if (arm, c) not in got]
    if missing:
        raise BaselineError(
            f"run {session.run_id}: no runs of {', '.join(missing)}, which profile "
            f"{profile.name!r} asks for. Measure the whole profile before accepting it."
        )


def _build(path: Path, session: Session, entry: Accepted) -> Baseline:
    deciding = _deciding(session.profile)
    return Baseline(
        path=path,
        profile=session.profile.name,
        environment=session.environment,
        workload=deciding["workload"],
        arms=deciding["arms"],
        slo=session.profile.slo,
        accepted=(entry,),
        cells=tuple(_cells(session)),
    )


def _cells(session: Session) -> Iterable[Cell]:
    groups: dict[tuple[str, int], list[RunSamples]] = {}
    for run in session.samples:
        groups.setdefault((run.arm, run.concurrency), []).append(run)
    for (arm, concurrency), runs in sorted(groups.items()):
        runs.sort(key=lambda run: run.repeat)
        computed = [compute_all(run, session.profile.slo) for run in runs]
        _check_finite(session.run_id, arm, concurrency, computed)
        names = sorted(set().union(*computed))
        values = {name: tuple(_rounded(run.get(name)) for run in computed) for name in names}
        yield Cell(
            arm, concurrency, tuple(f"{session.run_id}#{run.repeat}" for run in runs), values
        )


def _check_finite(
    run_id: str, arm: str, concurrency: int, computed: Sequence[Mapping[str, float]]
) -> None:
    for values in computed:
        broken = [name for name, value in values.items() if not math.isfinite(value)]
        if broken:
            raise BaselineError(
                f"run {run_id}: {', '.join(broken)} of {arm} at concurrency {concurrency} is not a "
                "finite number and cannot become a baseline. Measure again."
            )


def _rounded(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.{_DIGITS}g}")


def _merge(held: Baseline, new: Baseline) -> Baseline:
    _expect(held.path, "engine", held.environment.engine, new.environment.engine)
    known = {entry.run_id for entry in held.accepted}
    if new.accepted[0].run_id in known:
        raise BaselineError(
            f"baseline {held.path}: already holds run {new.accepted[0].run_id}. Counting its runs "
            "twice would make the spread look smaller than it is; extend with another run."
        )
    cells = {(cell.arm, cell.concurrency): cell for cell in held.cells}
    for cell in new.cells:
        key = (cell.arm, cell.concurrency)
        cells[key] = _joined(cells[key], cell) if key in cells else cell
    return replace(
        new,
        environment=held.environment,
        arms={**held.arms, **new.arms},
        accepted=held.accepted + new.accepted,
        cells=tuple(cell for _, cell in sorted(cells.items())),
    )


def _joined(held: Cell, new: Cell) -> Cell:
    absent_held: tuple[None, ...] = (None,) * len(held.runs)
    absent_new: tuple[None, ...] = (None,) * len(new.runs)
    values = {
        name: held.values.get(name, absent_held) + new.values.get(name, absent_new)
        for name in sorted(held.values.keys() | new.values.keys())
    }
    return replace(held, runs=held.runs + new.runs, values=values)


def _without(cell: Cell, metric: str) -> Cell:
    kept = {name: column for name, column in cell.values.items() if name != metric}
    return replace(cell, values=kept)


def _deciding(profile: Profile) -> dict[str, Any]:
    """Return what decides comparability, as a document that a diff can show."""
    return {
        "workload": _sent(profile.workload),
        "arms": {arm.name: _served(encode(arm.engine)) for arm in profile.arms},
    }


def _sent(workload: WorkloadSpec) -> dict[str, Any]:
    """Return what is sent: prompts by content, and by name where the name alone has always told.

    Where a file of prompts lies does not matter.
    """
    held = encode(with_prompts_digest(workload))
    kept = {key: value for key, value in held.items() if key not in _FREE_WORKLOAD}
    kept["dataset"] = Path(workload.dataset).name
    if kept["prompts_digest"] == _FIRST_PROMPTS.get(workload.dataset):
        del kept["prompts_digest"]
    return kept


def _served(engine: dict[str, Any]) -> dict[str, Any]:
    kept = {key: value for key, value in engine.items() if key not in _FREE_ENGINE}
    speculative = kept["speculative"]
    if speculative is not None:
        kept["speculative"] = {k: v for k, v in speculative.items() if k not in _FREE_SPECULATIVE}
    return kept


def _expect(path: Path, what: str, held: object, wanted: object) -> None:
    if held != wanted:
        raise BaselineError(
            f"baseline {path}: {what} is {held!r}, expected {wanted!r}; its numbers cannot be "
            f"compared. {_RECORD}"
        )


def _expect_same(
    path: Path, where: str, held: Mapping[str, Any], wanted: Mapping[str, Any]
) -> None:
    for key in sorted(held.keys() | wanted.keys()):
        _expect(path, f"{where}.{key}", held.get(key), wanted.get(key))


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


def _to_text(baseline: Baseline) -> str:
    document = {
        "schema": BASELINE_SCHEMA_VERSION,
        "definitions": DEFINITIONS_VERSION,
        **{key: value for key, value in encode(baseline).items() if key != "path"},
    }
    return to_lines(document) + "\n"
