"""A long run whose exchanges go to disk and are parsed by a second process meanwhile.

The way of `draftgate load`; here to see that memory stays flat. Notes resident
memory about once per second.
"""

import resource
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil

from benchmarks.loadgen.job import MemoryUse, OurRun
from draftgate.calibration.engine import NullEngineProcess
from draftgate.load.closed import NextRequest
from draftgate.load.generator import LoadPlan
from draftgate.load.requests import Endpoint, PreparedRequest
from draftgate.load.spool import Share
from draftgate.load.state import LoadProgress
from draftgate.load.workers import RunFolders, SpooledRun, run_job
from draftgate.requestfile import read_batches


@dataclass(frozen=True, slots=True)
class _OneShare:
    """The whole job as the one share of a run in this process."""

    endpoint: Endpoint
    load: LoadPlan
    source: Iterator[PreparedRequest]

    def plan(self, share: Share) -> LoadPlan:
        assert share.of == 1, "this job is not cut"
        return self.load

    def requests(self, share: Share) -> NextRequest:
        assert share.of == 1, "this job is not cut"
        return lambda _stream: next(self.source, None)


class _Memory:
    """Resident memory of this process and of the one that parses."""

    def __init__(self) -> None:
        self.seen: list[tuple[float, int]] = []
        self._me = psutil.Process()
        self._parser: psutil.Process | None = None

    def note(self, progress: LoadProgress) -> None:
        """Enter the memory as it is now."""
        if self._parser is None:
            children = self._me.children()
            found = [c for c in children if any("spawn_main" in word for word in c.cmdline())]
            self._parser = found[0] if found else None
        rss_bytes = self._me.memory_info().rss
        if self._parser is not None:
            rss_bytes += self._parser.memory_info().rss
        self.seen.append((progress.elapsed_s, rss_bytes))


def run_spooled(
    load: LoadPlan,
    requests: Iterator[PreparedRequest],
    folder: Path,
    engine: NullEngineProcess,
) -> OurRun:
    """Run a job whose records go to Parquet files and return what it needed.

    Args:
        load: How it goes.
        requests: What is sent.
        folder: Where files may be written.
        engine: The null engine; it is stopped afterwards.
    """
    folders = RunFolders(folder / "spool", folder / "records")
    folders.spool.mkdir()
    folders.records.mkdir()
    memory = _Memory()
    whole = _OneShare(Endpoint(engine.url, "mock"), load, requests)
    run = run_job(whole, folders, parse_meanwhile=True, on_progress=memory.note)
    engine.stop()
    sent_tokens = sum(int(stream.step_tokens.sum()) for stream in engine.sent())
    served, failures = _outcomes(run)
    client = run.client
    return OurRun(
        tokens_per_s=client.output_tokens / client.wall_s,
        parse_cpu_s=run.parse_cpu_s,
        rss_peak_bytes=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        client=client,
        served=served,
        failures=failures,
        notes=run.notes,
        send_delay_s=(client.send_delay_p50_s or 0.0, client.send_delay_p99_s or 0.0, 0.0),
        engine_late_p99_s=0.0,
        errors=None,
        memory=MemoryUse(
            rss=tuple(memory.seen),
            parquet_bytes=sum(path.stat().st_size for path in run.files),
            lost_tokens=sent_tokens - client.output_tokens,
        ),
    )


def _outcomes(run: SpooledRun) -> tuple[int, tuple[tuple[str, int], ...]]:
    kinds: Counter[str | None] = Counter()
    for batch in read_batches(run.files, ["failure_kind"]):
        kinds.update(batch.column(0).to_pylist())
    served = kinds.pop(None, 0)
    return served, tuple(sorted((str(kind), count) for kind, count in kinds.items()))
