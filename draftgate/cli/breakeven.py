"""Subcommand `breakeven`: where speculation pays, from a sweep."""

import argparse
import json
from pathlib import Path
from typing import Any

from draftgate.cli.commands import Commands, add_command
from draftgate.cli.exits import Exit
from draftgate.errors import SpecError


def add_breakeven(commands: Commands) -> None:
    """Enter the subcommand."""
    add_command(
        commands,
        "breakeven",
        "from which acceptance on drafts pay, and vLLM's schedule of drafts by batch",
        run_breakeven,
        _add_breakeven,
    )


def run_breakeven(args: argparse.Namespace) -> int:
    """Print the map of each group of a sweep's summary."""
    from draftgate.breakeven import document, markdown, pay_map  # noqa: PLC0415 - quick start

    for group in _groups(args.summary):
        pays = pay_map(group)
        shown = document(pays, args.acceptance or [0.8], args.max_num_seqs)
        if args.json:
            print(json.dumps({"group": group["name"], **shown}, indent=1))
        else:
            print(f"# {group['name']}\n")
            print(markdown(pays, shown))
    return Exit.OK


def _groups(path: Path) -> list[Any]:
    file = path / "summary.json" if path.is_dir() else path
    try:
        groups = json.loads(file.read_text(encoding="utf-8"))["groups"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise SpecError(
            f"summary {file}: got {type(error).__name__}: {error}, expected the summary.json of a "
            "sweep. Name it, or the sweep's folder."
        ) from error
    return list(groups)


def _add_breakeven(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("summary", type=Path, metavar="SUMMARY", help="a sweep's folder or summary")
    parser.add_argument(
        "--acceptance",
        type=float,
        action="append",
        metavar="A",
        help="of each draft given those before it; may be given again; 0.8 if not given",
    )
    parser.add_argument("--max-num-seqs", type=int, default=256, metavar="N")
    parser.add_argument("--json", action="store_true", help="plain values instead of Markdown")
