"""Verdicts as words and as a small picture of interval against margin.

Takes `draftgate.verdict` records, returns short texts and positions in percent
of a bar's width; decides nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from draftgate.metrics import Direction, definition
from draftgate.report.format import Scale, change, percent, scale_for
from draftgate.report.headline import LABELS
from draftgate.report.summary import READING_ORDER
from draftgate.report.table import streams
from draftgate.verdict import Outcome, Verdict

WIDEST_CHANGE = 1.0
"""Bars end at a change of 100 % either way; longer intervals run off the bar."""


@dataclass(frozen=True, slots=True)
class Bar:
    """Positions in percent of the bar's width, from its left end.

    Attributes:
        zero: No change.
        margin: End of the tolerated loss.
        loss_left: Whether a loss lies to the left.
        low: Lower end of the interval.
        high: Upper end.
        estimate: The point estimate.
    """

    zero: float
    margin: float
    loss_left: bool
    low: float
    high: float
    estimate: float


@dataclass(frozen=True, slots=True)
class VerdictView:
    """One verdict in words; empty strings where there is nothing to say."""

    arm: str
    streams: str
    metric: str
    change: str
    interval: str
    confidence: str
    margin: str
    values: str
    cause: str
    reason: str
    next_step: str
    bar: Bar | None


@dataclass(frozen=True, slots=True)
class VerdictBlock:
    """All verdicts of one outcome; what all of them share is said once.

    Attributes:
        outcome: The outcome.
        label: It in words.
        reason: Shared reason; empty if they differ.
        next_step: Shared next step; empty if they differ.
        gates: Number of verdicts.
        items: The verdicts, shared texts removed; those of one cell that were
            never compared, for one reason, as one.
    """

    outcome: Outcome
    label: str
    reason: str
    next_step: str
    gates: int
    items: tuple[VerdictView, ...]


def blocks(verdicts: Sequence[Verdict]) -> tuple[VerdictBlock, ...]:
    """Return the verdicts by outcome, in reading order."""
    reach = reach_of(verdicts)
    return tuple(
        _block(outcome, [v for v in verdicts if v.outcome is outcome], reach)
        for outcome in READING_ORDER
        if any(v.outcome is outcome for v in verdicts)
    )


def _block(outcome: Outcome, verdicts: Sequence[Verdict], reach: float) -> VerdictBlock:
    reason = _shared([v.reason for v in verdicts])
    next_step = _shared([v.next_step for v in verdicts])
    items = _merged([view(v, reach, hide=(reason, next_step)) for v in verdicts])
    return VerdictBlock(outcome, LABELS[outcome], reason, next_step, len(verdicts), items)


def _merged(items: Sequence[VerdictView]) -> tuple[VerdictView, ...]:
    """Return the items, uncompared ones of one cell and reason put together."""
    found: dict[object, VerdictView] = {}
    for number, item in enumerate(items):
        alike = (item.arm, item.streams, item.reason, item.next_step)
        key: object = number if item.change else alike
        if key in found:
            metrics = f"{found[key].metric}; {item.metric}"
            found[key] = replace(found[key], metric=metrics, values="")
        else:
            found[key] = item
    return tuple(found.values())


def _shared(texts: Sequence[str]) -> str:
    return texts[0] if len(texts) > 1 and len(set(texts)) == 1 else ""


def view(verdict: Verdict, reach: float, *, hide: Sequence[str] = ()) -> VerdictView:
    """Return one verdict in words.

    Args:
        verdict: The verdict.
        reach: Relative change at the ends of the bar.
        hide: Texts that are already said elsewhere.
    """
    compared, gate = verdict.comparison, verdict.gate
    return VerdictView(
        arm=verdict.arm,
        streams=streams(verdict.concurrency),
        metric=definition(verdict.metric).title,
        change=change(compared.estimate_ratio) if compared else "",
        interval=f"{change(compared.low_ratio)} to {change(compared.high_ratio)}"
        if compared
        else "",
        confidence=percent(gate.confidence) if gate else "",
        margin=percent(gate.margin_ratio) if gate else "",
        values=_values(verdict),
        cause=verdict.cause or "",
        reason="" if verdict.reason in hide else verdict.reason,
        next_step="" if verdict.next_step in hide else verdict.next_step,
        bar=_bar(verdict, reach),
    )


def _values(verdict: Verdict) -> str:
    """Return `baseline 40.0 -> now 32.0 tokens/s` as far as known."""
    known = [value for value in (verdict.base_value, verdict.value) if value is not None]
    scale: Scale = scale_for(definition(verdict.metric).unit, known)
    if verdict.base_value is None or verdict.value is None:
        return f"now {scale.full(known[0])}" if verdict.value is not None else ""
    return f"{scale.show(verdict.base_value)} → {scale.full(verdict.value)}"


def reach_of(verdicts: Sequence[Verdict]) -> float:
    """Return the change at the ends of every bar, so that bars compare by eye."""
    sizes = [0.01]
    for verdict in verdicts:
        if verdict.comparison is not None:
            sizes += [
                abs(verdict.comparison.low_ratio - 1),
                abs(verdict.comparison.high_ratio - 1),
            ]
        if verdict.gate is not None:
            sizes.append(verdict.gate.margin_ratio)
    return min(WIDEST_CHANGE, max(sizes) * 1.15)


def _bar(verdict: Verdict, reach: float) -> Bar | None:
    compared, gate = verdict.comparison, verdict.gate
    if compared is None or gate is None:
        return None
    lower_is_better = definition(verdict.metric).direction is Direction.LOWER
    margin = gate.margin_ratio if lower_is_better else -gate.margin_ratio

    def place(relative: float) -> float:
        return round(50.0 + 50.0 * max(-1.0, min(1.0, relative / reach)), 2)

    return Bar(
        zero=50.0,
        margin=place(margin),
        loss_left=not lower_is_better,
        low=place(compared.low_ratio - 1.0),
        high=place(compared.high_ratio - 1.0),
        estimate=place(compared.estimate_ratio - 1.0),
    )
