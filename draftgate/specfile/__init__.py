"""Profiles: from a TOML file to the records of `draftgate.specs`.

The one boundary where a person's file enters. Everything is checked here:
unknown keys, types, ranges, pairs that cannot go together, files that are not
there; what comes out needs no second look. Starts nothing and asks no server.
`table` holds the strict reader, `overrides` the command line's assignments,
`build` the tables of a profile.
"""

import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from draftgate.errors import SpecError
from draftgate.shipped import shipped_folders
from draftgate.specfile.build import build_profile
from draftgate.specfile.overrides import assign
from draftgate.specfile.table import Place, suggestion
from draftgate.specs import Profile

__all__ = ["DEFAULT_PROFILE", "load_profile", "parse_profile", "profile_names"]

DEFAULT_PROFILE = "cpu-smollm2"
"""Runs for real on any Linux machine with two cores."""


def load_profile(name_or_path: str, overrides: Sequence[str] = ()) -> Profile:
    """Return the profile called `name_or_path`, with `overrides` applied.

    Args:
        name_or_path: Name of a profile that comes with draftgate, or path of a
            TOML file (it ends in `.toml` or holds a `/`).
        overrides: Assignments such as `workload.repeats=2`, applied in order
            before anything is checked; see `draftgate.specfile.overrides`.
            They are noted as comments at the end of the profile's text.

    Raises:
        SpecError: If there is no such profile (the known ones are listed), an
            assignment cannot be made, or the file is wrong; the message names
            file and key.
    """
    source = _find(name_or_path)
    try:
        content = source.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SpecError(
            f"profile {source}: got {error}, expected a readable UTF-8 file. {_known()}"
        ) from error
    document = _toml(content, source)
    for assignment in overrides:
        assign(document, assignment)
    label = str(source) + (f" (with {', '.join(overrides)})" if overrides else "")
    notes = "".join(f"\n# override: {assignment}" for assignment in overrides)
    return build_profile(document, Place(label), source, content + notes)


def parse_profile(text: str, source: Path) -> Profile:
    """Return the profile that `text` describes.

    Args:
        text: TOML.
        source: File it came from; relative paths in it start at its folder.

    Raises:
        SpecError: If the text is wrong; the message names `source` and the key.
    """
    return build_profile(_toml(text, source), Place(str(source)), source, text)


def profile_names() -> tuple[str, ...]:
    """Return the names of the profiles that come with draftgate, sorted."""
    return tuple(sorted({path.stem for folder in _folders() for path in folder.glob("*.toml")}))


def _toml(text: str, source: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise SpecError(
            f"profile {source}: got text that is not TOML: {error}. Correct that line; strings "
            "need quotes, and a key may stand once in its table."
        ) from error


def _find(name_or_path: str) -> Path:
    if name_or_path.endswith(".toml") or "/" in name_or_path:
        path = Path(name_or_path).expanduser().absolute()
        if path.is_file():
            return path
        raise SpecError(f"profile {name_or_path!r}: there is no file {path}. {_known()}")
    for folder in _folders():
        if (folder / f"{name_or_path}.toml").is_file():
            return folder / f"{name_or_path}.toml"
    raise SpecError(
        f"profile {name_or_path!r}: there is none of this name."
        f"{suggestion(name_or_path, profile_names())} {_known()}"
    )


def _known() -> str:
    return f"Known profiles: {', '.join(profile_names()) or 'none'}; or give the path of a file."


def _folders() -> tuple[Path, ...]:
    return shipped_folders("fixtures/profiles", "_profiles")
