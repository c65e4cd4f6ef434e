"""What a metric is, and the table of all of them.

To add one, write a function of (run, slo) in a module of this package and
decorate it with `metric`; gates, baselines and reports go by the definition.
A metric that does not apply to a run returns None and is then absent, never 0.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum

import numpy as np

from draftgate.records import RunSamples
from draftgate.registry import Registry
from draftgate.specs import SLO

# History: 1 first definitions.
DEFINITIONS_VERSION = 1
"""Version of what the metrics mean. Raise it when a formula changes: baselines
of another version are refused, because equal names would hide unequal things."""

Compute = Callable[[RunSamples, SLO], float | None]

PERCENTILES = (50, 90, 95, 99)


class Direction(Enum):
    """Which way a metric is better."""

    HIGHER = "higher"
    LOWER = "lower"
    NEITHER = "neither"


@dataclass(frozen=True, slots=True)
class MetricDefinition:
    """A metric as declared.

    Attributes:
        name: Registered name, unit as its suffix.
        title: What a report calls it.
        unit: Unit of the value: "s", "tokens/s", "bytes", ...; "" for a ratio.
        direction: Which way is better.
        formula: One line in plain text; `docs/glossary.md` says more.
        compute: The value of one run; None where it does not apply.
        cause: What explains a change of it. Text: the metric is itself the
            statement of that cause. Names: the factors whose changes multiply
            to its own. Empty: no cause is ever stated.
    """

    name: str
    title: str
    unit: str
    direction: Direction
    formula: str
    compute: Compute
    cause: str | tuple[str, ...] = ()


METRICS: Registry[MetricDefinition] = Registry("metric", "draftgate.metrics")


def metric(
    name: str,
    title: str,
    unit: str,
    direction: Direction,
    *,
    formula: str,
    cause: str | tuple[str, ...] = (),
) -> Callable[[Compute], Compute]:
    """Return a decorator that registers a function as the metric `name`."""

    def enter(compute: Compute) -> Compute:
        METRICS.register(name)(
            MetricDefinition(name, title, unit, direction, formula, compute, cause)
        )
        return compute

    return enter


def definition(name: str) -> MetricDefinition:
    """Return the definition of `name`.

    Raises:
        SpecError: If there is no such metric; the message lists the known ones.
    """
    return METRICS.get(name)


def compute_all(run: RunSamples, slo: SLO) -> dict[str, float]:
    """Return every metric that applies to `run`, by name in registration order.

    Args:
        run: One run, valid or not; whether it may be used is not decided here.
        slo: Limits of a good request; goodput is absent if it sets none.
    """
    values = ((name, entry.compute(run, slo)) for name, entry in METRICS)
    return {name: float(value) for name, value in values if value is not None}


def percentile(values: Iterable[float], percent: float) -> float | None:
    """Return the smallest value that at least `percent` % of the values do not exceed.

    A plain order statistic (the inverse of the empirical distribution, numpy's
    "inverted_cdf"): always a value that was measured. The p99 of fewer than 100
    values is therefore their maximum.

    Returns:
        The value, or None if there are no values.
    """
    array = np.fromiter(values, dtype=np.float64)
    if array.size == 0:
        return None
    return float(np.percentile(array, percent, method="inverted_cdf"))
