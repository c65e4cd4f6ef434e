"""Metrics: one number per run, computed from its raw samples.

A metric is a declaration (name, unit, direction, formula) and a function of one
run; `docs/glossary.md` holds the definitions in words. Knows nothing of
comparisons, baselines or gates.
"""

from draftgate.metrics.definition import (
    DEFINITIONS_VERSION,
    METRICS,
    Direction,
    MetricDefinition,
    compute_all,
    definition,
)

__all__ = [
    "DEFINITIONS_VERSION",
    "METRICS",
    "Direction",
    "MetricDefinition",
    "compute_all",
    "definition",
]
