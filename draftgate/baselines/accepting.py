"""From the runs of a session to a baseline: checked, rounded, and joined with what is held."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from draftgate.baselines.comparable import decisive
from draftgate.baselines.stored import (
    Accepted,
    Baseline,
    Cell,
    accepted,
    baseline_path,
    expect,
    load_baseline,
    to_text,
    write_baseline,
)
from draftgate.clock import Clock
from draftgate.errors import BaselineError
from draftgate.metrics import compute_all
from draftgate.records import Environment, RunSamples, without_replacement
from draftgate.specs import Profile

_DIGITS = 6
"""Significant digits of stored values: far below the spread of any timing, and
short enough to read."""


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
    entry = accepted(session.run_id, reason, clock)
    _check_complete(session)
    path = baseline_path(root, session.environment, session.profile)
    new = _build(path, session, entry)
    if extend:
        new = _merge(load_baseline(path).comparable_with(session.environment, session.profile), new)
    write_baseline(path, to_text(new))
    return path


def _check_complete(session: Session) -> None:
    invalid = [
        f"{run.arm} at concurrency {run.concurrency}, repeat {run.repeat}: {'; '.join(run.invalid)}"
        for run in without_replacement(session.samples)
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
    deciding = decisive(session.profile)
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
        if not run.invalid:
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
    expect(held.path, "engine", held.environment.engine, new.environment.engine)
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
