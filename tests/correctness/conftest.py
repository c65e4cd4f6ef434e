"""Servers for correctness: every arm of the profile in float32.

Rounding in bfloat16 flips near ties by itself; in float32 greedy text is
demanded to be equal but for ties closer than the tolerance.
"""

from collections.abc import Callable
from dataclasses import replace

import pytest

from draftgate.engines.pool import EnginePool
from draftgate.engines.running import RunningEngine
from draftgate.errors import DraftgateError
from draftgate.specs import NO_SPECULATION, Arm, Profile


def in_float32(arm: Arm) -> Arm:
    """Return the arm with float32 weights and activations, under a name of its own."""
    return Arm(f"{arm.name}-float32", replace(arm.engine, dtype="float32"))


def without_repair(arm: Arm) -> Arm:
    """Return the arm with all of our plugins off."""
    return Arm(f"{arm.name}-unrepaired", replace(arm.engine, plugins=()))


@pytest.fixture(scope="session")
def serve(engine_pool: EnginePool, profile: Profile) -> Callable[[Arm], RunningEngine]:
    """A function that returns a ready server for an arm, started at first use.

    The first call starts all arms of the profile together, since they are all needed. Beside
    them one more lives: a server in float32 takes 4.5 GB, and the reference is in this process.
    """
    common = [in_float32(arm) for arm in profile.arms]

    def ready(arm: Arm) -> RunningEngine:
        wanted = list(dict.fromkeys([*common, arm])) if arm in common else [arm]
        engine_pool.keep_only([*common, *wanted])
        try:
            return dict(zip(wanted, engine_pool.require(wanted), strict=True))[arm]
        except DraftgateError as error:
            pytest.fail(str(error), pytrace=False)

    return ready


@pytest.fixture(scope="session")
def reference(serve: Callable[[Arm], RunningEngine], profile: Profile) -> RunningEngine:
    """The server without speculation, in float32."""
    return serve(in_float32(profile.arm(NO_SPECULATION)))
