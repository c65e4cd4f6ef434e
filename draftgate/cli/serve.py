"""The subcommand `serve`: options, and lines with the time before them.

What is served and how is in `draftgate.serve`; its page is docs/serve.md.
"""

import argparse
import ipaddress
import re
from pathlib import Path
from typing import TYPE_CHECKING

from draftgate.cli.commands import Commands, add_command
from draftgate.cli.exits import Exit, say
from draftgate.cli.listen import host_and_port
from draftgate.clock import SYSTEM_CLOCK
from draftgate.errors import BaselineError, SpecError

if TYPE_CHECKING:
    from draftgate.baselines.stored import Baseline
    from draftgate.serve.routing import FallbackSpec
    from draftgate.serve.run import ServeSpec
    from draftgate.specs import Profile

DEFAULT_LISTEN = "127.0.0.1:8000"
DEFAULT_MAX_BODY_BYTES = 4 * 1024 * 1024
"""Our choice: 131,072 tokens, the longest context of the targets that have recipes, at 32 bytes."""

_EXTRA = ("aiohttp", "httptools", "starlette", "uvicorn")


def add_serve(commands: Commands) -> None:
    """Enter the subcommand."""
    about = "start an engine and a streaming OpenAI-compatible front before it"
    add_command(commands, "serve", about, run_serve_command, _add_options)


def run_serve_command(args: argparse.Namespace) -> int:
    """Serve until Ctrl-C or SIGTERM, then drain."""
    _check_installed()
    from draftgate.serve.run import run_serve  # noqa: PLC0415 - quick start

    spec = spec_of(args)
    if spec.key is None and not _is_loopback(spec.listen[0]):
        say(
            f"draftgate: serve: {args.listen} can be reached from other machines and no key is "
            "needed. Give --api-key-env NAME unless something before it asks for one."
        )
    run_serve(spec, _print, say, SYSTEM_CLOCK)
    return Exit.OK


def spec_of(args: argparse.Namespace) -> "ServeSpec":
    """Return what the options ask for.

    Raises:
        SpecError: If one is wrong.
    """
    from draftgate.engines.running import read_key  # noqa: PLC0415 - quick start
    from draftgate.serve.limits import Limits  # noqa: PLC0415 - quick start
    from draftgate.serve.run import ServeSpec  # noqa: PLC0415 - quick start
    from draftgate.specfile import load_profile  # noqa: PLC0415 - quick start

    listen = host_and_port(args.listen)
    if listen is None:
        raise SpecError(
            f"serve: --listen got {args.listen!r}, expected HOST:PORT. Example: {DEFAULT_LISTEN}."
        )
    profile = load_profile(args.profile, args.set)
    arm = profile.arm(args.arm)
    in_flight = arm.engine.max_num_seqs if args.max_in_flight is None else args.max_in_flight
    return ServeSpec(
        arm=arm,
        listen=listen,
        max_in_flight=in_flight,
        max_queue=in_flight if args.max_queue is None else args.max_queue,
        limits=Limits(args.max_body_bytes, args.max_output_tokens, args.max_choices),
        key=None if args.api_key_env is None else read_key(args.api_key_env),
        metrics=args.metrics,
        interval_s=args.interval,
        drain_timeout_s=args.drain_timeout,
        usd_per_hour=args.usd_per_hour,
        fallback=_fallback_of(args, profile),
        restart=not args.no_restart,
    )


