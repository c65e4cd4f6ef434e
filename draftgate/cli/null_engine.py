"""The subcommand `null-engine`; what it does is in `draftgate.null_engine.command`."""

import argparse

from draftgate.cli.commands import Commands, add_command


def add_null_engine(commands: Commands) -> None:
    """Enter the subcommand."""
    add_command(
        commands,
        "null-engine",
        "serve a scripted stream with a log of its true send times",
        run_null_engine,
        _add_options,
    )


def run_null_engine(args: argparse.Namespace) -> int:
    """Serve until Ctrl-C."""
    from draftgate.null_engine import command  # noqa: PLC0415 - quick start

    return command.run(args)


def _add_options(parser: argparse.ArgumentParser) -> None:
    from draftgate.null_engine import command  # noqa: PLC0415 - quick start

    command.add_arguments(parser)
