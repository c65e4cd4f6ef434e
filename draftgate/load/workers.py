"""One run spread over several processes, and its exchanges turned into records.

Each worker runs its share of the plan on an event loop of its own and spools
what came back; one more process of low priority parses complete segments
meanwhile. All agree on one start of the monotonic clock, which processes of a
machine share. Knows neither prompts nor what the numbers mean.
"""

import multiprocessing
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from multiprocessing.context import SpawnContext
from pathlib import Path
from typing import Any, Protocol

from draftgate.clock import SYSTEM_CLOCK
from draftgate.load.board import READY, Board, CountingSink
from draftgate.load.children import ChildTask
from draftgate.load.closed import ClosedLoopPlan, NextRequest
from draftgate.load.generator import HealthTally, LoadPlan, drive
from draftgate.load.health import cpu_time_s
from draftgate.load.requests import Endpoint
from draftgate.load.spool import WHOLE, ParsePlan, Share, SpoolSink, convert, segments
from draftgate.load.state import LoadHooks, LoadProgress, RunEnd
from draftgate.records import ClientHealth

_START_WITHIN_NS = 200_000_000
"""Time from the last worker's being ready to the common start."""

_WATCH_S = 0.02
"""Pace at which running shares are looked at."""

_LOOK_S = 0.2
"""Pace at which the parsing process looks for segments."""

_TELL_NS = 1_000_000_000

_LOWEST_PRIORITY = 19


Watch = Callable[[Board], None]


class Teller:
    """Tells the progress of all shares about once per second.

    Args:
        on_progress: Whom to tell; None for nobody.
    """

    def __init__(self, on_progress: Callable[[LoadProgress], None] | None) -> None:
        self._on_progress = on_progress
        self._told_ns = 0

    def __call__(self, board: Board) -> None:
        """Tell it if it is time."""
        now_ns = SYSTEM_CLOCK.now_ns()
        since_ns = max(self._told_ns, board.start_ns)
        if self._on_progress is not None and now_ns - since_ns >= _TELL_NS:
            self._told_ns = now_ns
            self._on_progress(board.progress(now_ns))


class Job(Protocol):
    """A run that can be cut into shares; it travels to other processes by pickle."""

    @property
    def endpoint(self) -> Endpoint:
        """Where requests go."""

    def plan(self, share: Share) -> LoadPlan:
        """Return how one share goes."""

    def requests(self, share: Share) -> NextRequest:
        """Return the source of one share's requests."""


@dataclass(frozen=True, slots=True)
class SpooledRun:
    """What a run left behind whose records are in files.

    Attributes:
        files: Parquet files of records, see `draftgate.requestfile`.
        start_ns: When it began.
        stopped_ns: When the last request could be sent.
        end_ns: When the last socket was closed.
        client: What the generator knows about itself, all processes together.
        parse_cpu_s: CPU seconds that parsing took.
        notes: Why it did not go as planned; empty if it did.
    """

    files: tuple[Path, ...]
    start_ns: int
    stopped_ns: int
    end_ns: int
    client: ClientHealth
    parse_cpu_s: float
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RunFolders:
    """Where a spooled run keeps its files; both must exist.

    Attributes:
        spool: Exchanges that wait to be parsed; empty again at the end.
        records: Parquet files.
    """

    spool: Path
    records: Path


def run_job(
    job: Job,
    folders: RunFolders,
    *,
    workers: int = 1,
    parse_meanwhile: bool = False,
    keep_text: bool = False,
    on_progress: Callable[[LoadProgress], None] | None = None,
) -> SpooledRun:
    """Run a job and return its records as files.

    With one worker it runs in this process.

    Args:
        job: What to run.
        folders: Where files go.
        workers: Processes that send, >= 1.
        parse_meanwhile: Whether another process parses while the run goes on;
            otherwise all is parsed afterwards.
        keep_text: Whether records hold the output text.
        on_progress: Called about once per second.

    Raises:
        KeyboardInterrupt: On Ctrl-C, once all processes have ended.
        SpecError: If the endpoint or the plan is wrong.
        MeasurementError: If a process died, or files could not be written.
    """
    parse = ParsePlan(job.endpoint.api_key(), keep_text)
    context = multiprocessing.get_context("spawn")
    parser = _Parser(context, folders, parse) if parse_meanwhile else None
    try:
        if workers == 1:
            ends = [_run_here(job, folders.spool, on_progress)]
        else:
            ends = run_shares(context, job, folders.spool, workers, Teller(on_progress))
        outcome = parser.finish() if parser is not None else _parse_all(folders, parse)
    finally:
        if parser is not None:
            parser.kill()
    return _merged(ends, folders, outcome)


@dataclass(slots=True)
class _Parsed:
    """What parsing left besides files."""

    tally: HealthTally
    cpu_s: float


def settle_shares(
    job: Job, ends: Sequence[RunEnd], folders: RunFolders, *, keep_text: bool
) -> SpooledRun:
    """Parse what the shares of a job spooled and return the whole run.

    Raises:
        MeasurementError: If files cannot be read or written.
    """
    parse = ParsePlan(job.endpoint.api_key(), keep_text)
    return _merged(ends, folders, _parse_all(folders, parse))


