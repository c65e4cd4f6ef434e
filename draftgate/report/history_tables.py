"""Items and series of the history as tables and short texts.

Takes findings, returns plain tables and words, so that the page, a comment and
the terminal say the same. Decides nothing.
"""

from collections.abc import Iterable, Sequence
from itertools import groupby

from draftgate.history.items import CONFIDENCE, MIN_NIGHTS, Judged
from draftgate.history.records import RUN_ROLE, Closure, Item, Series, SeriesKey
from draftgate.metrics import METRICS, definition
from draftgate.report.format import MISSING, count, percent, scale_for
from draftgate.report.history_plot import change_text, in_words, shown_in
from draftgate.report.table import Column, Entry, Group, Table, streams

TONES = {"worse": "bad", "better": "good", "changed": ""}

COMMIT_DIGITS = 9


def items_table(caption: str, items: Sequence[Item]) -> Table | None:
    """Return items by event: a night on which things changed together; None without items."""
    if not items:
        return None
    columns = (
        Column("Series"),
        Column("Change", f"{percent(CONFIDENCE)} interval"),
        Column("Level"),
        Column("Nights", "since"),
        Column("Item"),
    )
    groups = tuple(Group(title, tuple(map(_item_row, group))) for title, group in by_event(items))
    return Table(caption, columns, groups)


def latest_table(judged: Iterable[Judged]) -> Table | None:
    """Return the latest value and the latest change of every series; None without any."""
    groups = []
    for title, group in groupby(judged, key=lambda one: place_of(one.series.key)):
        groups.append(Group(title, tuple(map(_latest_row, group))))
    columns = (
        Column("Series"),
        Column("Nights"),
        Column("Latest"),
        Column("Latest change"),
        Column("Since"),
    )
    return Table("Latest change of every series", columns, tuple(groups)) if groups else None


def gap_table(judged: Iterable[Judged]) -> Table | None:
    """Return what could not be used, like reasons of one night together; None if all could."""
    found: dict[tuple[str, str, str], list[str]] = {}
    for one in judged:
        for gap in one.series.gaps:
            place = (gap.run_id, place_of(one.series.key), gap.why)
            found.setdefault(place, []).append(name_of(one.series.key))
    if not found:
        return None
    rows = tuple(
        (Entry(run_id, place), Entry(why), Entry(listed(names)))
        for (run_id, place, why), names in sorted(found.items(), reverse=True)
    )
    columns = (Column("Night"), Column("Why"), Column("Series"))
    return Table("Nights and runs without a usable value", columns, (Group("", rows),))


def name_of(key: SeriesKey) -> str:
    """Return `ngram, 8 streams, output tokens/s`."""
    return f"{cell_of(key)}, {metric_of(key)}"


def cell_of(key: SeriesKey) -> str:
    """Return `ngram, 8 streams`."""
    return f"{key.arm}, {streams(key.concurrency)}"


def metric_of(key: SeriesKey) -> str:
    """Return a metric's title; its name where this version does not know it."""
    return definition(key.metric).title if key.metric in METRICS.names() else key.metric


def place_of(key: SeriesKey) -> str:
    """Return the profile and where it ran, with the role of a comparison's side."""
    role = "" if key.role == RUN_ROLE else f", {key.role} of comparisons"
    return f"{key.profile} on {key.hardware}, {key.engine}{role}"


def versions_of(item: Item) -> str:
    """Return which builds lie before and after a change; empty where they are the same."""
    engine = item.series.key.engine
    parts = []
    if item.before.engine_version != item.after.engine_version:
        parts.append(f"{engine} {item.before.engine_version} → {item.after.engine_version}")
    if item.before.commit != item.after.commit:
        ends = (end.commit[:COMMIT_DIGITS] or "unknown" for end in (item.before, item.after))
        parts.append("commit " + " → ".join(ends))
    return "; ".join(parts)


def levels_of(item: Item) -> str:
    """Return `40.1 → 38.0 tokens/s`."""
    scale = scale_for(item.series.unit, (item.level_before, item.level_after))
    return f"{scale.show(item.level_before)} → {scale.full(item.level_after)}"


def interval_of(item: Item) -> str:
    """Return both ends of the interval of a change."""
    return f"{in_words(item, item.low)} to {in_words(item, item.high)}"


def said_of(closure: Closure) -> str:
    """Return who closed an item, when and why."""
    kind = "" if closure.is_real else "false alarm: "
    return f"{closure.by}, {closure.at[:10]}: {kind}{closure.reason}"


def event_of(item: Item) -> str:
    """Return when and where a change happened, and with which builds."""
    words = [f"{item.after.time:%Y-%m-%d}", place_of(item.series.key), versions_of(item)]
    return " · ".join(word for word in words if word)


def by_event(items: Iterable[Item]) -> Iterable[tuple[str, list[Item]]]:
    """Yield items that changed on one night in one place together, in the order given."""
    found: dict[tuple[object, ...], list[Item]] = {}
    for item in items:
        found.setdefault((item.after.time, event_of(item)), []).append(item)
    for (_, title), group in found.items():
        yield str(title), group


def _item_row(item: Item) -> tuple[Entry, ...]:
    tone = TONES[item.direction]
    return (
        Entry(metric_of(item.series.key), cell_of(item.series.key)),
        Entry(change_text(item), interval_of(item), tone=tone, strong=True),
        Entry(levels_of(item)),
        Entry(f"{item.nights}"),
        Entry(item.id, said_of(item.closure) if item.closure else ""),
    )


def _latest_row(judged: Judged) -> tuple[Entry, ...]:
    series = judged.series
    last = judged.items[-1] if judged.items else None
    ended = f"ended, {count(series.silent, 'night')} ago" if series.silent else ""
    return (
        Entry(metric_of(series.key), cell_of(series.key)),
        Entry(f"{len(series.nights)}", _too_short(series)),
        Entry(shown_in(judged).full(series.nights[-1].value) if series.nights else MISSING, ended),
        Entry(change_text(last), interval_of(last), tone=TONES[last.direction], strong=True)
        if last
        else Entry("none", tone="quiet"),
        Entry(f"{last.after.time:%Y-%m-%d}") if last else Entry(""),
    )


def _too_short(series: Series) -> str:
    return "" if len(series.nights) >= MIN_NIGHTS else f"of {MIN_NIGHTS} needed"


def listed(names: Sequence[str], most: int = 3) -> str:
    """Return the first names, and how many there are besides."""
    shown = ", ".join(names[:most])
    return f"{shown} and {len(names) - most} more" if len(names) > most else shown
