"""From a header and pairs to verdicts; pure, so that anybody can work them out again.

Stage one searches, stage two confirms on fresh pairs, and the family correction
holds the error over all gates together (docs/decisions/0009).
"""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from draftgate.compare.cause import cause
from draftgate.compare.losses import GateLosses, centre, usable_pairs
from draftgate.compare.reasons import explain
from draftgate.compare.records import (
    Cause,
    ComparisonHeader,
    ComparisonResult,
    Gate,
    GateResult,
    Pair,
    Stage,
)
from draftgate.compare.stages import (
    FIRST_NUMBERS,
    Fresh,
    Search,
    confirm_gate,
    search_gate,
    upper_bound,
)
from draftgate.specs import CompareSpec
from draftgate.stats.family import STAGE_ONE_LEVEL, judge_family
from draftgate.stats.sequential import LOOKS, SUSPECT_LEVEL, Standing
from draftgate.verdict import Outcome, worst

MAX_INVALID = 3
"""Pairs that an arm may lose in a row, or beyond a quarter of all, before it is given up."""


@dataclass(frozen=True, slots=True)
class Decision:
    """What was decided on one gate, before it is put into words.

    Attributes:
        outcome: The decision.
        pairs_needed: Further pairs that would decide; 0 when decided or hopeless.
        trouble: Why nothing can be said; empty unless INVALID_RUN.
    """

    outcome: Outcome
    pairs_needed: int = 0
    trouble: str = ""


def judge(
    header: ComparisonHeader,
    pairs: Sequence[Pair],
    *,
    minutes: float = 0.0,
    ended: str = "running",
    notes: tuple[str, ...] = (),
) -> ComparisonResult:
    """Return the verdict on every gate; those that are not decided are INCONCLUSIVE.

    Args:
        header: What was asked for.
        pairs: All pairs taken, valid or not, in order.
        minutes: Time spent.
        ended: `running`, `decided`, `budget` or `interrupted`.
        notes: What a reader has to know, besides what the pairs tell.
    """
    found = search(header, pairs)
    suspects = suspected(header, pairs, found)
    adjusted = corrected(header, suspects)
    results = tuple(
        _result(header, pairs, held, suspects.get(held.gate), adjusted.get(held.gate))
        for held in found
    )
    return ComparisonResult(
        outcome=worst(results),
        gates=results,
        family_level=header.plan.family_level,
        minutes=minutes,
        ended=ended,
        notes=(*_about_sides(header, pairs), *notes, *_lost_pairs(pairs)),
    )


def search(header: ComparisonHeader, pairs: Sequence[Pair]) -> tuple[Search, ...]:
    """Return where stage one stands, gate by gate in the order of the header."""
    family = len(header.gates)
    return tuple(search_gate(gate, pairs, header.plan, family) for gate in header.gates)


def suspected(
    header: ComparisonHeader, pairs: Sequence[Pair], found: Sequence[Search]
) -> dict[Gate, Fresh]:
    """Return where stage two stands for each suspect; the sign process leaves none to it.

    Args:
        header: What was asked for.
        pairs: All pairs taken.
        found: Stage one, from `search`.
    """
    if header.plan.single_stage:
        return {}
    return {
        held.gate: confirm_gate(held.gate, pairs, header.plan)
        for held in found
        if held.standing is Standing.SUSPECT
    }


def corrected(
    header: ComparisonHeader, suspects: Mapping[Gate, Fresh]
) -> dict[Gate, tuple[bool, float]]:
    """Return for each suspect whether it is a REGRESSION, and its adjusted p-value.

    One whose fresh pairs are not all there counts as p = 1.
    """
    values = [fresh.found.p_value if fresh.found else 1.0 for fresh in suspects.values()]
    found = judge_family(
        values,
        gates=len(header.gates),
        family_level=header.plan.family_level,
        stage_one_level=stage_one_level(header.plan),
    )
    return dict(zip(suspects, zip(found.rejected, found.adjusted, strict=True), strict=True))


def stage_one_level(plan: CompareSpec) -> float:
    """Return the bound on a false suspicion: as simulated for the default looks, else Boole's."""
    return STAGE_ONE_LEVEL if plan.looks == LOOKS else min(1.0, SUSPECT_LEVEL * len(plan.looks))


def given_up(pairs: Sequence[Pair], arm: str) -> str:
    """Return why no further pair of an arm is worth taking; empty if one is."""
    mine = [pair for pair in pairs if pair.arm == arm]
    bad = [pair for pair in mine if pair.invalid]
    in_a_row = len(list(itertools.takewhile(lambda pair: pair.invalid, reversed(mine))))
    if in_a_row < MAX_INVALID and len(bad) <= MAX_INVALID + len(mine) // 4:
        return ""
    return f"{len(bad)} of {len(mine)} pairs could not be used; the last: {bad[-1].invalid[0]}"


