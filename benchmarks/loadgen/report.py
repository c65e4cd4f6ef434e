"""RESULTS.md out of results.json: goals first, then all that was measured.

Numbers are medians over rounds with the lowest and the highest in brackets. Runs
nothing.
"""

from collections import Counter
from collections.abc import Callable
from typing import Any

from benchmarks.loadgen.cases import CELLS
from benchmarks.loadgen.goals import OURS, goals, memory_growth
from benchmarks.loadgen.summary import (
    Pick,
    Results,
    Run,
    cpu_per_token_s,
    off,
    off_ratio,
    parse_per_token_s,
    path,
    table,
    values,
    whole_per_token_s,
)

_METHOD = """\
Client and null engine have a core each; what watches them runs elsewhere, on the engine's core if
there are only two. One tool runs at a time, in turn over the rounds; each run has a fresh engine.
Truth is the engine's log: the clock right before each send, and the kernel's stamp of each request.

- **one grid**: the steps of all streams fall on one grid, as those of a batched engine do.
  **own clocks**: each stream counts from its own request.
- **CPU per token**: user and system time. draftgate's is that of its process from the first socket
  to the last (`ClientHealth.cpu_s`), parsing apart. The other tools' is that of all their processes
  from the first request's arrival to the last byte sent to them, sampled every 20 ms; their start,
  imports, data set and report are left out. *With the rest* adds draftgate's parsing, and of the
  others all up to the command's end, where AIPerf parses and both report.
- **TTFT error** of draftgate is per request: time seen - (first step sent - request arrived). So
  the request's **way to the engine** (arrived - sent) is part of it, though only the network's and
  the kernel's time passes there. The **arrival** error is stamp - send, per chunk; the **step-gap**
  error is gap seen - gap sent, per gap. All are absolute values.
- **coalesced reads** held several chunks, so that all but the last are stamped too late; **engine
  late** is how far behind its own schedule the mock sent, which moves the truth and no error.
- **bare** is no tool but the least that a client on uvloop can do: wait, read with stamps, append
  (`bare.py`). What draftgate takes beyond it is its own. On own clocks nearly every token wakes the
  process, which costs more than reading it.
- **off** is a reported percentile less the same percentile of the log, taken the way the tool takes
  percentiles.
"""


def line(run: Run) -> str:
    """Return one line about a run, for whoever waits."""
    name = f"{run['cell']}: {run['case']}, {run['tool']}, {run['round'] + 1}"
    if "why" in run:
        return f"{name}: FAILED: {' '.join(run['why'].split())[:500]}"
    result = run["result"]
    if "heavy" in result:
        return f"{name}: help {result['help_s']:.3f} s, generator {result['generator_s']:.3f} s"
    if "ended" in result and not result["ended"]:
        return f"{name}: did not end"
    ttft, gap = off("ttft_p99_s")(result), off("step_gap_p99_s")(result)
    parts = [f"{cpu_per_token_s(result) * 1e6:.1f} µs/token"]
    parts += [f"TTFT p99 off {ttft * 1e3:.2f} ms"] if ttft is not None else []
    parts += [f"gap p99 off {gap * 1e3:.2f} ms"] if gap is not None else []
    return f"{name}: {', '.join(parts)}"


def markdown(document: dict[str, Any]) -> str:
    """Return RESULTS.md."""
    results = Results(document)
    sections = [_head(document), _goals(results)]
    if document["failed"]:
        failed = "\n".join(f"- {line(run)}" for run in document["failed"])
        sections.append(f"## Runs that failed and are missing below\n\n{failed}\n")
    makers: dict[str, Callable[[], str]] = {
        "cpu": lambda: _costs_and_errors(results, "cpu") + _beside(results),
        "rate": lambda: _costs_and_errors(results, "rate"),
        "stall": lambda: _stall(results),
        "steps": lambda: _steps(results),
        "failures": lambda: _failures(results),
        "arrivals": lambda: _arrivals(results),
        "streams": lambda: _costs_and_errors(results, "streams"),
        "memory": lambda: _memory(results),
    }
    for cell, make in makers.items():
        if results.of(cell):
            sections.append(f"## {CELLS[cell][0].upper()}{CELLS[cell][1:]}\n\n{make()}")
    sections.append(f"## How it was measured\n\n{_METHOD}")
    return "\n".join(sections)


