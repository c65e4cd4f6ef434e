"""The options of `draftgate check`, by what they decide.

Names, defaults and help alone, so that showing them imports nothing else; values
are checked by whoever takes them.
"""

import argparse
from pathlib import Path

ENGINES = ("vllm", "sglang", "tensorrt_llm")
"""Keys of `draftgate.checks.collect.DIALECTS`; a test holds the two against each other."""

DTYPES = ("float32", "bfloat16", "float16")

_EPILOG = """outcomes: PASS (0) no evidence against the target's law, with the size of a fault that
would have been found; LOSSY (1) the tokens do not follow it; NONCONFORMING (1) drafts
were not accepted by the rule; MISMATCH (1) a count, an end or a parameter is not as asked;
INCONCLUSIVE (6) rounding may explain it, or too few
tokens. 2 wrong option; 5 a server does not answer. Ctrl-C ends a check early; what was
gathered so far is judged."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add all options to `parser`."""
    parser.epilog = _EPILOG
    _add_servers(parser.add_argument_group("what is checked against what"))
    _add_speculation(parser.add_argument_group("what is known of the drafts"))
    _add_extent(parser.add_argument_group("how much is looked at"))


Group = argparse._ArgumentGroup  # noqa: SLF001 - argparse has no public name for it


def _add_servers(group: Group) -> None:
    group.add_argument("--url", required=True, metavar="URL", help="the server under test")
    group.add_argument(
        "--model", metavar="NAME", help="the name it is served by; default its first"
    )
    group.add_argument("--api-key-env", metavar="NAME", help="variable that holds its key")
    group.add_argument("--engine", choices=ENGINES, default="vllm", help="whose API it speaks")
    group.add_argument(
        "--reference",
        metavar="URL|MODEL",
        help="a server of the same build without speculation, or a model's name or folder to run "
        "here in float32; default the server itself, which then reads its own answers",
    )
    group.add_argument("--reference-model", metavar="NAME", help="as --model, for a server")
    group.add_argument("--reference-api-key-env", metavar="NAME", help="as --api-key-env")
    group.add_argument(
        "--plain",
        metavar="URL",
        help="the A/A arm: the same build without speculation; default --reference if a server",
    )
    group.add_argument("--dtype", choices=DTYPES, default="bfloat16", help="of the servers")
    group.add_argument("--tokenizer", metavar="FOLDER", help="where the server can't tokenise")
    group.add_argument("--vocabulary", type=int, metavar="N", help="if it can't be found out")


def _add_speculation(group: Group) -> None:
    group.add_argument("--k", type=int, metavar="K", help="draft tokens per verify step")
    group.add_argument(
        "--draft", metavar="MODEL|ngram[:MIN-MAX]", help="the drafter, with a model as reference"
    )
    group.add_argument(
        "--draft-sampled",
        action="store_true",
        help="the draft model's tokens are drawn at the request's temperature; default its most "
        "likely ones",
    )


def _add_extent(group: Group) -> None:
    group.add_argument(
        "--budget", default="60s", metavar="TIME|TOKENS", help="60s, 5m or 12000; default 60s"
    )
    group.add_argument(
        "--alpha", type=float, default=1e-4, metavar="A", help="false alarms, default 1e-4"
    )
    group.add_argument(
        "--condition",
        action="append",
        default=[],
        metavar="T=..[,top_p=..][,top_k=..]",
        help="a setting of sampling; may be given several times",
    )
    group.add_argument("--prompts", default="mixed", metavar="NAME|FILE", help="default mixed")
    group.add_argument(
        "--skip-probes",
        action="store_true",
        help="do not ask at the end, in about 20 short requests, what becomes of single parameters "
        "such as min_p or bad_words",
    )
    group.add_argument("--seed", type=int, metavar="N", help="default another one each time")
    group.add_argument("--out", type=Path, default=Path("runs"), metavar="DIR")
