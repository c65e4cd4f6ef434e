"""Record rounds of real server starts, unchanged ones and ones with a planted fault.

    python -m benchmarks.gate.record --kinds base,twin --rounds 60 --quick-starts --max-minutes 60

A round starts one server of each kind together, sends load to them in turn, in
an order drawn from seed and round, at each number of streams, and stops them.
It is appended to the file when it is whole, so a killed recording goes on with
the same command. At most five servers (3.5 GB each) live at once.

`--quick-starts` forks vLLM's engine core and worker out of the API server, for every
kind alike, so that nothing is imported again: a start on two cores took 12 to 13 s
(6 s of imports, 6 s until it served), a usual one 27 to 30 s. Threads are bound to
the same cores, and speed was the same; a forked server shares memory with its
parent and has none of an engine core's own start-up, so what differs between
starts through imports is left out. A recording holds one way of starting only.
"""

import argparse
import ctypes
import hashlib
import random
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.gate.faults import Kind, kinds_of, server
from benchmarks.gate.starts import Recorded, Setting, append, check_setting, read
from draftgate.clock import SYSTEM_CLOCK, Clock
from draftgate.compare.gates import gates_of, limits
from draftgate.compare.records import CellValues, Role, ServerStart
from draftgate.compare.take import cell_line, clock_faults
from draftgate.compare.values import cell_values
from draftgate.datasets import Prompt, load_prompts
from draftgate.engines.pool import MAX_ALIVE, EnginePool
from draftgate.engines.running import RunningEngine
from draftgate.environment import describe
from draftgate.errors import DraftgateError, EngineError, SpecError
from draftgate.load.state import LoadProgress
from draftgate.measure import Cell, check_client, measure_run
from draftgate.metrics import DEFINITIONS_VERSION
from draftgate.specfile import load_profile
from draftgate.specs import Arm, Profile

STARTS = Path(__file__).parent / "starts.parquet"
CONCURRENCIES = (1, 8)
SEED = 20_004

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Bench:
    """What all rounds of a sitting share."""

    profile: Profile
    setting: Setting
    kinds: tuple[Kind, ...]
    prompts: tuple[Prompt, ...]
    logs: Path
    say: Say
    clock: Clock = SYSTEM_CLOCK


def order_of(kinds: Sequence[Kind], *, seed: int, number: int) -> list[Kind]:
    """Return the kinds in the random order of a round; equal arguments give equal orders."""
    shuffled = sorted(kinds, key=lambda kind: kind.name)
    random.Random(f"{seed}/{number}").shuffle(shuffled)
    return shuffled


def take_round(bench: Bench, number: int) -> list[Recorded]:
    """Start one server of each kind together, load them in turn, stop them.

    A server that does not start or dies makes its own start invalid, with the reason.
    """
    order = order_of(bench.kinds, seed=bench.setting.seed, number=number)
    arms = [server(kind, bench.profile, quick=bench.setting.quick) for kind in order]
    wall, start_ns = bench.clock.wall(), bench.clock.now_ns()
    with EnginePool(bench.logs, lambda _line: None, max_alive=MAX_ALIVE) as pool:
        failures = pool.start_all(arms)
        ready_s = (bench.clock.now_ns() - start_ns) / 1e9
        bench.say(f"round {number}: {len(arms) - len(failures)} servers ready in {ready_s:.0f} s")
        cells = _load_in_turn(bench, pool, order, arms, failures)
        engines = {arm: _version(pool, arm) for arm in arms if arm not in failures}
    jumped = clock_faults(bench.clock, wall, start_ns)
    return [
        Recorded(
            kind.name,
            number,
            place,
            ServerStart(
                role=Role.BASE,
                started_at=wall.isoformat(),
                ready_s=0.0 if arm in failures else ready_s,
                engine=engines.get(arm, "unknown"),
                cells=tuple(cells[kind.name]),
                invalid=(*_reason(failures, arm), *jumped),
            ),
        )
        for place, (kind, arm) in enumerate(zip(order, arms, strict=True))
    ]


def _load_in_turn(
    bench: Bench,
    pool: EnginePool,
    order: Sequence[Kind],
    arms: Sequence[Arm],
    failures: dict[Arm, DraftgateError],
) -> dict[str, list[CellValues]]:
    cells: dict[str, list[CellValues]] = {kind.name: [] for kind in order}
    for streams in bench.setting.concurrencies:
        for kind, arm in zip(order, arms, strict=True):
            if arm in failures:
                continue
            try:
                (engine,) = pool.require([arm])
            except EngineError as error:
                failures[arm] = error
                continue
            cells[kind.name].append(_measure(bench, kind, engine, streams))
    return cells


