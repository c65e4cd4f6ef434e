"""The top of a check's report: the sentence, the four numbers, the facts and the notes.

Plain text that page and summary share; escapes nothing.
"""

import math
from dataclasses import dataclass

from draftgate.checks.outcome import CheckOutcome, CheckResult
from draftgate.checks.words import parameter_lines
from draftgate.report.check.words import bound_of, log_value, margin, nats
from draftgate.report.format import count, minute, number

Facts = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Tile:
    """One of the numbers to read first."""

    title: str
    value: str
    detail: str


def tiles(result: CheckResult) -> tuple[Tile, ...]:
    """Return how much was looked at, what would have been found, and how near an alarm came."""
    found = result.findings
    asked = f"{count(result.requests, 'request')} in {result.elapsed_s:.0f} s"
    return (
        Tile("Tokens of the server", f"{found.tokens:,}", asked),
        _detectable(found.detectable_kl),
        _nearest(result),
        _margin(result),
    )


def _detectable(kl: float) -> Tile:
    detail = (
        "nats a token along a direction that is looked in, found with probability .9"
        if math.isfinite(kl)
        else "a condition has no token, so no size is stated"
    )
    return Tile("Detectable fault", nats(kl), detail)


def _nearest(result: CheckResult) -> Tile:
    entry, _ = margin(result)
    shown = f"{log_value(entry.peak_log_e)} of {log_value(bound_of(entry))}"
    return Tile("Highest log e-value", shown, f"{entry.condition}, against its bound")


def _margin(result: CheckResult) -> Tile:
    """Return when an alarm came, the A/A arm's first as in the verdict, or else the margin."""
    found = result.findings
    for title, entries in (
        ("Alarm of the A/A arm after", found.plain),
        ("Alarm after", found.checked),
    ):
        alarms = [entry.alarm_at for entry in entries if entry.alarm_at is not None]
        if alarms:
            return Tile(title, f"{min(alarms):,}", "tokens of its condition")
    rule = [e.alarm_at for e in found.joint if e.alarm_at is not None]
    if rule:
        return Tile("Alarm of the rule after", f"{min(rule):,}", "tokens of verify steps")
    _, left = margin(result)
    return Tile("Margin to an alarm", log_value(left), "nats of log e-value")


def margin_sentence(result: CheckResult) -> str | None:
    """Return how far a PASS stayed below its bound, in words; None for other outcomes."""
    if result.judgement.outcome is not CheckOutcome.PASS:
        return None
    entry, left = margin(result)
    return (
        f"Margin: the path nearest to its bound ({entry.condition}) stayed {log_value(left)} below "
        f"it; its e-value reached {number(math.exp(entry.peak_log_e))}, and an alarm takes "
        f"{number(1 / entry.alpha)}."
    )


def subject_facts(result: CheckResult) -> Facts:
    """Return what was checked against what as (name, value) pairs."""
    subject = result.subject
    return (
        ("Server", f"{subject.model} at {subject.url}"),
        ("Engine's API", subject.engine),
        ("Drafts", "K not known" if subject.k is None else f"K = {subject.k} per verify step"),
        ("Computes in", f"{subject.dtype}, as the user says"),
        ("Reference", subject.reference),
        ("A/A arm", subject.plain_url or "none: no server without speculation was given"),
    )


def effort_facts(result: CheckResult) -> Facts:
    """Return how it was checked as (name, value) pairs."""
    found = result.findings
    each = found.strongest.alpha
    return (
        ("False alarms", f"{result.alpha:g} at most, over all conditions; {each:.2g} each"),
        ("Conditions", ", ".join(entry.condition for entry in found.checked)),
        ("Tokens", _tokens(result)),
        ("Budget", result.budget + ("; stopped by Ctrl-C" if result.interrupted else "")),
        ("Stated rule", _rule(result)),
        ("Parameters", parameter_words(result) or "not probed"),
        ("Date", minute(result.started_at)),
    )


def parameter_words(result: CheckResult) -> str:
    """Return what became of the probed parameters in one line; empty where none was."""
    return "; ".join(line.removeprefix("parameters ") for line in parameter_lines(result))


def _rule(result: CheckResult) -> str:
    joint = result.findings.joint
    if not joint:
        return "not looked at: proposals are not known, or there were none"
    return f"looked at in {count(len(joint), 'condition')}"


def _tokens(result: CheckResult) -> str:
    plain = sum(entry.tokens for entry in result.findings.plain)
    arm = f", {plain:,} of the A/A arm" if result.findings.plain else ""
    return f"{result.findings.tokens:,} of the server{arm}"


def notes(result: CheckResult) -> tuple[str, ...]:
    """Return what a reader must know beside the verdict: failures, and an end before the budget."""
    found = []
    if result.interrupted:
        found.append("Stopped by Ctrl-C: what was gathered until then is judged as it stands.")
    if result.failures:
        asked = result.requests + len(result.failures)
        found.append(
            f"{len(result.failures)} of {asked} requests brought no answer and are no evidence. "
            f"The first: {result.failures[0]}"
        )
    return tuple(found)


def example_facts(result: CheckResult) -> Facts:
    """Return where the worst example stands as (name, value) pairs; none without an example."""
    worst = result.worst
    if worst is None:
        return ()
    place = "not known" if worst.position < 0 else f"{worst.position}, counted from 0"
    fired = any(entry.alarm_at is not None for entry in result.findings.checked)
    return (
        ("Arm", "the server under test" if fired else "the A/A arm: the other one is quiet"),
        ("Condition", worst.condition),
        ("Prompt", f"{worst.prompt_id}, request {worst.request}"),
        ("Place", f"output token {worst.index}, counted from 0"),
        ("Place in chunk", place),
        ("Adds", f"{log_value(worst.log_ratio)} to the direction's log e-value"),
    )


def no_example(result: CheckResult) -> str:
    """Return why there is no worst example."""
    if any(entry.alarm_at is not None for entry in result.findings.joint):
        return (
            "The rule's evidence is about accepted and rejected drafts and names no single token; "
            "no e-process of the tokens alone reached its bound."
        )
    return "No e-process reached its bound, so no token is held against the server."


def title(result: CheckResult) -> str:
    """Return the outcome in capitals, with why where it is inconclusive."""
    judged = result.judgement
    name = judged.outcome.value.upper()
    return name if judged.why is None else f"{name}: {judged.why.value}"
