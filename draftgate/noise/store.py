"""Where noise studies are kept: `<profile>.noise.json` beside the baseline of speed.

Made to be read in a diff. Knows the layout of the file, not what its numbers
mean. A file appears whole or not at all.
"""

import json
from pathlib import Path

from draftgate.baselines import baseline_path, workload_digest
from draftgate.codec import decode, encode, to_lines
from draftgate.errors import BaselineError
from draftgate.files import write_text
from draftgate.metrics import DEFINITIONS_VERSION
from draftgate.noise.records import NOISE_SCHEMA_VERSION, NoiseStudy
from draftgate.records import Environment
from draftgate.runstore import writing
from draftgate.specs import Profile

NOISE_COMMAND = "draftgate calibrate --gate"
"""What takes a study."""


def noise_path(root: Path, environment: Environment, profile: Profile) -> Path:
    """Return the file for this hardware, engine and profile, there or not."""
    return baseline_path(root, environment, profile).with_name(f"{profile.name}.noise.json")


def write_noise(root: Path, study: NoiseStudy, profile: Profile) -> Path:
    """Store a study over the one before; return its file.

    Args:
        root: Folder of all baselines.
        study: The study.
        profile: The one it was taken with.

    Raises:
        BaselineError: If the study is of another profile or workload, or the
            file cannot be written; what was there is then unchanged.
    """
    path = noise_path(root, study.environment, profile)
    _expect_same(path, study, profile)
    with writing(
        "noise study",
        path,
        left="What was there is unchanged.",
        advice=f"check the folder's permissions, then: {NOISE_COMMAND}",
        kind=BaselineError,
    ):
        write_text(path, to_lines(encode(study)) + "\n")
    return path


def find_noise(root: Path, environment: Environment, profile: Profile) -> NoiseStudy | None:
    """Return the study that applies here; None if there is none.

    The engine's version may differ: its noise is then an estimate, as a
    baseline's numbers are.

    Raises:
        BaselineError: If there is one that is damaged, of other hardware or
            metric definitions, or of another workload.
    """
    path = noise_path(root, environment, profile)
    if not path.exists():
        return None
    study = load_noise(path)
    _expect_same(path, study, profile)
    return study


def load_noise(path: Path) -> NoiseStudy:
    """Read a study.

    Raises:
        BaselineError: If it is absent, damaged, of another schema or other
            definitions, or lies where another belongs.
    """
    try:
        return _read(path)
    except (OSError, ValueError) as error:  # the decoders' errors are ValueErrors
        raise _unusable(path, str(error)) from error


def _read(path: Path) -> NoiseStudy:
    document = json.loads(path.read_text(encoding="utf-8"))
    held = document if isinstance(document, dict) else {}
    if held.get("schema") != NOISE_SCHEMA_VERSION:
        raise ValueError(f"schema is {held.get('schema')!r}, expected {NOISE_SCHEMA_VERSION}")
    if held.get("definitions") != DEFINITIONS_VERSION:
        raise ValueError(
            f"its metrics are of definitions {held.get('definitions')!r}, expected "
            f"{DEFINITIONS_VERSION}"
        )
    study = decode(NoiseStudy, document, path.name)
    if path.name != f"{study.profile}.noise.json":
        raise ValueError(f"it is that of profile {study.profile!r}")
    if path.parent.parent.name != study.environment.hardware:
        raise ValueError(f"it is that of hardware {study.environment.hardware!r}")
    return study


def _expect_same(path: Path, study: NoiseStudy, profile: Profile) -> None:
    if study.profile != profile.name:
        raise _unusable(path, f"it is that of profile {study.profile!r}, not {profile.name!r}")
    digest = workload_digest(profile)
    if study.workload != digest:
        raise _unusable(
            path,
            f"it was taken with another workload or other arms ({study.workload}, now {digest})",
        )


def _unusable(path: Path, why: str) -> BaselineError:
    return BaselineError(
        f"noise study {path}: cannot be used: {why}. Restore it from version control or take it "
        f"again: {NOISE_COMMAND}"
    )
