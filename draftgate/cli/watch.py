"""The subcommand `watch`: options, and a line for each thing that happens.

What is watched and how it is judged is in `draftgate.watch`; its page is docs/watch.md.
"""

import argparse
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from draftgate.cli.commands import Commands, add_command
from draftgate.cli.exits import Exit, say
from draftgate.cli.listen import host_and_port
from draftgate.errors import SpecError

if TYPE_CHECKING:
    from draftgate.watch.run import WatchSpec

DEFAULT_LISTEN = "127.0.0.1:9709"
DEFAULT_LEARN = 50


def add_watch(commands: Commands) -> None:
    """Enter the subcommand."""
    about = "watch a live server's draft acceptance and tell Prometheus"
    add_command(commands, "watch", about, run_watch_command, _add_options)


def run_watch_command(args: argparse.Namespace) -> int:
    """Watch until Ctrl-C or the end of --for."""
    from draftgate.cli.watch_lines import Lines  # noqa: PLC0415 - quick start
    from draftgate.clock import SYSTEM_CLOCK  # noqa: PLC0415 - quick start
    from draftgate.watch.run import WatchHooks, run_watch  # noqa: PLC0415 - quick start

    spec = spec_of(args)
    lines = Lines(spec)
    hooks = WatchHooks(lines.start, lines.event, lines.reading)
    try:
        run_watch(spec, hooks, SYSTEM_CLOCK, threading.Event())
    except KeyboardInterrupt:
        say("draftgate: watch ended by Ctrl-C")
    return Exit.ALARM if args.fail_on_alarm and lines.alarmed else Exit.OK


def spec_of(args: argparse.Namespace) -> "WatchSpec":
    """Return what the options ask for.

    Raises:
        SpecError: If one is wrong.
    """
    from draftgate.stats.shifts import Wanted  # noqa: PLC0415 - quick start
    from draftgate.watch.monitor import Plan  # noqa: PLC0415 - quick start
    from draftgate.watch.run import WatchSpec  # noqa: PLC0415 - quick start
    from draftgate.watch.windows import WindowSize  # noqa: PLC0415 - quick start

    if args.window is None and args.window_steps is None:
        args.window = 100
    try:
        wanted = Wanted(args.change, args.slide, args.tolerate, args.run_length)
    except ValueError as error:
        raise SpecError(
            f"watch: {error}. Look at --tolerate, --slide, --change and --run-length."
        ) from error
    learn = args.learn
    if learn is None and (args.reference is None or args.learn_only):
        learn = DEFAULT_LEARN
    return WatchSpec(
        url=with_path(args.url),
        plan=Plan(
            size=WindowSize(args.window, args.window_steps),
            wanted=wanted,
            learn_windows=learn,
            still_s=args.still_after,
        ),
        interval_s=args.interval,
        kind_label=args.kind_label,
        reference=args.reference,
        state=args.state,
        listen=parse_listen(args.listen),
        duration_s=args.for_s,
        until_learned=args.learn_only,
        api_key_env=args.api_key_env,
    )


def with_path(url: str) -> str:
    """Return the address of the page; /metrics where none is named."""
    scheme, separator, rest = url.partition("://")
    host, _, path = rest.partition("/")
    return url if not separator or path else f"{scheme}://{host}/metrics"


def parse_listen(text: str) -> tuple[str, int] | None:
    """Return host and port of HOST:PORT, or None for "off".

    Raises:
        SpecError: If it is neither.
    """
    if text == "off":
        return None
    found = host_and_port(text)
    if found is None:
        raise SpecError(
            f"watch: --listen got {text!r}, expected HOST:PORT or off. Example: {DEFAULT_LISTEN}."
        )
    return found


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--url", required=True, metavar="METRICS_URL", help="the engine's metrics page"
    )
    parser.add_argument("--api-key-env", metavar="NAME", help="variable with a key for that page")
    parser.add_argument(
        "--interval", type=float, default=15.0, metavar="SECONDS", help="between readings; 15"
    )
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--window", type=int, metavar="REQUESTS", help="requests in a window; 100")
    size.add_argument(
        "--window-steps", type=int, metavar="STEPS", help="verify steps in a window instead"
    )
    parser.add_argument(
        "--kind-label", default="kind", metavar="LABEL", help="label with the kind of traffic"
    )
    _add_reference(parser)
    _add_detection(parser)
    parser.add_argument("--state", type=Path, metavar="FILE", help="go on from here when restarted")
    parser.add_argument(
        "--listen",
        default=DEFAULT_LISTEN,
        metavar="HOST:PORT",
        help=f"where Prometheus may ask; {DEFAULT_LISTEN}; off for nowhere",
    )
    parser.add_argument(
        "--for", dest="for_s", type=float, metavar="SECONDS", help="end after this time"
    )
    parser.add_argument(
        "--fail-on-alarm", action="store_true", help="exit code 7 if there was any alarm"
    )


def _add_reference(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--reference", type=Path, metavar="FILE", help="levels that were learned before"
    )
    parser.add_argument(
        "--learn",
        type=int,
        metavar="WINDOWS",
        help=f"learn what --reference lacks, and write it there; {DEFAULT_LEARN} without one",
    )
    parser.add_argument("--learn-only", action="store_true", help="end once all is learned")


def _add_detection(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--change", type=float, default=0.10, metavar="RATIO", help="to be found fast; 0.10"
    )
    parser.add_argument(
        "--slide", type=float, default=0.05, metavar="RATIO", help="to be found if it lasts; 0.05"
    )
    parser.add_argument(
        "--tolerate", type=float, default=0.005, metavar="RATIO", help="is no change; 0.005"
    )
    parser.add_argument(
        "--run-length",
        type=float,
        default=10_000,
        metavar="WINDOWS",
        help="between false alarms, on average; 10000",
    )
    parser.add_argument(
        "--still-after",
        type=float,
        default=120.0,
        metavar="SECONDS",
        help="of traffic without drafts that alarm; 120",
    )
