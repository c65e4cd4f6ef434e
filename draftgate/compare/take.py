"""One pair: both sides of an arm started, loaded in turn, stopped.

Turns trouble of a server or a clock into reasons on the record, so that a pair
that can't be used is seen and not lost. Decides nothing about losses.
"""

import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from draftgate.clock import SYSTEM_CLOCK, Clock
from draftgate.compare.gates import limits
from draftgate.compare.records import (
    CellValues,
    Gate,
    Pair,
    Role,
    ServerStart,
    SideSpec,
    Stage,
)
from draftgate.compare.values import cell_values
from draftgate.datasets import Prompt
from draftgate.engines.pool import EnginePool
from draftgate.engines.running import RunningEngine
from draftgate.errors import EngineError
from draftgate.measure import Cell, check_client, measure_run, prime
from draftgate.records import RunSamples
from draftgate.specs import Arm, Profile

MAX_CLOCK_JUMP_S = 0.25
"""Difference between wall and monotonic time over one start above which somebody set the
clock or the machine slept: receive stamps of the kernel are then off. NTP slews by at most
500 ppm (adjtimex(2)), 0.06 s in two minutes."""

Say = Callable[[str], None]

KeepSample = Callable[[str, RunSamples], str]
"""Stores the raw records of a run under a name and returns where they lie."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a pair belongs.

    Attributes:
        arm: Name of the arm.
        stage: What it is taken for.
        slot: Place in the order.
        attempt: 0 for the first try.
        candidate_first: Which side goes first.
    """

    arm: str
    stage: Stage
    slot: int
    attempt: int
    candidate_first: bool

    @property
    def name(self) -> str:
        """How files and logs name it."""
        tries = f"-try{self.attempt + 1}" if self.attempt else ""
        return f"{self.arm}-{self.stage.name.lower()}-{self.slot + 1:02d}{tries}"


@dataclass(frozen=True, slots=True)
class Bench:
    """What every pair of a comparison shares.

    Attributes:
        profile: What is sent.
        base: One side.
        candidate: The other.
        gates: The questions; the client's own error is held against their limits.
        prompts: In the order of the workload's seed.
        logs: Folder of the servers' logs.
        keep: Stores raw runs.
        say: Takes a line of progress.
        on_command: Takes (name, start command) of every server.
        clock: Source of every stamp.
    """

    profile: Profile
    base: SideSpec
    candidate: SideSpec
    gates: tuple[Gate, ...]
    prompts: tuple[Prompt, ...]
    logs: Path
    keep: KeepSample
    say: Say
    on_command: Callable[[str, str], None] = lambda _name, _command: None
    clock: Clock = SYSTEM_CLOCK

    def arm(self, role: Role, name: str) -> Arm:
        """Return the arm of one side under a name that tells the side."""
        side = self.base if role is Role.BASE else self.candidate
        arm = next(arm for arm in side.arms if arm.name == name)
        return Arm(f"{role.value}-{name}", arm.engine)


def take_pair(bench: Bench, place: Place) -> Pair:
    """Start both sides, load them in turn, stop them, and return what was seen.

    Where the profile keeps servers alive side by side, both are up and the load
    alternates at each number of streams; elsewhere one is started, loaded and
    stopped before the other. Which side goes first is the place's.

    Raises:
        SpecError: If the engine cannot run what a side asks for.
    """
    roles = [Role.CANDIDATE, Role.BASE] if place.candidate_first else [Role.BASE, Role.CANDIDATE]
    taken: dict[Role, _Taken] = {}
    if bench.profile.keep_alive:
        taken = _side_by_side(bench, place, roles)
    else:
        for role in roles:
            taken.update(_side_by_side(bench, place, [role]))
    return Pair(
        arm=place.arm,
        stage=place.stage,
        slot=place.slot,
        attempt=place.attempt,
        candidate_first=place.candidate_first,
        host=socket.gethostname(),
        base=taken[Role.BASE].record(),
        candidate=taken[Role.CANDIDATE].record(),
    )


def clock_faults(clock: Clock, wall: datetime, start_ns: int) -> tuple[str, ...]:
    """Return that the time of day jumped since a moment, if it did.

    Args:
        clock: Source of both times.
        wall: Time of day at that moment.
        start_ns: Monotonic time then.
    """
    jump_s = (clock.wall() - wall).total_seconds() - (clock.now_ns() - start_ns) / 1e9
    if abs(jump_s) <= MAX_CLOCK_JUMP_S:
        return ()
    return (f"the clock jumped by {jump_s:+.2f} s while it was measured",)


