"""The lines of `draftgate serve`: one for each request, a few for each interval.

Numbers to text; prints nothing. A line never holds text of a request or an answer, nor a
key. A number that is not known leaves its part of the line out.
"""

from draftgate.cost import arithmetic
from draftgate.serve.exchange import Exchange
from draftgate.serve.fallback.controller import Reason, Switch
from draftgate.serve.intervals import Interval, Spread


def request_line(exchange: Exchange) -> str:
    """Return the line of a request that is over."""
    parts = [f"request {exchange.number} {exchange.route}{' stream' if exchange.stream else ''}"]
    parts[0] += f" {_outcome(exchange)} in {exchange.total_s:.3f} s"
    if exchange.waited_ms is not None:
        parts.append(f"queue_wait_ms {exchange.waited_ms:.1f}")
    if exchange.stream and exchange.first_s is not None:
        parts.append(f"first token {exchange.first_s:.3f} s")
    if exchange.tokens is not None:
        parts.append(f"{exchange.tokens:,} tokens")
    if exchange.chunks:
        parts.append(f"{exchange.chunks:,} chunks of {exchange.size_bytes:,} bytes")
    if exchange.arm is not None:
        parts.append(f"arm {exchange.arm}{' (probe)' if exchange.probe else ''}")
    if exchange.kind:
        parts.append(f"class {exchange.kind}")
    parts.append(f"from {exchange.client}")
    return f"[serve] {', '.join(parts)}"


def interval_lines(interval: Interval, usd_per_hour: float | None) -> tuple[str, ...]:
    """Return the lines of an interval; those with nothing to say are left out.

    Args:
        interval: What happened.
        usd_per_hour: Price of the machine; None to speak of no cost.
    """
    lines = (
        _serve(interval),
        _decode(interval),
        _latency(interval),
        None if usd_per_hour is None else _cost(interval, usd_per_hour),
    )
    return tuple(line for line in lines if line is not None)


def switch_line(kind: str, switch: Switch) -> str:
    """Return the line of a change of the arm in force.

    Args:
        kind: Class of traffic; "" for all of it.
        switch: The change.
    """
    told = f"[fallback] {switch.before} -> {switch.after}: {_why(switch)}"
    told += f"; {switch.before} was in force for {switch.held_s:.0f} s"
    return f"{told}; class {kind}" if kind else told


def usd_per_million_output(usd_per_hour: float, tokens_per_s: float) -> float:
    """Return what a million output tokens costs at a throughput, US dollars.

    The whole cost is laid on output tokens, and the machine is paid for as long as it runs.

    Args:
        usd_per_hour: Price of the whole machine, > 0.
        tokens_per_s: Output tokens per second over all requests, > 0.

    Source:
        `self_cost_per_request` of requests of one output token.
    """
    return arithmetic.self_cost_per_request(usd_per_hour, tokens_per_s, 1.0) * arithmetic.MILLION


def _why(switch: Switch) -> str:
    window = switch.window
    if window is None:
        state = "is gone" if switch.reason is Reason.GONE else "is ready again"
        return f"the engine of {switch.judged} {state}"
    side, whose = ("below", "") if switch.reason is Reason.BELOW else ("above", "probes of ")
    return (
        f"{whose}{switch.judged} gave {window.tokens_per_step:.2f} tokens per step, {side} the "
        f"{window.break_even:.2f} from which it pays at {window.streams:.1f} running; "
        f"{switch.windows} windows, the last of {window.steps:,.0f} steps"
    )


def _outcome(exchange: Exchange) -> str:
    status = "-" if exchange.status is None else str(exchange.status)
    if exchange.refused is not None:
        return f"{status} {exchange.refused}"
    return status if exchange.cut is None else f"{status} cut by {exchange.cut}"


def _serve(interval: Interval) -> str:
    line = (
        f"[serve] last {interval.seconds:.0f} s: {interval.whole} whole, "
        f"{interval.refused} refused, {interval.failed} failed, {interval.cut} cut; "
        f"now {interval.in_flight} in flight, {interval.queued} queued"
    )
    waits = interval.waits_ms
    return line if waits is None else f"{line}; queue_wait_ms {_spread(waits, '', 1)}"


def _decode(interval: Interval) -> str | None:
    counted, tokens_per_s = interval.counted, interval.tokens_per_s
    if counted is None or not tokens_per_s:
        return None
    parts = [f"[decode] bs {interval.mean_in_flight:.1f}"]
    drafts = counted.speculation
    if drafts is None:
        parts.append("no speculation")
    elif drafts.num_drafts > 0:
        per_step = drafts.num_accepted_tokens / drafts.num_drafts
        parts.append(f"accepted tokens per step {per_step:.2f}")
        if drafts.num_draft_tokens > 0:
            rate = drafts.num_accepted_tokens / drafts.num_draft_tokens
            parts.append(f"acceptance rate {rate:.3f}")
    else:
        parts.append("no verify step")
    parts.append(f"{tokens_per_s:,.0f} tokens/s")
    return ", ".join(parts)


def _latency(interval: Interval) -> str | None:
    parts = [
        f"{name} {_spread(found, ' s', 3)}"
        for name, found in (("first token", interval.first_s), ("full response", interval.full_s))
        if found is not None
    ]
    return f"[latency] {'; '.join(parts)}" if parts else None


def _cost(interval: Interval, usd_per_hour: float) -> str | None:
    tokens_per_s = interval.tokens_per_s
    if tokens_per_s is None:
        return None
    if tokens_per_s == 0:
        return f"[cost] no output tokens in this interval, at ${usd_per_hour:,.2f} an hour"
    usd = usd_per_million_output(usd_per_hour, tokens_per_s)
    return (
        f"[cost] ${usd:,.2f} per 1M output tokens at {tokens_per_s:,.0f} tokens/s and "
        f"${usd_per_hour:,.2f} an hour"
    )


def _spread(found: Spread, unit: str, digits: int) -> str:
    return f"p50 {found.p50:.{digits}f}{unit}, p95 {found.p95:.{digits}f}{unit}"
