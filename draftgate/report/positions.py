"""Acceptance per step and by draft position, with intervals over prompts: table and heat map.

From what the client saw step by step, where `draftgate.report.traffic` shows
the engine's own count. Empty for runs that hold no such measurement.
"""

from draftgate.drift.judge import TRAFFIC_GATE, by_position
from draftgate.records import TrafficAcceptance
from draftgate.report.format import MISSING, TO, fixed, percent
from draftgate.report.summary import Summary
from draftgate.report.table import Column, Entry, Group, Table
from draftgate.stats.paired import Interval
from draftgate.stats.positions import StepAcceptance

CAPTION = "Acceptance per step"


def step_table(summary: Summary) -> Table | None:
    """Return length, rate and acceptance by position of every kind; None without such numbers."""
    found = measured(summary)
    if not found:
        return None
    most = max(len(steps.by_position) for _, steps in found)
    unit = f"{percent(TRAFFIC_GATE.confidence)} interval"
    return Table(
        CAPTION,
        (
            Column("Traffic"),
            Column("T"),
            Column("Length", f"tokens, {unit}"),
            Column("Rate", f"%, {unit}"),
            *(Column(f"Position {place}", "%") for place in range(most)),
            Column("Steps", "prompts"),
        ),
        tuple(
            Group(title, tuple(_row(one, steps, most) for one, steps in found if _of(one) == title))
            for title in dict.fromkeys(_of(one) for one, _ in found)
        ),
    )


def measured(summary: Summary) -> tuple[tuple[TrafficAcceptance, StepAcceptance], ...]:
    """Return the usable measurements that have steps, with their numbers."""
    usable = (found for found in summary.run.traffic if not found.invalid)
    both = ((found, by_position(found)) for found in usable)
    return tuple((found, steps) for found, steps in both if steps is not None)


def _of(found: TrafficAcceptance) -> str:
    return f"{found.arm}, K = {found.num_speculative_tokens}"


def _row(found: TrafficAcceptance, steps: StepAcceptance, most: int) -> tuple[Entry, ...]:
    gaps = (Entry(MISSING, tone="quiet"),) * (most - len(steps.by_position))
    return (
        Entry(found.kind),
        Entry(f"{found.setting.temperature:g}"),
        _entry(steps.length, 1.0, 2),
        _entry(steps.rate, 100.0, 1),
        *(_entry(share, 100.0, 0) for share in steps.by_position),
        *gaps,
        Entry(f"{steps.steps:,}", f"{steps.prompts:,}"),
    )


def _entry(found: Interval, scale: float, decimals: int) -> Entry:
    low, high = (fixed(end * scale, decimals) for end in (found.low, found.high))
    return Entry(fixed(found.estimate * scale, decimals), f"{low}{TO}{high}")