def _head(document: dict[str, Any]) -> str:
    machine, seconds = document["machine"], document["seconds"]
    environment = machine["environment"]
    packages = dict(environment["packages"])
    spent = ", ".join(f"{cell} {time_s:.0f} s" for cell, time_s in seconds.items())
    quiet = "quiet" if document["was_quiet"] else "**not quiet: the numbers are in doubt**"
    before = (
        f"load average {machine['load_average']:.2f}, {machine['busy_ratio']:.0%} busy: {quiet}"
    )
    rows = [
        ("machine", f"{environment['cpu_model']}, {environment['cpu_count']} cores"),
        ("memory", f"{environment['memory_bytes'] / 2**30:.0f} GiB"),
        ("kernel", environment["platform"]),
        ("Python, uvloop", f"{environment['python']}, {packages.get('uvloop', '-')}"),
        ("draftgate", f"{environment['draftgate']}, commit {machine['commit']}"),
        ("other tools", ", ".join(document["versions"].values()) or "-"),
        ("taken", machine["taken_at"]),
        ("before it began", before),
        ("time", f"{sum(seconds.values()):.0f} s: {spent}"),
    ]
    again = " --quick" if document["quick"] else ""
    return (
        "# What the load generator costs, and how wrong it is\n\n"
        f"Written by `python -m benchmarks.loadgen.run{again}`. Numbers are medians over rounds, "
        "with [lowest, highest].\n\n" + table(("", ""), rows)
    )


def _goals(results: Results) -> str:
    said = {True: "met", False: "**MISSED**", None: "not run"}
    found = goals(results)
    counts = Counter(goal.met for goal in found)
    total = f"{counts[True]} met, {counts[False]} missed, {counts[None]} not run.\n\n"
    rows = [(goal.title, goal.limit, goal.found, said[goal.met]) for goal in found]
    return "## Goals\n\n" + total + table(("what", "goal", "found", ""), rows)


_Column = tuple[str, Pick, float, int]
"""Title, what it shows, scale, digits."""


def _share(result: Run) -> float:
    client = result["client"]
    return float(client["coalesced_reads"]) / max(1, int(client["reads"]))


_COST: tuple[_Column, ...] = (
    ("tokens/s", path("tokens_per_s"), 1, 0),
    ("CPU/token µs", cpu_per_token_s, 1e6, 2),
    ("parsing µs", parse_per_token_s, 1e6, 2),
    ("core in use %", lambda r: r["client"]["cpu_s"] / r["client"]["wall_s"], 100, 0),
    ("peak RSS MiB", path("rss_peak_bytes"), 1 / 2**20, 0),
    ("read delay p99 µs", path("client", "read_delay_p99_s"), 1e6, 0),
    ("coalesced reads %", _share, 100, 2),
    ("engine late p99 µs", path("engine_late_p99_s"), 1e6, 0),
)
_ERRORS: tuple[_Column, ...] = (
    ("TTFT p50", path("errors", "ttft", "p50_s"), 1e6, 0),
    ("TTFT p99", path("errors", "ttft", "p99_s"), 1e6, 0),
    ("way to the engine p50", path("errors", "request_delay", "p50_s"), 1e6, 0),
    ("its p99", path("errors", "request_delay", "p99_s"), 1e6, 0),
    ("first arrival p50", path("errors", "first_arrival", "p50_s"), 1e6, 0),
    ("its p99 ", path("errors", "first_arrival", "p99_s"), 1e6, 0),
    ("any arrival p99", path("errors", "arrival", "p99_s"), 1e6, 0),
    ("step gap p99", path("errors", "step_gap", "p99_s"), 1e6, 0),
)


def _costs_and_errors(results: Results, cell: str) -> str:
    """What draftgate cost, and its errors chunk by chunk; one row per case."""
    costs, errors = (_ours(results, cell, columns) for columns in (_COST, _ERRORS))
    return (
        f"What draftgate took:\n\n{costs}\nIts errors, every request and chunk against the log, "
        f"µs. TTFT is the sum of the two after it:\n\n{errors}"
    )


def _ours(results: Results, cell: str, columns: tuple[_Column, ...]) -> str:
    rows: list[tuple[str, ...]] = []
    for case in results.cases(cell):
        runs = results.of(cell, case, OURS)
        cells = (values(runs, pick).text(scale, digits) for _, pick, scale, digits in columns)
        rows.append((case, *cells))
    return table(("", *(title for title, *_ in columns)), rows)


_BESIDE: tuple[_Column, ...] = (
    ("CPU/token µs", cpu_per_token_s, 1e6, 1),
    ("with the rest µs", whole_per_token_s, 1e6, 1),
    ("TTFT p50 off ms", off("ttft_p50_s"), 1e3, 2),
    ("TTFT p99 off ms", off("ttft_p99_s"), 1e3, 2),
    ("step gap p50 off ms", off("step_gap_p50_s"), 1e3, 3),
    ("step gap p99 off ms", off("step_gap_p99_s"), 1e3, 3),
)


