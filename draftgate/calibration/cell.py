"""One calibration run: the client at some number of streams against a null engine.

Starts the engine on one core, runs the client in this process on another, and
works out what the client got wrong. Knows nothing of other cells.
"""

import math
import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from draftgate.calibration.compare import compare
from draftgate.calibration.engine import NullEngineProcess
from draftgate.calibration.record import CalibrationCell
from draftgate.calibration.traffic import engine_late_p99_s, own_prompts, tokens_per_s
from draftgate.errors import MeasurementError
from draftgate.load.closed import ClosedLoopPlan
from draftgate.load.generator import HealthTally, drive
from draftgate.load.health import cpu_time_s
from draftgate.load.requests import Endpoint, PreparedRequest
from draftgate.load.sockets import many_open_files
from draftgate.load.state import MemorySink, RunEnd
from draftgate.null_engine.sendlog import SentStream
from draftgate.records import ClientHealth, RequestRecord

TTFT_S, GAP_S, MOST_TOKENS = 0.05, 0.01, 128
"""The engine's pace and the longest answer: those of benchmarks/loadgen."""

_FEWEST_TOKENS = 4
_ROUNDS = 3
"""Answers in a cell one after the other: one while streams start, one while all run, one
while they end."""

_MODEL = "null"


@dataclass(frozen=True, slots=True)
class Cores:
    """Where client and engine run.

    Attributes:
        client: Core of this process.
        engine: Core of the null engine; the client's if there is only one.
    """

    client: int
    engine: int

    @classmethod
    def of_this_process(cls) -> "Cores":
        """Return the first and the last core that this process may use.

        Neighbours in number are often two threads of one core; first and last are not.
        """
        allowed = sorted(os.sched_getaffinity(0))
        return cls(allowed[0], allowed[-1])

    @property
    def are_shared(self) -> bool:
        """Whether both run on one core."""
        return self.client == self.engine


@dataclass(frozen=True, slots=True)
class CellPlan:
    """How one cell goes.

    Attributes:
        streams: Closed-loop streams, >= 1.
        seconds: Time from its first request to its last answer, about.
        cores: Where both sides run.
    """

    streams: int
    seconds: float
    cores: Cores

    @property
    def answer_tokens(self) -> int:
        """Length of each answer."""
        fitting = int((self.seconds / _ROUNDS - TTFT_S) / GAP_S)
        return min(MOST_TOKENS, max(_FEWEST_TOKENS, fitting))

    @property
    def answer_s(self) -> float:
        """Time of each answer, seconds."""
        return TTFT_S + GAP_S * self.answer_tokens

    @property
    def sending_s(self) -> float:
        """Time in which requests are sent: all but the last answer's, and two answers at least."""
        return max(self.seconds, _ROUNDS * self.answer_s) - self.answer_s


def streams_for(tokens_per_s: float, plan: CellPlan) -> int:
    """Return how many streams together receive about `tokens_per_s` at the pace of `plan`."""
    return max(1, round(tokens_per_s * plan.answer_s / plan.answer_tokens))


def run_cell(plan: CellPlan) -> CalibrationCell:
    """Run one cell and return what it found.

    The streams start evenly over the length of one answer, so that requests
    are spread as on a busy server, while all tokens of a step go out at once.

    Raises:
        EngineError: If the null engine could not be run.
        MeasurementError: If a request failed or the run broke off; nothing is
            left out of the numbers.
        KeyboardInterrupt: On Ctrl-C, once the engine has ended.
    """
    requests = _requests(plan)
    sink = MemorySink()
    with tempfile.TemporaryDirectory(prefix="draftgate-calibration-") as folder:
        engine = NullEngineProcess(_options(plan), Path(folder))
        try:
            with _pinned(plan.cores.client), many_open_files():
                endpoint = Endpoint(engine.url, _MODEL)
                end = drive(endpoint, lambda _: next(requests, None), _loop(plan), sink)
        finally:
            engine.stop()
        sent = engine.sent()
    before_s, tally = cpu_time_s(), HealthTally()
    records = [tally.record(wire, secret=None, keep_text=False) for wire in sink.kept]
    parse_cpu_s = cpu_time_s() - before_s
    _check(plan, records, end)
    # From when all streams ran to when the first could not go on.
    since_ns = end.start_ns + round(plan.answer_s * 1e9)
    rate_per_s = tokens_per_s(records, since_ns, end.stopped_ns)
    return _cell(plan, tally.health(end), _Found(records, sent, rate_per_s, parse_cpu_s))


@dataclass(frozen=True, slots=True)
class _Found:
    """What a run left besides the client's own health."""

    records: Sequence[RequestRecord]
    sent: Sequence[SentStream]
    tokens_per_s: float
    parse_cpu_s: float


def _options(plan: CellPlan) -> tuple[str, ...]:
    pace = ("--ttft", str(TTFT_S), "--gap", str(GAP_S), "--align", "steps")
    return (*pace, "--model", _MODEL, "--cpu", str(plan.cores.engine))


def _requests(plan: CellPlan) -> Iterator[PreparedRequest]:
    """Return more requests than can be sent, each with a prompt of its own, made beforehand."""
    per_stream = math.ceil(plan.sending_s / plan.answer_s) + 1
    return own_prompts(plan.streams * per_stream, plan.answer_tokens, _MODEL)


def _loop(plan: CellPlan) -> ClosedLoopPlan:
    return ClosedLoopPlan(
        concurrency=plan.streams,
        stagger_s=plan.answer_s,
        stall_timeout_s=10.0,
        run_timeout_s=plan.sending_s + plan.answer_s + 30.0,
        keep_text=False,
        has_window=False,
        duration_s=plan.sending_s,
    )


def _check(plan: CellPlan, records: Sequence[RequestRecord], end: RunEnd) -> None:
    failed = [record.failure for record in records if record.failure is not None]
    notes = list(end.notes)
    if failed:
        first = failed[0]
        notes.append(
            f"{len(failed)} requests failed, the first: {first.kind.value} {first.message}"
        )
    if not records:
        notes.append("no request was sent")
    if notes:
        raise MeasurementError(
            f"calibration at {plan.streams} streams: {'; '.join(notes)}. Nothing of it can be "
            "used; free the machine and calibrate again."
        )


def _cell(plan: CellPlan, health: ClientHealth, found: _Found) -> CalibrationCell:
    tokens = health.output_tokens
    return CalibrationCell(
        streams=plan.streams,
        tokens_per_s=found.tokens_per_s,
        cpu_per_token_s=health.cpu_s / tokens,
        parse_cpu_per_token_s=found.parse_cpu_s / tokens,
        kernel_stamps=health.kernel_stamps,
        read_delay_p50_s=health.read_delay_p50_s,
        read_delay_p99_s=health.read_delay_p99_s,
        lag_p99_s=health.lag_p99_s,
        coalesced_ratio=health.coalesced_reads / health.reads,
        engine_late_p99_s=engine_late_p99_s(found.sent),
        errors=compare(found.records, found.sent),
    )


@contextmanager
def _pinned(core: int) -> Iterator[None]:
    """Keep this thread on one core until the block ends."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
