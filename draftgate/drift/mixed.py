"""Mixed traffic of two periods -> a verdict that tells a changed mix from a worse draft.

Requests need not be the same ones: kinds are compared, not prompts. Numbers
come from `draftgate.stats`, the level from `family`; knows no server and no file.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from draftgate.drift.family import DRIFT_FAMILY_LEVEL
from draftgate.drift.judge import BOOTSTRAP_SEED, FEWEST_PROMPTS, TRAFFIC_GATE, shown_outcome
from draftgate.drift.periods import FEWEST_OF_KIND, KindChange, Periods, RequestSteps, mean_of
from draftgate.records import TrafficAcceptance
from draftgate.specs import GateSpec
from draftgate.stats.beyond import EXCHANGE_METHOD, Beyond
from draftgate.stats.compare import Comparison
from draftgate.stats.paired import Interval
from draftgate.stats.poststratified import METHOD, Decomposition, Sample, decompose, mix_p
from draftgate.verdict import RECORD_COMMAND, Outcome, Verdict, change_text, outcome_of

MIX, DRAFT = "mix", "draft"
"""Causes: the shares of kinds moved; tokens per step within a kind moved."""

LEAST_JUDGED_SHARE = 0.9
"""Share of the traffic that kinds which are judged must have: the rest, a tenth, would have to lose
half of its tokens per step to hide the 5 % that `TRAFFIC_GATE` lets through."""


@dataclass(frozen=True, slots=True)
class MixedVerdict:
    """A verdict on mixed traffic and the numbers behind it.

    Attributes:
        verdict: The decision; its comparison is of post-stratified means, its
            causes are "mix", "draft", both or none.
        change: The change of the plain mean in two parts; None where nothing
            could be compared.
        mix_p: For "the shares of kinds are the same"; 1 where nothing was compared.
        kinds: Every kind of either period.
    """

    verdict: Verdict
    change: Decomposition | None
    mix_p: float
    kinds: tuple[KindChange, ...]

    @property
    def outcome(self) -> Outcome:
        """The decision."""
        return self.verdict.outcome

    @property
    def worse(self) -> tuple[str, ...]:
        """Kinds that are shown to be worse by more than the margin."""
        return tuple(one.kind for one in self.kinds if one.beyond and one.beyond.worse)

    @property
    def better(self) -> tuple[str, ...]:
        """Kinds that are shown to be better by more than the margin."""
        return tuple(one.kind for one in self.kinds if one.beyond and one.beyond.better)


def requests_of(found: TrafficAcceptance, kinds: Mapping[str, str]) -> tuple[RequestSteps, ...]:
    """Return the requests of one measurement of mixed traffic.

    Args:
        found: The measurement.
        kinds: Kind of each prompt, by its id.

    Raises:
        KeyError: If a prompt has no kind.
    """
    return tuple(RequestSteps(kinds[prompt], value) for prompt, value in found.tokens_per_step)


def judge_mixed(
    base: Sequence[RequestSteps],
    candidate: Sequence[RequestSteps],
    *,
    arm: str,
    concurrency: int,
    gate: GateSpec = TRAFFIC_GATE,
    family_level: float = DRIFT_FAMILY_LEVEL,
) -> MixedVerdict:
    """Judge tokens per step of mixed traffic, kind by kind and with the mix held fixed.

    REGRESSION if a kind, or all kinds at equal shares on both sides, is worse
    by more than the margin; IMPROVEMENT likewise, if nothing is worse; PASS if
    a loss of the post-stratified mean above the margin is ruled out. A changed
    mix is a cause that is named and never a fault: it fails nothing.

    Requests must be independent: of a prompt that was sent several times, give
    the mean of its values, once.

    Args:
        base: The earlier period.
        candidate: The later one.
        arm: Name of the arm, for messages.
        concurrency: Streams, for messages.
        gate: Margin and confidence.
        family_level: Largest chance of any false REGRESSION or IMPROVEMENT, over
            all kinds and their total; also of naming the mix where it is the same.
    """
    periods = Periods(base, candidate, gate, family_level)
    verdict = Verdict(
        arm=f"{arm} on mixed traffic",
        concurrency=concurrency,
        metric=gate.metric,
        outcome=Outcome.INCONCLUSIVE,
        comparison=None,
        gate=gate,
        base_value=mean_of([one.tokens_per_step for one in base]),
        value=mean_of([one.tokens_per_step for one in candidate]),
        cause=None,
        reason=_too_little(periods) or "",
        next_step="Measure more requests.",
    )
    if verdict.reason:
        return MixedVerdict(verdict, None, 1.0, _kinds(periods, {}, {}))
    return _decide(periods, verdict)


def _too_little(periods: Periods) -> str | None:
    """Return why the periods cannot be judged; None if they can."""
    judged = periods.judged
    few = min(len(side) for side in periods.sides)
    if few < FEWEST_PROMPTS or not judged:
        needed = f"{FEWEST_PROMPTS} needed on each side, {FEWEST_OF_KIND} of a kind"
        return f"{few} requests are too few, or no kind has enough: {needed}"
    covered = sum(periods.weight(kind) for kind in judged)
    if covered >= LEAST_JUDGED_SHARE:
        return None
    others = ", ".join(kind for kind in periods.kinds if kind not in judged)
    share = f"{(1 - covered) * 100:.0f} % of the traffic is of kinds with too few requests"
    return f"{share} on one side: {others}"


_NEXT = {
    Outcome.REGRESSION: f"Find the cause, or if the loss is meant, accept it: {RECORD_COMMAND}",
    Outcome.INCONCLUSIVE: "Measure more requests of each kind.",
}


def _decide(periods: Periods, verdict: Verdict) -> MixedVerdict:
    change = _decomposed(periods)
    moved = _mix_p(periods)
    within = dict(zip(periods.kinds, change.within_strata, strict=True))
    kinds = _kinds(periods, within, {k: periods.beyond([k]) for k in periods.judged})
    total = periods.beyond(periods.judged)
    found = Comparison(
        change.ratio.estimate,
        change.ratio.low,
        change.ratio.high,
        total.p_value,
        METHOD,
        len(periods.base),
        len(periods.candidate),
    )
    outcome = _outcome(found, total, kinds, periods.gate.margin_ratio)
    cause, causes = _cause(change, kinds, outcome, mix_moved=moved <= periods.family_level)
    verdict = replace(
        verdict,
        outcome=outcome,
        comparison=found,
        cause=cause or None,
        causes=causes,
        reason=_reason(periods, found, total, kinds),
        next_step=_NEXT.get(outcome, ""),
    )
    return MixedVerdict(verdict, change, moved, kinds)


def _outcome(
    found: Comparison, total: Beyond, kinds: Sequence[KindChange], margin: float
) -> Outcome:
    shown = [kind.beyond for kind in kinds if kind.beyond]
    if any(one.worse for one in (total, *shown)):
        return Outcome.REGRESSION
    by_interval = shown_outcome(outcome_of(found, margin, higher_is_better=True), total)
    if by_interval is Outcome.PASS and any(one.better for one in shown):
        return Outcome.IMPROVEMENT
    return by_interval


def _decomposed(periods: Periods) -> Decomposition:
    place = {kind: i for i, kind in enumerate(periods.kinds)}
    base, candidate = (
        Sample([one.tokens_per_step for one in side], [place[one.kind] for one in side])
        for side in periods.sides
    )
    return decompose(base, candidate, confidence=periods.gate.confidence, seed=BOOTSTRAP_SEED)


def _mix_p(periods: Periods) -> float:
    base, candidate = (Counter(one.kind for one in side) for side in periods.sides)
    return mix_p(
        [base[kind] for kind in periods.kinds],
        [candidate[kind] for kind in periods.kinds],
        seed=BOOTSTRAP_SEED,
    )


def _kinds(
    periods: Periods, within: Mapping[str, float], beyond: Mapping[str, Beyond]
) -> tuple[KindChange, ...]:
    return tuple(
        KindChange(
            kind,
            (periods.share(periods.base, kind), periods.share(periods.candidate, kind)),
            (
                mean_of(periods.values(periods.base, kind)),
                mean_of(periods.values(periods.candidate, kind)),
            ),
            within.get(kind, 0.0),
            beyond.get(kind),
        )
        for kind in periods.kinds
    )


def _reason(periods: Periods, found: Comparison, total: Beyond, kinds: Sequence[KindChange]) -> str:
    margin = f"{periods.gate.margin_ratio * 100:g} %"
    worse = [_kind_text(kind) for kind in kinds if kind.beyond and kind.beyond.worse]
    better = [_kind_text(kind) for kind in kinds if kind.beyond and kind.beyond.better]
    unjudged = [kind.kind for kind in kinds if kind.beyond is None]
    told = (
        f"tokens per step at equal shares of kinds {change_text(found)} over {found.n_base} and "
        f"{found.n_candidate} requests, p = {total.p_value:.2g} for a change within {margin}"
    )
    parts = [told]
    parts += [f"worse by more than {margin}: {'; '.join(worse)}"] if worse else []
    parts += [f"better by more than {margin}: {'; '.join(better)}"] if better else []
    parts += [f"not judged, too few requests: {', '.join(unjudged)}"] if unjudged else []
    return f"{'; '.join(parts)} ({EXCHANGE_METHOD}; {periods.family.text})"


def _kind_text(change: KindChange) -> str:
    assert change.beyond is not None, "only kinds that were judged are told"
    before, after = change.mean
    return f"{change.kind} {before:.2f} -> {after:.2f}, p = {change.beyond.p_value:.2g}"


def _cause(
    change: Decomposition, kinds: Sequence[KindChange], outcome: Outcome, *, mix_moved: bool
) -> tuple[str, tuple[str, ...]]:
    """Return the causes in words and as labels, the larger part first."""
    named = []
    if outcome in (Outcome.REGRESSION, Outcome.IMPROVEMENT):
        named.append((abs(change.within.estimate), DRAFT, _part_text(DRAFT, change.within)))
    if mix_moved:
        shares = ", ".join(
            f"{kind.kind} {kind.share[0] * 100:.0f} -> {kind.share[1] * 100:.0f} %"
            for kind in kinds
        )
        text = f"{_part_text(MIX, change.mix)}: {shares}"
        named.append((abs(change.mix.estimate), MIX, text))
    named.sort(key=lambda part: -part[0])
    told = "; ".join(text for _, _, text in named)
    head = f"tokens per step {change.change:+.3f} in the plain mean, of it " if named else ""
    return f"{head}{told}", tuple(label for _, label, _ in named)


def _part_text(label: str, part: Interval) -> str:
    return f"{label} {part.estimate:+.3f} [{part.low:+.3f}, {part.high:+.3f}]"
