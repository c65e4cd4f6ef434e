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

BESIDE = 2
"""Servers that live beside the one without speculation."""


def in_float32(arm: Arm) -> Arm:
    """Return the arm with float32 weights and activations, under a name of its own."""
    return Arm(f"{arm.name}-float32", replace(arm.engine, dtype="float32"))


def without_repair(arm: Arm) -> Arm:
    """Return the arm with all of our plugins off."""
    return Arm(f"{arm.name}-unrepaired", replace(arm.engine, plugins=()))


@pytest.fixture(scope="session")
def serve(engine_pool: EnginePool, profile: Profile) -> Callable[[Arm], RunningEngine]:
    """A function that returns a ready server for an arm, started at first use.

    Beside the server without speculation only the last ones live: each takes 4.5 GB in float32,
    and the reference is in this process.
    """
    always = in_float32(profile.arm(NO_SPECULATION))
    last: list[Arm] = []

    def ready(arm: Arm) -> RunningEngine:
        if arm != always:
            last[:] = [*(one for one in last if one != arm), arm][-BESIDE:]
        engine_pool.keep_only([always, *last])
        try:
            return engine_pool.require([always, arm])[-1]
        except DraftgateError as error:
            pytest.fail(str(error), pytrace=False)

    return ready


@pytest.fixture(scope="session")
def reference(serve: Callable[[Arm], RunningEngine], profile: Profile) -> RunningEngine:
    """The server without speculation, in float32."""
    return serve(in_float32(profile.arm(NO_SPECULATION)))
