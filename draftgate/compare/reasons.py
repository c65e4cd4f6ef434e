"""Words for a verdict: why, and what to do now. Decides nothing."""

from dataclasses import dataclass

from draftgate.compare.gates import title
from draftgate.compare.losses import change_of
from draftgate.compare.records import GateResult, Scale, StageNumbers
from draftgate.compare.stages import tail_requests
from draftgate.specs import CompareSpec
from draftgate.verdict import Outcome


@dataclass(frozen=True, slots=True)
class Words:
    """What a person reads under a verdict.

    Attributes:
        reason: Why, in one sentence.
        next_step: What to do now; empty where nothing is to be done.
    """

    reason: str
    next_step: str


def explain(result: GateResult, plan: CompareSpec, *, suspect: bool, trouble: str) -> Words:
    """Return why a gate has its outcome and what comes next.

    Args:
        result: The verdict, its words still empty.
        plan: Looks and levels.
        suspect: Whether stage one suspected it.
        trouble: Why nothing can be said; empty unless INVALID_RUN.
    """
    if result.outcome is Outcome.INVALID_RUN:
        return Words(
            trouble,
            "Mend what this names, or look in the servers' logs for it; then compare again.",
        )
    numbers = result.confirm or result.search
    if numbers is None:
        return Words("too few pairs so far", _take(result.pairs_needed))
    found = f"{title(result.gate.metric)} {change(result, numbers)} over {numbers.pairs} pairs"
    if result.outcome is Outcome.INCONCLUSIVE:
        return _open(result, found, plan, suspect=suspect)
    says = _says(result, suspect=suspect, single_stage=plan.single_stage)
    steps = {Outcome.REGRESSION: "Find the cause, or change the margin if the loss is meant."}
    return Words(f"{found}: {says}", steps.get(result.outcome, ""))


def change(result: GateResult, numbers: StageNumbers) -> str:
    """Return the change of the metric in its own direction, as in "-5.1 % [-6.0, -4.2]"."""
    found = change_of(result.gate, numbers)
    if result.gate.scale is Scale.ABSOLUTE:
        return f"{found.estimate:+.3f} tokens [{found.low:.3f}, {found.high:.3f}]"
    return f"{found.estimate * 100:+.1f} % [{found.low * 100:.1f}, {found.high * 100:.1f}]"


def amount(result: GateResult, value: float) -> str:
    """Return a margin or limit, as in "5 %" or "0.1 tokens"."""
    return f"{value:g} tokens" if result.gate.scale is Scale.ABSOLUTE else f"{value * 100:g} %"


def _says(result: GateResult, *, suspect: bool, single_stage: bool) -> str:
    margin, limit = amount(result, result.gate.margin), amount(result, result.gate.limit)
    if result.outcome is Outcome.REGRESSION:
        where = "by the signs of all pairs" if single_stage else "confirmed on fresh pairs"
        return f"worse by more than the margin of {margin}, {where}"
    if result.outcome is Outcome.IMPROVEMENT:
        return f"better by more than {margin}"
    if suspect:
        return f"the suspicion of stage one was not confirmed, and a loss of {limit} is ruled out"
    return f"a loss of {limit} or more is ruled out"


def _open(result: GateResult, found: str, plan: CompareSpec, *, suspect: bool) -> Words:
    needed = tail_requests(result.gate)
    if needed and result.requests < needed:
        return Words(
            f"{found}, but {result.requests} requests a side are behind it and {needed} are needed "
            "before anything can be said of this tail",
            "Send more requests per start (workload.min_requests), or gate a lower percentile.",
        )
    if suspect and result.confirm is None:
        return Words(
            f"{found}: suspect, to be confirmed on {plan.confirm_pairs} fresh pairs",
            f"{_take(result.pairs_needed)} On another runner: draftgate compare --confirm RUN",
        )
    if suspect and result.confirm is not None and result.confirm.pairs < plan.confirm_pairs:
        return Words(f"{found} so far: suspect, not confirmed yet", _take(result.pairs_needed))
    limit = amount(result, result.gate.limit)
    if suspect:
        return Words(
            f"{found}: the suspicion was not confirmed, but a loss of {limit} is not ruled out",
            "Compare again with longer runs (workload.min_requests), or on a quieter machine.",
        )
    return Words(f"{found}: a loss of {limit} is not ruled out", _take(result.pairs_needed))


def _take(pairs: int) -> str:
    return f"About {pairs} more {'pair decides' if pairs == 1 else 'pairs decide'} this."
