"""The history as a page, as a part of other pages, and as a list for a comment.

Open items first: what changed, by how much, since when, and with which build.
An item is a question to a person; nothing here is red because a gate failed.
"""

import html
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from draftgate import __version__
from draftgate.errors import BaselineError
from draftgate.history.findings import Findings, load_findings
from draftgate.history.items import CONFIDENCE, MIN_NIGHTS, Judged
from draftgate.history.records import Closure, Item
from draftgate.report.format import MISSING, count, percent
from draftgate.report.history_plot import change_text, history_plot
from draftgate.report.history_tables import (
    by_event,
    cell_of,
    gap_table,
    interval_of,
    items_table,
    latest_table,
    levels_of,
    listed,
    metric_of,
    name_of,
    place_of,
)
from draftgate.report.markdown import escaped
from draftgate.report.templating import templates
from draftgate.stats.changepoint import WINDOW

SHOWN_ITEMS = 20
"""Items in a comment before the rest is counted only; the page has them all."""

SHOWN_PLOTS = 12
"""Plots in a part of another page."""


@dataclass(frozen=True, slots=True)
class Panel:
    """One plot with its heading, and what it shows in words."""

    title: str
    where: str
    label: str
    svg: str


@dataclass(frozen=True, slots=True)
class PlotGroup:
    """Plots of one profile on one hardware."""

    title: str
    panels: tuple[Panel, ...]


def history_page(found: Findings, *, every_series: bool = False) -> str:
    """Return a static page of the history.

    Args:
        found: What the history says.
        every_series: Draw all series, not only those with an item.
    """
    shown = [one for one in found.judged if one.series.nights and (every_series or one.items)]
    closed = [item for item in found.items if not item.is_open]
    page = (
        templates()
        .get_template("history.html.j2")
        .render(
            title=f"History: {count(len(found.open_items), 'open item')}",
            facts=_facts(found),
            answer=answer(found),
            notes=found.notes,
            open=items_table("Open items", found.open_items),
            groups=_plots(shown),
            latest=latest_table(found.judged),
            closed=items_table("Closed items", closed),
            stray=tuple((closure.id, _stray(closure)) for closure in found.stray),
            gaps=gap_table(found.judged),
            method=_METHOD,
            version=__version__,
        )
    )
    return page + "\n"


def history_fragment(found: Findings) -> str:
    """Return the open items with their plots, to stand under a heading of another page.

    Uses the classes of `page.css.j2` alone. `Findings.only` picks the series
    of one profile first.
    """
    shown = [one for one in found.judged if any(item.is_open for item in one.items)]
    part = (
        templates()
        .get_template("history_fragment.html.j2")
        .render(
            answer=answer(found),
            open=items_table("Open items", found.open_items),
            groups=_plots(shown[:SHOWN_PLOTS]),
            hidden=len(shown[SHOWN_PLOTS:]),
        )
    )
    return part + "\n"


def fragment_of(root: Path, profile: str, hardware: str) -> str | None:
    """Return the open items of a profile on one hardware, for another page's History.

    A history that can't be read is said there and spoils no report.

    Args:
        root: Folder of the history.
        profile: Name of the profile.
        hardware: Slug of the hardware.

    Returns:
        HTML, escaped; None where there is no history.
    """
    if not root.is_dir():
        return None
    try:
        found = load_findings(root)
    except BaselineError as error:
        return f"<p>{html.escape(str(error))}</p>\n"
    mine = found.only(lambda key: (key.profile, key.hardware) == (profile, hardware))
    return history_fragment(mine)


def history_markdown(found: Findings) -> str:
    """Return the open items as a short list in GitHub's Markdown.

    Reads as plain text as well; for a comment or a step summary.
    """
    items = found.open_items
    lines = ["#### History", "", escaped(answer(found))]
    for title, group in by_event(items[:SHOWN_ITEMS]):
        lines += ["", f"**{escaped(title)}**", ""]
        lines += [f"- {_markdown_item(item)}" for item in group]
    if len(items) > SHOWN_ITEMS:
        lines += ["", f"and {len(items) - SHOWN_ITEMS} more"]
    if items:
        lines += ["", 'Close one: `draftgate history close ITEM --reason "..."`']
    if found.notes:
        lines += ["", *(f"- {escaped(note)}" for note in found.notes)]
    return "\n".join(lines) + "\n"


