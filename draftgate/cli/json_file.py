"""The file of `--json`: whether it can be written, asked before the work, and writing it after."""

import os
from pathlib import Path
from typing import Any

from draftgate.errors import MeasurementError, SpecError


def check_json(path: Path) -> None:
    """Check before the run that its result can be written.

    Raises:
        SpecError: If it cannot.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SpecError(f"--json {path}: {error.strerror}. Name another file.") from error
    if path.is_dir() or not os.access(path.parent, os.W_OK):
        raise SpecError(f"--json {path}: cannot be written there. Name another file.")


def write_json(record: Any, path: Path) -> None:
    """Write a record whose numbers were printed.

    Raises:
        MeasurementError: If it cannot be written after all.
    """
    from draftgate.codec import encode, to_lines  # noqa: PLC0415 - quick start
    from draftgate.files import write_text  # noqa: PLC0415 - quick start

    try:
        write_text(path, to_lines(encode(record)) + "\n")
    except OSError as error:
        raise MeasurementError(
            f"--json {path}: cannot be written ({error.strerror or error}); the numbers are above. "
            "Free some space there, or name another file."
        ) from error
