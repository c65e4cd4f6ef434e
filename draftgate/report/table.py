"""A table as a plain record, so that HTML, Markdown and terminal print the same.

Columns, groups of rows, entries; an entry has a main text, a smaller second
line and a tone. Knows nothing of runs, nor of how any of it is drawn.
"""

from dataclasses import dataclass

from draftgate.report.format import TIMES, count
from draftgate.verdict import Outcome

AGAINST_NONE = f"{TIMES} none"
"""Unit of a ratio to the arm without speculation."""


@dataclass(frozen=True, slots=True)
class Column:
    """Heading of a column; the unit stands under it, not in every cell."""

    title: str
    unit: str = ""


@dataclass(frozen=True, slots=True)
class Entry:
    """One cell of a table.

    Attributes:
        text: What is read first.
        detail: Smaller second line.
        tone: `good`, `bad`, `quiet` or empty; colours the second line, or the
            text where there is none.
        strong: Whether it colours both.
        outcome: Drawn as a badge in place of the text.
        judged: Whether this is a badge at all.
    """

    text: str
    detail: str = ""
    tone: str = ""
    strong: bool = False
    outcome: Outcome | None = None
    judged: bool = False

    @property
    def text_tone(self) -> str:
        """Tone of the main text."""
        return self.tone if self.strong or not self.detail else ""


@dataclass(frozen=True, slots=True)
class Group:
    """Rows under one heading; an empty title draws none."""

    title: str
    rows: tuple[tuple[Entry, ...], ...]


@dataclass(frozen=True, slots=True)
class Table:
    """Columns and groups; the first entry of each row is its heading."""

    caption: str
    columns: tuple[Column, ...]
    groups: tuple[Group, ...]

    @property
    def rows(self) -> tuple[tuple[Entry, ...], ...]:
        """All rows, without their groups."""
        return tuple(row for group in self.groups for row in group.rows)


def streams(concurrency: int) -> str:
    """Return `1 stream`, `8 streams`."""
    return count(concurrency, "stream")
