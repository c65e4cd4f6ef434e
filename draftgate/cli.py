"""The `draftgate` command: what is not a test.

One subcommand, one `run_<name>(args) -> int`. The only module that prints.
Exit codes are those of `Exit`; the table in README.md is made from it.
"""

import argparse
import enum
import signal
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Self

from draftgate import __version__
from draftgate.errors import (
    BaselineError,
    DraftgateError,
    EngineError,
    MeasurementError,
    SpecError,
)
from draftgate.specfile import DEFAULT_PROFILE


class Exit(enum.IntEnum):
    """Exit codes of the command, with what each means."""

    OK = 0, "done; every verdict is green"
    REGRESSION = 1, "a gate found a loss beyond its margin"
    BAD_SPEC = 2, "a profile, option or input file is wrong"
    UNUSABLE_RUN = 3, "a run was taken but can't be used or stored"
    NO_BASELINE = 4, "no baseline fits, or one is damaged"
    ENGINE = 5, "the server did not start, died or did not answer"
    INTERRUPTED = 130, "stopped by Ctrl-C"

    meaning: str

    def __new__(cls, code: int, meaning: str) -> Self:
        """Make a member of a code and its meaning."""
        member = int.__new__(cls, code)
        member._value_ = code
        member.meaning = meaning
        return member


_EXIT_OF: tuple[tuple[type[DraftgateError], Exit], ...] = (
    (SpecError, Exit.BAD_SPEC),
    (EngineError, Exit.ENGINE),
    (MeasurementError, Exit.UNUSABLE_RUN),
    (BaselineError, Exit.NO_BASELINE),
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one subcommand and return its exit code."""
    args = _parser().parse_args(argv)
    try:
        return int(args.run(args))
    except DraftgateError as error:
        print(f"draftgate: {error}", file=sys.stderr)
        return next(code for kind, code in _EXIT_OF if isinstance(error, kind))
    except KeyboardInterrupt:
        print("draftgate: interrupted", file=sys.stderr)
        return Exit.INTERRUPTED


def run_profiles(_args: argparse.Namespace) -> int:
    """List the profiles that can be named."""
    from draftgate.specfile import load_profile, profile_names  # noqa: PLC0415 - quick start

    for name in profile_names():
        print(f"{name:24} {load_profile(name).description}")
    return Exit.OK


def run_prepare(args: argparse.Namespace) -> int:
    """Bring every model of a profile into the cache."""
    from draftgate.specfile import load_profile  # noqa: PLC0415 - quick start
    from draftgate.targets import resolve_target  # noqa: PLC0415 - quick start

    profile = load_profile(args.profile)
    names = {arm.engine.target for arm in profile.arms}
    drafts = (arm.engine.speculative for arm in profile.arms)
    names |= {d.model for d in drafts if d is not None and d.model not in (None, "target")}
    for name in sorted(names):
        print(f"{name}: {resolve_target(name, log=_say)}")
    return Exit.OK


def run_engine(args: argparse.Namespace) -> int:
    """Start one arm's server, print its address and keep it until Ctrl-C."""
    from draftgate.engines.running import launch  # noqa: PLC0415 - quick start
    from draftgate.specfile import load_profile  # noqa: PLC0415 - quick start

    arm = load_profile(args.profile, args.set).arm(args.arm)
    logs = Path(tempfile.mkdtemp(prefix="draftgate-"))
    engine = launch(arm, logs / f"{arm.name}.log", _say)
    try:
        if engine.command is not None:
            _say(engine.command.render())
        _say(f"log {engine.log_path}")
        engine.wait_ready(_say)
        print(f"{engine.base_url}/v1  model {engine.model}  (Ctrl-C stops it)", flush=True)
        while engine.child is not None:
            engine.child.wait(3600)
            engine.child.raise_if_dead()
    finally:
        engine.stop()
    return Exit.OK


def run_report(args: argparse.Namespace) -> int:
    """Write the page of a run folder again and print its tables."""
    from rich.console import Console  # noqa: PLC0415 - quick start

    from draftgate.report import print_report, write_report  # noqa: PLC0415 - quick start
    from draftgate.runstore import load_run  # noqa: PLC0415 - quick start

    run = load_run(_run_folder(args.run_folder))
    page = write_report(run)
    print_report(run, Console())
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


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="draftgate", description=__doc__.partition("\n")[0])
    parser.add_argument("--version", action="version", version=f"draftgate {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)

    profiles = commands.add_parser("profiles", help="list the profiles")
    profiles.set_defaults(run=run_profiles)

    prepare = commands.add_parser("prepare", help="bring a profile's models into the cache")
    prepare.add_argument("--profile", default=DEFAULT_PROFILE, metavar="NAME|PATH")
    prepare.set_defaults(run=run_prepare)

    engine = commands.add_parser("engine", help="start one arm's server and keep it")
    engine.add_argument("--profile", default=DEFAULT_PROFILE, metavar="NAME|PATH")
    engine.add_argument("--arm", default="none")
    engine.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    engine.set_defaults(run=run_engine)

    report = commands.add_parser("report", help="write a run's report again")
    report.add_argument("run_folder", nargs="?", metavar="RUN", help="default: the newest")
    report.set_defaults(run=run_report)

    baseline = commands.add_parser("baseline", help="stored baselines")
    actions = baseline.add_subparsers(metavar="ACTION", required=True)
    accept = actions.add_parser("accept", help="make a run the baseline of its hardware")
    accept.add_argument("run_folder", nargs="?", metavar="RUN", help="default: the newest")
    accept.add_argument("--reason", required=True, help="why; stored with the baseline")
    accept.add_argument("--baselines", default="baselines", metavar="DIR")
    accept.add_argument("--extend", action="store_true", help="add to the runs that are there")
    accept.set_defaults(run=run_baseline_accept)
    return parser


def _terminate(_signal: int, _frame: object) -> None:
    raise KeyboardInterrupt


def entry() -> None:
    """Console entry: SIGTERM ends it as Ctrl-C does, so that no server is left."""
    signal.signal(signal.SIGTERM, _terminate)
    sys.exit(main())


if __name__ == "__main__":
    entry()
