"""A check on disk: `check.json` for what was found, `scores.npz` for what it rests on.

One writer and one reader of both; files appear whole or not at all. Knows no servers
and judges nothing.
"""

import json
import zlib
from dataclasses import fields
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np

from draftgate.checks.distribution import Gathered
from draftgate.checks.ledger import Ledger
from draftgate.checks.outcome import SCHEMA, CheckResult
from draftgate.codec import decode, encode, to_lines
from draftgate.errors import BaselineError
from draftgate.files import replacing, write_text
from draftgate.stats.scores import Scores

RESULT = "check.json"
SCORES = "scores.npz"
CHECKED, PLAIN = "checked", "plain"
"""Names of the two arms in `SCORES`: the server under test and the A/A arm."""


def write_check(folder: Path, result: CheckResult, gathered: Gathered) -> Path:
    """Write both files, the scores first, and return the path of `check.json`.

    Raises:
        OSError: If they can't be written.
    """
    arrays = _arrays(CHECKED, gathered.checked)
    if gathered.plain is not None:
        arrays |= _arrays(PLAIN, gathered.plain)
    with replacing(folder / SCORES) as part, part.open("wb") as file:
        np.savez_compressed(file, **arrays)
    path = folder / RESULT
    write_text(path, to_lines(encode(result)) + "\n")
    return path


def read_check(folder: Path) -> CheckResult:
    """Return the result in a folder.

    Raises:
        BaselineError: If there is none, it is damaged, or of another schema.
    """
    path = folder / RESULT
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        schema = document.get("schema") if isinstance(document, dict) else None
        if schema != SCHEMA:
            raise BaselineError(
                f"{path}: got schema {schema}, expected {SCHEMA}. Take the check again with this "
                "version of draftgate."
            )
        return decode(CheckResult, document, "check")
    except (OSError, ValueError) as error:
        raise BaselineError(
            f"{path}: no readable check: {error}. Name a folder that `draftgate check` wrote."
        ) from error


def read_scores(folder: Path, arm: str, condition: str) -> Scores | None:
    """Return the scores of a condition of an arm, to draw or judge its e-process again.

    Args:
        folder: Of the check.
        arm: `CHECKED` or `PLAIN`.
        condition: Name of the condition.

    Returns:
        The scores; None if that condition of that arm has no tokens.

    Raises:
        BaselineError: If the file is absent or damaged.
    """
    path, stem = folder / SCORES, f"{arm}/{condition}/"
    try:
        # Opened here: numpy leaves a file open that turns out to be no archive. One array alone
        # loads as well, and entering it is a TypeError.
        with path.open("rb") as file, np.load(file, allow_pickle=False) as held:
            if f"{stem}token" not in held:
                return None
            return Scores(**{f.name: held[stem + f.name] for f in fields(Scores)})
    except (OSError, ValueError, KeyError, TypeError, EOFError, BadZipFile, zlib.error) as error:
        raise BaselineError(
            f"{path}: got no readable scores ({error}), expected what `draftgate check` wrote. "
            "Take the check again."
        ) from error


def _arrays(arm: str, ledger: Ledger) -> dict[str, Any]:
    return {
        f"{arm}/{condition.name}/{field.name}": getattr(scores, field.name)
        for index, condition in enumerate(ledger.conditions)
        if (scores := ledger.scores(index)) is not None
        for field in fields(Scores)
    }
