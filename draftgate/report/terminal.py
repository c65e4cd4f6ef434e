"""The report as tables in a terminal.

Colour only repeats what the text says, so a log without colour reads the same.
"""

from rich import box
from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from draftgate.report.headline import SYMBOLS, best_arms, label, sentence
from draftgate.report.positions import step_table
from draftgate.report.summary import Summary
from draftgate.report.table import Entry, Table, streams
from draftgate.report.tables import main_table, why_table
from draftgate.report.traffic import traffic_table
from draftgate.report.verdicts import VerdictBlock, VerdictView, blocks
from draftgate.verdict import Outcome

COLOURS = {
    Outcome.PASS: "green",
    Outcome.IMPROVEMENT: "green",
    Outcome.REGRESSION: "red",
    Outcome.INCONCLUSIVE: "yellow",
    Outcome.NO_BASELINE: "blue",
    Outcome.INVALID_RUN: "red",
}

TONES = {"good": "green", "bad": "red", "quiet": "dim", "": ""}


def print_summary(summary: Summary, console: Console) -> None:
    """Print tables first and the answer last, where the eye is when a command ends."""
    if not summary.traffic_only:
        print_table(main_table(summary), console)
    for extra in (why_table(summary), traffic_table(summary), step_table(summary)):
        if extra is not None and extra.rows:
            print_table(extra, console)
    for block in blocks(summary.verdicts):
        if not block.outcome.green:
            _print_block(block, console)
    for gap in summary.gaps:
        console.print(Text(f"Missing: {gap}", style="yellow"))
    _print_answer(summary, console)


def _print_answer(summary: Summary, console: Console) -> None:
    console.print()
    for best in best_arms(summary):
        if best.arm:
            line = f"Best at {streams(best.concurrency)}: {best.words} ({best.detail})"
            console.print(Text(line))
    console.print(_badge(summary.outcome), Text(sentence(summary)))


def print_table(data: Table, console: Console) -> None:
    """Print one table, its groups under their headings."""
    table = RichTable(title=data.caption, box=box.SIMPLE_HEAD, title_justify="left")
    for index, column in enumerate(data.columns):
        head = f"{column.title}\n{column.unit}" if column.unit else column.title
        table.add_column(Text(head), justify="right" if index else "left", no_wrap=index == 0)
    for group in data.groups:
        if group.title:
            table.add_row(Text(group.title, style="bold"))
        for row in group.rows:
            table.add_row(*(_cell(entry) for entry in row))
        table.add_section()
    console.print(table)


def _cell(entry: Entry) -> Text:
    if entry.judged:
        return _badge(entry.outcome)
    text = Text(entry.text, style=TONES[entry.text_tone])
    if entry.detail:
        text.append(f"\n{entry.detail}", style=TONES[entry.tone] or "dim")
    return text


def _badge(outcome: Outcome | None) -> Text:
    if outcome is None:
        return Text(label(None), style="dim")
    return Text(f"{SYMBOLS[outcome]} {label(outcome)}", style=f"bold {COLOURS[outcome]}")


def _print_block(block: VerdictBlock, console: Console) -> None:
    console.print(_badge(block.outcome))
    for said in (block.reason, block.next_step):
        if said:
            console.print(Text(f"  {said}"))
    for item in block.items:
        console.print(Text(_line(item)))


def _line(item: VerdictView) -> str:
    text = f"  {item.arm} at {item.streams}, {item.metric}"
    if item.change:
        text += f": {item.change} ({item.interval}; tolerated loss {item.margin or 'none'})"
    said = (("cause", item.cause), ("reason", item.reason), ("next", item.next_step))
    return text + "".join(f"\n    {word}: {what}" for word, what in said if what)
