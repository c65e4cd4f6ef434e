"""The subcommands of `draftgate drafts`: making and checking draft heads."""

import argparse
import math
from dataclasses import replace
from pathlib import Path

from draftgate.cli.commands import Commands, add_command
from draftgate.cli.exits import Exit, exit_for
from draftgate.cli.json_file import check_json, write_json
from draftgate.errors import SpecError


def add_drafts(commands: Commands) -> None:
    """Enter the subcommands of this family."""
    about = "make draft heads for a target, and check them"
    parser = commands.add_parser("drafts", help=about, description=about)
    inner = parser.add_subparsers(metavar="COMMAND", required=True)
    add_command(inner, "train", "make a head by a recipe", run_train, _train_options)
    about = "measure a head's acceptance, and judge it on the target's next version"
    add_command(inner, "check", about, run_check, _check_options)
    about = "write a recipe as a run of SpecForge, with its prompts"
    add_command(inner, "specforge", about, run_specforge, _specforge_options)


def run_train(args: argparse.Namespace) -> int:
    """Run the pipeline of a recipe, from where it stopped, and print the head's folder."""
    from draftgate.drafts.pipeline import Job, make_head  # noqa: PLC0415 - quick start
    from draftgate.drafts.recipe import load_recipe, tiny  # noqa: PLC0415 - quick start

    recipe = load_recipe(args.recipe)
    if args.tiny:
        recipe = tiny(recipe)
    _check_counts("train", args, "steps", "engines")
    if args.steps is not None:
        recipe = replace(recipe, training=replace(recipe.training, steps=args.steps))
    limit_s = 60.0 * args.max_minutes
    if not limit_s > 0:
        raise SpecError(f"drafts train: --max-minutes got {args.max_minutes}, expected above 0.")
    job = Job(
        recipe,
        tuple(args.prompts),
        args.folder,
        _say,
        args.target,
        args.start,
        limit_s,
        args.engines,
    )
    print(make_head(job, until=args.until))
    return Exit.OK


def run_check(args: argparse.Namespace) -> int:
    """Measure a head on its target and, if one is given, on the next version."""
    import tempfile  # noqa: PLC0415 - quick start

    from draftgate.drafts.check import check_draft, read_draft  # noqa: PLC0415 - quick start
    from draftgate.specfile import load_profile  # noqa: PLC0415 - quick start

    _check_counts("check", args, "tokens", "prompts")
    if args.json is not None:
        check_json(args.json)
    draft = read_draft(args.draft, tokens=args.tokens)
    profile = load_profile(args.profile, args.set)
    with tempfile.TemporaryDirectory() as scratch:
        found = check_draft(
            draft,
            profile,
            target=args.target,
            prompts=args.prompts,
            logs=args.logs or Path(scratch),
            say=_say,
        )
    if args.json is not None:
        write_json(found, args.json)
    for verdict in found.verdicts:
        print(f"{verdict.outcome.name}: {verdict.arm}: {verdict.reason}")
    return exit_for(found.outcome)


def run_specforge(args: argparse.Namespace) -> int:
    """Write the files of a SpecForge run, and print the path of its config."""
    from draftgate.drafts.recipe import load_recipe  # noqa: PLC0415 - quick start
    from draftgate.drafts.specforge.folder import Order, write_run  # noqa: PLC0415 - quick start
    from draftgate.drafts.specforge.run import Gpus  # noqa: PLC0415 - quick start

    _check_counts("specforge", args, "trainer_gpus", "capture_gpus")
    gpus = Gpus(args.trainer_gpus, args.capture_gpus)
    recipe = load_recipe(args.recipe)
    order = Order(recipe, args.target, tuple(args.prompts), gpus, tuple(args.set))
    print(write_run(order, args.folder))
    return Exit.OK


def _check_counts(command: str, args: argparse.Namespace, *names: str) -> None:
    """Refuse options that count something and say less than 1; None is one that was not given.

    Raises:
        SpecError: At the first of them.
    """
    for name in names:
        value = getattr(args, name)
        if value is not None and value < 1:
            option = name.replace("_", "-")
            raise SpecError(f"drafts {command}: --{option} got {value}, expected 1 or more.")


def _say(line: str) -> None:
    print(line, flush=True)


def _train_options(parser: argparse.ArgumentParser) -> None:
    from draftgate.drafts.pipeline import STEPS  # noqa: PLC0415 - quick start

    _recipe_option(parser)
    parser.add_argument(
        "--folder", type=Path, default=Path("drafts"), metavar="DIR", help="where steps lie"
    )
    _prompts_option(parser)
    parser.add_argument("--until", default=STEPS[-1], metavar="STEP", help=", ".join(STEPS))
    parser.add_argument(
        "--engines", type=int, default=1, metavar="N", help="answer in N processes side by side"
    )
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


def _recipe_option(parser: argparse.ArgumentParser) -> None:
    from draftgate.drafts.recipe import recipe_names  # noqa: PLC0415 - quick start

    parser.add_argument(
        "recipe", metavar="RECIPE", help=f"{', '.join(recipe_names())}, or a .toml file"
    )


def _prompts_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--prompts",
        type=Path,
        action="append",
        default=[],
        metavar="FILE",
        help="JSONL; repeatable",
    )


def _specforge_options(parser: argparse.ArgumentParser) -> None:
    _recipe_option(parser)
    parser.add_argument(
        "--target", metavar="NAME|DIR", help="folder of the target, or a name whose sizes are known"
    )
    _prompts_option(parser)
    parser.add_argument(
        "--folder", type=Path, default=Path("specforge"), metavar="DIR", help="where the files go"
    )
    for name, about in (("trainer", "that train the head"), ("capture", "that the target takes")):
        parser.add_argument(
            f"--{name}-gpus", type=int, default=4, metavar="N", help=f"GPUs {about} (default: 4)"
        )
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")


def _check_options(parser: argparse.ArgumentParser) -> None:
    from draftgate.specfile import DEFAULT_PROFILE  # noqa: PLC0415 - quick start

    parser.add_argument("--draft", type=Path, required=True, metavar="DIR", help="the head")
    parser.add_argument("--target", metavar="NAME|DIR", help="the target's next version")
    parser.add_argument("--tokens", type=int, metavar="K", help="drafts a step, not the head's own")
    parser.add_argument(
        "--prompts", type=int, default=72, metavar="N", help="of each kind (default: 72)"
    )
    parser.add_argument("--profile", default=DEFAULT_PROFILE, metavar="NAME|PATH")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--logs", type=Path, metavar="DIR", help="keep the servers' logs there")
    parser.add_argument("--json", type=Path, metavar="FILE", help="all numbers")
