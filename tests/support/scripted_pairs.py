"""Pairs without servers: two builds whose numbers are scripted, and trouble at set places."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from draftgate.compare.gates import gates_of
from draftgate.compare.records import (
    COMPARISON_SCHEMA_VERSION,
    CellValues,
    ComparisonHeader,
    Pair,
    Role,
    ServerStart,
    SideSpec,
)
from draftgate.compare.run import Sides, open_comparison
from draftgate.compare.store import ComparisonFolder
from draftgate.compare.take import Bench, Place
from draftgate.metrics import DEFINITIONS_VERSION
from draftgate.specs import CompareSpec, PairedGateSpec, Profile
from tests.support.samples import START, make_environment, make_profile

SPEED = PairedGateSpec("output_tokens_per_s", 0.01, 0.05)
PLAN = CompareSpec(gates=(SPEED,))


@dataclass(frozen=True, slots=True)
class Build:
    """What every start of a build shows, before noise.

    Attributes:
        step_s: Step time.
        tokens: Tokens per step.
        sd: Standard deviation of the log of a start's step time.
        requests: Requests per start and number of streams.
        engine: Its version.
    """

    step_s: float = 0.03
    tokens: float = 1.0
    sd: float = 0.01
    requests: int = 40
    engine: str = "vllm 1.0"


@dataclass
class Script:
    """A `Take`: draws each pair from two builds, with trouble where it is asked for.

    Attributes:
        base: One build.
        candidate: The other.
        seed: Of the noise.
        trouble: Reasons by (arm, slot, attempt); "*" stands for any arm.
        calls: Places that were asked for.
        benches: What each pair was given, in the same order.
        before: Called with each place before the pair is drawn.
    """

    base: Build = Build()
    candidate: Build = Build()
    seed: int = 1
    trouble: Mapping[tuple[str, int, int], str] = field(default_factory=dict)
    calls: list[Place] = field(default_factory=list)
    benches: list[Bench] = field(default_factory=list)
    before: Callable[[Place], None] = lambda _place: None

    def __call__(self, bench: Bench, place: Place) -> Pair:
        """Return the pair of a place; the same place always gives the same one."""
        self.calls.append(place)
        self.benches.append(bench)
        self.before(place)
        key = (place.slot, place.attempt)
        reason = self.trouble.get((place.arm, *key)) or self.trouble.get(("*", *key), "")
        names = [arm.name for arm in bench.base.arms]
        rng = np.random.default_rng(
            [self.seed, names.index(place.arm), place.stage.value, place.slot, place.attempt]
        )
        concurrencies = bench.profile.workload.concurrencies
        starts = [
            _start(build, role, rng, concurrencies)
            for role, build in ((Role.BASE, self.base), (Role.CANDIDATE, self.candidate))
        ]
        if reason:
            starts[1] = replace(starts[1], invalid=(reason,))
        return Pair(
            place.arm,
            place.stage,
            place.slot,
            place.attempt,
            place.candidate_first,
            "here",
            *starts,
        )


def _start(
    build: Build, role: Role, rng: np.random.Generator, concurrencies: tuple[int, ...]
) -> ServerStart:
    step_s = build.step_s * float(np.exp(rng.normal(0.0, build.sd)))
    cells = tuple(
        CellValues(
            concurrency=c,
            values=(
                ("output_tokens_per_s", c * build.tokens / step_s),
                ("tokens_per_step", build.tokens),
                ("step_time_s", step_s),
                ("decode_share_ratio", 1.0),
                ("ttft_p99_s", 4 * step_s),
            ),
            requests=build.requests,
            prompts=tuple((f"p{n}", build.tokens + 0.01 * n) for n in range(5)),
        )
        for c in concurrencies
    )
    return ServerStart(role, START.isoformat(), 20.0, build.engine, cells)


def sides(arms: int = 1, concurrencies: tuple[int, ...] = (8,)) -> Sides:
    """Return two sides of the first so many arms of the example profile."""
    profile: Profile = make_profile(concurrencies=concurrencies)
    kept = profile.arms[:arms]
    return Sides(
        replace(profile, arms=kept),
        SideSpec("old", "venv", kept),
        SideSpec("new", "venv", kept),
    )


def header(plan: CompareSpec = PLAN, arms: int = 1, **changes: object) -> ComparisonHeader:
    """Return a header for pairs that a script draws."""
    asked = sides(arms)
    made = ComparisonHeader(
        schema=COMPARISON_SCHEMA_VERSION,
        definitions=DEFINITIONS_VERSION,
        id="example",
        started_at=START.isoformat(),
        argv=("draftgate", "compare", "old", "new"),
        profile=asked.profile,
        base=asked.base,
        candidate=asked.candidate,
        gates=gates_of(asked.base.arms, asked.profile.workload.concurrencies, plan),
        plan=plan,
        environment=make_environment(),
    )
    return replace(made, **changes)  # type: ignore[arg-type]


def folder(root: Path, plan: CompareSpec = PLAN, arms: int = 1) -> ComparisonFolder:
    """Return the folder of a new comparison on this machine."""
    asked = sides(arms)
    gates = gates_of(asked.base.arms, asked.profile.workload.concurrencies, plan)
    return open_comparison(root, asked, gates, plan, argv=("draftgate", "compare"))
