"""A sweep from its first configuration to its last, or to its time limit.

Starts each configuration's server once, takes its runs, keeps every run before
the next, and begins nothing that is not expected to end in time. Whatever ends
it, the state on disk says what is left.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from draftgate.clock import SYSTEM_CLOCK, Clock
from draftgate.datasets import Prompt, load_prompts
from draftgate.engines.pool import EnginePool
from draftgate.engines.running import RunningEngine
from draftgate.environment import describe
from draftgate.errors import EngineError, SpecError
from draftgate.measure import Cell as MeasuredCell
from draftgate.measure import check_client, measure_run, prime
from draftgate.runstore import RunDirectory
from draftgate.specs import Arm, WorkloadSpec
from draftgate.sweep.plan import Cell, Group
from draftgate.sweep.state import Row, SweepState

STOP_S = 20.0
"""Time kept back for stopping a server: `draftgate.engines.process.TERM_GRACE_S`."""

TRIES = 2
"""Times that a cell is measured where something else was busy on the machine."""

Say = Callable[[str], None]


class _OutOfTimeError(Exception):
    """What comes next is not expected to end before the limit."""


@dataclass(frozen=True, slots=True)
class Deadline:
    """When a sweep has to have ended.

    Attributes:
        clock: Its clock.
        end_ns: The end on that clock; None for none.
    """

    clock: Clock
    end_ns: int | None

    @classmethod
    def after(cls, seconds: float | None, clock: Clock) -> "Deadline":
        """Return the one that is `seconds` from now, less the time a server takes to stop."""
        if seconds is None:
            return cls(clock, None)
        return cls(clock, clock.now_ns() + round((seconds - STOP_S) * 1e9))

    def left_s(self) -> float:
        """Return the seconds left, infinite without a limit."""
        return float("inf") if self.end_ns is None else (self.end_ns - self.clock.now_ns()) / 1e9

    def need(self, seconds: float, what: str) -> None:
        """Do nothing if `seconds` are left.

        Raises:
            _OutOfTimeError: If not.
        """
        if self.left_s() < seconds:
            raise _OutOfTimeError(
                f"time limit: {what} takes about {seconds:.0f} s, {max(0.0, self.left_s()):.0f} s "
                "were left"
            )


@dataclass(frozen=True, slots=True)
class _Sweep:
    """What every step of a sweep needs."""

    state: SweepState
    deadline: Deadline
    argv: tuple[str, ...]
    say: Say
    changed: Callable[[], None]


def run_sweep(
    state: SweepState,
    *,
    stop_after_s: float | None = None,
    argv: Sequence[str] = (),
    say: Say = lambda _line: None,
    changed: Callable[[], None] = lambda: None,
    clock: Clock = SYSTEM_CLOCK,
) -> bool:
    """Measure what is left of a sweep and return whether nothing is left.

    A configuration whose server cannot be started or dies is noted as failed and
    the next one begins; the next call tries it again, last.

    Args:
        state: An open sweep.
        stop_after_s: Seconds from now in which everything has to have ended, servers
            stopped; None for no limit.
        argv: Command line, for the record.
        say: Takes lines of progress.
        changed: Called after every run and at the end.
        clock: Source of every stamp.

    Raises:
        SpecError: If the limit leaves no time for anything, or a profile's prompts or
            models cannot be had.
        MeasurementError: If a run cannot be stored.
        KeyboardInterrupt: As raised; what was measured is kept.
    """
    if stop_after_s is not None and stop_after_s <= STOP_S:
        raise SpecError(
            f"stop after {stop_after_s:g} s: expected more than {STOP_S:g} s, which stopping a "
            "server may take. Raise it."
        )
    sweep = _Sweep(state, Deadline.after(stop_after_s, clock), tuple(argv), say, changed)
    state.stopped = "interrupted"
    try:
        for group, arm in tuple(state.order()):
            _configuration(sweep, group, arm)
        state.stopped = None
    except _OutOfTimeError as reached:
        state.stopped = str(reached)
        say(f"stopping: {reached}")
    finally:
        state.save()
        changed()
    return not any(True for _ in state.order())


def _configuration(sweep: _Sweep, group: Group, arm: Arm) -> None:
    """Start one server, take its runs and stop it."""
    state, clock = sweep.state, sweep.deadline.clock
    directory = state.directory(group, sweep.argv, clock)
    prompts = load_prompts(group.profile.workload.dataset, group.profile.workload.seed)
    first = state.left(group, arm.name)[0]
    expected_s = state.starts_s.get(group.profile.name, 0.0) + _run_s(state, group, first)
    sweep.deadline.need(expected_s, f"the start of {arm.name} and its first run")
    try:
        with _pool(directory, sweep) as pool:
            engine = _started(sweep, group, arm, pool)
            _describe(state, group, engine, directory)
            for cell in state.left(group, arm.name):
                _measure(sweep, group, engine, cell, prompts)
    except EngineError as error:
        sweep.deadline.need(0.0, f"{arm.name}, which was cut short,")
        state.failed[group.name, arm.name] = str(error)
        state.save()
        sweep.changed()
        sweep.say(f"{arm.name}: FAILED, {str(error).splitlines()[0]}")


def _pool(directory: RunDirectory, sweep: _Sweep) -> EnginePool:
    return EnginePool(
        directory.logs_path,
        sweep.say,
        max_alive=1,
        on_command=directory.write_command,
        clock=sweep.deadline.clock,
    )


def _started(sweep: _Sweep, group: Group, arm: Arm, pool: EnginePool) -> RunningEngine:
    """Return the ready server; it gets no longer to start than the sweep has left."""
    clock, state = sweep.deadline.clock, sweep.state
    left_s = max(1.0, sweep.deadline.left_s())
    capped = replace(
        arm, engine=replace(arm.engine, startup_timeout_s=min(arm.engine.startup_timeout_s, left_s))
    )
    begin_ns = clock.now_ns()
    (engine,) = pool.require([capped])
    took_s = (clock.now_ns() - begin_ns) / 1e9
    state.starts_s[group.profile.name] = max(took_s, state.starts_s.get(group.profile.name, 0.0))
    state.save()
    return engine


def _describe(
    state: SweepState, group: Group, engine: RunningEngine, directory: RunDirectory
) -> None:
    if group.name not in state.environments:
        environment = state.environments[group.name] = describe(engine.version())
        directory.write_environment(environment)


def _measure(
    sweep: _Sweep, group: Group, engine: RunningEngine, cell: Cell, prompts: Sequence[Prompt]
) -> None:
    """Take one run and keep it; again if the client was disturbed.

    Raises:
        EngineError: If the server died.
        _OutOfTimeError: If it would not end in time.
    """
    label = f"{engine.arm.name} x{cell.concurrency}, run {cell.repeat + 1}"
    for _ in range(TRIES):
        sweep.deadline.need(_run_s(sweep.state, group, cell), label)
        prime(engine, group.profile.workload, prompts)
        row = _take(sweep, group, engine, cell, prompts)
        sweep.say(f"{label}: {_told(row)}")
        sweep.changed()
        if engine.child is not None and engine.child.exit_code() is not None:
            raise EngineError(row.invalid[0] if row.invalid else f"{label}: its server ended")
        if not row.invalid:
            return


def _take(
    sweep: _Sweep, group: Group, engine: RunningEngine, cell: Cell, prompts: Sequence[Prompt]
) -> Row:
    clock = sweep.deadline.clock
    begin_ns = clock.now_ns()
    workload = _within(group.profile.workload, sweep.deadline.left_s())
    run = measure_run(
        engine, workload, MeasuredCell(cell.concurrency, cell.repeat), prompts, clock=clock
    )
    took_s = (clock.now_ns() - begin_ns) / 1e9
    return sweep.state.add(group, check_client(run, {}), took_s)


def _within(workload: WorkloadSpec, left_s: float) -> WorkloadSpec:
    """Return the workload with no run longer than what is left."""
    return replace(workload, run_timeout_s=min(workload.run_timeout_s, max(1.0, left_s)))


def _run_s(state: SweepState, group: Group, cell: Cell) -> float:
    """Return how long a run is expected to take: the longest seen, else what it takes at least."""
    workload = group.profile.workload
    least_s = workload.window_s + workload.stagger_s
    return max(least_s, state.runs_s.get((group.name, cell.concurrency), 0.0))


def _told(row: Row) -> str:
    if row.invalid:
        return f"INVALID, {row.invalid[0].splitlines()[0]}"
    speed = row.values.get("output_tokens_per_s")
    line = "no tokens in its window" if speed is None else f"{speed:.1f} tokens/s"
    length = row.values.get("mean_acceptance_length")
    return line if length is None else f"{line}, acceptance length {length:.2f}"
