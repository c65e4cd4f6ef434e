"""How far the load generator's own slowness can have moved a metric of one run.

A bound worked out from what the generator recorded about itself, so that a run
can be thrown out before anybody reads a change of the client as one of the
server. Knows no gate; registers no metric.
"""

from collections.abc import Iterable, Iterator, Mapping

from draftgate.metrics import selection
from draftgate.metrics.definition import METRICS
from draftgate.records import RequestRecord, RunSamples
from draftgate.specs import SLO

STAMP_ERROR_S = 50e-6
"""How far a kernel stamp may lie from the arrival. The worst p99 of calibrations
on two machines was 34 us after the sender's own stamp, loopback included."""

MEDIAN_STAMP_ERROR_S = 10e-6
"""The same for medians: the worst p50 of 36 runs in `benchmarks/loadgen/results.json` was 8 us."""

GAP_ERROR_S = 25e-6
"""How far the gap between two stamps may lie from the true one: the worst p99 there was 20 us,
since most of the way to the stamp is the same for both."""

_LATENCIES = ("ttft", "step_gap", "per_token", "e2e")
_RATES = ("output_tokens_per_s", "tokens_per_s_per_stream", "requests_per_s", "goodput_per_s")


MARGIN_SHARE = 0.1
"""Share of a gate's margin that the client's error may reach: small beside what
the gate lets through, and reachable (same results file)."""


def client_faults(run: RunSamples, margins: Mapping[str, float]) -> tuple[str, ...]:
    """Return why the client was too slow for what is to be judged; empty if it was not.

    Args:
        run: The run.
        margins: Relative loss let through, by metric name.
    """
    faults = []
    for metric, margin in margins.items():
        error = client_error_ratio(metric, run)
        if error is not None and error > MARGIN_SHARE * margin:
            faults.append(
                f"the client itself may have moved {metric} by {error:.2%}; at most "
                f"{MARGIN_SHARE * margin:.2%} may be its own, a tenth of the gate's margin. "
                f"{_seen(run)} Is the machine too busy?"
            )
    return tuple(faults)


def client_error_ratio(metric: str, run: RunSamples) -> float | None:
    """Return the share of a metric's value that the client may have added or taken.

    Latencies: an arrival is stamped too late by at most the delay of its read,
    or, with the kernel's stamps, only where several chunks came in one read. A
    percentile moves by at most the same percentile of these errors, when they
    have one sign, which lateness has.

    Rates of a closed loop: between the end of a request and the sending of the
    next the stream is idle through the client; that share of the time of a
    request is missing in every rate.

    Args:
        metric: Name of a registered metric.
        run: The run; its value must exist.

    Returns:
        The bound as a ratio of the value; None for a metric that the client
        has no part in (acceptance, counters, resources), or without a value.
    """
    if metric in _RATES:
        return _idle_ratio(run)
    family, _, rest = metric.rpartition("_p")
    if family not in _LATENCIES:
        return None
    value = METRICS.get(metric).compute(run, SLO())
    if not value:
        return None
    error_s = _stamp_error_s(run, family, share=int(rest.removesuffix("_s")) / 100)
    if family == "per_token":  # two stamps are wrong, all tokens between them share it
        error_s /= _fewest_tokens(run)
    return error_s / value


def _seen(run: RunSamples) -> str:
    client = run.client
    parts = [f"Loop lag p99 {client.lag_p99_s * 1e3:.2f} ms"]
    if client.read_delay_p99_s is not None:
        parts.append(f"read delay p99 {client.read_delay_p99_s * 1e3:.2f} ms")
    if client.send_delay_p99_s is not None:
        parts.append(f"send delay p99 {client.send_delay_p99_s * 1e3:.2f} ms")
    return ", ".join(parts) + "."


def _stamp_error_s(run: RunSamples, family: str, share: float) -> float:
    client = run.client
    if not client.kernel_stamps:
        return client.lag_p99_s
    tail_s = GAP_ERROR_S if family == "step_gap" else STAMP_ERROR_S
    known_s = MEDIAN_STAMP_ERROR_S if share <= 0.5 else tail_s
    merged = client.coalesced_reads / client.reads if client.reads else 0.0
    if merged <= 1 - share:
        return known_s
    delay_s = client.read_delay_p50_s if share <= 0.5 else client.read_delay_p99_s
    return max(known_s, delay_s or 0.0)


def _fewest_tokens(run: RunSamples) -> int:
    """Return the fewest tokens after a first chunk, of requests that count; 1 at least."""
    later = (
        sum(chunk.num_tokens for chunk in record.chunks[1:])
        for record in selection.ended_inside(run)
    )
    return min((tokens for tokens in later if tokens), default=1)


def _idle_ratio(run: RunSamples) -> float | None:
    """Return the share of a request's turn in which its stream waited for the client.

    From when the last request of the stream ended, by the kernel's stamp, to when
    this one was sent: noticing late is in it, and so is sending late. A mean, since
    a rate loses all of it, also what one hiccup of half a second took.
    """
    turns = list(_turns(run))
    if not turns:
        return None
    noticed_s = 0.0 if run.client.kernel_stamps else run.client.lag_p99_s
    idle_s = _mean((record.sent_ns - free_ns) / 1e9 for free_ns, record in turns)
    return (idle_s + noticed_s) / _mean((r.ended_ns - free_ns) / 1e9 for free_ns, r in turns)


def _turns(run: RunSamples) -> Iterator[tuple[int, RequestRecord]]:
    """Yield when its stream was free, and the record, of requests sent in the window."""
    counted = {id(record) for record in selection.sent_inside(run)}
    free_ns: dict[int, int] = {}
    for record in sorted(run.records, key=lambda record: record.sent_ns):
        if id(record) in counted:
            yield free_ns.get(record.stream, record.scheduled_ns), record
        free_ns[record.stream] = record.ended_ns


def _mean(values: Iterable[float]) -> float:
    held = list(values)
    return sum(held) / len(held)
