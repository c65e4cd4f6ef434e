"""The null engine as a command: options to a script, then serve until a signal.

`add_arguments` and `run` are what a command line plugs in; `python -m
draftgate.null_engine` uses the same two.
"""

import argparse
import gc
import os
import resource
import signal
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from draftgate.errors import SpecError
from draftgate.null_engine.engine import NullEngine
from draftgate.null_engine.script import (
    Alignment,
    Script,
    load_script,
    parse_fault,
    parse_tokens,
)

_OPEN_FILES = 16_384
"""Connections that are to be possible at once; the limit of the system may be lower."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the null engine to `parser`."""
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one")
    parser.add_argument(
        "--script",
        default="{}",
        metavar="JSON|@FILE",
        help="what to do, as JSON, or a .json or .toml file; the options below override it",
    )
    parser.add_argument("--ttft", type=float, metavar="S", help="arrival to first token")
    parser.add_argument("--gap", type=float, metavar="S", help="time between two steps")
    parser.add_argument("--slow-gaps", metavar="SHARE:S", help="share and length of longer gaps")
    parser.add_argument(
        "--tokens-per-step",
        metavar="N|N,N,...|LOW-HIGH",
        help="constant, a cycle, or drawn evenly; the first step has one token",
    )
    parser.add_argument("--burst", type=int, metavar="N", help="steps that go out at once")
    parser.add_argument("--align", choices=[member.value for member in Alignment])
    parser.add_argument(
        "--fault",
        action="append",
        default=[],
        metavar="KIND=FIRST-LAST/OF[@TOKENS]",
        help="for example in_band_error=1-16/64; may be given several times",
    )
    parser.add_argument("--model", metavar="NAME", help="the model that it lists")
    parser.add_argument("--log", type=Path, metavar="FILE", help="where true send times go")
    parser.add_argument("--cpu", type=int, metavar="N", help="core to stay on")


def script_of(args: argparse.Namespace) -> Script:
    """Return the script that the options ask for.

    Raises:
        SpecError: If the script or an option is wrong.
    """
    script = load_script(args.script)
    changes: dict[str, Any] = {
        "ttft_s": args.ttft,
        "gap_s": args.gap,
        "burst_steps": args.burst,
        "model": args.model,
        "align": None if args.align is None else Alignment(args.align),
    }
    if args.tokens_per_step is not None:
        changes["tokens_per_step"] = parse_tokens(args.tokens_per_step)
    if args.slow_gaps is not None:
        changes["slow_gap_share"], changes["slow_gap_s"] = _slow_gaps(args.slow_gaps)
    if args.fault:
        changes["faults"] = (*script.faults, *map(parse_fault, args.fault))
    return replace(script, **{key: value for key, value in changes.items() if value is not None})


def run(args: argparse.Namespace) -> int:
    """Serve until SIGINT or SIGTERM; return 0 with the log written.

    Prints `listening on HOST:PORT` once it does.

    Raises:
        SpecError: If the options are wrong.
        EngineError: If the address cannot be had.
    """
    script = script_of(args)
    _pin(args.cpu)
    _allow_connections()
    try:
        engine = NullEngine(script, log_path=args.log)
    except OSError as error:
        raise SpecError(
            f"null engine: --log got {args.log}, which cannot be written: {error}. Name a file in "
            "a folder that exists."
        ) from error
    engine.bind(args.host, args.port)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: engine.request_stop())
    sys.stdout.write(f"listening on {args.host}:{engine.port}\n")
    sys.stdout.flush()
    # Nothing here makes cycles, and a collection would be a pause that nobody scripted.
    gc.freeze()
    gc.disable()
    engine.run()
    return 0


def _slow_gaps(text: str) -> tuple[float, float]:
    share, _, gap_s = text.partition(":")
    try:
        return float(share), float(gap_s)
    except ValueError as error:
        raise SpecError(
            f"null engine: --slow-gaps got {text!r}, expected SHARE:SECONDS. Example: 0.04:0.1."
        ) from error


def _pin(core: int | None) -> None:
    if core is None:
        return
    allowed = sorted(os.sched_getaffinity(0))
    if core not in allowed:
        raise SpecError(
            f"null engine: --cpu got {core}, expected one of {allowed}. Leave it out for any core."
        )
    os.sched_setaffinity(0, {core})


def _allow_connections() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = _OPEN_FILES if hard == resource.RLIM_INFINITY else min(_OPEN_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
