"""A check's result in words, for a terminal and for the plain part of reports.

Knows the records and how to phrase them; decides nothing.
"""

import math

from draftgate.checks.outcome import (
    CheckResult,
    ConditionEvidence,
    JointEvidence,
    Judgement,
    WorstExample,
)


def title(judgement: Judgement) -> str:
    """Return the outcome in capitals, with why where it is inconclusive."""
    name = judgement.outcome.value.upper()
    return name if judgement.why is None else f"{name} ({judgement.why.value})"


def lines(result: CheckResult) -> list[str]:
    """Return all that a person should read, the verdict first."""
    found, subject = result.findings, result.subject
    said = [f"{title(result.judgement)}: {subject.model} at {subject.url}"]
    said += [f"  {reason}" for reason in result.judgement.reasons]
    if result.interrupted:
        said.append("  stopped by Ctrl-C; what was gathered so far is judged as it stands")
    said.append(
        f"reference: {subject.reference}; alpha {result.alpha:g} over all conditions; "
        f"{found.tokens} tokens in {result.elapsed_s:.0f} s (budget {result.budget})"
    )
    said += [f"  can't see: {blind}" for blind in subject.blind_to]
    said += [_row("", entry) for entry in found.checked]
    said += [_row("A/A ", entry) for entry in found.plain]
    said += [_joint_row(entry) for entry in found.joint]
    said += [f"  {line}" for line in parameter_lines(result)]
    said += _failures(result)
    return said + (_example(result.worst) if result.worst is not None else [])


def parameter_lines(result: CheckResult) -> list[str]:
    """Return what the server did with the parameters that were probed, a kind a line."""
    kinds: dict[str, list[str]] = {}
    for name, behaviour in result.parameters:
        kinds.setdefault(behaviour, []).append(name)
    said = [f"parameters {kind}: {', '.join(names)}" for kind, names in kinds.items()]
    return said + list(result.not_probed)


def size(nats: float) -> str:
    """Return a detectable size; a dash where there were no tokens."""
    return "-" if math.isinf(nats) else f"{nats:.2g}"


def _row(arm: str, entry: ConditionEvidence) -> str:
    alarm = "" if entry.alarm_at is None else f"  ALARM after {entry.alarm_at}"
    return (
        f"  {arm}{entry.condition}: {entry.tokens} tokens, log e-value {entry.peak_log_e:z.1f} of "
        f"{-math.log(entry.alpha):z.1f}, detectable {size(entry.detectable_kl)} nats a token{alarm}"
    )


def _joint_row(entry: JointEvidence) -> str:
    left = f", {entry.unclear} chunks left out" if entry.unclear else ""
    alarm = "" if entry.alarm_at is None else f"  ALARM after {entry.alarm_at}"
    return (
        f"  rule, {entry.condition}: {entry.places} tokens of verify steps, log e-value "
        f"{entry.log_e:z.1f} of {-math.log(entry.alpha):z.1f}{left}{alarm}"
    )


def _failures(result: CheckResult) -> list[str]:
    if not result.failures:
        return []
    asked = result.requests + len(result.failures)
    counted = f"{len(result.failures)} of {asked} requests brought no answer and are no evidence"
    return [f"{counted}; the first: {result.failures[0]}"]


def _example(worst: WorstExample) -> list[str]:
    token = f"token {worst.token}" + ("" if worst.text is None else f" {worst.text!r}")
    where = f"{worst.condition}, prompt {worst.prompt_id}, output token {worst.index}"
    said = [f"worst example ({where}): {token} with probability {worst.probability:.2g}"]
    if worst.prefix is not None:
        said.append(f"  after: {worst.prefix!r}")
    said += [
        f"  likely: {likely.token if likely.text is None else repr(likely.text)} with probability "
        f"{likely.probability:.2g}"
        for likely in worst.likely
    ]
    return [*said, f"  again: {worst.curl}"]
