"""The subcommand `calibrate`: measure the client's own error on this machine, and keep it.

What is measured is in `draftgate.calibration`, how it is shown in
`calibrate_table`.
"""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from draftgate.cli.commands import Commands, add_command
from draftgate.cli.exits import Exit, say
from draftgate.errors import BaselineError, SpecError

if TYPE_CHECKING:  # quick start
    from draftgate.calibration.record import Calibration


def add_calibrate(commands: Commands) -> None:
    """Enter the subcommand."""
    about = "measure the client's error and CPU per token on this machine"
    add_command(commands, "calibrate", about, run_calibrate, _add_options)


def run_calibrate(args: argparse.Namespace) -> int:
    """Measure, store, and say what the numbers mean for gates."""
    from draftgate.calibration.job import calibrate  # noqa: PLC0415 - quick start
    from draftgate.calibration.store import store_calibration  # noqa: PLC0415 - quick start
    from draftgate.cli.calibrate_table import print_calibration  # noqa: PLC0415 - quick start

    calibration = calibrate(seconds=args.seconds, tell=say)
    last = _last(calibration.environment.hardware)
    path = store_calibration(calibration)
    if args.json is not None:
        _write_json(calibration, args.json)
    print_calibration(calibration, last)
    print(f"stored: {path}")
    return Exit.OK


def _add_options(parser: argparse.ArgumentParser) -> None:
    from draftgate.calibration.job import DEFAULT_SECONDS  # noqa: PLC0415 - quick start

    parser.add_argument(
        "--seconds",
        type=float,
        default=DEFAULT_SECONDS,
        metavar="N",
        help=f"time for measuring; about half of it comes on top (default {DEFAULT_SECONDS:g})",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the record here too")


def _last(hardware: str) -> "Calibration | None":
    """Return the calibration that will be replaced; a damaged one is named, and replaced too."""
    from draftgate.calibration.store import load_calibration  # noqa: PLC0415 - quick start

    try:
        return load_calibration(hardware)
    except BaselineError as error:
        say(f"replacing what was there: {error}")
        return None


def _write_json(calibration: "Calibration", path: Path) -> None:
    from draftgate.calibration.store import write_calibration  # noqa: PLC0415 - quick start

    try:
        write_calibration(calibration, path)
    except OSError as error:
        raise SpecError(
            f"calibrate: --json got {path}, which cannot be written: {error}. Name a file in a "
            "folder that you may write to."
        ) from error
