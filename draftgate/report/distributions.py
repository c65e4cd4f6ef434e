"""The latencies whose whole distribution a report shows.

Pools the samples of all usable runs of a cell: good for looking at a shape, not
for judging a change, which goes by run. Which samples count is decided in
`draftgate.metrics`.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from draftgate.metrics.latency import per_token_values, step_gap_values, ttft_values
from draftgate.records import RunSamples
from draftgate.report.summary import Cell


@dataclass(frozen=True, slots=True)
class Distribution:
    """One latency.

    Attributes:
        key: Word for anchors.
        title: Heading.
        caption: What it is and what to look for.
        values: Seconds of one run that count.
    """

    key: str
    title: str
    caption: str
    values: Callable[[RunSamples], Iterable[float]]


DISTRIBUTIONS = (
    Distribution(
        "stepgap",
        "Step gap",
        "Time between two chunks of one request, whatever they hold. A curve further left is "
        "faster; a long way to the top right is the tail.",
        step_gap_values,
    ),
    Distribution(
        "pertoken",
        "Time per token",
        "Mean time per output token of a request after its first chunk: what a reader feels.",
        per_token_values,
    ),
    Distribution(
        "ttft",
        "Time to first token",
        "From the last byte sent to the first chunk.",
        ttft_values,
    ),
)


def pooled(cell: Cell, kind: Distribution) -> NDArray[np.float64]:
    """Return all samples of a cell's usable runs, seconds, unsorted."""
    return np.array(
        [value for measured in cell.runs for value in kind.values(measured.run)], dtype=np.float64
    )
