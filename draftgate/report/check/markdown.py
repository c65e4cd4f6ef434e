"""A check as Markdown for a CI job's summary page, read in ten seconds.

Text from outside is escaped and clipped; what does not fit is counted, never dropped in
silence. Decides nothing.
"""

import re
from collections.abc import Iterable, Iterator, Sequence

from draftgate.checks.outcome import CheckResult, WorstExample
from draftgate.checks.words import title
from draftgate.report.check.head import margin_sentence, no_example, notes, parameter_words
from draftgate.report.check.tables import conditions_table, rule_table
from draftgate.report.check.words import SYMBOLS, chance, token_words, visible
from draftgate.report.comparison.words import plain
from draftgate.report.format import count
from draftgate.report.markdown import escaped
from draftgate.report.table import Entry, Table

LONGEST_TEXT = 600
"""Characters of one text from outside, before escaping; a reason has up to 400."""

LONGEST_COMMAND = 12_000
"""Characters of the command: a prompt of 2,000 token ids fits, and the page stays short."""

MOST_ROWS = 40
"""Rows of one table, reasons or blind spots: 40 rows of 400 characters stay far below what
GitHub takes (1 MiB for a step's summary)."""


def summary(result: CheckResult) -> str:
    """Return the summary: verdict, reasons, every condition, the worst example."""
    parts = [*_answer(result), *_tables(result), *_example(result), *_blind(result)]
    return "\n".join(parts) + "\n"


def _answer(result: CheckResult) -> Iterator[str]:
    subject, judged = result.subject, result.judgement
    yield (
        f"### {SYMBOLS[judged.outcome]} {title(judged)}: {_text(subject.model)} at "
        f"{_text(subject.url)}"
    )
    yield ""
    yield from _list(judged.reasons)
    said = margin_sentence(result)
    yield from _list((*((said,) if said else ()), *notes(result)))
    yield ""
    yield _text(
        f"Reference: {subject.reference}; alpha {result.alpha:g} over all conditions; "
        f"{result.findings.tokens:,} tokens in {result.elapsed_s:.0f} s (budget {result.budget})."
    )
    if said := parameter_words(result):
        yield ""
        yield _text(f"Parameters: {said}.")


def _tables(result: CheckResult) -> Iterator[str]:
    for table in (conditions_table(result), rule_table(result)):
        if table is not None:
            yield ""
            yield f"**{table.caption}**"
            yield ""
            yield from _table(table)


def _table(table: Table) -> Iterator[str]:
    heads = [
        column.title + (f" ({column.unit})" if column.unit else "") for column in table.columns
    ]
    grouped = len(table.groups) > 1
    yield _row([*(["Arm"] if grouped else []), *heads])
    yield _row([":--"] * (len(heads) + grouped))
    lines = [
        _row([*([group.title] if grouped else []), *map(_cell, row)])
        for group in table.groups
        for row in group.rows
    ]
    yield from lines[:MOST_ROWS]
    if len(lines) > MOST_ROWS:
        yield ""
        yield f"{count(len(lines) - MOST_ROWS, 'more row')} in the page."


def _cell(entry: Entry) -> str:
    text = _text(entry.text)
    shown = f"**{text}**" if entry.tone == "bad" else text
    return f"{shown} ({_text(entry.detail)})" if entry.detail else shown


def _example(result: CheckResult) -> Iterator[str]:
    yield ""
    yield "**Worst example**"
    yield ""
    worst = result.worst
    if worst is None:
        yield no_example(result)
        return
    yield _text(
        f"{worst.condition}, prompt {worst.prompt_id}, output token {worst.index}: "
        f"{token_words(worst.token, worst.text)} with probability {chance(worst.probability)}"
    )
    yield ""
    if worst.prefix is not None:
        yield f"- after: {_text(worst.prefix)}"
    yield from (
        f"- likely: {_text(token_words(other.token, other.text))} with probability "
        f"{chance(other.probability)}"
        for other in worst.likely
    )
    yield ""
    yield from _command(worst)


def _command(worst: WorstExample) -> Iterator[str]:
    """Yield the command that sends the request again, folded, between fences that it can't end."""
    if len(worst.curl) > LONGEST_COMMAND:
        yield f"The command that sends it again has {len(worst.curl):,} characters; see the page."
        return
    longest = max((len(run) for run in re.findall("`+", worst.curl)), default=0)
    fence = "`" * max(3, longest + 1)
    command = " ".join(visible(worst.curl).split("\n"))
    yield from ("<details><summary>Send it again</summary>", "", fence, command, fence, "")
    yield "</details>"


def _blind(result: CheckResult) -> Iterator[str]:
    yield ""
    yield "**What the reference can't see**"
    yield ""
    blind = result.subject.blind_to
    yield from _list(blind) if blind else ["Nothing is stated."]


def _list(texts: Sequence[str]) -> Iterable[str]:
    yield from (f"- {_text(text)}" for text in texts[:MOST_ROWS])
    if len(texts) > MOST_ROWS:
        yield f"- and {len(texts) - MOST_ROWS} more"


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _text(text: str) -> str:
    """Return outside text that is nothing but text, in a table cell and anywhere else.

    A backslash does not stop GitHub from mentioning people, linking issues or setting
    mathematics: an empty character or a tag between does.
    """
    safe = re.sub(r"\\([@#])", r"\1&#8203;", escaped(plain(text, LONGEST_TEXT)))
    return safe.replace("$", "<span>$</span>")
