"""A small load test to change, and the folder of records that one leaves behind."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from draftgate.load.arrivals import ClosedLoop
from draftgate.load.lengths import Fixed, Uniform
from draftgate.load.prompts import Synthetic, TokenIds, Words
from draftgate.load.requests import Endpoint
from draftgate.load.workload import RequestPlan
from draftgate.loadtest.spec import LoadTest
from draftgate.records import RequestRecord
from draftgate.requestfile import RequestWriter
from draftgate.specs import SamplingParams

WORDS = RequestPlan(Synthetic(Fixed(4), Words()), Uniform(2, 9), seed=3)
IDS = RequestPlan(Synthetic(Fixed(4), TokenIds(5, 9)), Fixed(8), seed=3)


def make_test(**changes: Any) -> LoadTest:
    """Return a small closed-loop test, with `changes`."""
    fields: dict[str, Any] = {
        "endpoint": Endpoint("http://127.0.0.1:9", "m"),
        "arrivals": ClosedLoop(4, stagger_s=0.2),
        "workload": WORDS,
        "sampling": SamplingParams(1),
        "max_requests": 21,
    }
    return LoadTest(**{**fields, **changes})


def write_records(
    folder: Path, records: Sequence[RequestRecord], files: int = 3, batch_requests: int = 5
) -> tuple[Path, ...]:
    """Write records to several files with several batches each, and return these."""
    paths = tuple(folder / f"{number:03d}-00000.parquet" for number in range(files))
    for number, path in enumerate(paths):
        with RequestWriter(path, batch_requests) as writer:
            for record in records[number::files]:
                writer.add(record)
    return paths
