"""Baselines: accepted runs by hardware, engine and profile, and what may be held against them."""

from draftgate.baselines.accepting import Session, accept
from draftgate.baselines.comparable import workload_digest
from draftgate.baselines.stored import (
    BASELINE_SCHEMA_VERSION,
    Accepted,
    Baseline,
    Cell,
    accepted,
    baseline_path,
    find_baseline,
    load_baseline,
    write_baseline,
)

__all__ = [
    "BASELINE_SCHEMA_VERSION",
    "Accepted",
    "Baseline",
    "Cell",
    "Session",
    "accept",
    "accepted",
    "baseline_path",
    "find_baseline",
    "load_baseline",
    "workload_digest",
    "write_baseline",
]
