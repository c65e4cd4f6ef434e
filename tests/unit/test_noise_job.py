"""Taking a noise study without servers: pairs of one build with itself, then a file."""

from dataclasses import replace
from pathlib import Path

import pytest

from draftgate.compare.gates import gates_of
from draftgate.errors import MeasurementError, SpecError
from draftgate.noise.gating import gates_for_runner
from draftgate.noise.job import StudyJob, open_study, take_study
from draftgate.noise.store import load_noise
from draftgate.specs import Profile
from tests.support.scripted_pairs import PLAN, Build, Script, sides


def quiet(_line: str) -> None:
    """Take a line of progress and drop it."""


@pytest.fixture
def profile() -> Profile:
    """One arm at one number of streams, gated by its speed."""
    return replace(sides().profile, compare=PLAN)


def test_study_takes_its_pairs_and_is_stored(tmp_path: Path, profile: Profile) -> None:
    """Twenty-four pairs of one build give a file with the spread that the script has."""
    script = Script()
    folder = open_study(tmp_path / "runs", StudyJob(profile), argv=())

    study, path = take_study(folder, tmp_path / "baselines", quiet, take=script)

    assert len(script.calls) == 24
    assert load_noise(path) == study
    (held,) = study.gates
    assert held.pair_sd.low < 0.01 * 2**0.5 < held.pair_sd.high
    assert study.quarantine == ()


def test_interrupted_study_resumes(tmp_path: Path, profile: Profile) -> None:
    """A study killed at its tenth pair takes the others later."""
    folder = open_study(tmp_path / "runs", StudyJob(profile), argv=())

    def die(_place: object) -> None:
        if len(script.calls) == 10:
            raise KeyboardInterrupt

    script = Script(before=die)
    with pytest.raises(KeyboardInterrupt):
        take_study(folder, tmp_path / "baselines", quiet, take=script)
    script.before = lambda _place: None

    study, _ = take_study(folder, tmp_path / "baselines", quiet, take=script)

    assert study.pairs == 24
    assert len(script.calls) == 25


def test_runner_that_favours_one_side_is_quarantined_and_refused(
    tmp_path: Path, profile: Profile
) -> None:
    """A build that differs from itself by 3 % is no build to judge by: compare refuses to begin."""
    folder = open_study(tmp_path / "runs", StudyJob(profile), argv=())
    script = Script(candidate=Build(step_s=0.0309))

    study, _ = take_study(folder, tmp_path / "baselines", quiet, take=script)

    assert study.quarantine
    asked = gates_of(profile.arms, profile.workload.concurrencies, PLAN)
    with pytest.raises(MeasurementError, match="this runner is quarantined"):
        gates_for_runner(asked, profile, PLAN, tmp_path / "baselines", tell=quiet)
    told: list[str] = []
    gates = gates_for_runner(
        asked, profile, PLAN, tmp_path / "baselines", tell=told.append, despite_quarantine=True
    )
    assert gates == asked
    assert any("quarantined runner, compared all the same" in line for line in told)


def test_quiet_runner_lets_a_comparison_begin(tmp_path: Path, profile: Profile) -> None:
    """With a good study the gates are asked as they are."""
    folder = open_study(tmp_path / "runs", StudyJob(profile), argv=())
    take_study(folder, tmp_path / "baselines", quiet, take=Script())
    asked = gates_of(profile.arms, profile.workload.concurrencies, PLAN)

    assert gates_for_runner(asked, profile, PLAN, tmp_path / "baselines", tell=quiet) == asked


def test_too_few_pairs_are_refused_before_anything_starts(tmp_path: Path, profile: Profile) -> None:
    """A study of five pairs says nothing, so it is not begun."""
    with pytest.raises(SpecError, match="got --pairs 5, expected at least 8"):
        open_study(tmp_path, StudyJob(profile, pairs=5), argv=())
