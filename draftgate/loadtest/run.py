"""One load test from its start to its summary: processes, folders, and what is left.

Sends nothing by itself; `draftgate.load.workers` does. Whatever was written on the
way is gone in the end, except for the records that were asked for.
"""

import asyncio
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from draftgate.clock import SYSTEM_CLOCK
from draftgate.errors import EngineError, SpecError
from draftgate.load.arrivals import ClosedLoop
from draftgate.load.client import StreamConnection
from draftgate.load.requests import Endpoint
from draftgate.load.sockets import OTHER_FILES, many_open_files, most_streams
from draftgate.load.state import LoadProgress
from draftgate.loadtest.spec import LoadTest, mean_tokens
from draftgate.loadtest.summarise import Outcome, summarise
from draftgate.loadtest.summary import LoadSummary

if TYPE_CHECKING:  # it brings Parquet along, which nothing needs before records are written
    from draftgate.load.workers import RunFolders

_CONNECT_S = 10.0
"""Time that the first connection may take; a TCP handshake that loses two packets needs 3 s."""

_LONG_S = 60.0
_LONG_TOKENS = 2_000_000
"""Runs beyond one of these are parsed while they go on: some 600 MB wait otherwise."""


def run_load_test(
    test: LoadTest,
    *,
    records_dir: Path | None = None,
    workers: int | Literal["auto"] = "auto",
    on_progress: Callable[[LoadProgress], None] | None = None,
) -> LoadSummary:
    """Run a load test and return its summary.

    A run of more than a minute, or two million tokens, is parsed by a further
    process of low priority while it goes on; so neither memory nor the spool
    grow with it.

    Args:
        test: What to send.
        records_dir: Folder that keeps the records; absent or empty. None keeps
            none; then they lie in the system's folder for temporary files
            until they are summarised.
        workers: Processes that send; "auto" as in `LoadTest.workers`.
        on_progress: Called about once per second, from any thread.

    Returns:
        The summary, also of a run that cannot be used: `valid` says so.

    Raises:
        KeyboardInterrupt: On Ctrl-C, once all processes have ended and what they
            wrote is gone.
        SpecError: If the test, `records_dir` or `workers` is wrong, or the system
            does not let a process open as many sockets.
        EngineError: If no connection to the server can be opened.
        MeasurementError: If a process died, or records could not be written.
    """
    test.check()
    count = _workers(test, workers)
    _check_reachable(test.endpoint)
    started_at = SYSTEM_CLOCK.wall().isoformat(timespec="seconds")
    _check_sockets(test)
    with many_open_files(), _folders(records_dir) as folders:
        from draftgate.load.workers import run_job  # noqa: PLC0415 - see the top of this file

        with _emptied_on_failure(folders.records):
            run = run_job(
                test,
                folders,
                workers=count,
                parse_meanwhile=_is_long(test),
                keep_text=test.keep_text,
                on_progress=on_progress,
            )
        outcome = Outcome(
            files=run.files,
            folder=records_dir,
            started_at=started_at,
            start_ns=run.start_ns,
            end_ns=run.end_ns,
            client=run.client,
            parse_cpu_s=run.parse_cpu_s,
            processes=count,
            notes=run.notes,
        )
        return summarise(test, outcome)


def _workers(test: LoadTest, asked: int | Literal["auto"]) -> int:
    if asked == "auto":
        return test.workers(len(os.sched_getaffinity(0)))
    most = test.most_workers
    if asked < 1 or (most is not None and asked > most):
        raise SpecError(
            f"workers: got {asked}, expected 1 to {most or 'the number of cores'}: a process needs "
            "a stream and a request of its own. Give fewer, or 'auto'."
        )
    return asked


def _is_long(test: LoadTest) -> bool:
    if test.sends_for_s is not None:
        return test.sends_for_s > _LONG_S
    return (test.max_requests or 0) * mean_tokens(test.workload) > _LONG_TOKENS


def _check_reachable(endpoint: Endpoint) -> None:
    """Open one connection and close it.

    Raises:
        EngineError: If that fails; the message says why.
    """

    async def connect() -> None:
        connection = StreamConnection(endpoint, SYSTEM_CLOCK, stall_timeout_s=_CONNECT_S)
        try:
            await connection.connect()
        finally:
            await connection.close()

    try:
        asyncio.run(connect())
    except OSError as error:
        reason = str(error) or f"no answer within {_CONNECT_S:g} s"
        where = f"{endpoint.address.scheme}://{endpoint.address.netloc}"
        raise EngineError(
            f"load test: no connection to {where}: {reason}. Is the server running, and is this "
            "its address?"
        ) from error


def _check_sockets(test: LoadTest) -> None:
    """Check that the system lets a process have the streams of a closed loop.

    Raises:
        SpecError: If it does not.
    """
    if not isinstance(test.arrivals, ClosedLoop):
        return
    streams, most = test.arrivals.concurrency, most_streams()
    if streams > most:
        raise SpecError(
            f"concurrency {streams}: needs {streams + OTHER_FILES} open files, but the system "
            f"allows {most + OTHER_FILES}. Raise its hard limit (ulimit -Hn), or use fewer streams."
        )


@contextmanager
def _folders(records_dir: Path | None) -> "Iterator[RunFolders]":
    """Yield the run's folders: the spool is private and goes away, kept records stay."""
    from draftgate.load.workers import RunFolders  # noqa: PLC0415 - see the top of this file

    if records_dir is not None:
        _claim(records_dir)
    try:
        # On one file system with the records, so that there is room for both or for neither.
        temporary = tempfile.TemporaryDirectory(prefix=".draftgate-load-", dir=records_dir)
    except OSError as error:
        raise SpecError(
            f"records: no folder can be made in {records_dir or tempfile.gettempdir()}: "
            f"{error.strerror}. Name another one."
        ) from error
    with temporary as name:
        spool, records = Path(name) / "spool", records_dir or Path(name) / "records"
        spool.mkdir()
        records.mkdir(exist_ok=True)
        yield RunFolders(spool=spool, records=records)


def _claim(folder: Path) -> None:
    """Make a folder for records, unless it is there and empty."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        taken = next(folder.iterdir(), None)
    except OSError as error:
        raise SpecError(
            f"records {str(folder)!r}: cannot be made or read: {error.strerror}. Name another "
            "folder."
        ) from error
    if taken is not None:
        raise SpecError(
            f"records {str(folder)!r}: got a folder that holds {taken.name!r}, expected none or an "
            "empty one; nothing is overwritten. Name another folder."
        )


@contextmanager
def _emptied_on_failure(records: Path) -> Iterator[None]:
    """Remove the records of a run that did not come to its end; a part would pass for all."""
    try:
        yield
    except BaseException:
        for path in records.iterdir():
            if path.is_file():
                path.unlink()
        raise