def _result(
    header: ComparisonHeader,
    pairs: Sequence[Pair],
    found: Search,
    fresh: Fresh | None,
    family: tuple[bool, float] | None,
) -> GateResult:
    decision = _decide(header, pairs, found, fresh, family)
    judged = fresh.held if fresh and fresh.found else found.held
    result = GateResult(
        gate=found.gate,
        outcome=decision.outcome,
        reason="",
        next_step="",
        base_value=_centre(found.gate, judged, "base"),
        value=_centre(found.gate, judged, "candidate"),
        search=found.numbers,
        confirm=fresh.numbers if fresh else None,
        adjusted_p=_adjusted(header, found, fresh, family),
        pairs_needed=decision.pairs_needed,
        requests=_requests(found, fresh),
        cause=_cause(pairs, found, decision.outcome),
    )
    words = explain(result, header.plan, suspect=fresh is not None, trouble=decision.trouble)
    return replace(result, reason=words.reason, next_step=words.next_step)


def _decide(
    header: ComparisonHeader,
    pairs: Sequence[Pair],
    found: Search,
    fresh: Fresh | None,
    family: tuple[bool, float] | None,
) -> Decision:
    unusable = found.unusable or (fresh.unusable if fresh else "")
    if unusable:
        return Decision(Outcome.INVALID_RUN, trouble=unusable)
    is_open = found.standing is Standing.GO_ON or (fresh is not None and fresh.found is None)
    lost = given_up(pairs, found.gate.arm)
    if is_open and lost:
        return Decision(Outcome.INVALID_RUN, trouble=lost)
    if fresh is not None and family is not None:
        return _after_fresh_pairs(found.gate, fresh, header.plan, rejected=family[0])
    if found.standing is Standing.SUSPECT:  # the sign process decides alone
        return Decision(Outcome.REGRESSION)
    if found.standing is Standing.PASS and found.numbers is not None:
        gained = found.numbers.high < -found.gate.margin
        return Decision(Outcome.IMPROVEMENT if gained else Outcome.PASS)
    return Decision(Outcome.INCONCLUSIVE, max(1, found.pairs_needed))


def _after_fresh_pairs(gate: Gate, fresh: Fresh, plan: CompareSpec, *, rejected: bool) -> Decision:
    """Decide on a suspect: REGRESSION if confirmed, PASS if the fresh pairs rule the limit out."""
    if fresh.found is None or fresh.held is None:
        return Decision(Outcome.INCONCLUSIVE, fresh.pairs_needed)
    if rejected:
        return Decision(Outcome.REGRESSION)
    if upper_bound(gate, fresh.held, plan) < gate.limit:
        return Decision(Outcome.PASS)
    return Decision(Outcome.INCONCLUSIVE, plan.confirm_pairs)


def _adjusted(
    header: ComparisonHeader,
    found: Search,
    fresh: Fresh | None,
    family: tuple[bool, float] | None,
) -> float | None:
    if header.plan.single_stage:
        p_value = found.p_value
        return None if p_value is None else min(1.0, p_value * len(header.gates))
    return family[1] if family and fresh and fresh.found else None


def _centre(gate: Gate, held: GateLosses | None, side: str) -> float | None:
    return None if held is None else centre(gate, getattr(held, side))


def _requests(found: Search, fresh: Fresh | None) -> int:
    searched = (
        sum(found.held.requests[: found.numbers.pairs]) if found.held and found.numbers else 0
    )
    return searched + (sum(fresh.held.requests) if fresh and fresh.held else 0)


def _cause(pairs: Sequence[Pair], found: Search, outcome: Outcome) -> Cause | None:
    """Return what explains a change that was found, or is suspected."""
    changed = outcome in (Outcome.REGRESSION, Outcome.IMPROVEMENT)
    if not changed and found.standing is not Standing.SUSPECT:
        return None
    fresh = usable_pairs(pairs, found.gate.arm, Stage.CONFIRM)
    # The search stopped because it looked bad, so fresh pairs tell better by how much.
    use_fresh = found.standing is Standing.SUSPECT and len(fresh) >= FIRST_NUMBERS
    return cause(
        fresh if use_fresh else usable_pairs(pairs, found.gate.arm, Stage.SEARCH), found.gate
    )


def _about_sides(header: ComparisonHeader, pairs: Sequence[Pair]) -> tuple[str, ...]:
    notes = [
        f"{side.label} already ran and was not restarted: its pairs are rounds of load, so what "
        "one start has by chance counts as the build's"
        for side in (header.base, header.candidate)
        if not side.restarts
    ]
    versions = sorted({(pair.base.engine, pair.candidate.engine) for pair in pairs})
    notes += [f"engines differ: base {b}, candidate {c}" for b, c in versions if b != c]
    hosts = sorted({pair.host for pair in pairs})
    if len(hosts) > 1:
        notes.append(f"pairs were taken on {len(hosts)} machines of one kind: {', '.join(hosts)}")
    return tuple(notes)


def _lost_pairs(pairs: Sequence[Pair]) -> tuple[str, ...]:
    return tuple(
        f"{pair.arm}, {pair.stage.name.lower()} pair {pair.slot + 1} was left out: "
        f"{pair.invalid[0].splitlines()[0]}"
        for pair in pairs
        if pair.invalid
    )
