"""The subcommand `cost`: what a million tokens costs here, and at list prices of APIs.

Turns options into assumptions and a report into output; what happens in between
is in `draftgate.cost`.
"""

import argparse
from pathlib import Path

from draftgate.cli.commands import Commands, add_command
from draftgate.cli.exits import Exit
from draftgate.cli.json_file import check_json, write_json
from draftgate.errors import SpecError


def add_cost(commands: Commands) -> None:
    """Enter the subcommand."""
    about = "what a million tokens costs on the measured machine, beside list prices of APIs"
    add_command(commands, "cost", about, run_cost, _add_options)


def run_cost(args: argparse.Namespace) -> int:
    """Work out the cost of measured traffic, print it and write it to a file."""
    from rich.console import Console  # noqa: PLC0415 - quick start

    from draftgate.cost import (  # noqa: PLC0415 - quick start
        Assumptions,
        cost_report,
        load_prices,
        read_measurement,
    )
    from draftgate.cost.render import print_cost, render_markdown  # noqa: PLC0415 - quick start
    from draftgate.specs import SLO  # noqa: PLC0415 - quick start

    for name in ("slo_ttft", "slo_per_token", "slo_e2e"):
        value = getattr(args, name)
        if value is not None and not value > 0:
            option = f"--{name.replace('_', '-')}"
            raise SpecError(f"cost: {option} got {value:g}, expected seconds above 0.")
    if args.json is not None:
        check_json(args.json)
    prices = load_prices(args.prices)
    limits = SLO(args.slo_ttft, args.slo_per_token, args.slo_e2e)
    assumed = Assumptions(
        utilisation=args.utilisation,
        provider=args.provider,
        hardware=args.hardware,
        gpus=args.gpus,
        input_tokens=args.input_tokens,
        output_tokens=args.output_tokens,
    )
    report = cost_report(read_measurement(args.measured, limits), prices, assumed)
    if args.markdown:
        print(render_markdown(report), end="")
    else:
        print_cost(report, Console(highlight=False))
    if args.json is not None:
        write_json(report, args.json)
    return Exit.OK


def _add_options(parser: argparse.ArgumentParser) -> None:
    from draftgate.cost.result import DEFAULT_UTILISATION  # noqa: PLC0415 - quick start

    parser.add_argument(
        "measured",
        nargs="+",
        type=Path,
        metavar="RUN|SUMMARY",
        help="run folders, or the files of draftgate load --json; all of one set-up",
    )
    prices = parser.add_argument_group("prices")
    prices.add_argument(
        "--prices", type=Path, metavar="FILE", help="TOML whose rows replace the shipped ones"
    )
    prices.add_argument("--provider", metavar="NAME", help="whose machine; default the cheapest")
    prices.add_argument(
        "--hardware", metavar="NAME", help="of the price file, where the measurement tells none"
    )
    prices.add_argument("--gpus", type=int, metavar="N", help="that served; default as measured")
    traffic = parser.add_argument_group("traffic")
    traffic.add_argument(
        "--utilisation",
        type=float,
        default=DEFAULT_UTILISATION,
        metavar="SHARE",
        help=f"mean rate / sustained rate (default {DEFAULT_UTILISATION:g}, an assumption)",
    )
    for name in ("input", "output"):
        traffic.add_argument(
            f"--{name}-tokens", type=float, metavar="N", help="mean per request; default measured"
        )
    slo = parser.add_argument_group("SLO", "limits for p99; default those of the run's profile")
    slo.add_argument("--slo-ttft", type=float, metavar="S", help="time to first token, seconds")
    slo.add_argument("--slo-per-token", type=float, metavar="S", help="time per token, seconds")
    slo.add_argument("--slo-e2e", type=float, metavar="S", help="end-to-end time, seconds")
    parser.add_argument("--markdown", action="store_true", help="print Markdown")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all numbers here")
