"""From a stored run or comparison to lines of the history.

Pure: records in, records out. One line per run and metric, so that the spread
between the runs of a night is kept. Runs that cannot be used are kept as well,
with the reason; readers leave them out and say so.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import pairwise

from draftgate.baselines import workload_digest
from draftgate.codec import encode
from draftgate.compare.records import Pair, Role, ServerStart, SideSpec, StoredComparison
from draftgate.errors import MeasurementError
from draftgate.history.records import RUN_ROLE, NightRows, Row
from draftgate.metrics import DEFINITIONS_VERSION, METRICS, Direction, compute_all, definition
from draftgate.metrics.selection import ended_inside
from draftgate.records import RunSamples
from draftgate.runstore import StoredRun
from draftgate.specs import SLO, Arm, Profile

_LIMITED = frozenset({"goodput_per_s"})
"""Metrics that the limits of a good request enter: other limits make them other metrics."""


@dataclass(frozen=True, slots=True)
class _Cell:
    """What all rows of one run have in common."""

    started_at: str
    repeat: int
    arm: Arm
    engine: str
    role: str
    concurrency: int
    commit: str
    requests: int
    invalid: Sequence[str]


def rows_of_run(run: StoredRun, commit: str = "") -> NightRows:
    """Return what a session adds to the history.

    Args:
        run: The session, read back.
        commit: Of the repository under test; "" where none is known.

    Raises:
        MeasurementError: If the session holds no number at all.
    """
    found = [row for sample in run.samples for row in _of_sample(run, sample, commit)]
    return _checked(
        NightRows(
            run_id=run.id,
            session_time=datetime.fromisoformat(run.started_at),
            hardware=run.environment.hardware,
            engines=_engines(run.profile.arms),
            profile=run.profile.name,
            draftgate=run.environment.draftgate,
            definitions=DEFINITIONS_VERSION,
            rows=tuple(found),
            notes=_clock_notes([run.started_at, *(sample.started_at for sample in run.samples)]),
        )
    )


def rows_of_comparison(comparison: StoredComparison, commit: str = "") -> NightRows:
    """Return what a paired comparison adds to the history: a run per server start.

    Base and candidate have a role each and never meet in one series. A start
    whose partner failed is kept as good: it stands here for itself.

    Args:
        comparison: The comparison, read back.
        commit: Of the repository under test, for rows of the candidate.

    Raises:
        MeasurementError: If the comparison holds no number at all.
    """
    header = comparison.header
    sides = {Role.BASE: (header.base, ""), Role.CANDIDATE: (header.candidate, commit)}
    found: list[Row] = []
    times = [header.started_at]
    for number, pair in enumerate(comparison.pairs):
        for start in _in_order(pair):
            side, known = sides[start.role]
            found += _of_start(header.profile, start, _Place(number, _arm(side, pair.arm), known))
            times.append(start.started_at)
    return _checked(
        NightRows(
            run_id=header.id,
            session_time=datetime.fromisoformat(header.started_at),
            hardware=header.environment.hardware,
            engines=_engines((*header.base.arms, *header.candidate.arms)),
            profile=header.profile.name,
            draftgate=header.environment.draftgate,
            definitions=header.definitions,
            rows=tuple(found),
            notes=_clock_notes(times),
        )
    )


def arm_digest(profile: Profile, arm: Arm) -> str:
    """Return what decides whether values of one arm can be compared.

    That of `workload_digest` for this arm alone, so that a profile which gains
    an arm goes on with the series of the others.
    """
    return workload_digest(replace(profile, arms=(arm,)))


def limits_digest(slo: SLO) -> str:
    """Return a short hash of the limits of a good request, which goodput depends on."""
    text = json.dumps(encode(slo), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:8]


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a start stands: number of its pair, what it serves, of which commit."""

    number: int
    arm: Arm
    commit: str


def _of_sample(run: StoredRun, sample: RunSamples, commit: str) -> Iterator[Row]:
    cell = _Cell(
        started_at=sample.started_at,
        repeat=sample.repeat,
        arm=run.profile.arm(sample.arm),
        engine=run.environment.engine,
        role=RUN_ROLE,
        concurrency=sample.concurrency,
        commit=commit,
        requests=sum(1 for _ in ended_inside(sample)),
        invalid=sample.invalid,
    )
    return _of_cell(run.profile, cell, compute_all(sample, run.profile.slo).items())


def _of_start(profile: Profile, start: ServerStart, place: _Place) -> Iterator[Row]:
    for values in start.cells:
        cell = _Cell(
            started_at=start.started_at,
            repeat=place.number,
            arm=place.arm,
            engine=start.engine,
            role=start.role.value,
            concurrency=values.concurrency,
            commit=place.commit,
            requests=values.requests,
            invalid=(*start.invalid, *values.invalid),
        )
        yield from _of_cell(profile, cell, values.values)


def _of_cell(profile: Profile, cell: _Cell, values: Iterable[tuple[str, float]]) -> Iterator[Row]:
    known = set(METRICS.names())
    digest, limits = arm_digest(profile, cell.arm), limits_digest(profile.slo)
    for name, value in values:
        entry = definition(name) if name in known else None
        yield Row(
            time=datetime.fromisoformat(cell.started_at),
            repeat=cell.repeat,
            engine=cell.arm.engine.engine,
            engine_version=_version(cell.engine, cell.arm.engine.engine),
            arm=cell.arm.name,
            role=cell.role,
            concurrency=cell.concurrency,
            metric=name,
            value=value,
            unit=entry.unit if entry else "",
            better=(entry.direction if entry else Direction.NEITHER).value,
            commit=cell.commit,
            workload=f"{digest}-{limits}" if name in _LIMITED else digest,
            requests=cell.requests,
            invalid="; ".join(cell.invalid),
        )


def _in_order(pair: Pair) -> tuple[ServerStart, ServerStart]:
    return (pair.candidate, pair.base) if pair.candidate_first else (pair.base, pair.candidate)


def _arm(side: SideSpec, name: str) -> Arm:
    return next(arm for arm in side.arms if arm.name == name)


def _version(reported: str, engine: str) -> str:
    """Return what stands behind the engine's name in what the server reports."""
    return reported.removeprefix(engine).strip() or reported


def _engines(arms: Iterable[Arm]) -> str:
    return "+".join(sorted({arm.engine.engine for arm in arms}))


def _clock_notes(times: Sequence[str]) -> tuple[str, ...]:
    """Name the steps backwards in times of day that were taken one after the other."""
    return tuple(
        f"a clock went backwards within the session, from {earlier} to {later}"
        for earlier, later in pairwise(times)
        if datetime.fromisoformat(later) < datetime.fromisoformat(earlier)
    )


def _checked(night: NightRows) -> NightRows:
    if not night.rows:
        raise MeasurementError(
            f"run {night.run_id}: holds no number of any run, so there is nothing to append to "
            "the history. Measure first: pytest -m perf"
        )
    return night
