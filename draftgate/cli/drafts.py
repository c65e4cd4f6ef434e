"""The subcommands of `draftgate drafts`: making and checking draft heads."""

import argparse
import math
from dataclasses import replace
from pathlib import Path

from draftgate.cli.commands import Commands, add_command
from draftgate.cli.exits import Exit
from draftgate.errors import SpecError


def add_drafts(commands: Commands) -> None:
    """Enter the subcommands of this family."""
    about = "make draft heads for a target, and check them"
    parser = commands.add_parser("drafts", help=about, description=about)
    inner = parser.add_subparsers(metavar="COMMAND", required=True)
    add_command(inner, "train", "make a head by a recipe", run_train, _train_options)


def run_train(args: argparse.Namespace) -> int:
    """Run the pipeline of a recipe, from where it stopped, and print the head's folder."""
    from draftgate.drafts.pipeline import Job, make_head  # noqa: PLC0415 - quick start
    from draftgate.drafts.recipe import load_recipe, tiny  # noqa: PLC0415 - quick start

    recipe = load_recipe(args.recipe)
    if args.tiny:
        recipe = tiny(recipe)
    if args.steps is not None:
        if args.steps < 1:
            raise SpecError(f"drafts train: --steps got {args.steps}, expected 1 or more.")
        recipe = replace(recipe, training=replace(recipe.training, steps=args.steps))
    limit_s = 60.0 * args.max_minutes
    if not limit_s > 0:
        raise SpecError(f"drafts train: --max-minutes got {args.max_minutes}, expected above 0.")
    job = Job(recipe, tuple(args.prompts), args.folder, _say, args.target, args.start, limit_s)
    print(make_head(job, until=args.until))
    return Exit.OK


def _say(line: str) -> None:
    print(line, flush=True)


def _train_options(parser: argparse.ArgumentParser) -> None:
    from draftgate.drafts.pipeline import STEPS  # noqa: PLC0415 - quick start
    from draftgate.drafts.recipe import recipe_names  # noqa: PLC0415 - quick start

    parser.add_argument(
        "recipe", metavar="RECIPE", help=f"{', '.join(recipe_names())}, or a .toml file"
    )
    parser.add_argument(
        "--folder", type=Path, default=Path("drafts"), metavar="DIR", help="where steps lie"
    )
    parser.add_argument(
        "--prompts",
        type=Path,
        action="append",
        default=[],
        metavar="FILE",
        help="JSONL; repeatable",
    )
    parser.add_argument("--until", default=STEPS[-1], metavar="STEP", help=", ".join(STEPS))
    parser.add_argument("--tiny", action="store_true", help="every step in minutes, no useful head")
    parser.add_argument("--steps", type=int, metavar="N", help="optimiser steps, not the recipe's")
    parser.add_argument(
        "--max-minutes",
        type=float,
        default=math.inf,
        metavar="M",
        help="of training; the learning rate falls in time",
    )
    parser.add_argument(
        "--target", type=Path, metavar="DIR", help="another version of the recipe's target"
    )
    parser.add_argument(
        "--start", type=Path, metavar="DIR", help="a finished training whose weights are the first"
    )
