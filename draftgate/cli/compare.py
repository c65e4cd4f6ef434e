"""The subcommand `compare`: two builds in pairs of server starts, until it is decided.

What a side is stands in `draftgate.compare.sides`, how it is judged in
`draftgate.compare.judge`; here are the options and what is written at the end.
"""

import argparse
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from draftgate.cli.commands import Commands, add_command
from draftgate.cli.exits import exit_for, say
from draftgate.errors import SpecError

if TYPE_CHECKING:  # quick start
    from draftgate.compare.records import Gate
    from draftgate.compare.run import Sides
    from draftgate.compare.store import ComparisonFolder
    from draftgate.specs import CompareSpec


def add_compare(commands: Commands) -> None:
    """Enter the subcommand."""
    about = "compare two builds in pairs of server starts"
    add_command(commands, "compare", about, run_compare, _add_options)


def run_compare(args: argparse.Namespace) -> int:
    """Take pairs, judge them, write the reports, and return what was decided as exit code."""
    from rich.console import Console  # noqa: PLC0415 - quick start

    from draftgate.compare.run import load_comparison, run_comparison  # noqa: PLC0415 - quick start
    from draftgate.compare.schedule import Stages  # noqa: PLC0415 - quick start
    from draftgate.report.compared import print_comparison, write_comparison  # noqa: PLC0415

    folder = _folder(args)
    say(f"comparison {folder.path}")
    stages = Stages.CONFIRM if args.confirm is not None else Stages(args.stage)
    try:
        run_comparison(folder, say, stages=stages, max_minutes=args.max_minutes)
    finally:  # also after Ctrl-C or a dead disk: what is there is judged and shown
        comparison = load_comparison(folder.path)
        page = write_comparison(comparison, folder, args.history)
    print_comparison(comparison, Console())
    print(f"report: {page}")
    return exit_for(comparison.result.outcome)


def _folder(args: argparse.Namespace) -> "ComparisonFolder":
    """Return the folder to work in: a new one, a resumed one, or one that confirms another."""
    from draftgate.compare.run import open_comparison, open_confirmation  # noqa: PLC0415
    from draftgate.compare.store import ComparisonFolder  # noqa: PLC0415 - quick start

    _check_usage(args)
    if args.resume is not None:
        return ComparisonFolder(args.resume)
    argv = ("draftgate", *sys.argv[1:])
    if args.confirm is not None:
        return open_confirmation(args.out, ComparisonFolder(args.confirm), argv=argv)
    sides, plan = _sides(args)
    return open_comparison(args.out, sides, _gates(args, sides, plan), plan, argv=argv)


def _check_usage(args: argparse.Namespace) -> None:
    new = args.base is not None
    if new + (args.resume is not None) + (args.confirm is not None) != 1:
        raise SpecError(
            "compare: expected one of BASE CANDIDATE, --resume RUN or --confirm RUN. For example: "
            "draftgate compare profile 'engine.args=[\"--enforce-eager\"]'"
        )
    if new and args.candidate is None:
        raise SpecError(f"compare: got base {args.base!r} alone, expected BASE and CANDIDATE.")


def _sides(args: argparse.Namespace) -> "tuple[Sides, CompareSpec]":
    from draftgate.compare.run import Sides  # noqa: PLC0415 - quick start
    from draftgate.compare.sides import check_sides, resolve_side  # noqa: PLC0415 - quick start

    base, profile = resolve_side(args.base, args.profile, args.arm, overrides=args.set)
    candidate, other = resolve_side(args.candidate, args.profile, args.arm, overrides=args.set)
    check_sides(profile, other, base, candidate)
    plan = replace(
        profile.compare,
        max_minutes=args.max_minutes or profile.compare.max_minutes,
        single_stage=args.single_stage or profile.compare.single_stage,
        seed=profile.compare.seed if args.seed is None else args.seed,
    )
    return Sides(profile, base, candidate), plan


def _gates(args: argparse.Namespace, sides: "Sides", plan: "CompareSpec") -> "tuple[Gate, ...]":
    """Return every question; tails that can't be judged on this runner are asked lower."""
    from draftgate.compare.gates import gates_of  # noqa: PLC0415 - quick start
    from draftgate.compare.sides import resolve_side  # noqa: PLC0415 - quick start
    from draftgate.noise.gating import gates_for_runner  # noqa: PLC0415 - quick start

    asked = gates_of(sides.base.arms, sides.profile.workload.concurrencies, plan)
    # The study is of all arms, so it is found by the base with all of them: what --set gives may
    # need its launch. Live servers may serve but some of those that the profile has.
    text = "profile" if sides.base.kind == "url" else args.base
    _, whole = resolve_side(text, args.profile, overrides=args.set)
    return gates_for_runner(
        asked,
        whole,
        plan,
        args.baselines,
        tell=say,
        despite_quarantine=args.despite_quarantine,
    )


def _add_options(parser: argparse.ArgumentParser) -> None:
    from draftgate.specfile import DEFAULT_PROFILE  # noqa: PLC0415 - quick start

    side = "profile, KEY=VALUE, NAME|PATH.toml, VENV, image:NAME, git:REF or http://HOST:PORT"
    parser.add_argument("base", nargs="?", metavar="BASE", help=side)
    parser.add_argument("candidate", nargs="?", metavar="CANDIDATE", help="likewise")
    parser.add_argument("--profile", default=DEFAULT_PROFILE, metavar="NAME|PATH")
    parser.add_argument("--arm", action="append", default=[], metavar="NAME", help="only this arm")
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="for both sides"
    )
    parser.add_argument("--max-minutes", type=float, metavar="M", help="stop after M minutes")
    parser.add_argument(
        "--stage",
        choices=("both", "search"),
        default="both",
        help="search leaves suspects for --confirm on another runner or in a later job",
    )
    parser.add_argument(
        "--confirm", type=Path, metavar="RUN", help="fresh pairs for RUN's suspects"
    )
    parser.add_argument("--resume", type=Path, metavar="RUN", help="go on with a comparison")
    parser.add_argument(
        "--single-stage", action="store_true", help="sign process: one runner, one stage"
    )
    parser.add_argument("--seed", type=int, metavar="N", help="of the order of sides")
    parser.add_argument("--out", type=Path, default=Path("runs"), metavar="DIR")
    parser.add_argument("--baselines", type=Path, default=Path("baselines"), metavar="DIR")
    parser.add_argument(
        "--history", type=Path, default=Path("history"), metavar="DIR", help="shown in the page"
    )
    parser.add_argument(
        "--despite-quarantine", action="store_true", help="compare on a quarantined runner"
    )
