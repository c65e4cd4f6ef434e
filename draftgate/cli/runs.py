"""Subcommands about stored runs: `report` and `baseline accept`."""

import argparse
from pathlib import Path

from draftgate.cli.commands import Commands, add_command
from draftgate.cli.exits import Exit
from draftgate.errors import BaselineError, SpecError


def add_runs(commands: Commands) -> None:
    """Enter the subcommands of this family."""
    add_command(commands, "report", "write a run's report again", run_report, _add_report)
    baseline = commands.add_parser("baseline", help="stored baselines")
    actions = baseline.add_subparsers(metavar="ACTION", required=True)
    add_command(
        actions,
        "accept",
        "make a run the baseline of its hardware",
        run_baseline_accept,
        _add_accept,
    )


def run_report(args: argparse.Namespace) -> int:
    """Write the page of a run, a comparison or a check again and print its tables."""
    from rich.console import Console  # noqa: PLC0415 - quick start

    from draftgate.checks.kept import RESULT  # noqa: PLC0415 - quick start
    from draftgate.compare.run import load_comparison  # noqa: PLC0415 - quick start
    from draftgate.compare.store import HEADER, ComparisonFolder  # noqa: PLC0415 - quick start
    from draftgate.report import print_report, write_report  # noqa: PLC0415 - quick start
    from draftgate.report.compared import print_comparison, write_comparison  # noqa: PLC0415
    from draftgate.runstore import load_run  # noqa: PLC0415 - quick start

    path = _run_folder(args.run_folder)
    if (path / RESULT).exists():
        return _report_check(path)
    if (path / HEADER).exists():
        comparison = load_comparison(path)
        compared_page = write_comparison(comparison, ComparisonFolder(path), args.history)
        print_comparison(comparison, Console())
        print(f"report: {compared_page}")
        return Exit.OK
    run = load_run(path)
    page = write_report(run, args.history)
    print_report(run, Console())
    print(f"report: {page}")
    return Exit.OK


def _report_check(folder: Path) -> int:
    """Write the page of a check again and print its verdict, whatever that is."""
    from draftgate.checks.kept import read_check  # noqa: PLC0415 - quick start
    from draftgate.checks.words import lines  # noqa: PLC0415 - quick start
    from draftgate.report.check import write_check_report  # noqa: PLC0415 - quick start

    page = write_check_report(folder)
    print("\n".join(lines(read_check(folder))))
    print(f"report: {page}")
    return Exit.OK


def run_baseline_accept(args: argparse.Namespace) -> int:
    """Make a run the baseline of its profile on its hardware: its speed, acceptance or both."""
    from draftgate import baselines  # noqa: PLC0415 - quick start
    from draftgate.clock import SYSTEM_CLOCK  # noqa: PLC0415 - quick start
    from draftgate.drift import baseline as drift  # noqa: PLC0415 - quick start
    from draftgate.runstore import load_run  # noqa: PLC0415 - quick start

    run = load_run(_run_folder(args.run_folder))
    if not run.samples and not run.traffic:
        raise BaselineError(
            f"run {run.path}: holds neither timed runs nor acceptance, so there is nothing to "
            "accept. Measure first: pytest -m perf, or pytest -m drift"
        )
    root = Path(args.baselines)
    traffic = drift.TrafficSession(run.id, run.profile, run.environment, run.traffic)
    drift.check_traffic(traffic)  # before anything is written
    if run.samples:
        session = baselines.Session(run.id, run.profile, run.environment, run.samples)
        path = baselines.accept(
            root, session, reason=args.reason, clock=SYSTEM_CLOCK, extend=args.extend
        )
        print(f"baseline: {path}")
    if run.traffic:
        path = drift.accept_traffic(
            root, traffic, reason=args.reason, clock=SYSTEM_CLOCK, extend=args.extend
        )
        print(f"baseline: {path}")
    return Exit.OK


def _run_folder(given: str | None) -> Path:
    """Return the folder asked for, or the newest under `runs/`."""
    if given is not None:
        return Path(given)
    found = sorted(path.parent for path in Path("runs").glob("*/run.json"))
    if not found:
        raise SpecError(
            "no run folder was named and there is none under runs/. Take one: make perf"
        )
    return found[-1]


def _add_report(parser: argparse.ArgumentParser) -> None:
    _add_run_folder(parser)
    parser.add_argument(
        "--history", type=Path, default=Path("history"), metavar="DIR", help="shown in the page"
    )


def _add_run_folder(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run_folder", nargs="?", metavar="RUN", help="default: the newest")


def _add_accept(parser: argparse.ArgumentParser) -> None:
    _add_run_folder(parser)
    parser.add_argument("--reason", required=True, help="why; stored with the baseline")
    parser.add_argument("--baselines", default="baselines", metavar="DIR")
    parser.add_argument("--extend", action="store_true", help="add to the runs that are there")
