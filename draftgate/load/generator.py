"""One load run in this process, from its plan to its records.

Binds the loops to an event loop of their own and, once all sockets are closed,
turns what they kept into records; hands these to `draftgate.measure`.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

import uvloop

from draftgate.clock import SYSTEM_CLOCK, Clock
from draftgate.load.closed import ClosedLoop, ClosedLoopPlan, NextRequest
from draftgate.load.health import Delays, frozen_heap, percentile
from draftgate.load.open import OpenLoop, OpenLoopPlan
from draftgate.load.parse import SentRequest, parse_with_stats
from draftgate.load.requests import Endpoint
from draftgate.load.state import LoadHooks, MemorySink, RunEnd, SentWire, Sink
from draftgate.load.wire import settle
from draftgate.records import ClientHealth, RequestRecord, Window

LoadPlan = ClosedLoopPlan | OpenLoopPlan


@dataclass(frozen=True, slots=True)
class LoadResult:
    """What one run left behind.

    Attributes:
        records: Every request in order of sending, warm-up and drain included.
        window: Where all streams ran; None if it never opened.
        client: What the generator knows about itself.
        notes: Why the run did not go as planned; empty if it did.
    """

    records: tuple[RequestRecord, ...]
    window: Window | None
    client: ClientHealth
    notes: tuple[str, ...]


def run(
    endpoint: Endpoint,
    next_request: NextRequest,
    plan: LoadPlan,
    *,
    clock: Clock = SYSTEM_CLOCK,
    hooks: LoadHooks | None = None,
) -> LoadResult:
    """Run a plan on an event loop of its own, keep all in memory, and return the result.

    Raises:
        KeyboardInterrupt: On Ctrl-C, once all sockets are closed.
        SpecError: If the endpoint's key variable is unset.
    """
    sink = MemorySink()
    end = drive(endpoint, next_request, plan, sink, clock=clock, hooks=hooks)
    return _result(sink.kept, end, endpoint.api_key(), keep_text=plan.keep_text)


def drive(
    endpoint: Endpoint,
    next_request: NextRequest,
    plan: LoadPlan,
    sink: Sink,
    *,
    clock: Clock = SYSTEM_CLOCK,
    hooks: LoadHooks | None = None,
) -> RunEnd:
    """Run a plan on an event loop of its own; exchanges go to `sink` as they end.

    Raises:
        KeyboardInterrupt: On Ctrl-C, once all sockets are closed.
        SpecError: If the endpoint's key variable is unset.
    """
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner, frozen_heap():
        return runner.run(_drive(endpoint, next_request, plan, sink, clock, hooks or LoadHooks()))


async def _drive(
    endpoint: Endpoint,
    next_request: NextRequest,
    plan: LoadPlan,
    sink: Sink,
    clock: Clock,
    hooks: LoadHooks,
) -> RunEnd:
    if isinstance(plan, ClosedLoopPlan):
        return await ClosedLoop(endpoint, next_request, plan, clock, hooks, sink).run()
    return await OpenLoop(endpoint, next_request, plan, clock, hooks, sink).run()


class HealthTally:
    """Adds up over exchanges what the generator says about itself."""

    def __init__(self) -> None:
        self.read_delays = Delays()
        self.send_delays = Delays()
        self.reads = self.coalesced_reads = self.output_tokens = 0

    def record(
        self, sent: SentWire, *, secret: str | None, keep_text: bool, index: int | None = None
    ) -> RequestRecord:
        """Return the record of one exchange, and count it.

        Args:
            sent: The exchange.
            secret: The API key, struck out of whatever the server said.
            keep_text: Whether the record holds the output text.
            index: Running number to give it; None keeps its own.
        """
        exchange, delays_ns = settle(sent.wire)
        number = sent.index if index is None else index
        request = SentRequest(number, sent.stream, sent.scheduled_ns, sent.request, exchange)
        record, stats = parse_with_stats(request, secret=secret, keep_text=keep_text)
        self.read_delays.add_ns(delays_ns)
        self.send_delays.add_ns([max(0, exchange.sent_ns - sent.scheduled_ns)])
        self.reads += stats.reads
        self.coalesced_reads += stats.coalesced_reads
        self.output_tokens += sum(chunk.num_tokens for chunk in record.chunks)
        return record

    def health(self, end: RunEnd) -> ClientHealth:
        """Return all of it together with what the run's end told."""
        return ClientHealth(
            cpu_s=end.cpu_s,
            wall_s=(end.end_ns - end.start_ns) / 1e9,
            lag_p99_s=percentile(end.lags_s, 0.99),
            lag_max_s=max(end.lags_s, default=0.0),
            kernel_stamps=self.read_delays.count > 0,
            read_delay_p50_s=self.read_delays.quantile_s(0.5),
            read_delay_p99_s=self.read_delays.quantile_s(0.99),
            send_delay_p50_s=self.send_delays.quantile_s(0.5),
            send_delay_p99_s=self.send_delays.quantile_s(0.99),
            reads=self.reads,
            coalesced_reads=self.coalesced_reads,
            output_tokens=self.output_tokens,
        )


def _result(
    kept: Sequence[SentWire], end: RunEnd, secret: str | None, *, keep_text: bool
) -> LoadResult:
    """Parse everything; called once all sockets are closed."""
    tally = HealthTally()
    ordered = sorted(kept, key=lambda sent: (sent.wire.sent_ns, sent.stream))
    records = tuple(
        tally.record(sent, secret=secret, keep_text=keep_text, index=index)
        for index, sent in enumerate(ordered)
    )
    return LoadResult(records, end.window, tally.health(end), end.notes)
