"""A profile's file as of a git ref, read without a checkout.

Asks git for one file. The working tree stays as it is, and files that the
profile names (prompts, models) are those that lie there now. Knows no profile
keys and nothing of sides.
"""

import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from draftgate.errors import SpecError

_COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class Recipe:
    """A profile's text and where it stands.

    Attributes:
        text: TOML.
        source: The file; relative paths in the text start at its folder.
        commit: Full name of the commit it was read from; empty for the file as it is.
    """

    text: str
    source: Path
    commit: str = ""


def recipe_at(ref: str, folder: Path, path: str) -> Recipe:
    """Return the file at `path` as of `ref`.

    Args:
        ref: Branch, tag or commit, as git spells them.
        folder: A folder of the repository.
        path: As git spells it: from the repository's root, or from `folder` if
            it begins with `./` or `../`.

    Raises:
        SpecError: If there is no git, `folder` is in no working tree, there is
            no such ref or no such file in it, or the file is not UTF-8.
    """
    if not ref or ref.startswith("-"):
        raise SpecError(
            f"git ref: got {ref!r}, expected a branch, tag or commit. Write "
            "git:REF or git:REF:PATH."
        )
    root = Path(_repository(folder))
    commit = _commit(ref, root)
    found = _git(folder, "cat-file", "blob", f"{commit}:{path}")
    if found.returncode != 0:
        raise SpecError(
            f"git ref {ref!r}: it has no file {path!r} in {root} (git: {_words(found)}). "
            "Give the path from the repository's root, or from here with ./ in front."
        )
    here = folder if path.startswith(("./", "../")) else root
    return Recipe(_decoded(found.stdout, ref, path), (here / path).absolute(), commit)


def _repository(folder: Path) -> str:
    """Return the root of the working tree that holds `folder`."""
    found = _git(folder, "rev-parse", "--show-toplevel")
    if found.returncode != 0:
        raise SpecError(
            f"git: {folder} is in no repository with a working tree (git: {_words(found)}). Call "
            "from inside one with git:REF:PATH, or give the profile as a file of one."
        )
    return found.stdout.decode("utf-8", errors="surrogateescape").removesuffix("\n")


def _commit(ref: str, root: Path) -> str:
    found = _git(root, "rev-parse", "--verify", "--quiet", f"{ref}^{{commit}}")
    name = found.stdout.decode("ascii", errors="replace").strip()
    if found.returncode != 0 or not _COMMIT.fullmatch(name):
        raise SpecError(
            f"git ref {ref!r}: {root} has no such branch, tag or commit. Correct it, or fetch it "
            "first: a shallow clone of CI lacks most of them."
        )
    return name


def _decoded(content: bytes, ref: str, path: str) -> str:
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise SpecError(
            f"git ref {ref!r}: {path}: got {error}, expected a UTF-8 file. Name a profile."
        ) from error


def _git(folder: Path, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    if shutil.which("git") is None:
        raise SpecError(
            "git: there is no such program on PATH, expected one for a side git:REF. Install git, "
            "or give the profile as a file."
        )
    return subprocess.run(
        ["git", "-C", str(folder), *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
    )


def _words(done: subprocess.CompletedProcess[bytes]) -> str:
    """Return git's first line of complaint."""
    lines = done.stderr.decode("utf-8", errors="replace").strip().splitlines()
    return lines[0].removeprefix("fatal: ") if lines else f"exit code {done.returncode}"