def _merged(ends: Sequence[RunEnd], folders: RunFolders, outcome: _Parsed) -> SpooledRun:
    whole = RunEnd(
        start_ns=min(end.start_ns for end in ends),
        stopped_ns=min(end.stopped_ns for end in ends),
        end_ns=max(end.end_ns for end in ends),
        cpu_s=sum(end.cpu_s for end in ends),
        lags_s=tuple(lag for end in ends for lag in end.lags_s),
        notes=tuple(dict.fromkeys(note for end in ends for note in end.notes)),
    )
    return SpooledRun(
        files=tuple(sorted(folders.records.glob("*.parquet"))),
        start_ns=whole.start_ns,
        stopped_ns=whole.stopped_ns,
        end_ns=whole.end_ns,
        client=outcome.tally.health(whole),
        parse_cpu_s=outcome.cpu_s,
        notes=whole.notes,
    )


def _run_here(job: Job, spool: Path, on_progress: Callable[[LoadProgress], None] | None) -> RunEnd:
    sink = SpoolSink(spool)
    hooks = LoadHooks(on_progress=on_progress)
    try:
        return drive(job.endpoint, job.requests(WHOLE), job.plan(WHOLE), sink, hooks=hooks)
    finally:
        sink.close()


def run_shares(
    context: SpawnContext, job: Job, spool: Path, workers: int, watch: Watch
) -> list[RunEnd]:
    """Run every share of a job in a process of its own and return their ends.

    Args:
        context: How processes are started.
        job: What to run.
        spool: Folder of the exchanges.
        workers: How many shares there are.
        watch: Called about every 20 ms, here, while they run.

    Raises:
        KeyboardInterrupt: On Ctrl-C, once all processes have ended.
        DraftgateError: What a process raised.
        MeasurementError: If one died.
    """
    board = Board(context, workers)
    children = [
        ChildTask(context, _work, (job, Share(index, workers), spool, board))
        for index in range(workers)
    ]
    try:
        while board.total(READY) < workers and all(child.is_running for child in children):
            time.sleep(0.01)
        board.start_at(SYSTEM_CLOCK.now_ns() + _START_WITHIN_NS)
        while any(child.is_running for child in children):
            if any(child.has_failed for child in children):
                break  # its share is missing, so the others are of no use
            time.sleep(_WATCH_S)
            watch(board)
        failed = [child for child in children if child.has_failed]
        return [child.result(RunEnd) for child in failed or children]
    finally:
        for child in children:
            child.kill()


def _work(job: Job, share: Share, spool: Path, board: Board) -> RunEnd:
    """Run one share; what a worker process does."""
    source, plan = job.requests(share), job.plan(share)
    spooled = SpoolSink(spool, share)
    warmup = plan.warmup_requests if isinstance(plan, ClosedLoopPlan) else 0
    sink = CountingSink(spooled, board, share.index, max(1, warmup))
    hooks = LoadHooks(
        on_progress=lambda at: board.show(share.index, at), stop_when=lambda: board.is_stopped
    )
    board.put(share.index, READY, 1)
    while not board.start_ns:
        time.sleep(0.001)
    plan = replace(plan, start_ns=board.start_ns)
    time.sleep(max(0, board.start_ns - SYSTEM_CLOCK.now_ns()) / 1e9)
    try:
        return drive(job.endpoint, source, plan, sink, hooks=hooks)
    finally:
        spooled.close()


class _Parser:
    """A process of low priority that parses segments as they are completed."""

    def __init__(self, context: SpawnContext, folders: RunFolders, parse: ParsePlan) -> None:
        self._last = context.Event()
        self._child = ChildTask(context, _parse_until, (folders, parse, self._last))

    def finish(self) -> _Parsed:
        """Wait until all is parsed and return what was counted."""
        self._last.set()
        return self._child.result(_Parsed)

    def kill(self) -> None:
        """End it, whatever it does."""
        self._child.kill()


def _parse_until(folders: RunFolders, parse: ParsePlan, last: Any) -> _Parsed:
    """Parse segments until `last` is set and none is left; what the process does."""
    os.nice(_LOWEST_PRIORITY)
    parsed = _Parsed(HealthTally(), 0.0)
    while True:
        is_last = last.wait(_LOOK_S)
        _parse_segments(folders, parse, parsed)
        if is_last:
            return parsed


def _parse_all(folders: RunFolders, parse: ParsePlan) -> _Parsed:
    parsed = _Parsed(HealthTally(), 0.0)
    _parse_segments(folders, parse, parsed)
    return parsed


def _parse_segments(folders: RunFolders, parse: ParsePlan, parsed: _Parsed) -> None:
    before_s = cpu_time_s()
    for segment in segments(folders.spool):
        convert(segment, folders.records, parse, parsed.tally)
    parsed.cpu_s += cpu_time_s() - before_s
