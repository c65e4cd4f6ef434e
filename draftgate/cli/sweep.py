"""Subcommand `sweep`: a list of engine configurations within a time limit."""

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from draftgate.cli.commands import Commands, add_command
from draftgate.cli.exits import Exit, say

if TYPE_CHECKING:  # quick start
    from draftgate.sweep import SweepState


def add_sweep(commands: Commands) -> None:
    """Enter the subcommand."""
    add_command(
        commands,
        "sweep",
        "measure a list of engine configurations, stopping in time and going on later",
        run_sweep_command,
        _add_sweep,
    )


def run_sweep_command(args: argparse.Namespace) -> int:
    """Measure what is left of a list and print its table."""
    from draftgate.sweep import (  # noqa: PLC0415 - quick start
        load_plan,
        open_sweep,
        run_sweep,
        summary_document,
        summary_markdown,
        write_summary,
    )

    plan = load_plan(args.list)
    with open_sweep(args.out, plan) as state:
        if not args.summary_only:
            run_sweep(
                state,
                stop_after_s=args.stop_after,
                argv=sys.argv,
                say=say,
                changed=lambda: write_summary(state),
            )
        write_summary(state)
        print(summary_markdown(summary_document(state)))
        print(f"summary: {args.out / 'summary.md'}")
        return _exit(state)


def _exit(state: "SweepState") -> int:
    """Return what is left: nothing, what failed, or what there was no time or no good run for."""
    left = [(group.name, arm.name) for group, arm in state.order()]
    if not left:
        return Exit.OK
    return Exit.ENGINE if any(key in state.failed for key in left) else Exit.INCONCLUSIVE


def _add_sweep(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("list", type=Path, metavar="LIST", help="TOML or JSON; see docs/gpu.md")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="the sweep's folder")
    parser.add_argument(
        "--stop-after",
        type=float,
        metavar="SECONDS",
        help="end before this many seconds have passed, servers stopped; then call again to go on",
    )
    parser.add_argument(
        "--summary-only", action="store_true", help="measure nothing, write the summary again"
    )
