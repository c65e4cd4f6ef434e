"""What one engine has to tell the rest: its command, its version, its counters.

Adapters are pure: they render and parse, and open neither sockets nor
processes. `draftgate.engines.running` does the rest for all of them.
"""

import shlex
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from draftgate.engines.counters import CounterSnapshot
from draftgate.hidden import hide
from draftgate.registry import Registry
from draftgate.specs import DockerLaunch, EngineSpec, ProcessLaunch

Log = Callable[[str], None]
"""Takes one line of progress."""


@dataclass(frozen=True, slots=True)
class Command:
    """A start command that a person can repeat.

    Attributes:
        argv: Program and arguments.
        env: Variables set on top of the caller's environment, sorted by name.
        expect_in_log: Lines that must stand in the log once the server is
            ready, each with what it means that they do not.
        folders: Absolute paths that the arguments name and the server reads; a
            container gets them at the same path.
    """

    argv: tuple[str, ...]
    env: tuple[tuple[str, str], ...] = ()
    expect_in_log: tuple[tuple[str, str], ...] = field(default=())
    folders: tuple[str, ...] = ()

    def render(self) -> str:
        """Return one shell line that starts the same server, once what is hidden is filled in."""
        env = " ".join(f"{name}={shlex.quote(value)}" for name, value in hide(self.env))
        return f"{env} {shlex.join(hide(self.argv))}".strip()


class EngineAdapter(Protocol):
    """One engine's dialect.

    Attributes:
        health_path: Answers 200 once requests are served.
        metrics_path: Prometheus text; None if the engine has none.
        served_model: Name requests ask for when draftgate starts the server.
    """

    health_path: str
    metrics_path: str | None
    served_model: str

    def command(self, spec: EngineSpec, port: int, log: Log) -> Command:
        """Return how to start `spec` at `port` of `listen_address(spec)`.

        Raises:
            SpecError: If the engine cannot run this spec.
        """

    def parse_counters(self, text: str) -> CounterSnapshot:
        """Return the totals in one answer of `metrics_path`.

        Raises:
            EngineError: If the text is not what this engine answers.
        """


def interpreter(spec: EngineSpec) -> str:
    """Return the Python that runs the engine, as seen by the server."""
    launch = spec.launch
    own = launch.python if isinstance(launch, ProcessLaunch | DockerLaunch) else None
    return own or sys.executable


def listen_address(spec: EngineSpec) -> str:
    """Return where the server has to listen: loopback, unless a Docker network lies between."""
    launch = spec.launch
    inside = isinstance(launch, DockerLaunch) and launch.network != "host"
    return "0.0.0.0" if inside else "127.0.0.1"  # noqa: S104 - published on loopback alone


ENGINES: Registry[EngineAdapter] = Registry("engine", "draftgate.engines")