def _beside(results: Results) -> str:
    rows: list[tuple[str, ...]] = []
    for case in results.cases("cpu"):
        tools = results.tools("cpu", case)
        for tool in tools if tools != [OURS] else ():
            runs = results.of("cpu", case, tool)
            cells = (values(runs, pick).text(scale, digits) for _, pick, scale, digits in _BESIDE)
            rows.append((case, tool, *cells))
    head = ("", "tool", *(title for title, *_ in _BESIDE))
    return "\nSide by side, what each tool reports against the log:\n\n" + table(head, rows)


def _stall(results: Results) -> str:
    runs = results.of("stall", tool=OURS)
    rows = [
        (
            name,
            *(
                values(runs, path(key, part, "p99_s")).text(1e6, 0)
                for part in ("step_gap", "arrival", "first_arrival")
            ),
        )
        for name, key in (("kernel's", "errors"), ("reads'", "errors_by_read"))
    ]
    head = ("stamps", "step-gap error p99 µs", "arrival error p99 µs", "first arrival p99 µs")
    return "32 streams, own clocks; one run, stamped both ways:\n\n" + table(head, rows)


def _steps(results: Results) -> str:
    figures = ("per_token_p50_s", "per_token_p99_s", "step_gap_p50_s", "step_gap_p99_s")
    rows: list[tuple[str, ...]] = []
    for case in results.cases("steps"):
        for tool in results.tools("steps", case):
            runs = results.of("steps", case, tool)
            cells = (values(runs, off_ratio(figure)).text(100, 2) for figure in figures)
            rows.append((case, tool, *cells, values(runs, off_ratio("tokens_per_step")).text(100)))
    head = ("", "tool", "per-token p50 off %", "p99", "step gap p50 off %", "p99 ")
    return "A dash: the tool reports no such figure.\n\n" + table(
        (*head, "tokens per step off %"), rows
    )


def _failures(results: Results) -> str:
    rows: list[tuple[str, ...]] = []
    for run in results.of("failures"):
        result = run["result"]
        if run["tool"] == OURS:
            kinds = ", ".join(f"{count} {kind}" for kind, count in result["failures"])
            counts = (str(result["served"]), kinds, f"{result['client']['wall_s']:.1f} s")
        elif result["reported"] is None:
            counts = ("-", "-", f"did not end, stopped after {result['wall_s']:.0f} s")
        else:
            said = result["reported"]
            wall = f"{result['wall_s']:.1f} s, start included"
            counts = (str(said["succeeded"]), str(said["failed"]), wall)
        rows.append((run["case"], run["tool"], *counts))
    head = ("", "tool", "counted as success", "counted as failed", "ended after")
    return "64 requests; without stalls 40 were answered in full, with them 36.\n\n" + table(
        head, rows
    )


def _arrivals(results: Results) -> str:
    rows: list[tuple[str, ...]] = []
    for run in results.of("arrivals", tool=OURS):
        delays = (f"{seconds * 1e6:,.0f}" for seconds in run["result"]["send_delay_s"])
        rows.append((run["case"], f"{run['result']['served']:,}", *delays))
    head = ("", "requests", "scheduled to sent p50 µs", "p99 µs", "max µs")
    return table(head, rows)


def _memory(results: Results) -> str:
    rows: list[tuple[str, ...]] = []
    for run in results.of("memory", tool=OURS):
        result, memory = run["result"], run["result"]["memory"]
        tokens = result["client"]["output_tokens"]
        peak = max(size for _, size in memory["rss"]) / 2**20
        last = memory["rss"][-1][1] / 2**20
        rows.append(
            (
                f"{result['client']['wall_s']:.0f} s",
                f"{tokens:,}",
                f"{cpu_per_token_s(result) * 1e6:.2f}",
                f"{parse_per_token_s(result) * 1e6:.2f}",
                f"{peak:.0f}, {last:.0f}",
                f"{memory_growth(memory['rss']):.3f}",
                f"{memory['parquet_bytes'] / tokens:.2f}",
                str(memory["lost_tokens"]),
            )
        )
    cost = ("run", "tokens", "CPU/token µs", "parsing µs", "RSS MiB: peak, last")
    head = (*cost, "last / second quarter", "Parquet bytes/token", "tokens lost")
    said = (
        "Exchanges go to disk, a second process on the same core parses them meanwhile; RSS is of "
        "both. The mock's token ids repeat every 128 tokens and pack better than a real "
        "vocabulary's.\n\n"
    )
    return said + table(head, rows)
