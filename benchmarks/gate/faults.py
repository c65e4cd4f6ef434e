"""What is planted into the real engine: one kind of server start per row.

The faults themselves live in `tests/planted/site` and work by environment
variables; this module knows which ones make a kind, and starts nothing.
"""

import os
from dataclasses import dataclass, replace
from pathlib import Path

from draftgate.errors import SpecError
from draftgate.specs import Arm, Profile
from draftgate.targets import resolve_target, weakened_copy

SITE = Path(__file__).parents[2] / "tests" / "planted" / "site"
PREFIX = "DRAFTGATE_PLANTED_"

WEAK_NOISE = 0.02
"""Noise on the draft's weights, as a share of their spread: acceptance about 10 % down. Tokens
per step of SmolLM2-135M drafting for itself (K = 3), mean over the prompts of one run at 1 and
at 8 streams: 3.88 and 3.88 without noise, 3.49 and 3.57 at .015, 3.36 and 3.51 at .02, 3.29 and
3.43 at .03, 2.94 at .05 (1 stream)."""


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of start.

    Attributes:
        name: What rows of a recording call it.
        arm: Arm of the profile that it starts.
        against: Kind that it is compared with; itself for a base.
        planted: (variable without its prefix, value) of the server's environment.
        noise_ratio: Noise on the draft's weights; 0 for none.
        hiccup_s: How long the client stands still once in each run.
        told: What a reader of the results has to know.
    """

    name: str
    arm: str
    against: str
    planted: tuple[tuple[str, str], ...] = ()
    noise_ratio: float = 0.0
    hiccup_s: float = 0.0
    told: str = "unchanged"


KINDS = {
    kind.name: kind
    for kind in (
        Kind("base", "none", "base"),
        Kind("twin", "none", "base"),
        Kind("step5", "none", "base", (("STEP_SHARE", "0.05"),), told="every step 5 % longer"),
        Kind("step10", "none", "base", (("STEP_SHARE", "0.1"),), told="every step 10 % longer"),
        Kind(
            "prefill",
            "none",
            "base",
            (("PREFILL_SHARE", "0.3"),),
            told="steps that start requests 30 % longer",
        ),
        Kind("queue", "none", "base", (("QUEUE_MS", "25"),), told="25 ms more in the queue"),
        Kind(
            "tail",
            "none",
            "base",
            (("STALL_MS", "25"), ("STALL_SHARE", "0.01")),
            told="1 % of steps stall for 25 ms",
        ),
        Kind("bad", "none", "base", (("STEP_SHARE", "0.3"),), told="a start 30 % slower"),
        Kind("hiccup", "none", "base", hiccup_s=0.5, told="the client stands still for 0.5 s"),
        Kind("draft", "draft_model", "draft"),
        Kind("draft_twin", "draft_model", "draft"),
        Kind(
            "draft_weak",
            "draft_model",
            "draft",
            noise_ratio=WEAK_NOISE,
            told=f"noise of {WEAK_NOISE:g} on the draft's weights",
        ),
    )
}
"""All kinds by name, in the order in which results list them.

A stall of 25 ms makes the p99 of a 14 ms step at one stream (20 ms) twice as long and the mean
1.7 % longer; at 8 streams it hides behind prefills of other streams (p99 of 90 to 140 ms)."""


def kinds_of(text: str) -> tuple[Kind, ...]:
    """Return the kinds that a comma-separated list names.

    Raises:
        SpecError: If one is unknown, named twice, or comes without its base.
    """
    names = [name.strip() for name in text.split(",")]
    unknown = [name for name in names if name not in KINDS]
    if unknown or len(set(names)) < len(names):
        raise SpecError(
            f"kinds: got {text!r}, expected different ones of {', '.join(KINDS)}. "
            f"{'Unknown: ' + ', '.join(unknown) if unknown else 'Name each once'}."
        )
    alone = [name for name in names if KINDS[name].against not in names]
    if alone:
        raise SpecError(
            f"kinds: {', '.join(alone)} can't be compared: add {KINDS[alone[0]].against!r}, so "
            "that each round holds both sides."
        )
    return tuple(KINDS[name] for name in names)


def server(kind: Kind, profile: Profile, *, quick: bool) -> Arm:
    """Return the server of a kind, named after it.

    Every kind gets the same path of plugins, so that an unchanged server
    differs from a planted one by the variables alone.

    Args:
        kind: What is planted.
        profile: Where its arm stands.
        quick: Whether engine core and worker are forked; equal for all kinds of a recording.
    """
    arm = profile.arm(kind.arm)
    engine = arm.engine
    env = {**dict(engine.env), "PYTHONPATH": str(SITE)}
    env.update({PREFIX + name: value for name, value in kind.planted})
    if quick:
        env[f"{PREFIX}FORK"] = "1"
    engine = replace(engine, env=tuple(sorted(env.items())))
    if kind.noise_ratio and engine.speculative is not None:
        source = Path(resolve_target(engine.target, log=_quiet))
        draft = weakened_copy(source, noise_ratio=kind.noise_ratio, seed=1, log=_quiet)
        speculative = replace(engine.speculative, model=os.fspath(draft))
        engine = replace(engine, speculative=speculative)
    return Arm(kind.name, engine)


def _quiet(_line: str) -> None:
    """Take a line of progress and drop it."""
