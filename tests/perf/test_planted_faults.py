"""The paired gate against known truth on the real engine: planted faults, and none.

Servers of one session stay up and are compared as live ones, so that a pair
costs seconds; one comparison of an unchanged engine is taken with real starts.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from draftgate.compare.gates import BY_PROMPT, gates_of
from draftgate.compare.records import GateResult, SideSpec
from draftgate.compare.run import Sides, load_comparison, open_comparison, run_comparison
from draftgate.engines.pool import EnginePool
from draftgate.errors import DraftgateError
from draftgate.plugin.session import GateSession
from draftgate.specs import (
    NO_SPECULATION,
    Arm,
    CompareSpec,
    PairedGateSpec,
    Profile,
    SamplingParams,
    UrlLaunch,
)
from draftgate.verdict import Outcome
from tests.support.planted import weakened

pytestmark = [pytest.mark.perf, pytest.mark.slow]

SLOWER_STEPS_MS = 20.0
"""More than a step of SmolLM2-135M at one stream on two fast cores (15 ms), a third of one on
slow ones (55 ms). The server's other processes work during the sleep, so steps grow by less."""

SPEED = PairedGateSpec("output_tokens_per_s", 0.01, 0.05)
ACCEPTANCE = PairedGateSpec(BY_PROMPT, 0.02, 0.10)
PLAN = CompareSpec(gates=(SPEED, ACCEPTANCE), looks=(6, 9), confirm_pairs=6)
"""Fewer pairs than by default, where they are for losses of 5 %. Six fresh pairs are enough for
both tests of the second stage to reject: of 64 choices of signs one is as extreme."""

Compare = Callable[[SideSpec, SideSpec, CompareSpec], dict[str, GateResult]]


def changed(arm: Arm, name: str, **environment: str) -> Arm:
    """Return the arm under another name with variables added to its server's environment."""
    env = tuple(sorted({**dict(arm.engine.env), **environment}.items()))
    return Arm(name, replace(arm.engine, env=env))


def slowed(arm: Arm) -> Arm:
    """Return the arm with a plugin that makes each of its steps longer."""
    site = Path(__file__).parent.parent / "planted" / "site"
    return changed(
        arm,
        f"{arm.name}-slowed",
        PYTHONPATH=str(site),
        DRAFTGATE_PLANTED_STEP_DELAY_MS=str(SLOWER_STEPS_MS),
    )


@pytest.fixture
def live(engine_pool: EnginePool) -> Callable[..., tuple[SideSpec, ...]]:
    """A function that starts servers together and returns each as a live side."""

    def start(arms: tuple[Arm, ...]) -> tuple[SideSpec, ...]:
        try:
            engines = engine_pool.require(arms)
        except DraftgateError as error:
            pytest.fail(str(error), pytrace=False)
        sides = []
        for engine in engines:
            spec = replace(engine.spec, launch=UrlLaunch(engine.base_url, engine.model))
            sides.append(SideSpec(engine.arm.name, "url", (Arm("server", spec),), restarts=False))
        return tuple(sides)

    return start


@pytest.fixture
def compare(profile: Profile, draftgate_session: GateSession, tmp_path: Path) -> Compare:
    """A function that compares two sides at one stream and returns the verdicts by metric."""
    workload = replace(
        profile.workload,
        concurrencies=(1,),
        sampling=SamplingParams(max_tokens=16),
        window_s=0.1,
        min_requests=2,
        stagger_s=0.0,
    )

    def judge(base: SideSpec, candidate: SideSpec, plan: CompareSpec) -> dict[str, GateResult]:
        sent = replace(profile, workload=workload, arms=base.arms, keep_alive=True)
        gates = gates_of(base.arms, workload.concurrencies, plan)
        folder = open_comparison(tmp_path, Sides(sent, base, candidate), gates, plan, argv=())
        run_comparison(folder, draftgate_session.say)
        results = load_comparison(folder.path).result.gates
        return {result.gate.metric: result for result in results}

    return judge


def test_weakened_draft_is_a_regression_of_acceptance(
    live: Callable[..., tuple[SideSpec, ...]],
    compare: Compare,
    profile: Profile,
    draftgate_session: GateSession,
) -> None:
    """Noise on the draft's weights gives REGRESSION, and acceptance alone is named."""
    arm = profile.arm("draft_model")

    found = compare(*live((arm, weakened(arm, draftgate_session.say))), PLAN)

    speed, acceptance = found[SPEED.metric], found[ACCEPTANCE.metric]
    assert acceptance.outcome is Outcome.REGRESSION, acceptance
    assert speed.outcome is Outcome.REGRESSION, speed
    assert speed.cause is not None
    assert speed.cause.named == ("acceptance",), speed.cause


def test_slow_steps_are_a_regression_of_step_time(
    live: Callable[..., tuple[SideSpec, ...]], compare: Compare, profile: Profile
) -> None:
    """Steps longer by 20 ms give REGRESSION, and step time alone is named."""
    base = profile.arm(NO_SPECULATION)

    (speed,) = compare(*live((base, slowed(base))), PLAN).values()

    assert speed.outcome is Outcome.REGRESSION, speed
    assert speed.cause is not None
    assert speed.cause.named == ("step time",), speed.cause


def test_second_server_of_the_same_engine_is_no_regression(
    live: Callable[..., tuple[SideSpec, ...]], compare: Compare, profile: Profile
) -> None:
    """Two live servers of one build are neither worse nor better.

    By more than 10 %: rounds of load can't tell what a start has by chance (some
    percent here) from the build, which is why builds are compared in starts.
    """
    base = profile.arm(NO_SPECULATION)
    plan = replace(PLAN, gates=(PairedGateSpec(SPEED.metric, 0.10, 0.25),))

    (speed,) = compare(*live((base, changed(base, "none-twin"))), plan).values()

    assert speed.outcome in (Outcome.PASS, Outcome.INCONCLUSIVE), speed


def test_unchanged_engine_started_anew_for_every_pair_is_no_regression(
    compare: Compare, profile: Profile
) -> None:
    """Four pairs of real starts of one build end green or open, never as a REGRESSION."""
    side = SideSpec("profile", "profile", (profile.arm(NO_SPECULATION),))
    plan = replace(PLAN, looks=(4,), confirm_pairs=6)

    (speed,) = compare(side, side, plan).values()

    assert speed.outcome in (Outcome.PASS, Outcome.INCONCLUSIVE, Outcome.IMPROVEMENT), speed
    assert speed.search is not None
    assert speed.search.pairs == 4
