"""The options of `draftgate load`, by what they decide.

Names, defaults and help alone, so that showing them imports nothing else; values
are checked by whoever takes them.
"""

import argparse
from pathlib import Path
from typing import Literal

APIS = ("chat", "completions", "openai-chat", "sglang", "trtllm", "trtllm-chat")
"""Names of `draftgate.load.apis.APIS`; a test holds the two against each other."""

_EPILOG = """exit codes: 0 measured; 2 wrong option or file; 3 the run cannot be used (the JSON
file says why), or more requests failed than --max-failure-share lets through; 5 the
server cannot be reached; 130 Ctrl-C. Failed requests are shown by class, enter no
latency, and alone do not make the code other than 0, unless all failed."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add all options to `parser`."""
    parser.epilog = _EPILOG
    _add_server(parser.add_argument_group("the server"))
    _add_arrivals(parser.add_argument_group("when requests go out, and until when"))
    _add_workload(parser.add_argument_group("what is sent"))
    _add_client(parser.add_argument_group("the client"))
    _add_output(parser.add_argument_group("what comes of it"))


def workers(text: str) -> int | Literal["auto"]:
    """Return a number of processes, or "auto".

    Raises:
        ValueError: If it is neither.
    """
    return "auto" if text == "auto" else int(text)


Group = argparse._ArgumentGroup  # noqa: SLF001 - argparse has no public name for it


def _add_server(group: Group) -> None:
    group.add_argument("--url", required=True, metavar="URL", help="http(s)://HOST:PORT")
    group.add_argument("--model", required=True, metavar="NAME", help="the name it is served by")
    group.add_argument("--api", default="chat", help=f"{', '.join(APIS)}; default chat")
    group.add_argument("--api-key-env", metavar="NAME", help="variable that holds the key")
    group.add_argument("--insecure", action="store_true", help="accept any certificate")
    group.add_argument("--ca-file", metavar="FILE", help="authorities to trust, PEM")


def _add_arrivals(group: Group) -> None:
    group.add_argument("--concurrency", type=int, metavar="N", help="closed loop of N streams")
    group.add_argument("--stagger", type=float, default=0.5, metavar="S", help="their start")
    group.add_argument(
        "--think-time", type=float, default=0.0, metavar="S", help="pause after each answer"
    )
    group.add_argument("--think-law", choices=("constant", "exponential"), default="constant")
    group.add_argument("--rate", type=float, metavar="R", help="open loop, requests per second")
    group.add_argument(
        "--arrivals",
        metavar="KIND",
        help="constant, poisson (default), gamma:shape=K, ramp:to=R,over=S, steps:RxS,..., "
        "replay:scale=X",
    )
    group.add_argument("--trace", type=Path, metavar="FILE", help="CSV or JSONL to replay")
    group.add_argument("--trace-unit", choices=("s", "ms", "us", "ns"), help="of its numbers")
    group.add_argument("--requests", type=int, metavar="N", help="stop after N requests")
    group.add_argument("--duration", type=float, metavar="S", help="stop sending after S seconds")


def _add_workload(group: Group) -> None:
    group.add_argument(
        "--prompts",
        required=True,
        metavar="FILE|NAME|synthetic:LENGTHS",
        help="a JSONL file, a dataset (chat, code, arithmetic, mixed), a published set "
        "(gsm8k:FILE, humaneval, mt_bench, sharegpt:FILE, ...), or made-up prompts",
    )
    group.add_argument(
        "--max-tokens",
        required=True,
        metavar="LENGTHS",
        help="output: N, LOW-HIGH, lognormal:median=M,sigma=S,low=L,high=H, or trace",
    )
    group.add_argument("--temperature", type=float, default=0.0, metavar="T")
    group.add_argument("--top-p", type=float, default=1.0, metavar="P")
    group.add_argument("--top-k", type=int, default=0, metavar="K")
    group.add_argument("--sampling-seed", type=int, metavar="N", help="sent with each request")
    group.add_argument(
        "--ignore-eos",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="outputs of full length, which is checked",
    )
    group.add_argument("--turns", type=int, default=1, metavar="N", help="turns of a session")
    group.add_argument("--prompt-ids", metavar="LOW-HIGH", help="made-up prompts of token ids")
    group.add_argument(
        "--shared-prefix", metavar="COUNTxLENGTH[@SHARE]", help="beginnings in common"
    )
    group.add_argument(
        "--shared-cache",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="let requests find each other's prefixes in the server's cache; default only with "
        "--shared-prefix, otherwise each has a salt where the API knows salts",
    )


def _add_client(group: Group) -> None:
    group.add_argument("--workers", type=workers, default="auto", metavar="N|auto")
    group.add_argument("--seed", type=int, default=1, metavar="N")
    group.add_argument(
        "--stall-timeout", type=float, default=60.0, metavar="S", help="silence, default 60"
    )
    group.add_argument("--run-timeout", type=float, metavar="S", help="of the whole run")


def _add_output(group: Group) -> None:
    group.add_argument("--json", type=Path, metavar="FILE", help="all numbers, in seconds")
    group.add_argument("--records", type=Path, metavar="DIR", help="every request, as Parquet")
    group.add_argument("--keep-text", action="store_true", help="output text in the records")
    group.add_argument(
        "--max-failure-share", type=float, default=1.0, metavar="X", help="default 1: any but all"
    )
