"""The result of a load test as a short table on standard output.

Milliseconds here, seconds in the JSON file. Computes nothing.
"""

import sys

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from draftgate.loadtest.summary import Distribution, LoadSummary

_COLUMNS = ("count", "mean", "p50", "p90", "p95", "p99", "max")


def print_summary(summary: LoadSummary, console: Console | None = None) -> None:
    """Print a load test's numbers.

    Args:
        summary: The numbers.
        console: Where; standard output by default.
    """
    console = console or Console(highlight=False, soft_wrap=True, width=_width())
    asked = summary.asked
    console.print(escape(f"{asked.url}  {asked.model}  {asked.api}: {asked.arrivals}"))
    console.print(escape(_window(summary)))
    console.print(_latencies(summary))
    for line in (*_throughput(summary), *_requests(summary), *_client(summary)):
        console.print(escape(line))
    for note in summary.notes:
        console.print(escape(f"note: {note}"))


def _width() -> int | None:
    """Return the width of a page that is no terminal, and None for a terminal's own."""
    return None if sys.stdout.isatty() else 100


def _window(summary: LoadSummary) -> str:
    window = summary.window
    name = "steady window" if window.steady else "window"
    return f"{name}: {window.start_s:.1f} s to {window.end_s:.1f} s: {window.reason}"


def _latencies(summary: LoadSummary) -> Table:
    latency = summary.latency
    table = Table(box=None, pad_edge=False)
    table.add_column("ms", no_wrap=True)
    for name in _COLUMNS:
        table.add_column(name, justify="right", no_wrap=True)
    rows = (
        ("TTFT", latency.ttft_s),
        ("  from scheduled", latency.ttft_from_scheduled_s),
        ("step gap", latency.step_gap_s),
        ("per-token time", latency.per_token_s),
        ("end-to-end time", latency.e2e_s),
        ("  from scheduled", latency.e2e_from_scheduled_s),
        ("scheduling error", summary.client.scheduling_error_s),
    )
    for title, values in rows:
        if values is not None:
            table.add_row(title, *_cells(values))
    return table


def _cells(values: Distribution) -> list[str]:
    times = (getattr(values, name) for name in _COLUMNS[1:])
    return [f"{values.count:,}", *(_ms(time_s) for time_s in times)]


def _ms(time_s: float) -> str:
    """Return milliseconds, to the microsecond below a second."""
    return f"{time_s * 1e3:,.3f}" if time_s < 1.0 else f"{time_s * 1e3:,.1f}"


def _throughput(summary: LoadSummary) -> list[str]:
    through = summary.throughput
    speed = f"{through.output_tokens_per_s:,.1f} output tokens/s"
    lines = [f"throughput: {speed}, {through.requests_per_s:,.2f} requests/s"]
    if through.tokens_per_step is not None:
        sizes = ", ".join(f"{size.tokens}: {size.share:.1%}" for size in through.step_sizes[:8])
        lines.append(f"tokens per step: {through.tokens_per_step:.3f} ({sizes})")
    return lines


def _requests(summary: LoadSummary) -> list[str]:
    requests = summary.requests
    lines = [
        f"requests: {requests.sent:,} sent, {requests.served:,} served, {requests.failed:,} failed"
    ]
    lines += [f"  {f.count:,} {f.kind}, such as: {f.example}" for f in requests.failures]
    return lines


def _client(summary: LoadSummary) -> list[str]:
    client = summary.client
    parts = [f"{client.processes} process{'es' if client.processes > 1 else ''}"]
    parts.append(f"{client.cpu_share:.0%} of a core each")
    if client.cpu_per_token_s is not None:
        parse_s = client.parse_cpu_per_token_s or 0.0
        parts.append(f"{client.cpu_per_token_s * 1e6:.1f} us CPU per token")
        parts.append(f"{parse_s * 1e6:.1f} us more to parse it")
    parts.append(f"lag p99 {client.lag_p99_s * 1e3:.2f} ms")
    stamps = "kernel stamps" if client.kernel_stamps else "no kernel stamps"
    parts.append(f"{stamps}, {client.coalesced_reads_share:.1%} of reads coalesced")
    lines = [f"client: {', '.join(parts)}"]
    records = summary.records
    if records.folder is not None and records.bytes_per_token is not None:
        lines.append(f"records: {records.folder}, {records.bytes_per_token:.1f} bytes per token")
    return lines
