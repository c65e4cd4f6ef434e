"""Judge planted faults in live servers of the real engine with the product's own comparison.

    python -m benchmarks.gate.planted --kinds twin,step5,step10,prefill,queue,draft_weak

Per kind an unchanged server and one with the fault are started once and loaded in
turn at one stream: a pair is a round of load, not a start. So the verdicts show
what the gate says of a fault and by which cause, and not what differs between
starts; that is in the recorded starts (`record.py`). Two kinds are trouble that is
no fault of the build, in the pairs `TROUBLED`: with `bad` every pair starts both
servers anew (forked, as with `record --quick-starts`) and some of the candidate's
starts are slow; with `hiccup` the client stands still. Each kind is entered in
`planted.json` when its comparison has ended; a kind that is there is replaced.
"""

import argparse
import json
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.gate.faults import KINDS, PREFIX, Kind, server
from benchmarks.gate.record import stand_still
from draftgate.codec import encode
from draftgate.compare.gates import gates_of, requests_per_start
from draftgate.compare.records import GateResult, Pair, SideSpec, Stage, StoredComparison
from draftgate.compare.run import Sides, Take, load_comparison, open_comparison, run_comparison
from draftgate.compare.take import Bench, Place, take_pair
from draftgate.engines.pool import EnginePool
from draftgate.engines.running import RunningEngine
from draftgate.errors import DraftgateError
from draftgate.files import write_text
from draftgate.noise.judgeable import judgeable
from draftgate.specfile import load_profile
from draftgate.specs import Arm, Profile, UrlLaunch

RESULTS = Path(__file__).parent / "planted.json"
STREAMS = 1
MIN_REQUESTS = 4
"""Requests in a window; the profile's 9 make a pair twice as long and no verdict clearer."""

BAD_STARTS = "bad"
"""The kind whose servers are started anew for every pair."""
TROUBLED = (2, 9)
"""Pairs of each stage, from 0, that have the trouble of `bad` and `hiccup`."""
HICCUP_AFTER_S = 3.0
"""From the beginning of a pair: the first server is being measured then."""

Row = dict[str, Any]
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Job:
    """How each kind is compared.

    Attributes:
        profile: Whose servers and prompts.
        min_requests: In a window.
        root: Where comparisons' folders go.
        say: Takes lines of progress.
    """

    profile: Profile
    min_requests: int
    root: Path
    say: Say


def compare_kind(job: Job, kind: Kind) -> StoredComparison:
    """Compare an unchanged side with one that has the fault.

    Raises:
        DraftgateError: As from the pool and the comparison.
    """
    made = started_anew if kind.name == BAD_STARTS else live
    with made(job, kind) as (base, candidate):
        workload = replace(
            job.profile.workload, concurrencies=(STREAMS,), min_requests=job.min_requests
        )
        sent = replace(job.profile, workload=workload, arms=base.arms)
        requests = {STREAMS: requests_per_start(workload, STREAMS)}
        gates = judgeable(
            None, gates_of(base.arms, (STREAMS,), sent.compare), requests, sent.compare
        )
        sides = Sides(sent, base, candidate)
        folder = open_comparison(job.root, sides, gates, sent.compare, argv=())
        run_comparison(folder, job.say, take=with_trouble(job, kind))
    return load_comparison(folder.path)


@contextmanager
def live(job: Job, kind: Kind) -> Iterator[tuple[SideSpec, SideSpec]]:
    """Start both servers once, and yield them as running ones."""
    arms = [server(KINDS[kind.against], job.profile, quick=False)]
    arms.append(replace(server(kind, job.profile, quick=False), name=f"{kind.name}-fault"))
    logs = job.root / f"{kind.name}-logs"
    with EnginePool(logs, job.say) as pool:
        logs.mkdir(parents=True, exist_ok=True)
        base, candidate = (running(kind, engine) for engine in pool.require(arms))
        yield base, candidate


def running(kind: Kind, engine: RunningEngine) -> SideSpec:
    """Return a running server as a side."""
    spec = replace(engine.spec, launch=UrlLaunch(engine.base_url, engine.model))
    return SideSpec(engine.arm.name, "url", (Arm(kind.arm, spec),), restarts=False)


