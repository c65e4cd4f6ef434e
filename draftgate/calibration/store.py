"""Where calibrations are kept: one JSON file per hardware in the cache folder.

Knows the layout of the file, not what its numbers mean. A file appears whole or
not at all.
"""

import json
from pathlib import Path

from draftgate.calibration.record import CALIBRATION_SCHEMA_VERSION, Calibration
from draftgate.codec import decode, encode, to_lines
from draftgate.errors import BaselineError, SpecError
from draftgate.files import write_text
from draftgate.targets import CACHE_VARIABLE, cache_root


def calibration_path(hardware: str) -> Path:
    """Return where the calibration of `hardware` is kept; the file need not exist.

    Args:
        hardware: Slug, as `Environment.hardware`.
    """
    return cache_root() / "calibration" / f"{hardware}.json"


def store_calibration(calibration: Calibration) -> Path:
    """Write a calibration over the one before of the same hardware; return its file.

    Raises:
        SpecError: If the cache cannot be written.
    """
    path = calibration_path(calibration.environment.hardware)
    try:
        write_calibration(calibration, path)
    except OSError as error:
        raise SpecError(
            f"calibration {path}: cannot be written: {error}. Set {CACHE_VARIABLE} to a folder "
            "that can."
        ) from error
    return path


def write_calibration(calibration: Calibration, path: Path) -> None:
    """Write a calibration as JSON.

    Raises:
        OSError: As raised by the file system.
    """
    write_text(path, to_lines(encode(calibration)) + "\n")


def load_calibration(hardware: str) -> Calibration | None:
    """Return the calibration of `hardware`; None if there is none.

    Raises:
        BaselineError: If the file cannot be read, is damaged, of another
            schema or of other hardware.
    """
    path = calibration_path(hardware)
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:  # the decoders' errors are ValueErrors
        raise _unusable(path, str(error)) from error
    schema = document.get("schema") if isinstance(document, dict) else None
    if schema != CALIBRATION_SCHEMA_VERSION:
        raise _unusable(path, f"schema {schema!r}, expected {CALIBRATION_SCHEMA_VERSION}")
    try:
        calibration = decode(Calibration, document, "calibration")
    except ValueError as error:
        raise _unusable(path, str(error)) from error
    found = calibration.environment.hardware
    if found != hardware:
        raise _unusable(path, f"it is of hardware {found!r}, expected {hardware!r}")
    return calibration


def _unusable(path: Path, why: str) -> BaselineError:
    return BaselineError(
        f"calibration {path}: cannot be used: {why}. Take it again: draftgate calibrate"
    )
