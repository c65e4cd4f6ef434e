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
    """Return how the client was disturbed, too much for what is to be judged; empty if not.

    Args:
        run: The run.
        margins: Relative loss let through, by metric name.
    """
    return tuple(
        f"the client itself may have moved {metric} by {error:.2%}; {_allowed(margins[metric])} "
        f"{_seen(run)} Is the machine too busy?"
        for metric, error in _too_large(run, margins)
        if not _is_of_stamps(metric, run)
    )


def unresolved(run: RunSamples, margins: Mapping[str, float]) -> tuple[tuple[str, str], ...]:
    """Return (metric, why) of each metric too small for what a stamp can tell, client at rest.

    That is no fault of the run: its other metrics hold.

    Args:
        run: The run.
        margins: Relative loss let through, by metric name.
    """
    return tuple(
        (metric, _coarse(run, metric, error, margins[metric]))
        for metric, error in _too_large(run, margins)
        if _is_of_stamps(metric, run)
    )


def _coarse(run: RunSamples, metric: str, error: float, margin: float) -> str:
    value = METRICS.get(metric).compute(run, SLO()) or 0.0
    return (
        f"{metric} is {value:.3g} s and what a stamp may be off by is {error:.2%} of it; "
        f"{_allowed(margin)} Gate a metric that averages over more, output_tokens_per_s or "
        "per_token_p50_s, or a larger loss."
    )


def _too_large(run: RunSamples, margins: Mapping[str, float]) -> Iterator[tuple[str, float]]:
    """Yield the metrics whose bound is above what their margin allows, with the bound."""
    for metric, margin in margins.items():
        error = client_error_ratio(metric, run)
        if error is not None and error > MARGIN_SHARE * margin:
            yield metric, error


def _allowed(margin: float) -> str:
    return f"at most {MARGIN_SHARE * margin:.2%} may be its own, a tenth of the gate's margin."


def _is_of_stamps(metric: str, run: RunSamples) -> bool:
    """Whether the bound of a metric is what stamps are good for, and nothing that was seen."""
    if metric in _RATES or not run.client.kernel_stamps:
        return False
    family, share = _parts(metric)
    return _seen_delay_s(run, share) <= _known_error_s(family, share)


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
    if metric.rpartition("_p")[0] not in _LATENCIES:
        return None
    value = METRICS.get(metric).compute(run, SLO())
    if not value:
        return None
    family, share = _parts(metric)
    error_s = _stamp_error_s(run, family, share)
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


def _parts(metric: str) -> tuple[str, float]:
    """Return the family of a latency and its share: `ttft_p50_s` is ("ttft", .5)."""
    family, _, rest = metric.rpartition("_p")
    return family, int(rest.removesuffix("_s")) / 100


def _stamp_error_s(run: RunSamples, family: str, share: float) -> float:
    if not run.client.kernel_stamps:
        return run.client.lag_p99_s
    return max(_known_error_s(family, share), _seen_delay_s(run, share))


def _known_error_s(family: str, share: float) -> float:
    """Return how far the kernel's stamps are off with a client at rest."""
    if share <= 0.5:
        return MEDIAN_STAMP_ERROR_S
    return GAP_ERROR_S if family == "step_gap" else STAMP_ERROR_S


def _seen_delay_s(run: RunSamples, share: float) -> float:
    """Return the delay of reads where so many held several chunks that the percentile is moved."""
    client = run.client
    merged = client.coalesced_reads / client.reads if client.reads else 0.0
    if merged <= 1 - share:
        return 0.0
    return (client.read_delay_p50_s if share <= 0.5 else client.read_delay_p99_s) or 0.0


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
