"""What the history says tonight: series, items, closures and what is odd, in one record.

The one way in for commands and reports. Reads files, writes none.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from draftgate.codec import encode
from draftgate.history.closing import load_closures
from draftgate.history.items import Judged, items_of, judge_all, unmatched
from draftgate.history.records import Closure, Item, Night, Series, SeriesKey
from draftgate.history.series import History, load_history

ITEMS_SCHEMA_VERSION = 1
"""Of `document`. History: 1 first version."""


@dataclass(frozen=True, slots=True)
class Findings:
    """Everything that is shown of a history.

    Attributes:
        judged: All series with their changes, sorted by key.
        stray: Closures of changes that are not seen any more.
        notes: What is odd about the history as a whole.
        nights: Number of sessions.
    """

    judged: tuple[Judged, ...]
    stray: tuple[Closure, ...]
    notes: tuple[str, ...]
    nights: int

    @property
    def items(self) -> tuple[Item, ...]:
        """All items, open ones first, newest first, losses before gains."""
        return items_of(self.judged)

    @property
    def open_items(self) -> tuple[Item, ...]:
        """The items that nobody has closed."""
        return tuple(item for item in self.items if item.is_open)

    def only(self, wanted: Callable[[SeriesKey], bool]) -> "Findings":
        """Return the findings about some of the series, as a report of one profile needs them."""
        kept = tuple(one for one in self.judged if wanted(one.series.key))
        stray = tuple(closure for closure in self.stray if wanted(closure.series))
        return replace(self, judged=kept, stray=stray)


def load_findings(root: Path) -> Findings:
    """Read the history at `root` and look for changes in it.

    Raises:
        BaselineError: If there is none, or a file of it cannot be used.
    """
    return findings(load_history(root), load_closures(root))


def findings(history: History, closures: tuple[Closure, ...] = ()) -> Findings:
    """Return what a history says, given what was closed."""
    judged = judge_all(history.series, closures)
    return Findings(judged, unmatched(judged, closures), history.notes, history.nights)


def document(found: Findings) -> dict[str, Any]:
    """Return the findings as a document for programs.

    Every item, open or closed, and per series its size, gaps and latest value.
    """
    return {
        "schema": ITEMS_SCHEMA_VERSION,
        "nights": found.nights,
        "items": [_item(item) for item in found.items],
        "series": [_series(one.series) for one in found.judged],
        "closed_but_not_seen": [encode(closure) for closure in found.stray],
        "notes": list(found.notes),
    }


def _item(item: Item) -> dict[str, Any]:
    names = ("id", "direction", "level_before", "level_after", "change", "low", "high", "nights")
    return {
        **{name: encode(getattr(item, name)) for name in names},
        "status": "open" if item.is_open else "closed",
        "is_relative": item.series.is_log,
        "unit": item.series.unit,
        "series": encode(item.series.key),
        "before": _night(item.before),
        "after": _night(item.after),
        "closure": encode(item.closure),
    }


def _night(night: Night) -> dict[str, Any]:
    return {
        "run": night.run_id,
        "time": night.time.isoformat(),
        "engine_version": night.engine_version,
        "commit": night.commit,
    }


def _series(series: Series) -> dict[str, Any]:
    return {
        "series": encode(series.key),
        "unit": series.unit,
        "is_relative": series.is_log,
        "nights": len(series.nights),
        "nights_since_its_end": series.silent,
        "latest": series.nights[-1].value if series.nights else None,
        "gaps": [
            {"run": gap.run_id, "why": gap.why, "is_whole": gap.is_whole} for gap in series.gaps
        ],
    }
