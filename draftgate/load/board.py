"""Numbers that the processes of one run share: how far each is, the start, the stop.

Plain 64-bit cells without locks: each has one writer, and a reader that sees a
number a moment late does no harm.
"""

from collections import Counter
from multiprocessing.context import SpawnContext
from typing import Any

from draftgate.load.state import LoadProgress, SentWire, Sink

READY, RUNNING, ENDED, FAILED, RECEIVED, TOKENS, WARM = range(7)
"""Cells of a process: ready to start; open, ended and failed requests; bytes and
tokens received; streams that have ended a request."""

_ROW = 7
_START, _STOP = range(2)


class Board:
    """One row of cells for each process, and one for whoever started them.

    Args:
        context: How the processes are started.
        workers: How many there are.
    """

    def __init__(self, context: SpawnContext, workers: int) -> None:
        self.workers = workers
        self._cells: Any = context.RawArray("q", _ROW * (workers + 1))

    @property
    def start_ns(self) -> int:
        """Return when all are to begin; 0 before that is decided."""
        return int(self._cells[self.workers * _ROW + _START])

    @property
    def is_stopped(self) -> bool:
        """Return whether nothing more is to be sent."""
        return bool(self._cells[self.workers * _ROW + _STOP])

    def start_at(self, t_ns: int) -> None:
        """Have all begin at `t_ns`."""
        self._cells[self.workers * _ROW + _START] = t_ns

    def stop(self) -> None:
        """Have nothing more sent."""
        self._cells[self.workers * _ROW + _STOP] = 1

    def put(self, worker: int, field: int, value: int) -> None:
        """Set one cell of a process."""
        self._cells[worker * _ROW + field] = value

    def total(self, field: int) -> int:
        """Return the sum of one cell over all processes."""
        return sum(int(self._cells[worker * _ROW + field]) for worker in range(self.workers))

    def show(self, worker: int, at: LoadProgress) -> None:
        """Enter how far a process is."""
        self.put(worker, RUNNING, at.running)
        self.put(worker, FAILED, at.failed)
        self.put(worker, RECEIVED, at.received_bytes)
        self.put(worker, TOKENS, at.output_tokens or 0)

    def progress(self, now_ns: int) -> LoadProgress:
        """Return how far all are together."""
        return LoadProgress(
            elapsed_s=max(0, now_ns - self.start_ns) / 1e9,
            running=self.total(RUNNING),
            ended=self.total(ENDED),
            failed=self.total(FAILED),
            received_bytes=self.total(RECEIVED),
            output_tokens=self.total(TOKENS) or None,
        )


class CountingSink:
    """Passes exchanges on and keeps a process's row of ended requests up to date.

    Args:
        sink: Where exchanges go.
        board: Where the numbers go.
        worker: Whose row it is.
        warmup_requests: Requests after which a stream counts as warm.
    """

    def __init__(self, sink: Sink, board: Board, worker: int, warmup_requests: int = 1) -> None:
        self._sink = sink
        self._board = board
        self._worker = worker
        self._warmup_requests = warmup_requests
        self._ended: Counter[int] = Counter()
        self._total = self._warm = 0

    def take(self, sent: SentWire) -> None:
        """Keep one exchange and count it."""
        self._sink.take(sent)
        self._total += 1
        self._board.put(self._worker, ENDED, self._total)
        self._ended[sent.stream] += 1
        if self._ended[sent.stream] == self._warmup_requests:
            self._warm += 1
            self._board.put(self._worker, WARM, self._warm)
