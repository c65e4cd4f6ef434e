"""What a sweep has done so far, kept in its folder so that a killed one can go on.

    sweep.json        where each group's run folder is, why configurations failed, how long
                      starts and runs took
    runs/<id>/        one run folder a group: every request, logs, `draftgate report` reads it
    results.jsonl     one line a run with its metrics, in order of measuring
    summary.json, summary.md

The run folders are the truth; what was measured is read from them.
"""

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from draftgate.clock import Clock
from draftgate.codec import encode
from draftgate.errors import BaselineError, SpecError
from draftgate.files import locked, write_text
from draftgate.hidden import hide
from draftgate.metrics import compute_all
from draftgate.records import Environment, GpuUse, RunSamples
from draftgate.runstore import RunDirectory, load_header, read_samples, writing
from draftgate.specs import SLO, Arm
from draftgate.sweep.plan import Cell, Group, SweepPlan

STATE = "sweep.json"
RESULTS = "results.jsonl"
STATE_SCHEMA = 1
# 1: name, groups, failed, starts_s, runs_s, stopped.


@dataclass(frozen=True, slots=True)
class Row:
    """One run with its metrics; its requests lie in the run folder.

    Attributes:
        group: Group it belongs to.
        arm: Name of its arm.
        concurrency: Streams.
        repeat: Running number.
        started_at: Time of day, ISO 8601, UTC.
        values: Metrics that apply, by name; empty for one that cannot be used.
        invalid: Why it cannot be used; empty if it can.
        gpus: What each GPU did; empty without one.
    """

    group: str
    arm: str
    concurrency: int
    repeat: int
    started_at: str
    values: Mapping[str, float]
    invalid: tuple[str, ...]
    gpus: tuple[GpuUse, ...] = ()


@dataclass(slots=True)
class SweepState:
    """A sweep's folder while it is open; one process at a time.

    Attributes:
        folder: Where everything lies.
        plan: What is asked for.
        rows: Runs so far, oldest first.
        directories: Run folder by group, made at first use.
        failed: Why a configuration could not be measured, by (group, arm).
        starts_s: Longest start of a server by profile, seconds.
        runs_s: Longest run by (group, streams), seconds.
        environments: Where it ran, by group.
        stopped: Why the last call ended before everything was measured; None if it did not.
    """

    folder: Path
    plan: SweepPlan
    rows: list[Row] = field(default_factory=list)
    directories: dict[str, RunDirectory] = field(default_factory=dict)
    failed: dict[tuple[str, str], str] = field(default_factory=dict)
    starts_s: dict[str, float] = field(default_factory=dict)
    runs_s: dict[tuple[str, int], float] = field(default_factory=dict)
    environments: dict[str, Environment] = field(default_factory=dict)
    stopped: str | None = None

    def left(self, group: Group, arm: str) -> tuple[Cell, ...]:
        """Return the cells of an arm that no usable run covers, in order of measuring."""
        done = {
            Cell(row.concurrency, row.repeat)
            for row in self.rows
            if (row.group, row.arm) == (group.name, arm) and not row.invalid
        }
        return tuple(cell for cell in dict(group.cells)[arm] if cell not in done)

    def order(self) -> Iterator[tuple[Group, Arm]]:
        """Yield every configuration with cells left; those that failed before come last."""
        left = [
            (group, arm)
            for group in self.plan.groups
            for arm in group.profile.arms
            if self.left(group, arm.name)
        ]
        yield from sorted(left, key=lambda item: (item[0].name, item[1].name) in self.failed)

    def directory(self, group: Group, argv: Iterable[str], clock: Clock) -> RunDirectory:
        """Return the group's run folder, made if there is none."""
        if group.name not in self.directories:
            made = RunDirectory.create(self.folder / "runs", group.profile, tuple(argv), clock)
            self.directories[group.name] = made
            self.save()
        return self.directories[group.name]

    def add(self, group: Group, run: RunSamples, took_s: float) -> Row:
        """Keep one run: its records, its line of results, and how long it took.

        Raises:
            MeasurementError: If it cannot be written.
        """
        self.directories[group.name].add(run)
        row = _row(group.name, run, group.profile.slo)
        self.rows.append(row)
        with _writing(self.folder), (self.folder / RESULTS).open("a", encoding="utf-8") as log:
            log.write(json.dumps(hide(encode(row))) + "\n")
            log.flush()
            os.fsync(log.fileno())
        if not run.invalid:
            key = (group.name, run.concurrency)
            self.runs_s[key] = max(took_s, self.runs_s.get(key, 0.0))
            self.failed.pop((group.name, run.arm), None)
        self.save()
        return row

    def save(self) -> None:
        """Write what is no run.

        Raises:
            MeasurementError: If it cannot be written.
        """
        document = {
            "schema": STATE_SCHEMA,
            "name": self.plan.name,
            "groups": {name: run.path.name for name, run in self.directories.items()},
            "failed": [[*key, reason] for key, reason in self.failed.items()],
            "starts_s": self.starts_s,
            "runs_s": [[*key, seconds] for key, seconds in self.runs_s.items()],
            "stopped": self.stopped,
        }
        with _writing(self.folder):
            write_text(self.folder / STATE, json.dumps(hide(document), indent=1) + "\n")