def cell_line(name: str, cell: CellValues) -> str:
    """Return a line of progress on one run: how fast it was, and why it can't be used, if so."""
    speed = dict(cell.values).get("output_tokens_per_s")
    told = f"{speed:.1f} tokens/s" if speed is not None else "no speed"
    invalid = f", INVALID: {cell.invalid[0].splitlines()[0]}" if cell.invalid else ""
    return f"  {name} x{cell.concurrency}: {told}{invalid}"


class _Taken:
    """One start while it is being measured."""

    def __init__(self, role: Role, clock: Clock) -> None:
        self._role = role
        self._clock = clock
        self._wall = clock.wall()
        self._start_ns = clock.now_ns()
        self._ready_s = 0.0
        self._engine = "unknown"
        self._cells: list[CellValues] = []
        self._trouble: list[str] = []

    def ready(self, engine: RunningEngine) -> None:
        """Note that the server serves."""
        self._engine = engine.version()
        if engine.child is not None:
            self._ready_s = (self._clock.now_ns() - self._start_ns) / 1e9

    def fail(self, reason: str) -> None:
        """Note why the start is of no use."""
        self._trouble.append(reason)

    def add(self, cell: CellValues) -> None:
        """Note what one run showed."""
        self._cells.append(cell)

    def check_clock(self) -> None:
        """Note a jump of the time of day since the start."""
        self._trouble += clock_faults(self._clock, self._wall, self._start_ns)

    def record(self) -> ServerStart:
        """Return the start as it is kept."""
        return ServerStart(
            role=self._role,
            started_at=self._wall.isoformat(),
            ready_s=self._ready_s,
            engine=self._engine,
            cells=tuple(self._cells),
            invalid=tuple(self._trouble),
        )


def _side_by_side(bench: Bench, place: Place, roles: Sequence[Role]) -> dict[Role, _Taken]:
    """Start the servers of these roles together and load them in turn."""
    arms = {role: bench.arm(role, place.arm) for role in roles}
    taken = {role: _Taken(role, bench.clock) for role in roles}
    with _pool(bench, place, len(roles)) as pool:
        failures = pool.start_all(tuple(arms.values()))
        for role, arm in arms.items():
            if arm in failures:
                taken[role].fail(f"did not start: {failures[arm]}")
        if not failures:
            engines = dict(zip(roles, pool.require(tuple(arms.values())), strict=True))
            _load_in_turn(bench, place, engines, taken)
    for start in taken.values():
        start.check_clock()
    return taken


@contextmanager
def _pool(bench: Bench, place: Place, servers: int) -> Iterator[EnginePool]:
    with EnginePool(
        bench.logs / place.name,
        bench.say,
        max_alive=servers,
        on_command=bench.on_command,
        clock=bench.clock,
    ) as pool:
        (bench.logs / place.name).mkdir(parents=True, exist_ok=True)
        yield pool


def _load_in_turn(
    bench: Bench, place: Place, engines: dict[Role, RunningEngine], taken: dict[Role, _Taken]
) -> None:
    for role, engine in engines.items():
        try:
            taken[role].ready(engine)
            prime(engine, bench.profile.workload, bench.prompts)
        except EngineError as error:
            taken[role].fail(str(error))
            return
    for streams in sorted(bench.profile.workload.concurrencies):
        for role, engine in engines.items():
            run = _run(bench, place, engine, streams)
            sample = bench.keep(f"{place.name}-{role.value}-c{streams}", run)
            kept = cell_values(run, bench.profile.slo, sample)
            taken[role].add(kept)
            bench.say(cell_line(role.value, kept))
            if engine.child is not None and engine.child.exit_code() is not None:
                return


def _run(bench: Bench, place: Place, engine: RunningEngine, streams: int) -> RunSamples:
    cell = Cell(streams, place.slot)
    run = measure_run(engine, bench.profile.workload, cell, bench.prompts, clock=bench.clock)
    asked = [gate for gate in bench.gates if (gate.arm, gate.concurrency) == (place.arm, streams)]
    return check_client(run, limits(asked))
