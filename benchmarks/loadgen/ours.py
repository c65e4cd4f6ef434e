"""draftgate's generator under one job, in a process of its own.

`python -m benchmarks.loadgen.ours JOB CORES` (both JSON) starts a null engine,
pins itself, runs, parses, compares with the engine's log and writes one line of
JSON. Nothing else happens in this process, so its CPU time and memory are the
generator's.
"""

import ctypes
import json
import math
import os
import resource
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from benchmarks.loadgen.job import Cores, Job, OurRun
from benchmarks.loadgen.spooled import run_spooled
from draftgate.calibration.compare import ClientErrors, compare
from draftgate.calibration.engine import NullEngineProcess
from draftgate.calibration.traffic import engine_late_p99_s, own_prompts, tokens_per_s
from draftgate.codec import decode, encode
from draftgate.errors import MeasurementError
from draftgate.load.arrivals import Poisson
from draftgate.load.closed import ClosedLoopPlan
from draftgate.load.generator import HealthTally, LoadPlan, drive
from draftgate.load.health import cpu_time_s
from draftgate.load.open import OpenLoopPlan
from draftgate.load.requests import Endpoint, PreparedRequest
from draftgate.load.sockets import many_open_files
from draftgate.load.state import MemorySink, RunEnd, SentWire
from draftgate.null_engine.sendlog import SentStream
from draftgate.records import RequestRecord

_MODEL = "mock"
_SEED = 7
_EVERY_S = 0.1
"""Pace of stalls on purpose."""


def main() -> None:
    """Run the job of the command line and write its result to standard output."""
    job = decode(Job, json.loads(sys.argv[1]), "job")
    cores = decode(Cores, json.loads(sys.argv[2]), "cores")
    with many_open_files(), tempfile.TemporaryDirectory(prefix="loadgen-") as name:
        engine = NullEngineProcess((*job.engine, "--cpu", str(cores.engine)), Path(name))
        try:
            os.sched_setaffinity(0, {cores.client})
            endpoint = Endpoint(engine.url, _MODEL)
            requests = _requests(job)
            if job.spooled:
                result = run_spooled(plan_of(job), requests, Path(name), engine)
            else:
                result = _run(job, endpoint, requests, engine)
        finally:
            engine.stop()
    sys.stdout.write(json.dumps(encode(result)) + "\n")


def plan_of(job: Job) -> LoadPlan:
    """Return how the job goes."""
    limit_s = (job.seconds or 0.0) + 120.0
    if job.rate_per_s is not None:
        return OpenLoopPlan(
            Poisson(job.rate_per_s).offsets_ns(_SEED),
            job.stall_timeout_s,
            limit_s,
            keep_text=False,
            duration_s=job.seconds,
            max_requests=job.requests,
        )
    return ClosedLoopPlan(
        concurrency=job.streams,
        stagger_s=job.stagger_s,
        stall_timeout_s=job.stall_timeout_s,
        run_timeout_s=limit_s,
        keep_text=False,
        has_window=False,
        max_requests=job.requests,
        duration_s=job.seconds,
    )


def _run(
    job: Job, endpoint: Endpoint, requests: Iterator[PreparedRequest], engine: NullEngineProcess
) -> OurRun:
    sink = MemorySink()
    with _stalled_on_purpose(job.blocked_s):
        end = drive(endpoint, lambda _: next(requests, None), plan_of(job), sink)
    engine.stop()
    before_s, tally = cpu_time_s(), HealthTally()
    records = [tally.record(sent, secret=None, keep_text=False) for sent in sink.kept]
    parse_cpu_s, sent = cpu_time_s() - before_s, engine.sent()
    if not sent:
        failed = [record.failure.message for record in records if record.failure is not None]
        raise MeasurementError(f"no answer in the engine's log; requests failed: {failed[:3]}")
    failures = Counter(r.failure.kind.value for r in records if r.failure is not None)
    return OurRun(
        tokens_per_s=_rate_per_s(job, records, end),
        parse_cpu_s=parse_cpu_s,
        rss_peak_bytes=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        client=tally.health(end),
        served=len(records) - failures.total(),
        failures=tuple(sorted(failures.items())),
        notes=end.notes,
        send_delay_s=_send_delay_s(records),
        engine_late_p99_s=engine_late_p99_s(sent),
        errors=None if failures else compare(records, sent),
        errors_by_read=_by_read(sink.kept, sent) if job.blocked_s else None,
    )


def _requests(job: Job) -> Iterator[PreparedRequest]:
    """Return at least as many requests as can be sent, each with a prompt of its own."""
    if job.requests is not None:
        number = job.requests
    elif job.rate_per_s is not None:
        number = math.ceil(job.rate_per_s * (job.seconds or 0.0) * 1.5)
    else:
        number = job.streams * (math.ceil((job.seconds or 0.0) / job.answer_s) + 1)
    return own_prompts(number, job.tokens, _MODEL)


def _rate_per_s(job: Job, records: Sequence[RequestRecord], end: RunEnd) -> float:
    since_ns, until_ns = end.start_ns, end.end_ns
    if job.seconds is not None and job.rate_per_s is None:
        since_ns, until_ns = end.start_ns + round(job.answer_s * 1e9), end.stopped_ns
    return tokens_per_s(records, since_ns, until_ns)


def _send_delay_s(records: Sequence[RequestRecord]) -> tuple[float, float, float]:
    delays_s = [(record.sent_ns - record.scheduled_ns) / 1e9 for record in records]
    p50, p99, most = np.quantile(delays_s, (0.5, 0.99, 1.0), method="inverted_cdf")
    return float(p50), float(p99), float(most)


def _by_read(kept: Sequence[SentWire], sent: Sequence[SentStream]) -> ClientErrors:
    """Return the errors that the same run has without the kernel's stamps."""
    tally = HealthTally()
    bare = (
        replace(
            one, wire=replace(one.wire, reads=tuple((t, None, d) for t, _, d in one.wire.reads))
        )
        for one in kept
    )
    records = [tally.record(one, secret=None, keep_text=False) for one in bare]
    return compare(records, sent)


@dataclass(slots=True)
class _Blocker:
    """Stalls this process again and again: sleeps with the interpreter's lock in its hand."""

    seconds: float
    over: threading.Event

    def run(self) -> None:
        usleep = ctypes.PyDLL(None).usleep  # unlike CDLL, PyDLL does not let go of the lock
        while not self.over.wait(_EVERY_S - self.seconds):
            usleep(round(self.seconds * 1e6))


@contextmanager
def _stalled_on_purpose(seconds: float) -> Iterator[None]:
    if not seconds:
        yield
        return
    blocker = _Blocker(seconds, threading.Event())
    thread = threading.Thread(target=blocker.run)
    thread.start()
    try:
        yield
    finally:
        blocker.over.set()
        thread.join()


if __name__ == "__main__":
    main()