def _fallback_of(args: argparse.Namespace, profile: "Profile") -> "FallbackSpec | None":
    """Return the ladder that the options ask for; None without --fallback.

    Raises:
        SpecError: If an option is wrong, or one of the ladder is given without it.
        BaselineError: If there are no step times.
    """
    from draftgate.baselines.stored import load_baseline  # noqa: PLC0415 - quick start
    from draftgate.serve.fallback.breakeven import break_even_of  # noqa: PLC0415 - quick start
    from draftgate.serve.fallback.controller import Policy  # noqa: PLC0415 - quick start
    from draftgate.serve.fallback.evidence import Rule  # noqa: PLC0415 - quick start
    from draftgate.serve.routing import FallbackSpec, checked_ladder  # noqa: PLC0415 - quick start

    if args.fallback is None:
        if args.class_header is not None or args.break_even is not None:
            raise SpecError(
                "serve: --class-header and --break-even say how to fall back, and got no "
                "--fallback. Name the arms below: --fallback ngram,none."
            )
        return None
    if args.class_header is not None and not re.fullmatch(r"[A-Za-z0-9-]+", args.class_header):
        raise SpecError(
            f"serve: --class-header got {args.class_header!r}, expected the name of a header. "
            "Example: x-traffic-class."
        )
    arms = tuple(profile.arm(name) for name in args.fallback.split(","))
    checked_ladder((profile.arm(args.arm), *arms), per_request=False)
    rule = Rule(window_steps=args.window_steps, probe_steps=max(1, args.window_steps // 4))
    policy = Policy(rule, args.dwell, args.probe_share)
    baseline = load_baseline(args.break_even) if args.break_even else _own_baseline(profile)
    upper = [args.arm, *(one.name for one in arms[:-1])]
    known = break_even_of(baseline, upper, arms[-1].name)
    label = None if args.class_header is None else args.class_header.lower()
    return FallbackSpec(arms, policy, known, label)


def _own_baseline(profile: "Profile") -> "Baseline":
    """Return the baseline of this hardware, engine and profile.

    Raises:
        BaselineError: If there is none, or its arms are others than the profile's.
    """
    from draftgate.baselines import stored  # noqa: PLC0415 - quick start
    from draftgate.environment import describe  # noqa: PLC0415 - quick start

    root, environment = Path("baselines"), describe("unknown")
    found = stored.find_baseline(root, environment, profile)
    if found is None:
        raise BaselineError(
            "serve: --fallback needs the step times of its arms, and there is no "
            f"{stored.baseline_path(root, environment, profile)}, the baseline of this hardware. "
            "Measure (pytest -m perf) and accept the run (draftgate baseline accept), or name a "
            "baseline of equal hardware with --break-even FILE."
        )
    return found


def _check_installed() -> None:
    """Refuse to go on without the packages of the extra.

    Raises:
        SpecError: If one is missing.
    """
    from importlib.util import find_spec  # noqa: PLC0415 - quick start

    missing = [name for name in _EXTRA if find_spec(name) is None]
    if missing:
        raise SpecError(
            f"serve: got no package {', '.join(missing)}, expected those of the extra 'serve'. "
            "Install it: pip install 'draftgate[serve]'."
        )


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:  # a name
        return host == "localhost"


def _print(line: str) -> None:
    print(f"{SYSTEM_CLOCK.wall().astimezone():%H:%M:%S} {line}", flush=True)


def _add_options(parser: argparse.ArgumentParser) -> None:
    from draftgate.specfile import DEFAULT_PROFILE  # noqa: PLC0415 - quick start

    parser.add_argument("--profile", default=DEFAULT_PROFILE, metavar="NAME|PATH")
    parser.add_argument("--arm", default="none", metavar="NAME", help="which of its arms; none")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument(
        "--listen",
        default=DEFAULT_LISTEN,
        metavar="HOST:PORT",
        help=f"{DEFAULT_LISTEN}; port 0 takes a free one",
    )
    _add_access(parser)
    _add_load(parser)
    parser.add_argument(
        "--interval", type=float, default=10.0, metavar="SECONDS", help="between lines; 10"
    )
    parser.add_argument(
        "--drain-timeout",
        type=float,
        default=30.0,
        metavar="SECONDS",
        help="for requests that run when it is told to end; 30",
    )
    _add_fallback(parser)
    parser.add_argument(
        "--usd-per-hour", type=float, metavar="X", help="price of the machine, for [cost] lines"
    )


def _add_fallback(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--fallback",
        metavar="ARM,...",
        help="arms to go down to while drafts do not pay, in order; the last without speculation",
    )
    parser.add_argument(
        "--break-even",
        type=Path,
        metavar="FILE",
        help="baseline with the arms' step times; that of this hardware and profile",
    )
    parser.add_argument(
        "--class-header", metavar="NAME", help="header that labels a request's class; all as one"
    )
    parser.add_argument(
        "--window-steps",
        type=int,
        default=500,
        metavar="N",
        help="decode steps of a window of the fallback's rule; 500",
    )
    parser.add_argument(
        "--dwell",
        type=float,
        default=60.0,
        metavar="SECONDS",
        help="shortest time between two switches; 60",
    )
    parser.add_argument(
        "--probe-share",
        type=float,
        default=0.05,
        metavar="R",
        help="share of requests that measure an arm fallen back from; 0.05",
    )
    parser.add_argument(
        "--no-restart", action="store_true", help="leave an engine that has ended as it is"
    )


def _add_access(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--api-key-env", metavar="NAME", help="variable with the key that clients need; none"
    )
    parser.add_argument("--metrics", action="store_true", help="have /metrics, for Prometheus")


def _add_load(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--max-in-flight",
        type=int,
        metavar="N",
        help="requests at the engine at once; the profile's engine.max_num_seqs",
    )
    parser.add_argument(
        "--max-queue", type=int, metavar="N", help="requests that may wait; as --max-in-flight"
    )
    parser.add_argument(
        "--max-body-bytes",
        type=int,
        default=DEFAULT_MAX_BODY_BYTES,
        metavar="N",
        help=f"length of a request; {DEFAULT_MAX_BODY_BYTES}",
    )
    parser.add_argument(
        "--max-output-tokens", type=int, metavar="N", help="of one answer; the engine's own limit"
    )
    parser.add_argument(
        "--max-choices",
        type=int,
        default=1,
        metavar="N",
        help="of one request, n times its prompts; 1",
    )
