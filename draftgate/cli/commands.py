"""How a subcommand joins the command: a name, its options, and what runs.

Options are added when the subcommand is asked for, so that starting one does not
import what the others need. Knows no subcommand.
"""

import argparse
from collections.abc import Callable
from typing import Any

Run = Callable[[argparse.Namespace], int]
"""Does what a subcommand does and returns its exit code."""

Fill = Callable[[argparse.ArgumentParser], None]
"""Adds options to a subcommand's parser."""

Commands = Any
"""What `add_subparsers` returns; argparse has no public name for it."""


class CommandParser(argparse.ArgumentParser):
    """A parser whose options are added when it first parses, or shows its help.

    Args:
        fill: Adds the options; None where they are added at once.
        words: As for `argparse.ArgumentParser`.
    """

    def __init__(self, *, fill: Fill | None = None, **words: Any) -> None:
        super().__init__(**words)
        self._fill = fill

    def fill(self) -> None:
        """Add the options now, unless that was done."""
        fill, self._fill = self._fill, None
        if fill is not None:
            fill(self)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Add the options, then parse; how argparse enters a subcommand."""
        self.fill()
        return super().parse_known_args(args, namespace)


def add_command(commands: Commands, name: str, about: str, run: Run, fill: Fill) -> None:
    """Enter a subcommand.

    Args:
        commands: Where, as returned by `add_subparsers`.
        name: Its name.
        about: What it does, in a few words.
        run: What it does.
        fill: Adds its options.
    """
    parser = commands.add_parser(name, help=about, description=about, fill=fill)
    parser.set_defaults(run=run)
