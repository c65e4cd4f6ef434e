"""Named steps whose results lie in folders: made once, found again, never half there.

A step's folder is named after a digest of all that decides its content, with
that of the step before. A step that can go on after a stop keeps its unfinished
folder; the others begin anew. Knows nothing of heads.
"""

import hashlib
import json
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from draftgate.clock import SYSTEM_CLOCK, Clock
from draftgate.errors import SpecError
from draftgate.files import locked, write_text

STAMP = "step.json"

Say = Callable[[str], None]
Facts = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Step:
    """One step.

    Attributes:
        name: What people call it.
        about: All that decides its content, as JSON values.
        build: Fills a folder and returns facts worth keeping, as JSON values.
        resumes: Whether `build` can go on in a folder that it left unfinished.
    """

    name: str
    about: Mapping[str, Any]
    build: Callable[[Path], Facts]
    resumes: bool = False

    @property
    def digest(self) -> str:
        """Ten hex digits of all that decides its content."""
        document = json.dumps([self.name, self.about], sort_keys=True)
        return hashlib.sha256(document.encode()).hexdigest()[:10]

    def folder(self, root: Path) -> Path:
        """Return where its result lies, there or not."""
        return root / f"{self.name}-{self.digest}"


def made(step: Step, root: Path, say: Say, clock: Clock = SYSTEM_CLOCK) -> Path:
    """Return the folder of a step; make it if it is not there.

    Of two processes that want the same step one makes it, the other waits.

    Raises:
        SpecError: If the folder cannot be written.
    """
    folder = step.folder(root)
    try:
        with locked(root / f".{folder.name}.lock"):
            if (folder / STAMP).is_file():
                say(f"{step.name}: there ({folder.name})")
            else:
                _make(step, folder, say, clock)
    except OSError as error:
        raise SpecError(
            f"step {step.name}: {folder} cannot be written: {error}. Make room there, or name "
            "another folder with --folder."
        ) from error
    return folder


def facts(folder: Path) -> dict[str, Any]:
    """Return what a finished step says about itself.

    Raises:
        SpecError: If the folder holds no finished step.
    """
    try:
        stamp = json.loads((folder / STAMP).read_text(encoding="utf-8"))
        return dict(stamp["facts"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise SpecError(
            f"{folder}: got no finished step ({error}). Remove the folder and run again."
        ) from error


def _make(step: Step, folder: Path, say: Say, clock: Clock) -> None:
    part = folder.with_name(f".{folder.name}.part")
    if part.exists() and not step.resumes:
        shutil.rmtree(part)
    shutil.rmtree(folder, ignore_errors=True)  # without a stamp: never finished
    part.mkdir(exist_ok=True)
    say(f"{step.name}: {'goes on' if any(part.iterdir()) else 'begins'} ({folder.name})")
    begin_ns = clock.now_ns()
    found = step.build(part)
    seconds = round((clock.now_ns() - begin_ns) / 1e9, 1)
    stamp = {"step": step.name, "about": step.about, "seconds": seconds, "facts": found}
    write_text(part / STAMP, json.dumps(stamp, indent=1, sort_keys=True) + "\n")
    part.rename(folder)
    say(f"{step.name}: done in {seconds:.0f} s")