@contextmanager
def started_anew(job: Job, kind: Kind) -> Iterator[tuple[SideSpec, SideSpec]]:
    """Yield sides that every pair starts, equal but for where the candidate looks for trouble."""
    engine = server(KINDS[kind.against], job.profile, quick=True).engine
    told = {**dict(engine.env), f"{PREFIX}BAD_START": str(bad_start(job))}
    other = replace(engine, env=tuple(sorted(told.items())))
    yield (
        SideSpec(kind.against, "profile", (Arm(kind.arm, engine),)),
        SideSpec(kind.name, "profile", (Arm(kind.arm, other),)),
    )


def bad_start(job: Job) -> Path:
    """Return the file whose finder is a bad start."""
    return job.root / "bad-start"


def with_trouble(job: Job, kind: Kind) -> Take:
    """Return what takes a pair, with this kind's trouble in some of the pairs."""

    def take(bench: Bench, place: Place) -> Pair:
        if place.slot not in TROUBLED or place.attempt:
            return take_pair(bench, place)
        if kind.name == BAD_STARTS:
            bad_start(job).write_text(dict(kind.planted)["STEP_SHARE"], encoding="utf-8")
        if kind.hiccup_s:
            threading.Timer(HICCUP_AFTER_S, stand_still, (kind.hiccup_s,)).start()
        return take_pair(bench, place)

    return take


def row(kind: Kind, stored: StoredComparison, min_requests: int) -> Row:
    """Return what results keep of one kind's comparison."""
    fresh = sum(pair.stage is Stage.CONFIRM for pair in stored.pairs)
    return {
        "kind": kind.name,
        "told": kind.told,
        "arm": kind.arm,
        "streams": STREAMS,
        "min_requests": min_requests,
        "engine": stored.pairs[0].base.engine,
        "hardware": stored.header.environment.hardware,
        "started_at": stored.header.started_at,
        "seed": stored.header.plan.seed,
        "minutes": round(stored.result.minutes, 1),
        "pairs": len(stored.pairs) - fresh,
        "fresh_pairs": fresh,
        "unused": [reason for pair in stored.pairs for reason in pair.invalid],
        "outcome": stored.result.outcome.value,
        "gates": [gate_row(result) for result in stored.result.gates],
    }


def gate_row(result: GateResult) -> Row:
    """Return what results keep of one gate."""
    numbers = result.confirm or result.search
    return {
        "metric": result.gate.metric,
        "instead_of": result.gate.instead_of,
        "outcome": result.outcome.value,
        "loss": encode(numbers),
        "adjusted_p": result.adjusted_p,
        "reason": result.reason,
        "cause": result.cause.text if result.cause else None,
        "named": list(result.cause.named) if result.cause else [],
    }


def enter(path: Path, found: Row) -> None:
    """Write a row into the results, in place of an older one of its kind."""
    held = json.loads(path.read_text(encoding="utf-8")) if path.exists() else []
    rows = [other for other in held if other["kind"] != found["kind"]] + [found]
    rows.sort(key=lambda other: list(KINDS).index(other["kind"]))
    write_text(path, json.dumps(rows, indent=1, allow_nan=False) + "\n")


def main() -> int:
    """Compare each kind; return 0 if all were compared, 2 for a wrong one."""
    parser = argparse.ArgumentParser(description="Judge planted faults in live servers.")
    parser.add_argument("--kinds", default="twin,step5,step10,prefill,queue,draft_weak")
    parser.add_argument("--min-requests", type=int, default=MIN_REQUESTS)
    parser.add_argument("--profile", default="cpu-smollm2")
    parser.add_argument("--out", type=Path, default=RESULTS)
    args = parser.parse_args()
    unknown = [name for name in args.kinds.split(",") if name not in KINDS]
    if unknown:
        print(f"planted: unknown kinds {unknown}, expected some of {list(KINDS)}", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as root:
        say: Say = lambda line: print(line, flush=True)  # noqa: E731 - one line, used once
        job = Job(load_profile(args.profile), args.min_requests, Path(root), say)
        for name in args.kinds.split(","):
            found = row(KINDS[name], compare_kind(job, KINDS[name]), args.min_requests)
            enter(args.out, found)
            say(f"== {name}: {found['outcome']} after {found['minutes']} minutes")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except DraftgateError as error:
        sys.exit(f"planted: {error}")
