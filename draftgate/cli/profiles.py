"""Subcommands about profiles: `profiles`, `prepare` and `engine`."""

import argparse
import tempfile
from pathlib import Path

from draftgate.cli.commands import Commands, add_command
from draftgate.cli.exits import Exit, say


def add_profiles(commands: Commands) -> None:
    """Enter the subcommands of this family."""
    add_command(commands, "profiles", "list the profiles", run_profiles, lambda _parser: None)
    add_command(
        commands, "prepare", "bring a profile's models into the cache", run_prepare, _add_profile
    )
    add_command(commands, "engine", "start one arm's server and keep it", run_engine, _add_engine)


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
        print(f"{name}: {resolve_target(name, log=say)}")
    return Exit.OK


def run_engine(args: argparse.Namespace) -> int:
    """Start one arm's server, print its address and keep it until Ctrl-C."""
    from draftgate.engines.running import launch  # noqa: PLC0415 - quick start
    from draftgate.specfile import load_profile  # noqa: PLC0415 - quick start

    arm = load_profile(args.profile, args.set).arm(args.arm)
    logs = Path(tempfile.mkdtemp(prefix="draftgate-"))
    engine = launch(arm, logs / f"{arm.name}.log", say)
    try:
        if engine.command is not None:
            say(engine.command.render())
        say(f"log {engine.log_path}")
        engine.wait_ready(say)
        print(f"{engine.base_url}/v1  model {engine.model}  (Ctrl-C stops it)", flush=True)
        while engine.child is not None:
            engine.child.wait(3600)
            engine.child.raise_if_dead()
    finally:
        engine.stop()
    return Exit.OK


def _add_profile(parser: argparse.ArgumentParser) -> None:
    from draftgate.specfile import DEFAULT_PROFILE  # noqa: PLC0415 - quick start

    parser.add_argument("--profile", default=DEFAULT_PROFILE, metavar="NAME|PATH")


def _add_engine(parser: argparse.ArgumentParser) -> None:
    _add_profile(parser)
    parser.add_argument("--arm", default="none")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
