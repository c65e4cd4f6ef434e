"""The report as Markdown for a pull request: short first, the rest folded.

Writes GitHub's dialect. Text from outside is escaped so that it can neither end
a table cell nor become markup. Stays below the size a comment may have.
"""

import re
import shlex
from collections.abc import Iterable, Sequence

from draftgate.report.details import failure_table
from draftgate.report.format import count, minute
from draftgate.report.headline import SYMBOLS, best_arms, label, sentence
from draftgate.report.html import machine
from draftgate.report.positions import step_table
from draftgate.report.summary import Summary
from draftgate.report.table import Entry, Table, streams
from draftgate.report.tables import main_table, why_table
from draftgate.report.traffic import traffic_setting, traffic_table
from draftgate.report.verdicts import VerdictBlock, VerdictView, blocks

LIMIT_CHARACTERS = 60_000
"""GitHub refuses comments above 65,536 characters; the rest is for what a bot adds."""

SHOWN_VERDICTS = 20
"""Verdicts per outcome before the rest is counted only; the page has them all."""


def render_markdown(summary: Summary) -> str:
    """Return the whole comment, folded parts left out where they would not fit."""
    parts = [*_answer(summary), *_tables(summary), *_verdicts(summary)]
    text = "\n".join(parts)
    for part in _folded(summary):
        if len(text) + len(part) + 1 < LIMIT_CHARACTERS - len(_CUT):
            text += "\n" + part
        else:
            return _within(text + "\n" + _CUT)
    return _within(text)


_CUT = "\nMore is in `report.html`.\n"


def _within(text: str) -> str:
    text = text.rstrip("\n") + "\n"
    if len(text) <= LIMIT_CHARACTERS:
        return text
    whole_lines = text[: LIMIT_CHARACTERS - len(_CUT)].rsplit("\n", 1)[0]
    return whole_lines + "\n" + _CUT


def escaped(text: str) -> str:
    """Return text that Markdown shows as it is, also inside a table cell."""
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    text = re.sub(r"([\\`*_\[\]|~#@!])", r"\\\1", text)
    return re.sub(r"\s*\n\s*", " ", text)


def _answer(summary: Summary) -> Iterable[str]:
    run = summary.run
    symbol = f"{SYMBOLS[summary.outcome]} " if summary.outcome else ""
    yield f"### {symbol}{label(summary.outcome)}: {escaped(run.profile.name)}"
    yield ""
    yield escaped(sentence(summary))
    facts = (run.environment.engine, run.environment.hardware, minute(run.started_at))
    yield ""
    yield " · ".join(escaped(fact) for fact in facts)
    fastest = [
        f"{streams(best.concurrency)}: **{escaped(best.words)}**"
        for best in best_arms(summary)
        if best.arm
    ]
    if fastest:
        yield ""
        yield "Best speed-up over none at " + ", ".join(fastest) + "."
    if summary.gaps:
        yield ""
        yield from _gaps(summary.gaps)


def _gaps(gaps: Sequence[str]) -> Iterable[str]:
    yield "Missing:"
    yield ""
    yield from (f"- {escaped(gap)}" for gap in gaps[:SHOWN_VERDICTS])
    if len(gaps) > SHOWN_VERDICTS:
        yield f"- and {len(gaps) - SHOWN_VERDICTS} more"


def _tables(summary: Summary) -> Iterable[str]:
    if not summary.traffic_only:
        yield from table_lines(main_table(summary))
    traffic = traffic_table(summary)
    if traffic is not None:
        yield ""
        yield f"#### {escaped(traffic.caption)}"
        yield ""
        yield escaped(traffic_setting(summary))
        yield from table_lines(traffic)
    steps = step_table(summary)
    if steps is not None:
        yield ""
        yield f"#### {escaped(steps.caption)}"
        yield from table_lines(steps)


def table_lines(table: Table) -> Iterable[str]:
    """Yield one Markdown table per group of rows."""
    for group in table.groups:
        yield ""
        if group.title:
            yield f"**{escaped(group.title)}**"
            yield ""
        heads = (f"{c.title} ({c.unit})" if c.unit else c.title for c in table.columns)
        yield "| " + " | ".join(escaped(head) for head in heads) + " |"
        yield "| :-- |" + " --: |" * (len(table.columns) - 1)
        for row in group.rows:
            yield "| " + " | ".join(_cell(entry) for entry in row) + " |"


def _cell(entry: Entry) -> str:
    if entry.judged:
        symbol = f"{SYMBOLS[entry.outcome]} " if entry.outcome else ""
        return f"{symbol}{label(entry.outcome)}"
    detail = f" ({escaped(entry.detail)})" if entry.detail else ""
    return escaped(entry.text) + detail


def _verdicts(summary: Summary) -> Iterable[str]:
    for block in blocks(summary.verdicts):
        if not block.outcome.green:
            yield from _block(block)


def _block(block: VerdictBlock) -> Iterable[str]:
    yield ""
    yield f"**{SYMBOLS[block.outcome]} {block.label}: {count(block.gates, 'gate')}**"
    yield ""
    if block.reason:
        yield escaped(block.reason) + "  "
    if block.next_step:
        yield f"Next: {escaped(block.next_step)}"
    if block.reason or block.next_step:
        yield ""
    yield from (_verdict(item) for item in block.items[:SHOWN_VERDICTS])
    if len(block.items) > SHOWN_VERDICTS:
        yield f"- and {len(block.items) - SHOWN_VERDICTS} more"


def _verdict(item: VerdictView) -> str:
    text = f"- **{escaped(item.arm)}** at {item.streams}, {escaped(item.metric)}"
    if item.change:
        text += f": {item.change} ({item.interval}), tolerated loss {item.margin or 'none'}"
    for word, said in (("Cause", item.cause), ("Reason", item.reason), ("Next", item.next_step)):
        if said:
            text += f". {word}: {escaped(said).rstrip('.')}"
    return text + "."


def _folded(summary: Summary) -> Iterable[str]:
    why = why_table(summary)
    if why is not None and why.rows:
        yield _details("Why: factors of the speed of one stream", table_lines(why))
    green = [block for block in blocks(summary.verdicts) if block.outcome.green]
    if green:
        yield _details("Green gates", (line for block in green for line in _block(block)))
    failures = failure_table(summary)
    if failures is not None:
        yield _details("Failed requests", table_lines(failures))
    facts = [f"- {name}: {escaped(value)}" for name, value in machine(summary.run.environment)]
    commands = [f"    {arm}: {line}" for arm, line in summary.run.commands.items()]
    again = ["", "Run:", "", f"    {shlex.join(summary.run.argv)}"]
    if commands:
        commands = ["", "Servers:", "", *commands]
    yield _details("Environment and commands", [*facts, *again, *commands])


def _details(title: str, lines: Iterable[str]) -> str:
    body = "\n".join(lines).strip("\n")
    return f"\n<details><summary>{escaped(title)}</summary>\n\n{body}\n\n</details>"