def _measure(bench: Bench, kind: Kind, engine: RunningEngine, streams: int) -> CellValues:
    hiccup = Hiccup(kind.hiccup_s) if kind.hiccup_s else None
    run = measure_run(
        engine, bench.profile.workload, Cell(streams, 0), bench.prompts, progress=hiccup
    )
    gates = gates_of([bench.profile.arm(kind.arm)], [streams], bench.profile.compare)
    cell = cell_values(check_client(run, limits(gates)), bench.profile.slo, "")
    bench.say(cell_line(kind.name, cell))
    return cell


def stand_still(seconds: float) -> None:
    """Keep every thread of this process from running Python: a C call that holds the lock."""
    ctypes.PyDLL(None).usleep(round(seconds * 1e6))


class Hiccup:
    """A client that stands still once, at the second report of progress.

    Args:
        seconds: For how long.
        wait: Blocks the whole client for so many seconds.
    """

    def __init__(self, seconds: float, wait: Callable[[float], object] = stand_still) -> None:
        self._seconds = seconds
        self._wait = wait
        self._calls = 0

    def __call__(self, _progress: LoadProgress) -> None:
        """Take a report of progress, about one a second."""
        self._calls += 1
        if self._calls == 2:
            self._wait(self._seconds)


def _version(pool: EnginePool, arm: Arm) -> str:
    try:
        (engine,) = pool.require([arm])
        return engine.version()
    except EngineError:
        return "unknown"


def _reason(failures: dict[Arm, DraftgateError], arm: Arm) -> tuple[str, ...]:
    return (f"did not start or died: {failures[arm]}",) if arm in failures else ()


def record(bench: Bench, path: Path, *, rounds: int, max_minutes: float | None) -> int:
    """Append rounds until the file holds `rounds` of these kinds or time is up.

    Returns:
        Rounds of exactly these kinds that the file holds.
    """
    names = {kind.name for kind in bench.kinds}
    begin_ns, longest_s = bench.clock.now_ns(), 0.0
    while True:
        held = read(path).rounds() if path.exists() else {}
        done = sum(set(kinds) == names for kinds in held.values())
        start_s = (bench.clock.now_ns() - begin_ns) / 1e9
        if done >= rounds:
            return done
        if max_minutes is not None and start_s + longest_s > 60 * max_minutes:
            bench.say(f"{max_minutes:g} minutes have no room for another round: {done} are there")
            return done
        number = max(held, default=-1) + 1
        append(path, bench.setting, take_round(bench, number))
        longest_s = max(longest_s, (bench.clock.now_ns() - begin_ns) / 1e9 - start_s)


def sending(profile: Profile, min_requests: int | None) -> Profile:
    """Return the profile with at least so many requests in a window; None changes nothing."""
    if min_requests is None:
        return profile
    return replace(profile, workload=replace(profile.workload, min_requests=min_requests))


def _bench(args: argparse.Namespace, logs: Path) -> Bench:
    kinds = kinds_of(args.kinds)
    if len(kinds) > MAX_ALIVE:
        raise SpecError(
            f"kinds: got {len(kinds)}, expected at most {MAX_ALIVE}: more servers don't fit into "
            "memory at once. Record them in several sittings."
        )
    profile = sending(load_profile(args.profile), args.min_requests)
    streams = tuple(sorted({int(part) for part in args.concurrencies.split(",")}))
    setting = Setting(
        definitions=DEFINITIONS_VERSION,
        hardware=describe("").hardware,
        profile=profile.name,
        profile_sha256=hashlib.sha256(profile.text.encode()).hexdigest(),
        concurrencies=streams,
        min_requests=profile.workload.min_requests,
        seed=args.seed,
        quick=args.quick_starts,
    )
    if args.out.exists():
        check_setting(read(args.out).setting, setting)
    prompts = load_prompts(profile.workload.dataset, profile.workload.seed)
    return Bench(profile, setting, kinds, prompts, logs, lambda text: print(text, flush=True))


def main() -> int:
    """Record, and return 0 if all rounds are there, 1 if time was up before."""
    parser = argparse.ArgumentParser(description="Record real server starts.")
    parser.add_argument("--kinds", default="base,twin", help="comma-separated, at most five")
    parser.add_argument("--rounds", type=int, default=60, help="rounds of these kinds in the file")
    parser.add_argument("--max-minutes", type=float, help="no round begins that would end later")
    parser.add_argument("--quick-starts", action="store_true", help="fork instead of spawn")
    parser.add_argument("--profile", default="cpu-smollm2")
    parser.add_argument("--concurrencies", default=",".join(map(str, CONCURRENCIES)))
    parser.add_argument("--min-requests", type=int, help="per window; else the profile's")
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--out", type=Path, default=STARTS)
    parser.add_argument("--logs", type=Path, help="folder of the servers' logs; else thrown away")
    args = parser.parse_args()
    try:
        with tempfile.TemporaryDirectory() as scratch:
            bench = _bench(args, args.logs or Path(scratch))
            done = record(bench, args.out, rounds=args.rounds, max_minutes=args.max_minutes)
    except DraftgateError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    return 0 if done >= args.rounds else 1


if __name__ == "__main__":
    sys.exit(main())
