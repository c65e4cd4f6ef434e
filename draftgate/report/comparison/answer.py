"""What a comparison says, in sentences that every form of its report shares.

Headline, facts about how it was measured, next steps and notes; plain text,
not escaped. Decides nothing.
"""

from collections.abc import Iterable, Sequence

from draftgate.compare.gates import title
from draftgate.compare.records import GateResult, Role, Scale, StoredComparison
from draftgate.report.comparison.words import (
    change_text,
    decisive,
    factor_text,
    minutes_text,
    needed_text,
    place,
    short_place,
    stand_in,
)
from draftgate.report.format import count, percent
from draftgate.report.headline import LABELS
from draftgate.report.summary import READING_ORDER
from draftgate.report.table import streams
from draftgate.twins import twin_words
from draftgate.verdict import Outcome

NAMED_PLACES = 3
"""Gates that a next step names before the rest is counted."""

ENDED = {
    "budget": "The time budget ended it.",
    "running": "It is still running.",
    "interrupted": "It was interrupted and can be resumed.",
}


def label(outcome: Outcome) -> str:
    """Return the outcome in capitals: `REGRESSION`, `INVALID RUN`."""
    return LABELS[outcome].upper()


def in_reading_order(comparison: StoredComparison) -> tuple[GateResult, ...]:
    """Return all gates, what is not green first; in the header's order within an outcome."""
    return tuple(
        sorted(comparison.result.gates, key=lambda gate: READING_ORDER.index(gate.outcome))
    )


def not_green(comparison: StoredComparison) -> tuple[GateResult, ...]:
    """Return the gates that let no change through, in reading order."""
    return tuple(gate for gate in in_reading_order(comparison) if not gate.outcome.green)


def headline(comparison: StoredComparison) -> str:
    """Return outcome and why in one line, as in `REGRESSION: step time +8 % [6, 10] at ...`."""
    return f"{label(comparison.result.outcome)}: {_said(comparison)}"


def _said(comparison: StoredComparison) -> str:
    outcome, gates = comparison.result.outcome, comparison.result.gates
    hits = [gate for gate in gates if gate.outcome is outcome]
    if not hits:
        return "no gate was judged"
    share = f"{len(hits)} of {count(len(gates), 'gate')}"
    if outcome is Outcome.REGRESSION:
        return f"{lead_text(hits)}; {share} regressed"
    if outcome in (Outcome.INVALID_RUN, Outcome.NO_BASELINE):
        where = f"{place(hits[0].gate)}, {title(hits[0].gate.metric)}"
        return f"{share} can't be judged: {hits[0].reason.rstrip('. ')} ({where})"
    if outcome is Outcome.INCONCLUSIVE:
        return f"{share} not decided; {_open_text(hits)}"
    if outcome is Outcome.IMPROVEMENT:
        return f"{lead_text(hits)}; {share} improved"
    return _passed(gates)


def _passed(gates: Sequence[GateResult]) -> str:
    better = [gate for gate in gates if gate.outcome is Outcome.IMPROVEMENT]
    gained = f", {len(better)} of them improved" if better else ""
    whole = f"all {len(gates)} gates" if len(gates) > 1 else "the one gate"
    return f"{whole} passed{gained}"


def _open_text(hits: Sequence[GateResult]) -> str:
    needed = max(gate.pairs_needed for gate in hits)
    return f"{needed_text(needed)} would decide" if needed else "more pairs would not decide"


def lead_text(hits: Sequence[GateResult]) -> str:
    """Return the largest change: its named cause where there is one, else the metric itself."""
    lead = max(hits, key=_size)
    named = [factor for factor in lead.cause.factors if factor.named] if lead.cause else []
    what = factor_text(named[0]) if named else f"{title(lead.gate.metric)} {change_text(lead)}"
    return f"{what} at {streams(lead.gate.concurrency)} (arm {lead.gate.arm})"


def _size(result: GateResult) -> float:
    """Return the loss or gain as a share of the base."""
    numbers = decisive(result)
    if numbers is None:
        return 0.0
    if result.gate.scale is Scale.RATIO:
        return abs(numbers.loss)
    return abs(numbers.loss) / abs(result.base_value) if result.base_value else 0.0


def engines(comparison: StoredComparison, role: Role) -> tuple[str, ...]:
    """Return what the servers of a side reported, in the order first seen."""
    starts = (pair.base if role is Role.BASE else pair.candidate for pair in comparison.pairs)
    return tuple(dict.fromkeys(start.engine for start in starts if start.engine))


def side_text(comparison: StoredComparison, role: Role) -> str:
    """Return label and engine of a side: `vllm:0.32.0 (vllm 0.32.0)`."""
    header = comparison.header
    side = header.base if role is Role.BASE else header.candidate
    known = ", ".join(engines(comparison, role)) or "engine not known yet"
    return f"{side.label} ({known})"


def effort_text(comparison: StoredComparison) -> str:
    """Return pairs, time and error rate in one sentence."""
    result, header = comparison.result, comparison.header
    fresh = header.base.restarts and header.candidate.restarts
    lost = sum(1 for pair in comparison.pairs if pair.invalid)
    used = count(len(comparison.pairs) - lost, "pair")
    left_out = f" ({lost} more left out)" if lost else ""
    return (
        f"{used} of {'server starts' if fresh else 'runs'}{left_out} in "
        f"{minutes_text(result.minutes)}; at most {percent(result.family_level)} false REGRESSION "
        f"over all {count(len(result.gates), 'gate')}."
    )


def extent(comparison: StoredComparison) -> tuple[str, ...]:
    """Return what limits the answer: an early end, or that it confirms another run."""
    found = []
    if comparison.header.confirms:
        found.append(f"It confirms the suspects of {comparison.header.confirms}.")
    if comparison.result.ended in ENDED:
        found.append(ENDED[comparison.result.ended])
    return tuple(found)


def next_steps(comparison: StoredComparison) -> tuple[str, ...]:
    """Return every distinct next step once, with the gates that it is for."""
    held: dict[str, list[GateResult]] = {}
    for gate in in_reading_order(comparison):
        if gate.next_step:
            held.setdefault(gate.next_step, []).append(gate)
    return tuple(f"{_named(gates)}: {step}" for step, gates in held.items())


def _named(gates: Sequence[GateResult]) -> str:
    names = [f"{short_place(gate.gate)}, {title(gate.gate.metric)}" for gate in gates]
    more = len(names) - NAMED_PLACES
    return "; ".join(names[:NAMED_PLACES]) + (f"; and {more} more" if more > 0 else "")


def notes(comparison: StoredComparison) -> tuple[str, ...]:
    """Return what a reader has to know: a shape twin first, stand-ins of metrics last."""
    twin = filter(None, (twin_words(comparison.header.profile.arms),))
    return tuple(dict.fromkeys((*twin, *comparison.result.notes, *_stand_ins(comparison))))


def _stand_ins(comparison: StoredComparison) -> Iterable[str]:
    return filter(None, (stand_in(gate) for gate in comparison.header.gates))


def why(result: GateResult) -> str:
    """Return the cause of a change that was found, where one is stated, else the reason."""
    changed = result.outcome in (Outcome.REGRESSION, Outcome.IMPROVEMENT)
    return result.cause.text if changed and result.cause else result.reason
