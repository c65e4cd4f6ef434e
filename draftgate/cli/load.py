"""The subcommand `load`: one load on one server, a table and a JSON file.

Turns options into a `LoadTest` and its summary into output and an exit code; what
happens in between is in `draftgate.loadtest`.
"""

import argparse
from typing import TYPE_CHECKING

from draftgate.cli.commands import Commands, add_command
from draftgate.cli.exits import Exit, say
from draftgate.cli.json_file import check_json, write_json
from draftgate.errors import SpecError

if TYPE_CHECKING:  # imported when the command runs, so that the help shows at once
    from draftgate.load.arrivals import Arrivals, ClosedLoop
    from draftgate.load.requests import Endpoint
    from draftgate.load.trace import Trace
    from draftgate.load.workload import RequestPlan
    from draftgate.loadtest import LoadSummary, LoadTest


def add_load(commands: Commands) -> None:
    """Enter the subcommand."""
    from draftgate.cli.load_options import add_options  # noqa: PLC0415 - quick start

    add_command(commands, "load", "put a load on a server and measure it", run_load, add_options)


def run_load(args: argparse.Namespace) -> int:
    """Run a load test, print what came of it and write it to a file."""
    from draftgate.cli.load_progress import ProgressLine  # noqa: PLC0415 - quick start
    from draftgate.cli.load_table import print_summary  # noqa: PLC0415 - quick start
    from draftgate.loadtest import run_load_test  # noqa: PLC0415 - quick start

    test = load_test(args)
    if args.json is not None:
        check_json(args.json)
    if not 0.0 <= args.max_failure_share <= 1.0:
        raise SpecError(
            f"--max-failure-share must be from 0 to 1, got {args.max_failure_share:g}. 0.01 lets "
            "one request in a hundred fail."
        )
    line = ProgressLine()
    try:
        summary = run_load_test(
            test, records_dir=args.records, workers=args.workers, on_progress=line.show
        )
    finally:
        line.end()
    print_summary(summary)
    if args.json is not None:
        write_json(summary, args.json)
    return _verdict(summary, args.max_failure_share)


def load_test(args: argparse.Namespace) -> "LoadTest":
    """Return the test that options describe.

    Raises:
        SpecError: If they contradict each other, or a value is wrong.
    """
    from draftgate.load.trace import read_trace  # noqa: PLC0415 - quick start
    from draftgate.loadtest import LoadTest, with_fresh_salts  # noqa: PLC0415 - quick start
    from draftgate.specs import SamplingParams  # noqa: PLC0415 - quick start

    trace = None if args.trace is None else read_trace(args.trace, unit=args.trace_unit)
    workload = _workload(args, trace)
    test = LoadTest(
        endpoint=_endpoint(args),
        arrivals=_arrivals(args, trace),
        workload=workload,
        sampling=SamplingParams(
            max_tokens=1,  # each request has its own
            temperature=args.temperature,
            top_p=args.top_p,
            top_k=args.top_k,
            seed=args.sampling_seed,
            ignore_eos=args.ignore_eos,
        ),
        api=args.api,
        max_requests=args.requests,
        duration_s=args.duration,
        seed=args.seed,
        stall_timeout_s=args.stall_timeout,
        run_timeout_s=args.run_timeout,
        keep_text=args.keep_text,
    )
    shares = args.shared_prefix is not None if args.shared_cache is None else args.shared_cache
    return test if shares else with_fresh_salts(test)


def _endpoint(args: argparse.Namespace) -> "Endpoint":
    from draftgate.load.requests import Endpoint  # noqa: PLC0415 - quick start

    return Endpoint(
        base_url=args.url.rstrip("/").removesuffix("/v1"),
        model=args.model,
        api_key_env=args.api_key_env,
        verify_tls=not args.insecure,
        ca_file=args.ca_file,
    )


def _workload(args: argparse.Namespace, trace: "Trace | None") -> "RequestPlan":
    from draftgate.load.workload import RequestPlan  # noqa: PLC0415 - quick start
    from draftgate.loadtest.texts import parse_lengths, parse_prompts  # noqa: PLC0415 - quick start

    prompts = parse_prompts(
        args.prompts,
        args.seed,
        trace=trace,
        token_ids=args.prompt_ids,
        shared_prefix=args.shared_prefix,
    )
    output = parse_lengths(args.max_tokens, trace.output_tokens if trace is not None else ())
    return RequestPlan(prompts, output, args.seed, args.turns)


def _arrivals(args: argparse.Namespace, trace: "Trace | None") -> "ClosedLoop | Arrivals":
    from draftgate.load.arrival_text import parse_arrivals  # noqa: PLC0415 - quick start
    from draftgate.load.arrivals import ClosedLoop, ThinkTime  # noqa: PLC0415 - quick start

    open_loop = [args.rate, args.arrivals, trace]
    if args.concurrency is not None:
        if any(value is not None for value in open_loop):
            raise SpecError(
                "load: got --concurrency (a closed loop) together with --rate, --arrivals or "
                "--trace (an open loop). Choose one of the two."
            )
        think_time = ThinkTime(args.think_time, exponential=args.think_law == "exponential")
        return ClosedLoop(args.concurrency, args.stagger, think_time)
    if all(value is None for value in open_loop):
        raise SpecError(
            "load: nothing says when requests go out. Give --concurrency N, --rate R or "
            "--trace FILE."
        )
    if args.think_time:
        raise SpecError("load: --think-time belongs to --concurrency; an open loop waits for none.")
    kind = args.arrivals or ("poisson" if trace is None else "replay")
    return parse_arrivals(kind, args.rate, None if trace is None else trace.offsets_s)


def _verdict(summary: "LoadSummary", max_failure_share: float) -> Exit:
    """Return the exit code, and say why if the run cannot be used."""
    for reason in summary.invalid:
        say(f"draftgate: INVALID: {reason}.")
    if summary.requests.failed_share > max_failure_share:
        say(
            f"draftgate: {summary.requests.failed_share:.2%} of the requests failed, expected at "
            f"most {max_failure_share:.2%} (--max-failure-share)."
        )
        return Exit.UNUSABLE_RUN
    return Exit.OK if summary.valid else Exit.UNUSABLE_RUN
