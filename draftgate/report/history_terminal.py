"""The history in a terminal of 80 columns: what changed, when, by how much.

Colour only repeats what the text says. Decides nothing.
"""

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from draftgate.history.findings import Findings
from draftgate.history.records import Item
from draftgate.report.format import count
from draftgate.report.history import answer
from draftgate.report.history_plot import change_text
from draftgate.report.history_tables import (
    TONES,
    by_event,
    cell_of,
    interval_of,
    latest_table,
    levels_of,
    metric_of,
    said_of,
)
from draftgate.report.table import Entry
from draftgate.report.terminal import TONES as COLOURS

WIDTHS = (12, 24, 18, 22)
"""Of the columns item, series, change and level: with gaps of one 79 in all."""

SERIES_WIDTHS = (24, 9, 14, 18, 10)
"""Of the columns series, nights, latest, change and since: likewise."""


def print_history(found: Findings, console: Console, *, every: bool = False) -> None:
    """Print the open items, then the answer, where the eye is when a command ends.

    Args:
        found: What the history says.
        console: Where to print.
        every: Print closed items and every series' latest change as well.
    """
    if every:
        _print_series(found, console)
        closed = [item for item in found.items if not item.is_open]
        _print_items("Closed", closed, console)
        for closure in found.stray:
            console.print(Text(f"Closed, and not seen any more: {closure.id}, {closure.reason}"))
    _print_items("Open", found.open_items, console)
    for note in found.notes:
        console.print(Text(f"Odd: {note}", style="yellow"))
    console.print(Text(answer(found), style="bold"))


def _print_items(title: str, items: Sequence[Item], console: Console) -> None:
    for event, group in by_event(items):
        console.print(Text(f"{title}: {event}", style="bold"))
        table = RichTable.grid(padding=(0, 1, 0, 0))
        for width in WIDTHS:
            table.add_column(width=width, overflow="fold")
        for item in group:
            table.add_row(*_item(item))
        console.print(table)
        for item in group:
            if item.closure is not None:
                console.print(Text(f"{item.id}: {said_of(item.closure)}", style="dim"))
        console.print()


def _item(item: Item) -> tuple[Text, ...]:
    colour = COLOURS[TONES[item.direction]]
    word = f"{change_text(item)} {item.direction}"
    return (
        Text(item.id),
        _two(metric_of(item.series.key), cell_of(item.series.key), ""),
        _two(word, interval_of(item), colour),
        _two(levels_of(item), count(item.nights, "night"), ""),
    )


def _two(first: str, second: str, colour: str) -> Text:
    """Return two lines, the second one dim."""
    return Text(first, style=colour).append(f"\n{second}", style="dim")


def _print_series(found: Findings, console: Console) -> None:
    table = latest_table(found.judged)
    for group in table.groups if table is not None else ():
        console.print(Text(group.title, style="bold"))
        grid = RichTable.grid(padding=(0, 1, 0, 0))
        for width in SERIES_WIDTHS:
            grid.add_column(width=width, overflow="fold")
        for row in group.rows:
            grid.add_row(*map(_entry, row))
        console.print(grid)
        console.print()


def _entry(entry: Entry) -> Text:
    text = Text(entry.text, style=COLOURS[entry.text_tone])
    return text.append(f"\n{entry.detail}", style="dim") if entry.detail else text
