"""What a noise study means for a comparison that is about to begin on its runner.

Reads the study that applies, refuses a quarantined runner, and asks tails that
can't be judged here one percentile lower. Decides before any pair is taken.
"""

from collections.abc import Callable, Sequence
from pathlib import Path

from draftgate.baselines import workload_digest
from draftgate.compare.gates import requests_per_start
from draftgate.compare.records import Gate
from draftgate.environment import describe
from draftgate.errors import MeasurementError
from draftgate.noise.judgeable import judgeable
from draftgate.noise.records import NoiseStudy
from draftgate.noise.store import NOISE_COMMAND, load_noise, noise_path
from draftgate.specs import CompareSpec, Profile

Say = Callable[[str], None]


def gates_for_runner(
    asked: Sequence[Gate],
    profile: Profile,
    plan: CompareSpec,
    baselines: Path,
    *,
    tell: Say,
    despite_quarantine: bool = False,
) -> tuple[Gate, ...]:
    """Return the gates as they can be judged on this runner.

    Args:
        asked: What the profile asks.
        profile: With all of its arms, also if only some are compared.
        plan: Looks and levels.
        baselines: Folder of baselines and noise studies.
        tell: Takes lines about what was found.
        despite_quarantine: Go on where the study says that verdicts of this
            runner cannot be believed.

    Raises:
        MeasurementError: If the runner is quarantined.
        BaselineError: If its study is damaged.
    """
    engine = f"{profile.arms[0].engine.engine} (not started)"
    path = noise_path(baselines, describe(engine), profile)
    study = _applicable(path, profile, tell)
    if study is not None and study.quarantine:
        _refuse(path, study, tell, despite=despite_quarantine)
    requests = {c: requests_per_start(profile.workload, c) for c in profile.workload.concurrencies}
    gates = judgeable(study, asked, requests, plan)
    for gate in gates:
        if gate.note:
            tell(f"{gate.arm} x{gate.concurrency}: {gate.metric}: {gate.note}")
    return gates


def _applicable(path: Path, profile: Profile, tell: Say) -> NoiseStudy | None:
    if not path.exists():
        tell(f"no noise study of this runner ({path}); take one: {NOISE_COMMAND}")
        return None
    study = load_noise(path)
    if study.workload == workload_digest(profile) or study.quarantine:
        tell(f"noise study {path}")
        return study
    tell(f"noise study {path} is of another workload or other arms and is not used")
    return None


def _refuse(path: Path, study: NoiseStudy, tell: Say, *, despite: bool) -> None:
    told = "; ".join(study.quarantine)
    if despite:
        tell(f"quarantined runner, compared all the same: {told}")
        return
    raise MeasurementError(
        f"this runner is quarantined by {path}: {told}. Verdicts from it can't be believed. Find "
        f"what disturbs it, then take the study again: {NOISE_COMMAND}; or compare with "
        "--despite-quarantine."
    )
