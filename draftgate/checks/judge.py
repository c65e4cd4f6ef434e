"""From the evidence of a distribution check to its outcome, with the reasons in words.

A check that can't tell says so and never passes; rounding is never called a fault.
Knows no servers and no laws.
"""

import math
from collections.abc import Sequence
from dataclasses import replace

from draftgate.checks.exact import Finding
from draftgate.checks.outcome import (
    CheckOutcome,
    ConditionEvidence,
    Findings,
    JointEvidence,
    Judgement,
    Why,
)

FLOOR_NATS = 1e-3
"""Size of a fault, nats a token, below which a black box can't tell it from the rounding
of bfloat16. A requirement of issue #5, whose ground is that 1.4 % of greedy tokens
flip between a batch of 1 row and one of 5 of the same bfloat16 model."""

LARGEST_DETECTABLE_KL = 0.05
"""A check that could not have found a fault of this size does not pass. A little below
the mildest of the three faults whose size is known at T = .8 and K = 4: recovered
token drawn from the target, ln(1e4) / 145 = .064 nats a token (issue #5)."""


def judge(
    findings: Findings, *, float32: bool, largest_kl: float = LARGEST_DETECTABLE_KL
) -> Judgement:
    """Return what evidence means.

    The A/A arm goes first: where the server without speculation does not follow its own
    reference either, nothing is held against speculation. Then LOSSY, NONCONFORMING,
    too few tokens, and PASS last.

    Args:
        findings: All evidence.
        float32: Whether the server computes in float32, so that rounding is no excuse.
        largest_kl: Largest detectable fault with which a check may pass, nats a token.
    """
    alarms = [entry for entry in findings.plain if entry.alarm_at is not None]
    if alarms:
        return _numerics(_aa_alarm(alarms[0]), float32=float32)
    fired = [entry for entry in findings.checked if entry.alarm_at is not None]
    if fired:
        return _fired(max(fired, key=lambda e: e.nats_per_token), findings, float32=float32)
    broken = [entry for entry in findings.joint if entry.alarm_at is not None]
    if broken:
        return Judgement(
            outcome=CheckOutcome.NONCONFORMING, why=None, reasons=(_joint_alarm(broken[0]),)
        )
    return _quiet(findings, float32=float32, largest_kl=largest_kl)


def with_mismatches(judged: Judgement, mismatches: Sequence[Finding]) -> Judgement:
    """Return what a judgement of the law becomes beside exact checks that failed.

    One of them is enough: they have no chance in them. Where the law or the rule is broken
    already, that stays the outcome. Each broken rule is told once, by its first finding.
    """
    if not mismatches:
        return judged
    by_rule: dict[str, list[Finding]] = {}
    for finding in mismatches:
        by_rule.setdefault(finding.what, []).append(finding)
    said = [
        f"{found[0]} (the first of {len(found)})" if len(found) > 1 else str(found[0])
        for found in by_rule.values()
    ]
    if judged.outcome in (CheckOutcome.LOSSY, CheckOutcome.NONCONFORMING):
        return replace(judged, reasons=(*judged.reasons, *said))
    return Judgement(outcome=CheckOutcome.MISMATCH, why=None, reasons=(*said, *judged.reasons))


def _fired(entry: ConditionEvidence, findings: Findings, *, float32: bool) -> Judgement:
    """Judge an alarm of the server under test; the A/A arm has not alarmed."""
    if entry.nats_per_token < FLOOR_NATS and not float32:
        return _numerics(
            f"{entry.condition}: the evidence is {entry.nats_per_token:.1e} nats a token, below "
            f"{FLOOR_NATS:g}, where a black box can't tell a fault from rounding",
            float32=float32,
        )
    said = f"{entry.condition}: {_alarm(entry)}"
    plain = {e.condition: e.tokens for e in findings.plain}
    assert entry.alarm_at is not None, "the caller picks alarms"
    if plain and plain.get(entry.condition, 0) < entry.alarm_at:
        return _too_few(
            f"{said}; but the A/A arm has seen {plain.get(entry.condition, 0)} tokens of that "
            "condition, fewer than the alarm took. Run the check again to its end."
        )
    note = (
        "the server without speculation follows the same reference over as many tokens"
        if plain
        else "no A/A arm could run: no server without speculation was given (--reference URL), so "
        "a difference between reference and engine is not ruled out"
    )
    return Judgement(outcome=CheckOutcome.LOSSY, why=None, reasons=(said, note))


def _quiet(findings: Findings, *, float32: bool, largest_kl: float) -> Judgement:
    """Judge a check without any alarm."""
    kl = findings.detectable_kl
    unseen = [entry.condition for entry in findings.checked if not entry.tokens]
    if unseen:
        return _too_few(
            f"no alarm in {findings.tokens} tokens, but the budget ended before a token of "
            f"{' or '.join(unseen)} was seen. Raise --budget, or name fewer conditions."
        )
    if kl > largest_kl:
        return _too_few(
            f"no alarm in {findings.tokens} tokens, but only a fault of {kl:.2g} nats a token or "
            f"more would have been found; a check passes from {largest_kl:g}. Raise --budget about "
            f"{kl / largest_kl:.1f} times."
        )
    found = (
        f"no alarm in {findings.tokens} tokens; a fault of {kl:.2g} nats a token along a direction "
        "that is looked in would have been found with probability .9, in whichever condition"
    )
    reasons = [found]
    if not findings.plain:
        reasons.append("no A/A arm could run: no server without speculation was given")
    if kl < FLOOR_NATS and not float32:
        reasons.append(
            f"below {FLOOR_NATS:g} nats a token a black box can't tell a fault from rounding; to "
            "look closer run the server in float32 and give --dtype float32"
        )
    return Judgement(outcome=CheckOutcome.PASS, why=None, reasons=tuple(reasons))


def _too_few(reason: str) -> Judgement:
    return Judgement(outcome=CheckOutcome.INCONCLUSIVE, why=Why.TOO_FEW_TOKENS, reasons=(reason,))


def _numerics(reason: str, *, float32: bool) -> Judgement:
    advice = (
        "the server is said to run in float32; is the reference the same model and build?"
        if float32
        else "run server and reference in float32 and give --dtype float32"
    )
    return Judgement(outcome=CheckOutcome.INCONCLUSIVE, why=Why.NUMERICS, reasons=(reason, advice))


def _alarm(entry: ConditionEvidence) -> str:
    return (
        f"alarm after {entry.alarm_at} of {entry.tokens} tokens (log e-value "
        f"{entry.peak_log_e:.1f}, bound {-math.log(entry.alpha):.1f}); the tokens look like "
        f"{entry.direction!r} ({entry.family}), {entry.scope}"
    )


def _aa_alarm(entry: ConditionEvidence) -> str:
    return (
        f"{entry.condition}: the server without speculation does not follow the reference either: "
        f"{_alarm(entry)}"
    )


def _joint_alarm(entry: JointEvidence) -> str:
    said = (
        f"{entry.condition}: accepted and rejected drafts contradict the stated rule: alarm after "
        f"{entry.alarm_at} of {entry.places} tokens of verify steps"
    )
    if entry.impossible:
        return f"{said}; {entry.impossible} of them are impossible under the rule"
    return f"{said} (log e-value {entry.log_e:.1f}); they look like {entry.direction!r}"
