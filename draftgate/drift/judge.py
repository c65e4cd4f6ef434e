"""Two measurements of acceptance -> a verdict, and one measurement in words.

Pairs the prompts of both sides; the interval comes from `draftgate.stats`, the
rule that picks an outcome from `draftgate.verdict`.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

from draftgate.codec import encode
from draftgate.drift.family import Family
from draftgate.records import SpeculationCounters, TrafficAcceptance
from draftgate.specs import GateSpec
from draftgate.stats.beyond import METHOD, Beyond, pairs_beyond
from draftgate.stats.compare import Comparison
from draftgate.stats.paired import Interval, compare_pairs, mean_interval
from draftgate.stats.positions import StepAcceptance, step_acceptance
from draftgate.verdict import RECORD_COMMAND, Outcome, Verdict, change_text, outcome_of

TRAFFIC_GATE = GateSpec("tokens_per_step", margin_ratio=0.05, confidence=0.99, min_runs=1)
"""What is let through; one measurement a side, since prompts are the sample."""

FEWEST_PROMPTS = 16
"""Pairs below which a bootstrap interval is not trusted: over 3,000 sets without
a change, 99 % intervals left out 1 in 1.8 % at 16 pairs and in 2.8 % at 10."""

BOOTSTRAP_SEED = 1
"""Fixed, so that judging again gives the same verdict."""

CAUSE = "acceptance"

ALONE = Family()
"""A single question."""


def judge_traffic(
    base: TrafficAcceptance | None,
    candidate: TrafficAcceptance,
    gate: GateSpec = TRAFFIC_GATE,
    family: Family = ALONE,
) -> Verdict:
    """Judge tokens per step on one kind of traffic, prompt by prompt.

    Outcomes are picked as for a cell of runs; the loss is relative to the
    base's mean. A change, down or up, must also be shown at the family's level;
    a fall that is not is INCONCLUSIVE, and a rise PASS, since no loss is left.
    A base with another setting or other prompts is no base.

    Args:
        base: The accepted measurement of the same arm and kind; None without.
        candidate: The measurement that is judged.
        gate: Margin and confidence.
        family: The questions that this one is judged with.
    """
    question = _Question(base, candidate, gate, family)
    if candidate.invalid:
        reason = "; ".join(told.splitlines()[0] for told in candidate.invalid)
        return question.verdict(Outcome.INVALID_RUN, reason, "Look for the reason in the logs.")
    if base is None:
        reason = f"the baseline has no acceptance of {question.place}"
        return question.verdict(Outcome.NO_BASELINE, reason, _RECORD)
    differs = "; ".join(_differences(base, candidate))
    if differs:
        reason = f"the baseline's acceptance of {question.place} cannot be compared: {differs}"
        return question.verdict(Outcome.NO_BASELINE, reason, _RECORD)
    if len(candidate.tokens_per_step) < FEWEST_PROMPTS:
        reason = f"{len(candidate.tokens_per_step)} prompts are too few, {FEWEST_PROMPTS} needed"
        return question.verdict(Outcome.INCONCLUSIVE, reason, "Send more prompts.")
    return _decide(question, dict(base.tokens_per_step), dict(candidate.tokens_per_step))


def place_of(found: TrafficAcceptance) -> str:
    """Return `ngram on chat`: how messages name the measurement, and its verdict's arm."""
    return f"{found.arm} on {found.kind}"


def tokens_per_step(found: TrafficAcceptance) -> Interval | None:
    """Return the mean over prompts with its interval; None for fewer than two prompts."""
    values = [value for _, value in found.tokens_per_step]
    if len(values) < 2:
        return None
    return mean_interval(values, confidence=TRAFFIC_GATE.confidence, seed=BOOTSTRAP_SEED)


def by_position(found: TrafficAcceptance) -> StepAcceptance | None:
    """Return acceptance per step, by position, with intervals; None where steps tell nothing."""
    return step_acceptance(
        found.step_yields, confidence=TRAFFIC_GATE.confidence, seed=BOOTSTRAP_SEED
    )


def result_line(found: TrafficAcceptance) -> str:
    """Return the measurement in one line: tokens per step, acceptance, by position."""
    place = place_of(found)
    if found.invalid:
        return f"{place}: INVALID, {found.invalid[0].splitlines()[0]}"
    line = f"{place}: {found.tokens_per_step[0][1]:.2f} tokens per step"
    mean = tokens_per_step(found)
    if mean is not None:
        line = f"{place}: {mean.estimate:.2f} tokens per step [{mean.low:.2f}, {mean.high:.2f}]"
    return ", ".join([line, *_acceptance(found.counters)])


