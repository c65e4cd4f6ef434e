"""A whole comparison of two invented builds, with one gate of each outcome at least.

Values are drawn from a seeded generator; stages are worked out from them by
`draftgate.stats`, so that pairs, stages and outcomes agree as after a real
comparison. How the product goes from pairs to a verdict is not used here.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import numpy as np

from draftgate.compare.records import (
    COMPARISON_SCHEMA_VERSION,
    Cause,
    ComparisonHeader,
    ComparisonResult,
    FactorLoss,
    Gate,
    GateResult,
    Pair,
    Role,
    Scale,
    SideSpec,
    Stage,
    StageNumbers,
    StoredComparison,
)
from draftgate.metrics import DEFINITIONS_VERSION
from draftgate.specs import CompareSpec, DockerLaunch, PairedGateSpec, Profile
from draftgate.stats.confirm import stage_two
from draftgate.stats.family import judge_family
from draftgate.stats.losses import (
    absolute_losses,
    estimate,
    log_loss,
    loss_ratio,
    relative_losses,
)
from draftgate.stats.sequential import LOOKS, PASS_CONFIDENCE, LookPlan, Standing, stage_one
from draftgate.verdict import Outcome
from tests.support.comparison_pairs import (
    ARMS,
    BY_PROMPT,
    CELLS,
    CONCURRENCIES,
    MISSING,
    REQUESTS,
    cell_of,
    make_pairs,
    value_of,
)
from tests.support.samples import START, make_environment, make_profile

GATES = (
    PairedGateSpec("output_tokens_per_s", 0.01, 0.05),
    PairedGateSpec("per_token_p50_s", 0.01, 0.05),
    PairedGateSpec("ttft_p90_s", 0.02, 0.10),
    PairedGateSpec(BY_PROMPT, 0.02, 0.10),
)
NOTE = "p99 of 8 pairs x 40 requests has 58 % power for a loss of 10 %; 1,150 requests would do"

SEVERITY = (
    Outcome.REGRESSION,
    Outcome.INVALID_RUN,
    Outcome.NO_BASELINE,
    Outcome.INCONCLUSIVE,
    Outcome.PASS,
    Outcome.IMPROVEMENT,
)


def stored_comparison(
    *,
    seed: int = 0,
    labels: tuple[str, str] = ("vllm:0.31.0", "vllm:0.32.0"),
    engines: tuple[str, str] = ("vllm 0.31.0", "vllm 0.32.0"),
    profile: Profile | None = None,
    ended: str = "decided",
    notes: tuple[str, ...] | None = None,
) -> StoredComparison:
    """Return a comparison with PASS, IMPROVEMENT, REGRESSION, INCONCLUSIVE and INVALID_RUN.

    22 gates of the arms none, ngram and draft_model at 1 and 8 streams. One
    pair of arm none could not be used and was taken again.

    Args:
        seed: Decides every draw; one other than 0 may move a gate to another outcome.
        labels: What the caller typed for base and candidate.
        engines: What their servers report.
        profile: Of the header; an invented one with the three arms by default.
        ended: As in the result.
        notes: As in the result; None for two typical ones.
    """
    header = _header(labels, profile or make_profile(concurrencies=CONCURRENCIES))
    pairs = tuple(make_pairs(seed, engines))
    results = _corrected([_result(gate, pairs) for gate in header.gates])
    return StoredComparison(
        header=header,
        pairs=pairs,
        result=ComparisonResult(
            outcome=decisive(results),
            gates=results,
            family_level=header.plan.family_level,
            minutes=183.4,
            ended=ended,
            notes=_notes(engines) if notes is None else notes,
        ),
    )


def only(comparison: StoredComparison, *outcomes: Outcome) -> StoredComparison:
    """Return the comparison as if it had asked only the gates with these outcomes."""
    kept = tuple(g for g in comparison.result.gates if g.outcome in outcomes)
    return with_gates(comparison, kept)


def with_gates(comparison: StoredComparison, gates: Iterable[GateResult]) -> StoredComparison:
    """Return the comparison with these results, questions and outcome made to fit."""
    results = tuple(gates)
    return replace(
        comparison,
        header=replace(comparison.header, gates=tuple(result.gate for result in results)),
        result=replace(comparison.result, gates=results, outcome=decisive(results)),
    )


def gate_of(comparison: StoredComparison, outcome: Outcome) -> GateResult:
    """Return the first gate with this outcome."""
    return next(gate for gate in comparison.result.gates if gate.outcome is outcome)


def without_baseline(result: GateResult) -> GateResult:
    """Return the gate as NO_BASELINE: nothing on the other side to compare with."""
    return replace(
        result,
        outcome=Outcome.NO_BASELINE,
        reason=f"the base has no arm {result.gate.arm!r}",
        next_step="Give the base a server for this arm, or leave the arm out.",
        base_value=None,
        search=None,
        confirm=None,
        adjusted_p=None,
        pairs_needed=0,
        requests=0,
        cause=None,
    )


def one_of_each(comparison: StoredComparison) -> StoredComparison:
    """Return the comparison with one gate of every outcome, NO_BASELINE too."""
    gates = [gate_of(comparison, o) for o in Outcome if o is not Outcome.NO_BASELINE]
    other = next(gate for gate in comparison.result.gates if gate not in gates)
    return with_gates(comparison, [*gates, without_baseline(other)])


def not_started(comparison: StoredComparison) -> StoredComparison:
    """Return the comparison before its first pair: every gate is open."""
    opened = [
        replace(
            result,
            outcome=Outcome.INCONCLUSIVE,
            reason="no pair has been taken yet",
            next_step="Resume the comparison.",
            base_value=None,
            value=None,
            search=None,
            confirm=None,
            adjusted_p=None,
            pairs_needed=LOOKS[0],
            requests=0,
            cause=None,
        )
        for result in comparison.result.gates
    ]
    found = with_gates(replace(comparison, pairs=()), opened)
    return replace(found, result=replace(found.result, minutes=0.0, ended="interrupted", notes=()))


def decisive(results: Iterable[GateResult]) -> Outcome:
    """Return the outcome that decides for all of them."""
    found = {result.outcome for result in results}
    return next((outcome for outcome in SEVERITY if outcome in found), Outcome.INCONCLUSIVE)


def _header(labels: tuple[str, str], profile: Profile) -> ComparisonHeader:
    def side(label: str) -> SideSpec:
        launch = DockerLaunch(label)
        arms = (replace(arm, engine=replace(arm.engine, launch=launch)) for arm in profile.arms)
        return SideSpec(label, "image", tuple(arms))

    plan = CompareSpec(gates=GATES)
    return ComparisonHeader(
        schema=COMPARISON_SCHEMA_VERSION,
        definitions=DEFINITIONS_VERSION,
        id="20260101T000000Z-compare-example-0000",
        started_at=START.isoformat(),
        argv=("draftgate", "compare", *labels, "--profile", profile.name),
        profile=replace(profile, compare=plan),
        base=side(labels[0]),
        candidate=side(labels[1]),
        gates=tuple(_gates()),
        plan=plan,
        environment=make_environment(),
    )


def _gates() -> Iterable[Gate]:
    for arm in ARMS:
        for concurrency in CONCURRENCIES:
            for spec in GATES:
                if arm == "none" and spec.metric == BY_PROMPT:
                    continue
                tail = spec.metric.startswith("ttft")
                yield Gate(
                    arm=arm,
                    concurrency=concurrency,
                    metric=spec.metric,
                    scale=Scale.ABSOLUTE if spec.metric == BY_PROMPT else Scale.RATIO,
                    margin=spec.margin,
                    limit=spec.limit,
                    instead_of="ttft_p99_s" if tail else None,
                    note=NOTE if tail else "",
                )


def _notes(engines: tuple[str, str]) -> tuple[str, ...]:
    return (
        f"the sides' engines differ: {engines[0]} and {engines[1]}",
        "1 pair of arm 'none' was left out and taken again: candidate: event-loop lag of 80 ms",
    )


def _higher(metric: str) -> bool:
    return not metric.endswith("_s") or metric.endswith("_per_s")


def _losses(gate: Gate, pairs: list[Pair]) -> np.ndarray[Any, Any]:
    sides = [[getattr(pair, role.value) for pair in pairs] for role in Role]
    if gate.scale is Scale.ABSOLUTE:
        rows = [
            np.array([[v for _, v in cell_of(start, gate.concurrency).prompts] for start in side])
            for side in sides
        ]
        return absolute_losses(rows[0], rows[1])
    values = [[value_of(start, gate) for start in side] for side in sides]
    return relative_losses(values[0], values[1], higher_is_better=_higher(gate.metric))


def _on_scale(gate: Gate) -> tuple[Callable[[float], float], Callable[[float], float]]:
    """Return the ways from a loss as stated to the scale of pairs, and back."""
    if gate.scale is Scale.ABSOLUTE:
        return float, float
    higher = _higher(gate.metric)
    return (
        lambda share: log_loss(share, higher_is_better=higher),
        lambda log: loss_ratio(log, higher_is_better=higher),
    )


def _result(gate: Gate, pairs: tuple[Pair, ...]) -> GateResult:
    if (gate.arm, gate.concurrency, gate.metric) == MISSING:
        return _invalid(gate)
    mine = [pair for pair in pairs if pair.arm == gate.arm and not pair.invalid]
    search = [pair for pair in mine if pair.stage is Stage.SEARCH]
    confirm = [pair for pair in mine if pair.stage is Stage.CONFIRM]
    inward, outward = _on_scale(gate)
    losses = _losses(gate, search)
    plan = LookPlan(inward(gate.margin), inward(gate.limit))
    look = stage_one(losses, plan, first=[pair.candidate_first for pair in search])
    numbers = StageNumbers(
        pairs=look.pairs,
        loss=outward(look.loss),
        low=outward(look.low),
        high=outward(look.high),
        p_value=look.p_value,
        losses=tuple(map(outward, losses.tolist())),
    )
    judged = search[: look.pairs]
    second = None
    if look.standing is Standing.SUSPECT:
        second, judged = _second(gate, confirm), confirm
    outcome = _outcome(look.standing, numbers, gate)
    return GateResult(
        gate=gate,
        outcome=outcome,
        reason=_reason(outcome, gate, numbers),
        next_step=_next_step(outcome, look.pairs_needed),
        base_value=_mean([value_of(pair.base, gate) for pair in judged], gate),
        value=_mean([value_of(pair.candidate, gate) for pair in judged], gate),
        search=numbers,
        confirm=second,
        adjusted_p=None,
        pairs_needed=look.pairs_needed,
        requests=REQUESTS * len(judged),
        cause=_cause(gate, judged) if outcome is Outcome.REGRESSION else None,
    )


def _second(gate: Gate, pairs: list[Pair]) -> StageNumbers:
    inward, outward = _on_scale(gate)
    losses = _losses(gate, pairs)
    first = [pair.candidate_first for pair in pairs]
    found = stage_two(losses, margin=inward(gate.margin), seed=1, first=first, flips=9999)
    return StageNumbers(
        pairs=found.pairs,
        loss=outward(found.loss),
        low=outward(found.low),
        high=outward(estimate(losses, first).bound(PASS_CONFIDENCE)),
        p_value=found.p_value,
        losses=tuple(map(outward, losses.tolist())),
    )


def _corrected(results: list[GateResult]) -> tuple[GateResult, ...]:
    suspects = [result.confirm.p_value for result in results if result.confirm is not None]
    adjusted = iter(judge_family(suspects, gates=len(results)).adjusted)
    return tuple(
        replace(result, adjusted_p=next(adjusted)) if result.confirm is not None else result
        for result in results
    )


def _outcome(standing: Standing, numbers: StageNumbers, gate: Gate) -> Outcome:
    if standing is Standing.SUSPECT:
        return Outcome.REGRESSION
    if standing is not Standing.PASS:
        return Outcome.INCONCLUSIVE
    return Outcome.IMPROVEMENT if numbers.high < -gate.margin else Outcome.PASS


def _amount(gate: Gate, loss: float) -> str:
    return f"{loss:g} tokens" if gate.scale is Scale.ABSOLUTE else f"{loss * 100:g} %"


def _reason(outcome: Outcome, gate: Gate, numbers: StageNumbers) -> str:
    margin, limit = _amount(gate, gate.margin), _amount(gate, gate.limit)
    says = {
        Outcome.PASS: f"a loss of {limit} is ruled out over {numbers.pairs} pairs",
        Outcome.IMPROVEMENT: f"better by more than {margin} over {numbers.pairs} pairs",
        Outcome.REGRESSION: f"worse by more than {margin} in both stages",
        Outcome.INCONCLUSIVE: (
            f"{numbers.pairs} pairs neither show a loss above {margin} nor rule out one of {limit}"
        ),
    }
    return says[outcome]


def _next_step(outcome: Outcome, needed: int) -> str:
    if outcome is Outcome.REGRESSION:
        return "Find the cause in the candidate, or accept the loss."
    if outcome is Outcome.INCONCLUSIVE:
        return f"Take about {needed} more pairs: resume with a larger --max-minutes."
    return ""


def _invalid(gate: Gate) -> GateResult:
    return GateResult(
        gate=gate,
        outcome=Outcome.INVALID_RUN,
        reason=f"{gate.metric} is missing in 3 of 8 starts of the candidate",
        next_step="Look for the reason in the candidate's log, then measure again.",
        base_value=None,
        value=None,
        search=None,
        confirm=None,
        adjusted_p=None,
        pairs_needed=0,
        requests=0,
        cause=None,
    )


def _mean(values: list[float], gate: Gate) -> float:
    if gate.scale is Scale.ABSOLUTE:
        return float(np.mean(values))
    return float(np.exp(np.mean(np.log(values))))


_FACTORS = (
    ("acceptance", "tokens_per_step"),
    ("step time", "step_time_s"),
    ("prefill or queueing", "decode_share_ratio"),
)


def _cause(gate: Gate, pairs: list[Pair]) -> Cause:
    named = "acceptance" if CELLS[gate.arm, gate.concurrency].fewer < 1.0 else "step time"
    factors = [_factor(gate, pairs, label, metric, named=named) for label, metric in _FACTORS]
    factors.sort(key=lambda factor: not factor.named)
    lead = factors[0]
    change, low, high = (round(v * 100, 1) for v in (lead.change, lead.low, lead.high))
    others = ", ".join(factor.label for factor in factors[1:])
    return Cause(
        text=f"{lead.label} {change:+g} % [{low:g}, {high:g}] at {gate.concurrency} streams; "
        f"{others} unchanged",
        factors=tuple(factors),
        positions=_POSITIONS if named == "acceptance" else (),
    )


_POSITIONS = (
    (0, 0.62, 0.57, -0.061, -0.039),
    (1, 0.41, 0.35, -0.072, -0.048),
    (2, 0.27, 0.22, -0.064, -0.036),
)


def _factor(gate: Gate, pairs: list[Pair], label: str, metric: str, *, named: str) -> FactorLoss:
    values = replace(gate, metric=metric, scale=Scale.RATIO)
    logs = np.array(
        [np.log(value_of(p.candidate, values) / value_of(p.base, values)) for p in pairs]
    )
    half = 2.8 * float(logs.std(ddof=1)) / len(pairs) ** 0.5
    mean = float(logs.mean())
    low, high = (float(np.expm1(mean + sign * half)) for sign in (-1, 1))
    is_named = label == named
    return FactorLoss(
        label=label,
        metric=metric,
        change=float(np.expm1(mean)),
        low=low,
        high=high,
        unit="",
        share=0.97 if is_named else 0.015,
        named=is_named,
    )
