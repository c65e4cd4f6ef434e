"""From a run's records on disk to its summary, in a few passes and bounded memory.

The definitions are those of `draftgate.metrics`, and a test holds the two against
each other; order statistics are exact. Knows neither how the load was sent nor how
the summary is shown.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from draftgate import __version__
from draftgate.load.arrivals import ClosedLoop
from draftgate.loadtest import columns
from draftgate.loadtest.columns import Batch, Floats, inside, read_requests
from draftgate.loadtest.spec import LoadTest
from draftgate.loadtest.summary import (
    SCHEMA_VERSION,
    Asked,
    Client,
    Distribution,
    FailureClass,
    Latencies,
    LoadSummary,
    Records,
    Requests,
    StepSize,
    Throughput,
    WindowSummary,
)
from draftgate.loadtest.window import FoundWindow, find_window
from draftgate.metrics.definition import DEFINITIONS_VERSION
from draftgate.records import ClientHealth, Window
from draftgate.stats import orderstat

_SHARES = (0.5, 0.9, 0.95, 0.99)

_MOST_CPU_SHARE = 0.9
"""Share of a core from which a client counts as overloaded: what is left is one
burst of chunks away from nothing."""

_JUDGED_S = 1.0
"""Length from which a run's CPU share says something: a shorter one mostly opens connections."""

