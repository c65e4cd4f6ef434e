"""A small profile on disk, and the two sides that are made of it."""

from collections.abc import Sequence
from pathlib import Path

from draftgate.compare.records import SideSpec
from draftgate.compare.sides import resolve_side
from draftgate.specs import Profile
from tests.unit.test_specfile import PROFILE


def write_profile(folder: Path, *changes: tuple[str, str], name: str = "small.toml") -> Path:
    """Return the path of the small profile, written into `folder` with the changes made."""
    text = PROFILE
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def side(text: str, profile: Path, arms: Sequence[str] = (), *overrides: str) -> SideSpec:
    """Return the side alone."""
    return resolve_side(text, str(profile), arms, overrides=overrides)[0]


def changed(text: str, profile: Path, arms: Sequence[str] = (), *overrides: str) -> Profile:
    """Return the side's profile alone."""
    return resolve_side(text, str(profile), arms, overrides=overrides)[1]
