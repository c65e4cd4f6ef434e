"""The store of noise studies: readable, exact, and nothing that does not belong."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from draftgate.baselines import baseline_path
from draftgate.errors import BaselineError
from draftgate.noise.store import find_noise, load_noise, noise_path, write_noise
from draftgate.stats.paired import Interval
from tests.support.noise import PROFILE, World, make_study, noise_pairs
from tests.support.samples import make_environment, make_profile

HERE = make_environment()
STUDY = make_study(noise_pairs(world=World(bias=0.05)), trials=20)


def _edited(path: Path, **changes: Any) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def test_a_study_comes_back_equal(tmp_path: Path) -> None:
    """Environment, reasons and every number are as they were written."""
    path = write_noise(tmp_path, STUDY, PROFILE)

    assert find_noise(tmp_path, HERE, PROFILE) == STUDY
    assert STUDY.quarantine
    assert path == baseline_path(tmp_path, HERE, PROFILE).with_name("example.noise.json")


def test_without_a_study_there_is_none(tmp_path: Path) -> None:
    """No file is no error: the comparison goes by requests alone."""
    assert find_noise(tmp_path, HERE, PROFILE) is None


def test_the_file_reads_well_in_a_diff(tmp_path: Path) -> None:
    """One interval a line, and one number that changes changes one line."""
    before = write_noise(tmp_path, STUDY, PROFILE).read_text().splitlines()
    changed = replace(STUDY.gates[0], loss=Interval(0.25, 0.2, 0.3))
    study = replace(STUDY, gates=(changed, *STUDY.gates[1:]))
    after = write_noise(tmp_path, study, PROFILE).read_text().splitlines()

    assert [new for old, new in zip(before, after, strict=True) if old != new] == [
        '   "loss": {"estimate": 0.25, "high": 0.3, "low": 0.2},'
    ]


def test_another_study_replaces_the_one_before(tmp_path: Path) -> None:
    """The newest counts."""
    write_noise(tmp_path, STUDY, PROFILE)
    newer = replace(STUDY, run_id="run-2")
    write_noise(tmp_path, newer, PROFILE)

    assert find_noise(tmp_path, HERE, PROFILE) == newer


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"schema": 0}, "schema is 0, expected 1"),
        ({"definitions": 99}, "definitions 99, expected 1"),
        ({"environment": {}}, "missing keys"),
        ({"pairs": "many"}, "expected int, got 'many'"),
        ({"profile": "other"}, "that of profile 'other'"),
        ({"workload": "0" * 16}, "another workload"),
    ],
)
def test_a_file_that_does_not_fit_is_refused(
    tmp_path: Path, changes: dict[str, Any], why: str
) -> None:
    """Damage, other definitions and another workload each have their message and a next step."""
    _edited(write_noise(tmp_path, STUDY, PROFILE), **changes)

    with pytest.raises(BaselineError, match=rf"{why}.*draftgate calibrate --gate"):
        find_noise(tmp_path, HERE, PROFILE)


def test_other_hardware_is_refused(tmp_path: Path) -> None:
    """A file that was copied into the folder of another machine does not count there."""
    there = make_environment(hardware="cpu-other-4c")
    path = noise_path(tmp_path, there, PROFILE)
    path.parent.mkdir(parents=True)
    path.write_text(write_noise(tmp_path, STUDY, PROFILE).read_text())

    with pytest.raises(BaselineError, match="that of hardware 'cpu-example-2c'"):
        find_noise(tmp_path, there, PROFILE)


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "\x00"])
def test_a_damaged_file_is_named(tmp_path: Path, text: str) -> None:
    """Half a file is an error of its own, not a missing study."""
    path = write_noise(tmp_path, STUDY, PROFILE)
    path.write_text(text)

    with pytest.raises(BaselineError, match="cannot be used"):
        load_noise(path)


def test_a_study_of_another_profile_is_not_written(tmp_path: Path) -> None:
    """The file that would be read back as unusable never appears."""
    with pytest.raises(BaselineError, match="profile 'example', not 'other'"):
        write_noise(tmp_path, STUDY, make_profile("other"))

    assert list(tmp_path.rglob("*.json")) == []


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    """A file where the folder should be: the message has the path and what to do."""
    (tmp_path / HERE.hardware).write_text("")

    with pytest.raises(BaselineError, match=r"cannot be written.*permissions"):
        write_noise(tmp_path, STUDY, PROFILE)