Values = Callable[[Batch], NDArray[np.generic]]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run left behind, besides what was asked.

    Attributes:
        files: Parquet files of records.
        folder: Their folder if they are to be kept; None if not.
        started_at: Time of day, ISO 8601, UTC.
        start_ns: When it began.
        end_ns: When the last socket was closed.
        client: What the generator says about itself, all processes together.
        parse_cpu_s: CPU seconds that parsing took.
        processes: Processes that sent.
        notes: Why it did not go as planned; empty if it did.
    """

    files: tuple[Path, ...]
    folder: Path | None
    started_at: str
    start_ns: int
    end_ns: int
    client: ClientHealth
    parse_cpu_s: float
    processes: int
    notes: tuple[str, ...]


def summarise(test: LoadTest, outcome: Outcome) -> LoadSummary:
    """Return the summary of a run.

    Args:
        test: What was asked.
        outcome: What it left behind.

    Raises:
        OSError: If a file of records cannot be read.
    """
    whole = Window(outcome.start_ns, outcome.end_ns + 1)
    found = find_window(test, outcome.files, whole)
    totals = _Totals(found.window)
    for batch in read_requests(outcome.files):
        totals.add(batch)
    requests = _requests(outcome.files)
    client = _client(outcome, found.window, is_open_loop=test.is_open_loop)
    invalid = _faults(requests, totals, client, outcome.client.wall_s)
    return LoadSummary(
        schema_version=SCHEMA_VERSION,
        definitions_version=DEFINITIONS_VERSION,
        draftgate=__version__,
        started_at=outcome.started_at,
        wall_s=outcome.client.wall_s,
        valid=not invalid,
        invalid=invalid,
        notes=outcome.notes,
        asked=_asked(test),
        window=_window(found, outcome.start_ns),
        latency=_latencies(outcome.files, found.window, is_open_loop=test.is_open_loop),
        throughput=totals.throughput(),
        requests=requests,
        client=client,
        records=_records(outcome),
    )


@dataclass(slots=True)
class _Totals:
    """What is summed over the window in one pass."""

    window: Window
    output_tokens: int = 0
    requests: int = 0
    input_tokens: int | None = None
    sizes: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, dtype=np.int64))

    def add(self, batch: Batch) -> None:
        """Count one batch."""
        counts = batch.served[batch.row] & inside(self.window, batch.chunk_ns)
        self.output_tokens += int(batch.tokens[counts].sum())
        ended = batch.served & inside(self.window, batch.ended_ns)
        self.requests += int(ended.sum())
        told = batch.prompt_tokens[ended & (batch.prompt_tokens >= 0)]
        if told.size:
            self.input_tokens = (self.input_tokens or 0) + int(told.sum())
        _, closes = columns.gaps(batch, self.window)
        fresh = np.bincount(batch.tokens[1:][closes], minlength=self.sizes.size)
        fresh[: self.sizes.size] += self.sizes
        self.sizes = fresh

    def throughput(self) -> Throughput:
        """Return the sums and what follows from them."""
        length_s = self.window.length_s
        gaps = int(self.sizes.sum())
        tokens = int((self.sizes * np.arange(self.sizes.size)).sum())
        return Throughput(
            output_tokens=self.output_tokens,
            output_tokens_per_s=self.output_tokens / length_s,
            requests=self.requests,
            requests_per_s=self.requests / length_s,
            input_tokens=self.input_tokens,
            tokens_per_step=tokens / gaps if gaps else None,
            step_sizes=tuple(
                StepSize(int(size), int(self.sizes[size]) / gaps)
                for size in np.flatnonzero(self.sizes)
            ),
        )


def _latencies(files: Sequence[Path], window: Window, *, is_open_loop: bool) -> Latencies:
    def chunks(values: Values) -> Distribution | None:
        return _in_seconds(lambda: read_requests(files, tokens=False), values)

    def ends(values: Values) -> Distribution | None:
        return _in_seconds(lambda: read_requests(files, chunks=False), values)

    def ttft(*, scheduled: bool) -> Distribution | None:
        return chunks(lambda batch: columns.ttft_ns(batch, window, scheduled=scheduled))

    def e2e(*, scheduled: bool) -> Distribution | None:
        return ends(lambda batch: columns.e2e_ns(batch, window, scheduled=scheduled))

    return Latencies(
        ttft_s=ttft(scheduled=False),
        ttft_from_scheduled_s=ttft(scheduled=True) if is_open_loop else None,
        step_gap_s=chunks(lambda batch: columns.gaps(batch, window)[0]),
        per_token_s=_distribution(
            lambda: (columns.per_token_s(batch, window) for batch in read_requests(files)), 1.0
        ),
        e2e_s=e2e(scheduled=False),
        e2e_from_scheduled_s=e2e(scheduled=True) if is_open_loop else None,
    )


def _in_seconds(read: Callable[[], Iterator[Batch]], values_ns: Values) -> Distribution | None:
    """Return the distribution of times in nanoseconds, whose sums are exact."""
    return _distribution(lambda: (values_ns(batch).astype(np.float64) for batch in read()), 1e9)


def _distribution(blocks: Callable[[], Iterator[Floats]], per_unit: float) -> Distribution | None:
    """Return order statistics of values divided by `per_unit`; None of no value."""
    if not any(block.size for block in blocks()):
        return None
    told = orderstat.summarise(blocks, _SHARES)
    p50, p90, p95, p99 = (value / per_unit for value in told.quantiles)
    mean = told.total / told.count / per_unit
    return Distribution(told.count, mean, p50, p90, p95, p99, told.high / per_unit)


def _requests(files: Sequence[Path]) -> Requests:
    sent = 0
    counts: dict[str, int] = {}
    examples: dict[str, str] = {}
    for size, failures in columns.read_failures(files):
        sent += size
        for kind, message in failures:
            counts[kind] = counts.get(kind, 0) + 1
            examples.setdefault(kind, message)
    failed = sum(counts.values())
    classes = (FailureClass(kind, count, examples[kind]) for kind, count in counts.items())
    return Requests(
        sent=sent,
        served=sent - failed,
        failed=failed,
        failed_share=failed / sent if sent else 0.0,
        failures=tuple(sorted(classes, key=lambda entry: (-entry.count, entry.kind))),
    )


def _client(outcome: Outcome, window: Window, *, is_open_loop: bool) -> Client:
    health, processes = outcome.client, outcome.processes
    tokens, busy_s = health.output_tokens, health.wall_s * processes
    late = None
    if is_open_loop:
        late = _in_seconds(
            lambda: read_requests(outcome.files, chunks=False),
            lambda batch: columns.send_delay_ns(batch, window),
        )
    return Client(
        processes=processes,
        cpu_s=health.cpu_s,
        cpu_share=health.cpu_s / busy_s if busy_s > 0 else 0.0,
        output_tokens=tokens,
        cpu_per_token_s=health.cpu_per_token_s,
        parse_cpu_per_token_s=outcome.parse_cpu_s / tokens if tokens else None,
        lag_p99_s=health.lag_p99_s,
        lag_max_s=health.lag_max_s,
        kernel_stamps=health.kernel_stamps,
        read_delay_p50_s=health.read_delay_p50_s,
        read_delay_p99_s=health.read_delay_p99_s,
        reads=health.reads,
        coalesced_reads_share=health.coalesced_reads / health.reads if health.reads else 0.0,
        scheduling_error_s=late,
    )


def _faults(requests: Requests, totals: _Totals, client: Client, wall_s: float) -> tuple[str, ...]:
    """Return why the numbers cannot be used."""
    faults = []
    if client.cpu_share > _MOST_CPU_SHARE and wall_s >= _JUDGED_S:
        faults.append(
            f"the load generator used {client.cpu_share:.0%} of a core in each of its "
            f"{client.processes} processes, expected at most {_MOST_CPU_SHARE:.0%}: it may be what "
            "was measured. Give it more workers, or more cores"
        )
    if requests.served == 0:
        faults.append(f"none of {requests.sent} requests was served in full")
    elif totals.output_tokens == 0 and totals.requests == 0:
        faults.append("nothing that was served lies in the window. Run longer")
    return tuple(faults)


def _asked(test: LoadTest) -> Asked:
    address, sampling = test.endpoint.address, test.sampling
    return Asked(
        url=f"{address.scheme}://{address.netloc}{address.path}",  # a query may hold a secret
        model=test.endpoint.model,
        api=test.api,
        arrivals=test.arrivals.describe(),
        open_loop=not isinstance(test.arrivals, ClosedLoop),
        prompts=test.workload.describe(),
        max_requests=test.max_requests,
        duration_s=test.duration_s,
        temperature=sampling.temperature,
        top_p=sampling.top_p,
        top_k=sampling.top_k,
        sampling_seed=sampling.seed,
        ignore_eos=sampling.ignore_eos,
        prefix_cache="shared" if test.salt is None else "defeated",
        seed=test.seed,
        stall_timeout_s=test.stall_timeout_s,
        run_timeout_s=test.longest_s,
    )


def _window(found: FoundWindow, start_ns: int) -> WindowSummary:
    window = found.window
    return WindowSummary(
        start_s=(window.start_ns - start_ns) / 1e9,
        end_s=(window.end_ns - start_ns) / 1e9,
        length_s=window.length_s,
        steady=found.steady,
        truncated_s=found.truncated_s,
        reason=found.reason,
    )


def _records(outcome: Outcome) -> Records:
    size, tokens = sum(path.stat().st_size for path in outcome.files), outcome.client.output_tokens
    return Records(
        folder=None if outcome.folder is None else str(outcome.folder),
        files=len(outcome.files),
        bytes=size,
        bytes_per_token=size / tokens if tokens else None,
    )
