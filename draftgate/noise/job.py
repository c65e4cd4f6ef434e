"""Taking a noise study: pairs of a profile with itself, none of them judged.

The pairs are those of a comparison and lie in a comparison's folder, so that a
killed study resumes as one. Knows engines through `draftgate.compare`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from draftgate.clock import SYSTEM_CLOCK, Clock
from draftgate.compare.gates import gates_of
from draftgate.compare.records import SideSpec
from draftgate.compare.run import (
    Sides,
    Take,
    check_hardware,
    load_comparison,
    open_comparison,
    run_comparison,
)
from draftgate.compare.schedule import Stages
from draftgate.compare.store import ComparisonFolder
from draftgate.compare.take import Say, take_pair
from draftgate.environment import describe
from draftgate.errors import SpecError
from draftgate.noise.records import NoiseStudy
from draftgate.noise.store import write_noise
from draftgate.noise.study import FEWEST_PAIRS, study
from draftgate.specs import Profile

DEFAULT_PAIRS = 24
"""From 20 on false suspects can be counted; 24 leave the spread known to -22 and +40 %."""


@dataclass(frozen=True, slots=True)
class StudyJob:
    """What a study asks for.

    Attributes:
        profile: What is started and sent.
        pairs: Of every arm.
        max_minutes: Budget; None for as long as it takes.
    """

    profile: Profile
    pairs: int = DEFAULT_PAIRS
    max_minutes: float | None = None


def open_study(
    root: Path, job: StudyJob, *, argv: Sequence[str], clock: Clock = SYSTEM_CLOCK
) -> ComparisonFolder:
    """Make the folder of a study: the profile against itself, one look at the end.

    Raises:
        SpecError: If too few pairs are asked for, or a gate is wrong.
        MeasurementError: If it cannot be written.
    """
    if job.pairs < FEWEST_PAIRS:
        raise SpecError(
            f"calibrate --gate: got --pairs {job.pairs}, expected at least {FEWEST_PAIRS}: the "
            "spread of fewer is hardly known."
        )
    profile = job.profile
    side = SideSpec("profile", "profile", profile.arms)
    plan = replace(
        profile.compare, looks=(job.pairs,), max_minutes=job.max_minutes, single_stage=False
    )
    gates = gates_of(profile.arms, profile.workload.concurrencies, profile.compare)
    return open_comparison(root, Sides(profile, side, side), gates, plan, argv=argv, clock=clock)


def take_study(
    folder: ComparisonFolder,
    baselines: Path,
    say: Say,
    *,
    clock: Clock = SYSTEM_CLOCK,
    take: Take = take_pair,
) -> tuple[NoiseStudy, Path]:
    """Take the pairs that are missing, work the study out and store it; return it and its file.

    Args:
        folder: From `open_study`, new or left by an earlier sitting.
        baselines: Folder of baselines and studies.
        say: Takes lines of progress.
        clock: Source of every stamp.
        take: Takes one pair.

    Raises:
        MeasurementError: If too few pairs can be used.
        BaselineError: If the folder or the old study is damaged.
    """
    run_comparison(folder, say, stages=Stages.SEARCH, clock=clock, take=take)
    stored = load_comparison(folder.path)
    header = stored.header
    engine = stored.pairs[-1].base.engine if stored.pairs else header.environment.engine
    environment = describe(engine)
    check_hardware(header.environment, environment)
    found = study(
        stored.pairs,
        header.gates,
        profile=header.profile,
        environment=environment,
        run_id=header.id,
    )
    return found, write_noise(baselines, found, header.profile)
