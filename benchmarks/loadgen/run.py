"""Measure draftgate's load generator, side by side with public tools.

    python -m benchmarks.loadgen.run [--quick] [--only CELL] [--tools NAMES] [--out DIR]

The client has one core, a null engine with a log of its true send times another.
One tool runs at a time, in turn over the rounds. Writes DIR/results.json as it
goes on, and DIR/RESULTS.md. Let nothing else run meanwhile.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.loadgen import machine, report
from benchmarks.loadgen.cases import CELLS, Case, cases
from benchmarks.loadgen.foreign import run_foreign
from benchmarks.loadgen.imports import import_time
from benchmarks.loadgen.job import Cores
from benchmarks.loadgen.tools import BUILD, TOOLS, Tool
from draftgate.clock import SYSTEM_CLOCK
from draftgate.codec import encode, to_lines
from draftgate.errors import DraftgateError, MeasurementError, SpecError
from draftgate.files import write_text

OURS, BARE = "draftgate", "bare"
_TOOL_TIMEOUT_S = 90.0
_STALL_TIMEOUT_S = 25.0
"""The other tools need 7 to 17 s for the same load without a stall."""


def main() -> int:
    """Run the benchmark; return 0 if all ran, whatever the numbers say."""
    args = _arguments().parse_args()
    try:
        _run(args)
    except DraftgateError as error:
        sys.stderr.write(f"loadgen: {error}\n")
        return 2
    return 0


def _arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.loadgen.run", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--quick", action="store_true", help="one round, shortened: 4 minutes")
    parser.add_argument(
        "--only", action="append", choices=CELLS, metavar="CELL", help=f"of {', '.join(CELLS)}"
    )
    names = ",".join((OURS, BARE, *(tool.name for tool in TOOLS)))
    parser.add_argument("--tools", default=names, metavar="NAMES", help=f"default {names}")
    parser.add_argument("--out", type=Path, default=BUILD / "out", metavar="DIR")
    parser.add_argument(
        "--report-only", action="store_true", help="write RESULTS.md anew from DIR/results.json"
    )
    return parser


def _run(args: argparse.Namespace) -> None:
    args.out.mkdir(parents=True, exist_ok=True)
    path = args.out / "results.json"
    if not args.report_only:
        _measure(args, path)
    document = json.loads(path.read_text(encoding="utf-8"))
    write_text(args.out / "RESULTS.md", report.markdown(document))
    print(f"wrote {path} and {args.out / 'RESULTS.md'}")


def _measure(args: argparse.Namespace, path: Path) -> None:
    names = args.tools.split(",")
    tools = _chosen(names)
    versions = {tool.name: tool.install() for tool in tools}
    where = machine.look()
    print(f"load average {where.load_average:.2f}, cores {where.busy_ratio:.0%} busy: ", end="")
    print("quiet" if where.was_quiet else "NOT QUIET, the numbers will be in doubt")
    machine.keep_off(where.cores)
    document: dict[str, Any] = {
        "machine": encode(where),
        "was_quiet": where.was_quiet,
        "quick": args.quick,
        "versions": versions,
        "seconds": {},
        "runs": [],
        "failed": [],
    }
    for cell in args.only or CELLS:
        start_ns = SYSTEM_CLOCK.now_ns()
        for run in _cell(cell, names, tools, where.cores, quick=args.quick):
            document["failed" if "why" in run else "runs"].append(run)
            print(report.line(run), flush=True)
        document["seconds"][cell] = (SYSTEM_CLOCK.now_ns() - start_ns) / 1e9
        print(f"{cell}: {document['seconds'][cell]:.0f} s", flush=True)
        write_text(path, to_lines(document) + "\n")


def _chosen(names: Sequence[str]) -> tuple[Tool, ...]:
    known = {tool.name: tool for tool in TOOLS}
    unknown = set(names) - {OURS, BARE, *known}
    if unknown:
        raise SpecError(f"--tools: got {unknown}, expected some of {[OURS, BARE, *known]}.")
    return tuple(known[name] for name in names if name in known)


def _cell(
    cell: str, names: Sequence[str], tools: Sequence[Tool], cores: Cores, *, quick: bool
) -> Iterator[dict[str, Any]]:
    """Run one cell and yield each run: round after round, case after case, tool after tool."""
    if cell == "import" and OURS in names:
        yield _entry(cell, "", OURS, 0, lambda: encode(import_time()))
    mine = [case for case in cases(quick=quick) if case.cell == cell]
    for number in range(max((case.rounds for case in mine), default=0)):
        for case in mine:
            if number >= case.rounds:
                continue
            for name in (OURS, BARE) if case.bare else (OURS,):
                if name in names:
                    measure = partial(_own, _PROGRAMS[name], case, cores)
                    yield _entry(cell, case.title, name, number, measure)
            for tool in tools if case.foreign else ():
                measure = partial(_foreign, tool, case, cores)
                yield _entry(cell, case.title, tool.name, number, measure)


def _entry(
    cell: str, title: str, tool: str, number: int, measure: Callable[[], Any]
) -> dict[str, Any]:
    """Return the entry of one run; one that failed says why, and the others go on."""
    entry: dict[str, Any] = {"cell": cell, "case": title, "tool": tool, "round": number}
    try:
        return {**entry, "result": measure()}
    except MeasurementError as error:
        return {**entry, "why": str(error)}


_PROGRAMS = {OURS: "benchmarks.loadgen.ours", BARE: "benchmarks.loadgen.bare"}


def _own(program: str, case: Case, cores: Cores) -> Any:
    """Run one of our own programs on a case."""
    job, where = (json.dumps(encode(part)) for part in (case.job, cores))
    with machine.on_cores(cores.client, cores.engine):  # the child places its parts itself
        done = subprocess.run(
            [sys.executable, "-m", program, job, where],
            cwd=Path(__file__).parents[2],
            capture_output=True,
            text=True,
            check=False,
        )
    if done.returncode != 0:
        raise MeasurementError(f"{case.cell}, {case.title}: failed:\n{done.stderr[-2000:]}")
    return json.loads(done.stdout)


def _foreign(tool: Tool, case: Case, cores: Cores) -> Any:
    limit_s = _STALL_TIMEOUT_S if "stall" in case.title else _TOOL_TIMEOUT_S
    return encode(run_foreign(tool, case.job, cores, timeout_s=limit_s))


if __name__ == "__main__":
    sys.exit(main())
