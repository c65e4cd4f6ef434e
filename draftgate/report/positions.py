"""Acceptance per step and by draft position, with intervals over prompts: table and heat map.

From what the client saw step by step, where `draftgate.report.traffic` shows
the engine's own count. Empty for runs that hold no such measurement.
"""

from collections.abc import Sequence

from draftgate.drift.judge import TRAFFIC_GATE, by_position
from draftgate.records import TrafficAcceptance
from draftgate.report.figures import FigureView, Panel
from draftgate.report.format import MISSING, TO, fixed, percent
from draftgate.report.plots import heat_map
from draftgate.report.summary import Summary
from draftgate.report.table import Column, Entry, Group, Table
from draftgate.report.traffic import in_order
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


def step_figure(summary: Summary) -> FigureView:
    """Return a heat map per arm: kinds down, draft positions across; its table has intervals."""
    found = measured(summary)
    arms = dict.fromkeys(_of(one) for one, _ in found)
    return FigureView(
        "steps",
        CAPTION,
        "Share of steps (%) that accepted the draft token at this position, as the client saw it; "
        "of steps that began with room for K + 1 tokens. Steps without drafts count as steps.",
        (),
        tuple(_panel(i, arm, found) for i, arm in enumerate(arms)),
        "No measurement tells what its steps gave.",
        step_table(summary),
    )


def _panel(
    index: int, arm: str, found: Sequence[tuple[TrafficAcceptance, StepAcceptance]]
) -> Panel:
    rows = [
        (one.kind, tuple(share.estimate * 100.0 for share in steps.by_position))
        for one, steps in found
        if _of(one) == arm
    ]
    words = "; ".join(f"{kind}: {', '.join(f'{v:.0f} %' for v in shares)}" for kind, shares in rows)
    kinds, values = zip(*rows, strict=True)
    svg = heat_map(f"steps{index}", kinds, values, "Draft position, 0 is the first")
    return Panel(arm, f"{arm}. {words}.", svg, ())


def measured(summary: Summary) -> tuple[tuple[TrafficAcceptance, StepAcceptance], ...]:
    """Return the usable measurements that have steps, with their numbers; greedy ones first."""
    usable = (found for found in in_order(summary) if not found.invalid)
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