@dataclass(frozen=True, slots=True)
class _Question:
    """One gate on one arm and kind of traffic, with both sides."""

    base: TrafficAcceptance | None
    candidate: TrafficAcceptance
    gate: GateSpec
    family: Family

    @property
    def place(self) -> str:
        """How messages name it, and the verdict's arm."""
        return place_of(self.candidate)

    def verdict(
        self, outcome: Outcome, reason: str, next_step: str, found: Comparison | None = None
    ) -> Verdict:
        """Return a verdict; a change beyond the margin is acceptance's by definition."""
        moved = found is not None and outcome in (Outcome.REGRESSION, Outcome.IMPROVEMENT)
        return Verdict(
            arm=self.place,
            concurrency=self.candidate.setting.concurrency,
            metric=self.gate.metric,
            outcome=outcome,
            comparison=found,
            gate=self.gate,
            base_value=_mean(self.base),
            value=_mean(self.candidate),
            cause=self._cause(found) if moved and found else None,
            reason=reason,
            next_step=next_step,
            causes=(CAUSE,) if moved else (),
        )

    def _cause(self, found: Comparison) -> str:
        text = f"{CAUSE} (tokens per step {change_text(found)})"
        then = _acceptance(self.base.counters if self.base else None)
        now = _acceptance(self.candidate.counters)
        return f"{text}; then {', '.join(then)}; now {', '.join(now)}" if then and now else text


_SAYS = {
    Outcome.PASS: "a loss above the margin of {} is ruled out",
    Outcome.IMPROVEMENT: "better by more than the margin of {}",
    Outcome.REGRESSION: "worse by more than the margin of {}",
    Outcome.INCONCLUSIVE: "a loss above the margin of {} is neither shown nor ruled out",
}
_RECORD = f"Record one with this command: {RECORD_COMMAND}"
_NEXT = {
    Outcome.REGRESSION: f"Find the cause, or if the loss is meant, accept it: {RECORD_COMMAND}",
    Outcome.INCONCLUSIVE: "Measure more prompts of this kind, or longer answers.",
}


def _decide(question: _Question, base: dict[str, float], candidate: dict[str, float]) -> Verdict:
    gate, prompts = question.gate, tuple(candidate)
    before = [base[prompt] for prompt in prompts]
    now = [candidate[prompt] for prompt in prompts]
    found = compare_pairs(before, now, confidence=gate.confidence, seed=BOOTSTRAP_SEED)
    beyond = pairs_beyond(
        before,
        now,
        margin_ratio=gate.margin_ratio,
        level=question.family.each,
        seed=BOOTSTRAP_SEED,
    )
    outcome = shown_outcome(outcome_of(found, gate.margin_ratio, higher_is_better=True), beyond)
    changed = sum(base[prompt] != candidate[prompt] for prompt in prompts)
    reason = (
        f"tokens per step {change_text(found)} over {len(prompts)} prompts, {changed} of which "
        f"changed: {_SAYS[outcome].format(f'{gate.margin_ratio * 100:g} %')}; p = "
        f"{beyond.p_value:.2g} for a change within it, up or down ({METHOD}; "
        f"{question.family.text})"
    )
    return question.verdict(outcome, reason, _NEXT.get(outcome, ""), found)


def shown_outcome(by_interval: Outcome, beyond: Beyond) -> Outcome:
    """Return the outcome of an interval, held back where the family's level is not reached."""
    if by_interval is Outcome.REGRESSION and not beyond.worse:
        return Outcome.INCONCLUSIVE
    if by_interval is Outcome.IMPROVEMENT and not beyond.better:
        return Outcome.PASS
    return by_interval


def _differences(base: TrafficAcceptance, candidate: TrafficAcceptance) -> Iterator[str]:
    """Yield what makes two measurements incomparable, in words."""
    before, now = _deciding(base), _deciding(candidate)
    for key, wanted in now.items():
        if before[key] != wanted:
            yield f"{key} is {before[key]!r} there and {wanted!r} here"
    if dict(base.tokens_per_step).keys() != dict(candidate.tokens_per_step).keys():
        yield "it holds other prompts"


def _deciding(found: TrafficAcceptance) -> dict[str, object]:
    return {
        "method": found.method,
        "num_speculative_tokens": found.num_speculative_tokens,
        **encode(found.setting),
    }


def _mean(found: TrafficAcceptance | None) -> float | None:
    values = [value for _, value in found.tokens_per_step] if found else []
    return math.fsum(values) / len(values) if values else None


def _acceptance(counters: SpeculationCounters | None) -> list[str]:
    """Return acceptance and acceptance by position in words; empty without drafts."""
    if counters is None or not counters.num_draft_tokens:
        return []
    share = counters.num_accepted_tokens / counters.num_draft_tokens
    parts = [f"acceptance {share * 100:.0f} %"]
    if counters.num_accepted_tokens_per_pos:
        shares = [n / counters.num_drafts * 100 for n in counters.num_accepted_tokens_per_pos]
        parts.append(f"by position {'/'.join(f'{share:.0f}' for share in shares)} %")
    return parts
