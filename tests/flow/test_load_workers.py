"""Runs in several processes: nothing lost, one start, errors and deaths told, nothing left."""

from collections import Counter
from pathlib import Path

import psutil
import pyarrow.parquet as pq
import pytest

from draftgate.engines.fake_server import FakeConfig
from draftgate.errors import DraftgateError, MeasurementError, SpecError
from draftgate.load.spool import Share
from draftgate.load.state import LoadProgress
from draftgate.load.workers import RunFolders, SpooledRun, run_job
from draftgate.records import RequestRecord
from draftgate.requestfile import from_table
from tests.support.fake import endpoint, fake_server
from tests.support.load_job import GAP_NS, PlainJob

FAST = {"step_s": 0.002, "ttft_s": 0.004}


def _folders(root: Path) -> RunFolders:
    folders = RunFolders(root / "spool", root / "records")
    folders.spool.mkdir()
    folders.records.mkdir()
    return folders


def _records(run: SpooledRun) -> list[RequestRecord]:
    tables = [pq.ParquetFile(path).read() for path in run.files]
    return [record for table in tables for record in from_table(table)]


@pytest.mark.parametrize("workers", [1, 3])
def test_every_request_is_in_the_files_once(tmp_path: Path, workers: int) -> None:
    """All 40 requests come back whole with numbers of their own, and no spool is left."""
    folders = _folders(tmp_path)
    with fake_server(FakeConfig(**FAST)) as server:
        job = PlainJob(endpoint(server), total=40)
        run = run_job(job, folders, workers=workers, parse_meanwhile=workers > 1)

    records = _records(run)
    assert sorted(record.index for record in records) == list(range(40))
    assert {record.stream for record in records} == set(range(4))
    assert all(record.failure is None for record in records)
    assert [len(record.chunks) for record in records] == [5] * 40
    assert run.client.output_tokens == 200
    assert run.client.reads >= 200
    assert list(folders.spool.iterdir()) == []
    assert run.notes == ()


def test_open_loop_is_one_schedule_over_all_workers(tmp_path: Path) -> None:
    """Two workers take turns: together they keep one schedule, from one start."""
    with fake_server(FakeConfig(**FAST)) as server:
        job = PlainJob(endpoint(server), total=30, is_open=True)
        run = run_job(job, _folders(tmp_path), workers=2)

    due = {record.stream: record.scheduled_ns - run.start_ns for record in _records(run)}
    assert due == {number: number * GAP_NS for number in range(30)}


@pytest.mark.parametrize(
    ("fault", "kind", "words"),
    [
        ("error", SpecError, "planted in the second share"),
        ("death", MeasurementError, "died with exit code -9"),
    ],
)
def test_what_ends_a_worker_ends_the_run(
    tmp_path: Path, fault: str, kind: type[DraftgateError], words: str
) -> None:
    """An error in one process is raised here, a death is told, and no process is left."""
    with fake_server(FakeConfig(**FAST)) as server:
        job = PlainJob(endpoint(server), total=2000, fault=fault)
        with pytest.raises(kind, match=words):
            run_job(job, _folders(tmp_path), workers=2)

    names = [" ".join(child.cmdline()) for child in psutil.Process().children()]
    assert [name for name in names if "spawn_main" in name] == []


def test_progress_adds_up_over_workers(tmp_path: Path) -> None:
    """Live numbers are sums over processes."""
    told: list[LoadProgress] = []
    with fake_server(FakeConfig(step_s=0.05, ttft_s=0.1)) as server:
        job = PlainJob(endpoint(server), total=40)
        run_job(job, _folders(tmp_path), workers=2, on_progress=told.append)

    assert told
    assert told[-1].running == 4
    assert told[-1].ended >= 4
    assert told[-1].output_tokens is not None


@pytest.mark.parametrize("total", [1, 7, 30])
def test_shares_cut_a_number_without_rest(total: int) -> None:
    """The shares of four workers are disjoint and hold every number."""
    shares = [Share(index, 4) for index in range(4)]

    numbers = Counter(s.number(i) for s in shares for i in range(s.size(total)))

    assert numbers == Counter(range(total))
