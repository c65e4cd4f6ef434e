"""Planted faults that tests of more than one folder share."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from draftgate.engines.fake import SCRIPT_VARIABLE
from draftgate.specs import Arm
from draftgate.targets import resolve_target, weakened_copy

WEAKER_DRAFT = 0.2
"""Noise on the draft's weights, as a share of their standard deviation."""

WEAKER_SCRIPT = 0.7
"""Tokens per step that are left of the fake server's."""


def weakened(arm: Arm, say: Callable[[str], None]) -> Arm:
    """Return the arm with noise on its draft's weights; on the fake server, with a worse script."""
    name = f"{arm.name}-weakened"
    if arm.engine.engine == "fake":
        env = dict(arm.engine.env)
        script = json.loads(env[SCRIPT_VARIABLE])
        script["tokens_per_step"] *= WEAKER_SCRIPT
        env[SCRIPT_VARIABLE] = json.dumps(script)
        return Arm(name, replace(arm.engine, env=tuple(sorted(env.items()))))
    assert arm.engine.speculative is not None
    source = Path(resolve_target(arm.engine.target, log=say))
    draft = weakened_copy(source, noise_ratio=WEAKER_DRAFT, seed=1, log=say)
    speculative = replace(arm.engine.speculative, model=str(draft))
    return Arm(name, replace(arm.engine, speculative=speculative))
