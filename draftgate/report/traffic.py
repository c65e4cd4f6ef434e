"""Acceptance by kind of traffic: the table, the picture, what was sent.

Takes what `draftgate.drift` measured and judged; its numbers are only rounded
here. Everything is empty where a run holds no such measurement.
"""

from draftgate.drift.judge import TRAFFIC_GATE, place_of, tokens_per_step
from draftgate.records import SpeculationCounters, TrafficAcceptance
from draftgate.report.figures import (
    FigureView,
    Panel,
    position_plot,
    position_table,
    position_words,
)
from draftgate.report.format import MISSING, TO, change, count, decimals_of, fixed, number, percent
from draftgate.report.plots import Series
from draftgate.report.summary import Summary
from draftgate.report.table import Column, Entry, Group, Table, streams

FIRST_STYLE = 1
"""Style of the first kind; 0 is grey and stands for decoding without drafts."""


def traffic_table(summary: Summary) -> Table | None:
    """Return acceptance by arm and kind with its verdict; None if none was measured."""
    traffic = in_order(summary)
    if not traffic:
        return None
    return Table(
        "Acceptance by traffic",
        (
            Column("Traffic"),
            Column("Tokens per step", f"mean, {percent(TRAFFIC_GATE.confidence)} interval"),
            Column("Acceptance", "%"),
            Column("Length", "tokens"),
            Column("By position", "%"),
            Column("Prompts"),
            Column("Verdict", "against baseline"),
        ),
        tuple(
            Group(arm, tuple(_row(summary, found) for found in traffic if found.arm == arm))
            for arm in _arms(summary)
        ),
    )


def traffic_setting(summary: Summary) -> str:
    """Return how the prompts were sent, in a sentence; empty if none were."""
    settings = dict.fromkeys(
        f"{streams(found.setting.concurrency)}, "
        f"{count(found.setting.max_tokens, 'token')} per answer, "
        f"temperature {found.setting.temperature:g}"
        for found in in_order(summary)
    )
    return f"Each prompt was sent once: {'; '.join(settings)}." if settings else ""


def traffic_figure(summary: Summary) -> FigureView:
    """Return acceptance by draft position, one panel per arm, one line per kind."""
    panels = tuple(
        panel
        for index, arm in enumerate(_arms(summary))
        if (panel := _panel(summary, index, arm)) is not None
    )
    title = "Acceptance by draft position and traffic"
    drawn = {line.name for panel in panels for line in panel.series}
    return FigureView(
        "trafficpositions",
        title,
        "Share of drafts whose token at this position was accepted, one line per kind of greedy "
        "traffic.",
        tuple((kind, _style(summary, kind)) for kind in _kinds(summary) if kind in drawn),
        panels,
        "No arm reported speculation counters.",
        position_table(title, "Traffic", panels) if panels else None,
    )


def in_order(summary: Summary) -> tuple[TrafficAcceptance, ...]:
    """Return what was measured, greedy traffic before sampled."""
    return tuple(sorted(summary.run.traffic, key=lambda found: found.setting.temperature))


def _greedy(summary: Summary) -> tuple[TrafficAcceptance, ...]:
    """Return the greedy measurements, which the plot of lines has room for."""
    return tuple(found for found in summary.run.traffic if found.setting.temperature == 0.0)


def _arms(summary: Summary) -> tuple[str, ...]:
    """Return the measured arms in the profile's order, then any others."""
    measured = dict.fromkeys(found.arm for found in summary.run.traffic)
    known = [arm for arm in summary.arms if arm in measured]
    return (*known, *(arm for arm in measured if arm not in known))


def _kinds(summary: Summary) -> tuple[str, ...]:
    return tuple(dict.fromkeys(found.kind for found in _greedy(summary)))


def _style(summary: Summary, kind: str) -> int:
    return FIRST_STYLE + _kinds(summary).index(kind)


def _row(summary: Summary, found: TrafficAcceptance) -> tuple[Entry, ...]:
    prompts = Entry(f"{len(found.tokens_per_step):,}")
    verdict = _verdict(summary, found)
    if found.invalid:
        gap = Entry(MISSING, tone="quiet")
        return (Entry(found.kind, "invalid"), gap, gap, gap, gap, prompts, verdict)
    return (
        Entry(found.kind),
        _tokens_per_step(found),
        *_acceptance(found.counters),
        prompts,
        verdict,
    )


def _tokens_per_step(found: TrafficAcceptance) -> Entry:
    mean = tokens_per_step(found)
    if mean is None:
        values = [value for _, value in found.tokens_per_step]
        return Entry(number(values[0]), "one prompt") if values else Entry(MISSING, tone="quiet")
    decimals = decimals_of(mean.estimate)
    interval = f"{fixed(mean.low, decimals)}{TO}{fixed(mean.high, decimals)}"
    return Entry(fixed(mean.estimate, decimals), interval)


def _acceptance(counters: SpeculationCounters | None) -> tuple[Entry, Entry, Entry]:
    """Return rate, mean length and percentages by position; gaps where nothing was drafted."""
    gap = Entry(MISSING, tone="quiet")
    if counters is None or not counters.num_drafts or not counters.num_draft_tokens:
        return gap, gap, gap
    accepted = counters.num_accepted_tokens
    by_position = " / ".join(fixed(share, 0) for share in _shares(counters))
    return (
        Entry(number(accepted / counters.num_draft_tokens * 100.0)),
        Entry(number(1.0 + accepted / counters.num_drafts)),
        Entry(by_position) if by_position else gap,
    )


def _shares(counters: SpeculationCounters | None) -> tuple[float, ...]:
    """Return the percentage of drafts accepted at each position."""
    if counters is None or not counters.num_drafts:
        return ()
    return tuple(n / counters.num_drafts * 100.0 for n in counters.num_accepted_tokens_per_pos)


def _verdict(summary: Summary, found: TrafficAcceptance) -> Entry:
    verdicts = summary.verdicts_of(place_of(found), found.setting.concurrency)
    if not verdicts:
        return Entry("not judged", tone="quiet")
    compared = verdicts[0].comparison
    moved = "" if compared is None else change(compared.estimate_ratio)
    return Entry("", moved, outcome=verdicts[0].outcome, judged=True)


def _panel(summary: Summary, index: int, arm: str) -> Panel | None:
    series = tuple(
        Series(found.kind, _style(summary, found.kind), tuple(map(float, range(len(y)))), y)
        for found in _greedy(summary)
        if found.arm == arm and not found.invalid and (y := _shares(found.counters))
    )
    if not series:
        return None
    words = "; ".join(f"{line.name}: {position_words(line)}" for line in series)
    return Panel(arm, f"{arm}. {words}.", position_plot(f"traffic{index}", series), series)
