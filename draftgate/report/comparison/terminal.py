"""A comparison in a terminal of 80 columns: table, what is not green in full, the answer last.

Colour only repeats what the text says. Text from outside is printed without
control characters, so a label cannot move the cursor.
"""

from collections.abc import Iterable

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from draftgate.compare.gates import title
from draftgate.compare.records import GateResult, Role, StoredComparison
from draftgate.report.comparison.answer import (
    effort_text,
    extent,
    headline,
    in_reading_order,
    not_green,
    notes,
    side_text,
)
from draftgate.report.comparison.words import (
    bounds_text,
    change_text,
    pairs_text,
    place,
    plain,
    short_place,
    values_text,
)
from draftgate.report.format import fixed
from draftgate.report.headline import SYMBOLS
from draftgate.report.terminal import COLOURS
from draftgate.verdict import Outcome


def print_comparison(comparison: StoredComparison, console: Console) -> None:
    """Print all gates, then the reasons of those that are not green, then the answer."""
    console.print(_table(comparison))
    for result in not_green(comparison):
        _print_gate(result, console)
    for note in notes(comparison):
        _print(f"Note: {note}", console)
    console.print()
    for role in Role:
        _print(f"{role.value.capitalize()}: {side_text(comparison, role)}", console)
    _print(" ".join((effort_text(comparison), *extent(comparison))), console)
    outcome = comparison.result.outcome
    _print(f"{SYMBOLS[outcome]} {headline(comparison)}", console, style=_bold(outcome))


def _table(comparison: StoredComparison) -> Table:
    """Return one line per gate, at most 80 columns wide with the arms that we know."""
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("Gate", overflow="fold")
    table.add_column("Metric", overflow="fold")
    table.add_column("Change", justify="right", no_wrap=True)
    table.add_column("Pairs", justify="right", no_wrap=True)
    for result in in_reading_order(comparison):
        symbol = Text(f"{SYMBOLS[result.outcome]} ", style=_bold(result.outcome))
        table.add_row(symbol.append(plain(short_place(result.gate)), style="none"), *_cells(result))
    return table


def _cells(result: GateResult) -> tuple[Text, ...]:
    shown = (title(result.gate.metric), change_text(result, units=False), pairs_text(result))
    return tuple(map(Text, shown))


def _print_gate(result: GateResult, console: Console) -> None:
    gate, outcome = result.gate, result.outcome
    head = f"{SYMBOLS[outcome]} {outcome.name}: {place(gate)}, {title(gate.metric)}"
    _print(head, console, style=_bold(outcome))
    for word, said in _told(result):
        _print(f"  {word}: {said}", console)


def _told(result: GateResult) -> Iterable[tuple[str, str]]:
    """Yield what there is to say about a gate, each with its heading."""
    if result.base_value is not None or result.value is not None:
        base, candidate = values_text(result)
        yield "change", f"{base} to {candidate}, {change_text(result)}"
    yield "margin / limit", bounds_text(result.gate)
    yield "reason", result.reason
    if result.cause is not None:
        yield "cause", result.cause.text
        yield from (("position", _position(*entry)) for entry in result.cause.positions)
    if result.next_step:
        yield "next", result.next_step


def _position(position: int, base: float, candidate: float, low: float, high: float) -> str:
    """Return acceptance at a draft position: `0: 62.0 % to 57.0 % accepted, -5.0 [-6.1, -3.9]`."""
    shown = [fixed(share * 100, 1) for share in (base, candidate, candidate - base, low, high)]
    return "{}: {} % to {} % accepted, {} [{}, {}]".format(position, *shown)


def _print(text: str, console: Console, *, style: str = "") -> None:
    """Print one line of any length whole: a terminal wraps it, a log keeps it."""
    indent = text[: len(text) - len(text.lstrip())]
    console.print(Text(indent + plain(text), style=style), soft_wrap=True)


def _bold(outcome: Outcome) -> str:
    return f"bold {COLOURS[outcome]}"
