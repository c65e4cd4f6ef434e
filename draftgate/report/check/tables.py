"""Tables of a check: every condition of both arms, the stated rule, the worst example."""

from draftgate.checks.outcome import (
    CheckResult,
    ConditionEvidence,
    JointEvidence,
    WorstExample,
)
from draftgate.report.check.words import (
    bound_of,
    chance,
    family_name,
    log_value,
    nats,
    token_words,
    tokens_after,
)
from draftgate.report.table import Column, Entry, Group, Table

UNDER_TEST, AA_ARM = "Server under test", "A/A arm, the server without speculation"


def conditions_table(result: CheckResult) -> Table:
    """Return what each condition's e-process says, both arms."""
    columns = (
        Column("Condition"),
        Column("Tokens"),
        Column("Log e-value", "at the end"),
        Column("Highest", "bound"),
        Column("Alarm after", "tokens"),
        Column("Detectable", "nats a token"),
        Column("Evidence", "nats a token"),
        Column("Strongest direction", "where"),
    )
    arms = ((UNDER_TEST, result.findings.checked), (AA_ARM, result.findings.plain))
    groups = tuple(Group(title, tuple(map(_row, entries))) for title, entries in arms if entries)
    return Table("Every condition", columns, groups)


def _row(entry: ConditionEvidence) -> tuple[Entry, ...]:
    alarm = "bad" if entry.alarm_at is not None else ""
    return (
        Entry(entry.condition),
        Entry(f"{entry.tokens:,}"),
        Entry(log_value(entry.log_e)),
        Entry(log_value(entry.peak_log_e), f"of {log_value(bound_of(entry))}", alarm, alarm != ""),
        Entry(tokens_after(entry.alarm_at), tone=alarm),
        Entry(nats(entry.detectable_kl)),
        Entry(nats(entry.nats_per_token)),
        Entry(entry.direction, f"{family_name(entry.family)}; {entry.scope}"),
    )


def rule_table(result: CheckResult) -> Table | None:
    """Return what accept flags and tokens say of the stated rule; None if it was not looked at."""
    if not result.findings.joint:
        return None
    columns = (
        Column("Condition"),
        Column("Tokens", "of verify steps"),
        Column("Log e-value", "bound"),
        Column("Alarm after", "tokens"),
        Column("Impossible", "under the rule"),
        Column("Chunks left out", "more than one step"),
        Column("Strongest departure"),
    )
    rows = tuple(map(_rule_row, result.findings.joint))
    return Table("Evidence against the stated rule", columns, (Group("", rows),))


def _rule_row(entry: JointEvidence) -> tuple[Entry, ...]:
    alarm = "bad" if entry.alarm_at is not None else ""
    return (
        Entry(entry.condition),
        Entry(f"{entry.places:,}"),
        Entry(log_value(entry.log_e), f"of {log_value(bound_of(entry))}", alarm, alarm != ""),
        Entry(tokens_after(entry.alarm_at), tone=alarm),
        Entry(f"{entry.impossible:,}", tone="bad" if entry.impossible else ""),
        Entry(f"{entry.unclear:,}"),
        Entry(entry.direction),
    )


def example_table(worst: WorstExample) -> Table:
    """Return the token that came and those that were likely instead."""
    columns = (Column("Token"), Column("Id"), Column("Probability"), Column(""))
    came = (
        Entry(token_words(worst.token, worst.text), tone="bad"),
        Entry(str(worst.token)),
        Entry(chance(worst.probability)),
        Entry("came"),
    )
    likely = tuple(
        (
            Entry(token_words(other.token, other.text)),
            Entry(str(other.token)),
            Entry(chance(other.probability)),
            Entry("the same token" if other.token == worst.token else "was likely"),
        )
        for other in worst.likely
    )
    return Table("The token and what was likely there", columns, (Group("", (came, *likely)),))
