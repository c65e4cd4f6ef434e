"""The subcommand `calibrate`: measure this machine's own errors, and keep them.

Without an option the client's: what is measured is in `draftgate.calibration`,
how it is shown in `calibrate_table`. With `--gate` the noise of whole server
starts: `draftgate.noise`.
"""

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from draftgate.cli.commands import Commands, add_command
from draftgate.cli.exits import Exit, say
from draftgate.errors import BaselineError, SpecError

if TYPE_CHECKING:  # quick start
    from draftgate.calibration.record import Calibration


def add_calibrate(commands: Commands) -> None:
    """Enter the subcommand."""
    about = "measure the client's error on this machine; with --gate the noise of server starts"
    add_command(commands, "calibrate", about, run_calibrate, _add_options)


def run_calibrate(args: argparse.Namespace) -> int:
    """Measure, store, and say what the numbers mean for gates."""
    if args.gate:
        return _calibrate_gate(args)
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


def _calibrate_gate(args: argparse.Namespace) -> int:
    """Take pairs of the profile with itself and say what comparisons here can show."""
    from draftgate.cli.power_table import print_power  # noqa: PLC0415 - quick start
    from draftgate.compare.store import ComparisonFolder  # noqa: PLC0415 - quick start
    from draftgate.noise.job import StudyJob, open_study, take_study  # noqa: PLC0415 - quick start
    from draftgate.noise.power import power_table  # noqa: PLC0415 - quick start
    from draftgate.specfile import load_profile  # noqa: PLC0415 - quick start

    if args.resume is not None:
        folder = ComparisonFolder(args.resume)
    else:
        job = StudyJob(load_profile(args.profile, args.set), args.pairs, args.max_minutes)
        folder = open_study(args.out, job, argv=("draftgate", *sys.argv[1:]))
    say(f"noise study {folder.path}")
    study, path = take_study(folder, args.baselines, say)
    print_power(study, power_table(study))
    print(f"stored: {path}")
    return Exit.UNUSABLE_RUN if study.quarantine else Exit.OK


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
    _add_gate_options(parser)


def _add_gate_options(parser: argparse.ArgumentParser) -> None:
    from draftgate.noise.job import DEFAULT_PAIRS  # noqa: PLC0415 - quick start
    from draftgate.specfile import DEFAULT_PROFILE  # noqa: PLC0415 - quick start

    group = parser.add_argument_group("noise of server starts")
    group.add_argument(
        "--gate", action="store_true", help="compare the profile with itself in pairs of starts"
    )
    group.add_argument("--profile", default=DEFAULT_PROFILE, metavar="NAME|PATH")
    group.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    group.add_argument("--pairs", type=int, default=DEFAULT_PAIRS, metavar="N", help="of each arm")
    group.add_argument("--max-minutes", type=float, metavar="M", help="stop after M minutes")
    group.add_argument("--resume", type=Path, metavar="RUN", help="go on with a study")
    group.add_argument("--out", type=Path, default=Path("runs"), metavar="DIR")
    group.add_argument("--baselines", type=Path, default=Path("baselines"), metavar="DIR")


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
