"""Sweeps: a list of engine configurations, measured one after the other within a time limit.

For machines that are to be had in pieces: every configuration starts its server
once, every run is on disk before the next begins, nothing is begun that would
not end in time, and the next call goes on where this one stopped. Measures with
the suite's own pieces and judges nothing.
"""

from draftgate.sweep.plan import Cell, Group, SweepPlan, load_plan
from draftgate.sweep.run import run_sweep
from draftgate.sweep.state import SweepState, open_sweep
from draftgate.sweep.summary import summary_document, summary_markdown, write_summary

__all__ = [
    "Cell",
    "Group",
    "SweepPlan",
    "SweepState",
    "load_plan",
    "open_sweep",
    "run_sweep",
    "summary_document",
    "summary_markdown",
    "write_summary",
]
