"""A closed loop with a measured window, spread over several processes.

No process sees all streams, so this one watches their counts, tells the caller
when the window opens and closes, and finds its exact place afterwards from the
records. Used by `draftgate.measure` where one core cannot carry the load.
"""

import math
import multiprocessing
import os
import tempfile
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq

from draftgate.clock import SYSTEM_CLOCK
from draftgate.load.board import ENDED, WARM, Board
from draftgate.load.closed import ClosedLoopPlan
from draftgate.load.generator import LoadResult
from draftgate.load.state import LoadHooks
from draftgate.load.window import replay
from draftgate.load.workers import Job, RunFolders, Teller, run_shares, settle_shares
from draftgate.requestfile import from_table

STREAMS_PER_PROCESS = 512
"""Streams that one process carries with room to spare: at 10 ms a step and one
token each these are 51,200 tokens/s, half of what was measured for one core
(benchmarks/loadgen/RESULTS.md)."""


def processes_for(concurrency: int, cores: int | None = None) -> int:
    """Return how many processes a closed loop needs, one core left to everything else.

    Args:
        concurrency: Streams.
        cores: Cores of this machine that may be used; None for all there are.
    """
    available = cores if cores is not None else len(os.sched_getaffinity(0))
    return max(1, min(math.ceil(concurrency / STREAMS_PER_PROCESS), available - 1))


def run_spread(job: Job, plan: ClosedLoopPlan, processes: int, hooks: LoadHooks) -> LoadResult:
    """Run a closed loop in several processes and return its result.

    The hooks are called in this thread, at most 20 ms after the streams turned
    warm, and as soon as the window must be complete. What they read may so
    reach up to a round of requests beyond the window.

    Args:
        job: The run; its shares have no window and end when they are stopped.
        plan: Of the whole: streams, warm-up (at least one request) and window.
        processes: How many, at most one per stream.
        hooks: What to do meanwhile.

    Raises:
        KeyboardInterrupt: On Ctrl-C, once all processes have ended.
        DraftgateError: As for `draftgate.load.workers.run_job`.
    """
    context = multiprocessing.get_context("spawn")
    watch = _WindowWatch(plan, hooks)
    with tempfile.TemporaryDirectory(prefix="draftgate-load-") as root:
        folders = RunFolders(Path(root) / "spool", Path(root) / "records")
        folders.spool.mkdir()
        folders.records.mkdir()
        try:
            ends = run_shares(context, job, folders.spool, processes, watch)
        finally:
            watch.close()
        run = settle_shares(job, ends, folders, keep_text=plan.keep_text)
        tables = (pq.ParquetFile(path).read() for path in run.files)
        records = [record for table in tables for record in from_table(table)]
    records.sort(key=lambda record: (record.sent_ns, record.stream))
    rule = replace(plan, warmup_requests=max(1, plan.warmup_requests)).window_rule()
    window = replay(rule, ((record.stream, record.ended_ns) for record in records))
    return LoadResult(tuple(records), window, run.client, (*run.notes, *watch.lacks()))


class _WindowWatch:
    """Tells when all streams are warm and when the window must be complete."""

    def __init__(self, plan: ClosedLoopPlan, hooks: LoadHooks) -> None:
        self._plan = plan
        self._hooks = hooks
        self._teller = Teller(hooks.on_progress)
        self._opened_ns = 0
        self._ended_before = self._ended_at_length = 0
        self._is_closed = self._is_full = False

    def __call__(self, board: Board) -> None:
        """Look at the counts."""
        self._teller(board)
        now_ns = SYSTEM_CLOCK.now_ns()
        if not self._opened_ns:
            if board.total(WARM) >= self._plan.concurrency:
                self._opened_ns, self._ended_before = now_ns, board.total(ENDED)
                if self._hooks.on_window_open is not None:
                    self._hooks.on_window_open()
        elif not self._is_closed and self._is_complete(board, now_ns):
            self._is_full = True
            board.stop()
            self.close()

    def close(self) -> None:
        """Tell the end of a window that was told to have opened."""
        if self._opened_ns and not self._is_closed:
            self._is_closed = True
            if self._hooks.on_window_close is not None:
                self._hooks.on_window_close()

    def lacks(self) -> tuple[str, ...]:
        """Return why the window is not what was asked for; empty if it is."""
        if not self._opened_ns:
            return ("the window never opened: not every stream got through its warm-up",)
        if not self._is_full:
            limit = f"{self._plan.run_timeout_s:g} s (run_timeout_s)"
            return (f"the run's time was up after {limit} and its window was not complete",)
        return ()

    def _is_complete(self, board: Board, now_ns: int) -> bool:
        # The exact window opened up to 20 ms earlier and closes at the end of a
        # round, so a round more than asked for holds it in any case.
        asked = self._plan.min_requests + self._plan.concurrency
        long_enough = now_ns - self._opened_ns >= self._plan.window_s * 1e9
        if not long_enough:
            self._ended_at_length = board.total(ENDED)
            return False
        after = board.total(ENDED) - self._ended_at_length
        return board.total(ENDED) - self._ended_before >= asked and after >= self._plan.concurrency
