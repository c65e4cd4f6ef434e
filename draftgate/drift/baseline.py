"""The store of accepted acceptance: `<profile>.acceptance.json` beside the baseline of speed.

Made to be read in a diff: one prompt a line, what decides comparability in
plain words. Written by `accept_traffic` alone. Knows nothing of judging.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from draftgate.baselines import Accepted, accepted, baseline_path, write_baseline
from draftgate.clock import Clock
from draftgate.codec import decode, encode, to_lines
from draftgate.errors import BaselineError
from draftgate.records import Environment, TrafficAcceptance
from draftgate.specs import Profile
from draftgate.verdict import RECORD_COMMAND

# History: 1 first version.
ACCEPTANCE_SCHEMA_VERSION = 1


@dataclass(frozen=True, slots=True)
class AcceptanceBaseline:
    """What one file holds.

    Attributes:
        schema: Version of the format.
        profile: Name of the profile.
        environment: Where the newest of it was measured.
        accepted: One entry per session whose measurements were let in.
        traffic: One measurement per arm and kind.
    """

    schema: int
    profile: str
    environment: Environment
    accepted: tuple[Accepted, ...]
    traffic: tuple[TrafficAcceptance, ...]

    def held(self, arm: str, kind: str) -> TrafficAcceptance | None:
        """Return the measurement of one arm on one kind of traffic; None if there is none."""
        found = (held for held in self.traffic if (held.arm, held.kind) == (arm, kind))
        return next(found, None)


@dataclass(frozen=True, slots=True)
class TrafficSession:
    """Measurements of one invocation that are to become a baseline.

    Attributes:
        run_id: Name of their run folder.
        profile: What was asked for.
        environment: Where.
        traffic: All measurements.
    """

    run_id: str
    profile: Profile
    environment: Environment
    traffic: tuple[TrafficAcceptance, ...]


def acceptance_path(root: Path, environment: Environment, profile: Profile) -> Path:
    """Return the file for this hardware, engine and profile, there or not.

    Acceptance does not depend on the hardware's speed; the folder is that of
    the baseline of speed so that both are found together.
    """
    return baseline_path(root, environment, profile).with_name(f"{profile.name}.acceptance.json")


def load_acceptance(path: Path) -> AcceptanceBaseline:
    """Read a file.

    Raises:
        BaselineError: If it is absent, damaged, of another schema, or lies
            where that of another profile belongs.
    """
    try:
        return _read(path)
    except (OSError, ValueError) as error:
        raise BaselineError(
            f"acceptance baseline {path}: cannot be used ({error}). Restore it from version "
            f"control, or record a new one: {RECORD_COMMAND}"
        ) from error


def check_traffic(session: TrafficSession) -> None:
    """Do nothing if the session's measurements can become a baseline.

    Raises:
        BaselineError: If one is invalid, or an arm that speculates was not
            measured on every kind of traffic that another was.
    """
    traffic = session.traffic
    invalid = [f"{t.arm} on {t.kind}: {'; '.join(t.invalid)}" for t in traffic if t.invalid]
    if invalid:
        raise BaselineError(
            f"run {session.run_id}: {len(invalid)} of {len(traffic)} measurements of acceptance "
            f"are invalid and cannot become a baseline ({' | '.join(invalid[:3])}). Measure again."
        )
    got = {(found.arm, found.kind) for found in traffic}
    arms = [arm.name for arm in session.profile.arms if arm.engine.speculative is not None]
    kinds = dict.fromkeys(found.kind for found in traffic)
    missing = [f"{arm} on {kind}" for arm in arms for kind in kinds if (arm, kind) not in got]
    if missing:
        raise BaselineError(
            f"run {session.run_id}: no acceptance of {', '.join(missing)}. Measure every "
            "speculative arm of the profile on the same kinds before accepting it."
        )


def accept_traffic(
    root: Path, session: TrafficSession, *, reason: str, clock: Clock, extend: bool = False
) -> Path:
    """Make the measurements of `session` the baseline, and return its file.

    Args:
        root: Folder of all baselines.
        session: The measurements, one per speculative arm and kind.
        reason: Why these are the new reference; goes into the file.
        clock: Source of the time of acceptance.
        extend: Keep what the file holds of other arms and kinds.

    Raises:
        BaselineError: If the reason is empty, the session is not fit
            (`check_traffic`), the held file is damaged or the new one cannot
            be written.
    """
    entry = accepted(session.run_id, reason, clock)
    check_traffic(session)
    path = acceptance_path(root, session.environment, session.profile)
    new = AcceptanceBaseline(
        ACCEPTANCE_SCHEMA_VERSION,
        session.profile.name,
        session.environment,
        (entry,),
        _sorted(session.traffic),
    )
    if extend and path.exists():
        held = load_acceptance(path)
        kept = [t for t in held.traffic if new.held(t.arm, t.kind) is None]
        new = replace(new, accepted=(*held.accepted, entry), traffic=_sorted([*kept, *new.traffic]))
    write_baseline(path, to_lines(encode(new)) + "\n", "acceptance baseline")
    return path


def _sorted(traffic: Sequence[TrafficAcceptance]) -> tuple[TrafficAcceptance, ...]:
    """Return them by arm and kind, prompts by id, so that a diff shows changes alone."""
    ordered = sorted(traffic, key=lambda found: (found.arm, found.kind))
    return tuple(_prompts_by_id(found) for found in ordered)


def _prompts_by_id(found: TrafficAcceptance) -> TrafficAcceptance:
    """Return the measurement with its prompts sorted, what their steps gave along with them."""
    prompts = found.tokens_per_step
    order = sorted(range(len(prompts)), key=lambda i: prompts[i])
    yields = tuple(found.step_yields[i] for i in order) if found.step_yields else ()
    return replace(found, tokens_per_step=tuple(sorted(prompts)), step_yields=yields)


def _read(path: Path) -> AcceptanceBaseline:
    document = json.loads(path.read_text(encoding="utf-8"))
    schema = document.get("schema") if isinstance(document, dict) else None
    if schema != ACCEPTANCE_SCHEMA_VERSION:
        raise ValueError(f"schema is {schema!r}, expected {ACCEPTANCE_SCHEMA_VERSION}")
    baseline = decode(AcceptanceBaseline, document, path.name)
    if path.name != f"{baseline.profile}.acceptance.json":
        raise ValueError(f"it is that of profile {baseline.profile!r}")
    if path.parent.parent.name != baseline.environment.hardware:
        raise ValueError(f"it is that of hardware {baseline.environment.hardware!r}")
    return baseline
