"""Subcommands about nightly numbers: `history append`, `history show`, `history close`.

What they find never fails anything: `show` ends with 0 whatever has changed.
"""

import argparse
import getpass
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from draftgate.cli.commands import Commands, add_command
from draftgate.cli.exits import Exit, say
from draftgate.errors import MeasurementError, SpecError

if TYPE_CHECKING:
    from draftgate.history.findings import Findings
    from draftgate.history.records import NightRows

DEFAULT_ROOT = "history"

SESSION, COMPARISON = "run.json", "comparison.json"
"""The file that tells a session's folder, and that of a comparison."""


def add_history(commands: Commands) -> None:
    """Enter the subcommands of this family."""
    history = commands.add_parser("history", help="numbers of every night, and their changes")
    actions = history.add_subparsers(metavar="ACTION", required=True)
    add_command(actions, "append", "add a run to the history", run_append, _add_append)
    add_command(actions, "show", "list lasting changes", run_show, _add_show)
    add_command(actions, "close", "close items with a reason", run_close, _add_close)


def run_append(args: argparse.Namespace) -> int:
    """Add the numbers of a run folder to the history."""
    from draftgate.history.store import append  # noqa: PLC0415 - quick start

    night = night_in(run_folder(args.run_folder), commit_of(args.commit, os.environ))
    done = append(Path(args.history), night, again=args.again)
    for note in done.notes:
        say(f"draftgate: {note}")
    print(f"history: {done.path}{'' if done.is_new else ' (was there already, the same)'}")
    return Exit.OK


def run_show(args: argparse.Namespace) -> int:
    """List the open items; write them as JSON, page or Markdown where asked to."""
    from draftgate.history.findings import document, load_findings  # noqa: PLC0415 - quick start

    found = load_findings(Path(args.history))
    if args.html is not None:
        _write_page(found, args)
    if args.markdown is not None:
        from draftgate.report.history import history_markdown  # noqa: PLC0415 - quick start

        _write(Path(args.markdown), history_markdown(found))
    if args.json:
        print(json.dumps(document(found), indent=1, allow_nan=False))
    else:
        _print(found, every=args.all)
    return Exit.OK


def run_close(args: argparse.Namespace) -> int:
    """Close items with a reason."""
    from draftgate.clock import SYSTEM_CLOCK  # noqa: PLC0415 - quick start
    from draftgate.history.closing import Word, close, find_item  # noqa: PLC0415 - quick start
    from draftgate.history.findings import load_findings  # noqa: PLC0415 - quick start

    root = Path(args.history)
    items = load_findings(root).items
    wanted = {item.id: item for item in (find_item(items, given) for given in args.items)}
    word = Word(args.reason, args.by or person(os.environ), is_real=not args.false_alarm)
    for item in wanted.values():
        print(f"closed: {close(root, item, word, SYSTEM_CLOCK)}")
    return Exit.OK


def night_in(folder: Path, commit: str) -> "NightRows":
    """Return what a run folder adds to the history.

    Raises:
        BaselineError: If it is no run folder, or damaged.
        MeasurementError: If it holds no number.
    """
    from draftgate.compare.run import load_comparison  # noqa: PLC0415 - quick start
    from draftgate.history.rows import rows_of_comparison, rows_of_run  # noqa: PLC0415 - quick start
    from draftgate.runstore import load_run  # noqa: PLC0415 - quick start

    if (folder / COMPARISON).exists():
        return rows_of_comparison(load_comparison(folder), commit)
    return rows_of_run(load_run(folder), commit)


def run_folder(given: str | None) -> Path:
    """Return the folder asked for, or the newest under `runs/`.

    Raises:
        SpecError: If there is none.
    """
    if given is not None:
        return Path(given)
    found = [
        path.parent for name in (SESSION, COMPARISON) for path in Path("runs").glob(f"*/{name}")
    ]
    if not found:
        raise SpecError(
            "no run folder was named and there is none under runs/. Take one: make perf"
        )
    return max(found)


def commit_of(given: str | None, environment: Mapping[str, str]) -> str:
    """Return the commit that was named, or that of GitHub's job; "" where neither is known."""
    return given if given is not None else environment.get("GITHUB_SHA", "")


def person(environment: Mapping[str, str], login: Callable[[], str] = getpass.getuser) -> str:
    """Return who runs this: the actor of GitHub's job, or the login name.

    Raises:
        SpecError: If neither is known.
    """
    if environment.get("GITHUB_ACTOR"):
        return environment["GITHUB_ACTOR"]
    try:
        return login()
    except (OSError, KeyError) as error:  # which of them depends on the version of Python
        raise SpecError(
            "history close: the login name is not known here. Give --by NAME."
        ) from error


def _write_page(found: "Findings", args: argparse.Namespace) -> None:
    from draftgate.report.history import history_page  # noqa: PLC0415 - quick start

    _write(Path(args.html), history_page(found, every_series=args.all))


def _write(path: Path, text: str) -> None:
    from draftgate.files import write_text  # noqa: PLC0415 - quick start

    try:
        write_text(path, text)
    except OSError as error:
        raise MeasurementError(
            f"history {path}: cannot be written ({error.strerror or error}). Name another file."
        ) from error
    say(f"history: {path}")


def _print(found: "Findings", *, every: bool) -> None:
    from rich.console import Console  # noqa: PLC0415 - quick start

    from draftgate.report.history_terminal import print_history  # noqa: PLC0415 - quick start

    print_history(found, Console(highlight=False), every=every)


def _add_root(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--history", default=DEFAULT_ROOT, metavar="DIR", help="default: history")


def _add_append(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run_folder", nargs="?", metavar="RUN", help="default: the newest")
    _add_root(parser)
    parser.add_argument(
        "--commit", metavar="SHA", help="of the repository under test; default: $GITHUB_SHA"
    )
    parser.add_argument(
        "--again",
        action="store_true",
        help="succeed if this run is there already with the same numbers (a repeated job)",
    )


def _add_show(parser: argparse.ArgumentParser) -> None:
    _add_root(parser)
    parser.add_argument(
        "--all", action="store_true", help="closed items and series without a change as well"
    )
    parser.add_argument("--json", action="store_true", help="print a document for programs")
    parser.add_argument("--html", metavar="FILE", help="write a page with plots")
    parser.add_argument("--markdown", metavar="FILE", help="write a list for a comment")


def _add_close(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("items", nargs="+", metavar="ITEM", help="id, or its first digits")
    parser.add_argument("--reason", required=True, help="why; stored with the item")
    _add_root(parser)
    parser.add_argument("--by", metavar="NAME", help="default: $GITHUB_ACTOR or the login name")
    parser.add_argument(
        "--false-alarm", action="store_true", help="the level had not changed at all"
    )