@contextmanager
def open_sweep(folder: Path, plan: SweepPlan) -> Iterator[SweepState]:
    """Open a sweep's folder, new or left by an earlier call, for this process alone.

    A list that gained configurations goes on; one that says something else of a
    configuration or load that has a folder does not.

    Raises:
        SpecError: If another process has it open, the folder holds something else,
            or the list no longer fits what was measured.
        BaselineError: If what it holds is damaged.
        MeasurementError: If it cannot be written.
    """
    held = folder / STATE
    if folder.exists() and not held.exists() and any(p.name != ".lock" for p in folder.iterdir()):
        raise SpecError(
            f"sweep {folder}: got a folder that holds something else, expected none, an empty one "
            "or a sweep's. Name another with --out."
        )
    with _writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    with locked(folder / ".lock", _in_use(folder)):
        state = SweepState(folder, plan)
        if held.exists():
            _restore(state, held)
        else:
            state.save()
        yield state


def _in_use(folder: Path) -> Callable[[], None]:
    def refuse() -> None:
        raise SpecError(
            f"sweep {folder}: another process has it open. Wait for its end, or name another "
            "folder with --out."
        )

    return refuse


def _restore(state: SweepState, held: Path) -> None:
    try:
        document = _of_schema(json.loads(held.read_text(encoding="utf-8")))
        state.failed = {(g, a): reason for g, a, reason in document["failed"]}
        state.starts_s = dict(document["starts_s"])
        state.runs_s = {(g, c): seconds for g, c, seconds in document["runs_s"]}
        paths = {name: state.folder / "runs" / run for name, run in document["groups"].items()}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise BaselineError(
            f"sweep {held}: cannot be read ({type(error).__name__}: {error}). Restore it, or name "
            "another folder with --out."
        ) from error
    groups = {group.name: group for group in state.plan.groups}
    for name, path in paths.items():
        if name not in groups:
            raise SpecError(
                f"sweep {state.folder}: group {name!r} was measured and is not in the list any "
                "more. Put its runs back, or name another folder with --out."
            )
        _restore_group(state, groups[name], path)
    _rewrite_results(state)


def _of_schema(document: Any) -> Any:
    if document["schema"] != STATE_SCHEMA:
        raise ValueError(f"schema {document['schema']!r} is not {STATE_SCHEMA}")
    return document


def _restore_group(state: SweepState, group: Group, path: Path) -> None:
    header = load_header(path)
    _check_same(state.folder, group, header.profile.arms, header.profile.workload)
    directory = RunDirectory(path, path / "logs")
    state.directories[group.name] = directory
    workload = replace(
        group.profile.workload, prompts_digest=header.profile.workload.prompts_digest
    )
    directory.write_profile(replace(group.profile, workload=workload))
    if header.environment is not None:
        state.environments[group.name] = header.environment
    for name in header.samples:
        run = read_samples(path / "samples" / name)
        state.rows.append(_row(group.name, run, group.profile.slo))
    state.rows.sort(key=lambda row: row.started_at)


def _check_same(folder: Path, group: Group, arms: Iterable[Arm], workload: Any) -> None:
    def load(spec: Any) -> Any:
        plain = replace(spec, concurrencies=(), repeats=0, prompts_digest=None)
        return hide(encode(plain))

    now = {arm.name: hide(encode(arm.engine)) for arm in group.profile.arms}
    changed = [
        arm.name for arm in arms if arm.name in now and now[arm.name] != hide(encode(arm.engine))
    ]
    gone = [arm.name for arm in arms if arm.name not in now]
    what = [f"configuration {name!r} is another" for name in changed]
    what += [f"configuration {name!r} is gone" for name in gone]
    if load(workload) != load(group.profile.workload):
        what.append("the load is another")
    if what:
        raise SpecError(
            f"sweep {folder}: group {group.name!r}: {'; '.join(what)} than when it was measured. "
            "Put the list back, or name another folder with --out."
        )


def _row(group: str, run: RunSamples, slo: SLO) -> Row:
    values = {} if run.invalid else compute_all(run, slo)
    return Row(
        group=group,
        arm=run.arm,
        concurrency=run.concurrency,
        repeat=run.repeat,
        started_at=run.started_at,
        values=values,
        invalid=run.invalid,
        gpus=run.resources.gpus,
    )


def _rewrite_results(state: SweepState) -> None:
    """Write the lines anew: the last may be torn, or missing, where a process was killed."""
    lines = "".join(json.dumps(hide(encode(row))) + "\n" for row in state.rows)
    with _writing(state.folder):
        write_text(state.folder / RESULTS, lines)


def _writing(folder: Path) -> Any:
    left = "What was measured before is kept."
    return writing("sweep", folder, left=left, advice="name another folder with --out.")
