"""The `draftgate` command: what is not a test.

One file per family of subcommands, one `run_<name>(args) -> int` for each. The
only package that prints. Exit codes are those of `Exit`.
"""

import argparse
import signal
import sys
from collections.abc import Sequence

from draftgate import __version__
from draftgate.cli.breakeven import add_breakeven
from draftgate.cli.bundle import add_bundle
from draftgate.cli.calibrate import add_calibrate
from draftgate.cli.check import add_check
from draftgate.cli.commands import CommandParser
from draftgate.cli.compare import add_compare
from draftgate.cli.cost import add_cost
from draftgate.cli.drafts import add_drafts
from draftgate.cli.exits import Exit, exit_of
from draftgate.cli.headroom import add_headroom
from draftgate.cli.history import add_history
from draftgate.cli.load import add_load
from draftgate.cli.noise import add_noise
from draftgate.cli.null_engine import add_null_engine
from draftgate.cli.profiles import add_profiles
from draftgate.cli.runs import add_runs
from draftgate.cli.serve import add_serve
from draftgate.cli.sweep import add_sweep
from draftgate.cli.watch import add_watch
from draftgate.errors import DraftgateError
from draftgate.hidden import hide
from draftgate.interrupts import keep_interrupts

__all__ = ["Exit", "entry", "main"]

_FAMILIES = (
    add_profiles,
    add_runs,
    add_serve,
    add_compare,
    add_load,
    add_cost,
    add_check,
    add_watch,
    add_calibrate,
    add_noise,
    add_history,
    add_drafts,
    add_sweep,
    add_breakeven,
    add_headroom,
    add_bundle,
    add_null_engine,
)
"""What enters the subcommands of each file, in the order of the help."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one subcommand and return its exit code."""
    args = _parser().parse_args(argv)
    try:
        return int(args.run(args))
    except DraftgateError as error:
        print(f"draftgate: {hide(str(error))}", file=sys.stderr)
        return exit_of(error)
    except KeyboardInterrupt:
        print("draftgate: interrupted", file=sys.stderr)
        return Exit.INTERRUPTED


def _parser() -> argparse.ArgumentParser:
    parser = CommandParser(prog="draftgate", description=__doc__.partition("\n")[0])
    parser.add_argument("--version", action="version", version=f"draftgate {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    for add_family in _FAMILIES:
        add_family(commands)
    return parser


def _terminate(_signal: int, _frame: object) -> None:
    raise KeyboardInterrupt


def entry() -> None:
    """Console entry: SIGTERM ends it as Ctrl-C does, so that no server is left."""
    signal.signal(signal.SIGTERM, _terminate)
    keep_interrupts()
    sys.exit(main())