def answer(found: Findings) -> str:
    """Return what the history says in one or two sentences."""
    nights, kinds = count(found.nights, "night"), count(len(found.judged), "series", "series")
    items = found.open_items
    short = sum(len(one.series.nights) < MIN_NIGHTS for one in found.judged)
    rest = ""
    if short:
        kind = count(short, "series", "series")
        rest = f" Too short to judge, with fewer than {MIN_NIGHTS} nights: {kind}."
    if not items:
        return f"No open item in {kinds} over {nights}.{rest}"
    worse = sum(item.direction == "worse" for item in items)
    better = sum(item.direction == "better" for item in items)
    parts = [
        f"{number} {word}" for number, word in ((worse, "worse"), (better, "better")) if number
    ]
    split = f" ({', '.join(parts)})" if parts else ""
    newest = max(item.after.time for item in items)
    return (
        f"{_capital(count(len(items), 'open item'))}{split} in {kinds} over {nights}, the newest "
        f"since {newest:%Y-%m-%d}.{rest}"
    )


_METHOD = (
    "A point is one night: the geometric mean of its runs (the arithmetic mean for a series that "
    "reaches 0), because runs of one night share a machine and an hour. A line is the mean of its "
    "nights. A change is found by a robust penalised cost and kept if up to "
    f"{WINDOW} nights on either side differ (Welch, p 0.001); {MIN_NIGHTS} nights are needed. Its "
    f"{percent(CONFIDENCE)} interval is that of a change whose night was known before. In "
    "noise alone about one series in 200 shows a change, and more where nights resemble their "
    "neighbours. So an item is a question to look into. It fails nothing."
)


def _plots(shown: Sequence[Judged]) -> tuple[PlotGroup, ...]:
    """Return plots by profile and hardware."""
    numbers = {id(one): number for number, one in enumerate(shown)}
    return tuple(
        PlotGroup(title, tuple(_panel(numbers[id(one)], one) for one in group))
        for title, group in groupby(shown, key=lambda one: place_of(one.series.key))
    )


def _panel(number: int, judged: Judged) -> Panel:
    series = judged.series
    changes = "; ".join(
        f"{change_text(item)} on {item.after.time:%Y-%m-%d}" for item in judged.items
    )
    label = f"{name_of(series.key)}, {count(len(series.nights), 'night')}: {changes or 'no change'}"
    where = cell_of(series.key) + (", ended" if series.silent else "")
    return Panel(metric_of(series.key), where, label, history_plot(f"night{number}", judged))


def _facts(found: Findings) -> tuple[tuple[str, str], ...]:
    times = [time for one in found.judged for time in one.series.times]
    span = f"{min(times):%Y-%m-%d} to {max(times):%Y-%m-%d}" if times else MISSING
    keys = [one.series.key for one in found.judged]
    return (
        ("Nights", f"{found.nights:,}"),
        ("From", span),
        ("Hardware", listed(sorted({key.hardware for key in keys}))),
        ("Profiles", listed(sorted({key.profile for key in keys}))),
        ("Series", f"{len(keys):,}"),
    )


def _markdown_item(item: Item) -> str:
    tone = {"worse": "worse", "better": "better", "changed": "changed"}[item.direction]
    return (
        f"`{item.id}` {escaped(name_of(item.series.key))}: **{change_text(item)}** "
        f"({interval_of(item)}), {tone}, {levels_of(item)}, {count(item.nights, 'night')}"
    )


def _stray(closure: Closure) -> str:
    return f"{name_of(closure.series)}, {closure.change}, closed by {closure.by}: {closure.reason}"


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
