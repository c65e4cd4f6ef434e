"""From the rows of the history to series: one number per night of like things.

Rows differ in a column of `SeriesKey` or stand in one series; nothing else is
asked. The runs of a session share its machine, its server builds and its hour,
so they are no independent points: their mean is one point, and the nights are
what changes are looked for in. What cannot be used is named as a gap.
"""

import math
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from draftgate.errors import BaselineError
from draftgate.history.records import Gap, Night, Series, SeriesKey
from draftgate.history.store import read_nights

_KEY = tuple(field.name for field in fields(SeriesKey))

_NAMED = 3
"""Run ids that a note spells out."""

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class History:
    """The history, read.

    Attributes:
        series: All series, sorted by key.
        notes: What is odd about the history as a whole.
        nights: Number of sessions.
    """

    series: tuple[Series, ...]
    notes: tuple[str, ...]
    nights: int


def load_history(root: Path) -> History:
    """Read the history at `root`.

    Raises:
        BaselineError: If there is none, or a file of it cannot be used.
    """
    return history_of(read_nights(root))


def series(history: History, key: SeriesKey) -> Series:
    """Return one series.

    Raises:
        BaselineError: If the history holds no row of it.
    """
    for found in history.series:
        if found.key == key:
            return found
    raise BaselineError(
        f"history: holds no series {key}. Its {len(history.series)} series are listed by: "
        "draftgate history show --all"
    )


def history_of(table: pa.Table) -> History:
    """Return the series that rows make.

    Args:
        table: Rows as returned by `read_nights`, of any order.
    """
    rows = _Rows(table)
    sessions = _sessions(rows)
    groups = _Groups(rows, sessions)
    found = tuple(sorted(groups.series(), key=lambda one: one.key))
    return History(found, tuple(_clock_notes(rows, sessions)), len(sessions))


class _Rows:
    """Columns of the table as arrays; texts as codes into their distinct values."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table
        self._codes: dict[str, tuple[IntArray, list[Any]]] = {}
        self.value = self.numbers("value")
        self.valid = self.codes("invalid")[0] == self._code_of("invalid", "")
        self.usable = self.valid & np.isfinite(self.value)

    def numbers(self, name: str) -> FloatArray:
        return np.asarray(self._table.column(name).to_numpy())

    def codes(self, name: str) -> tuple[IntArray, list[Any]]:
        """Return the code of each row and what the codes stand for."""
        if name not in self._codes:
            column = self._table.column(name).combine_chunks()
            if not pa.types.is_dictionary(column.type):
                column = column.dictionary_encode()
            codes = column.indices.to_numpy().astype(np.int64)
            self._codes[name] = codes, column.dictionary.to_pylist()
        return self._codes[name]

    def at(self, name: str, row: int) -> Any:
        codes, values = self.codes(name)
        return values[codes[row]]

    def groups(self, names: Iterable[str]) -> tuple[IntArray, IntArray]:
        """Return the group of each row by equal columns, and one row of each group."""
        group = np.zeros(self.value.size, dtype=np.int64)
        first = np.zeros(1, dtype=np.int64)
        for name in names:
            codes, values = self.codes(name)
            _, first, group = np.unique(
                group * len(values) + codes, return_index=True, return_inverse=True
            )
        return group, first

    def _code_of(self, name: str, value: Any) -> int:
        values = self.codes(name)[1]
        return values.index(value) if value in values else -1


@dataclass(frozen=True, slots=True)
class _Session:
    """One night: its id, when it began, its place in the order of appending."""

    run_id: str
    time: datetime
    sequence: int
    hardware: str
    profile: str


def _sessions(rows: _Rows) -> tuple[_Session, ...]:
    """Return the sessions in order of time."""
    names = ("run_id", "session_time", "sequence", "hardware", "profile")
    _, first = rows.groups(names)
    found = (_Session(*(rows.at(name, row) for name in names)) for row in first)
    return tuple(sorted(found, key=lambda session: (session.time, session.run_id)))


class _Groups:
    """Rows by series and, within a series, by session in order of time."""

    def __init__(self, rows: _Rows, sessions: tuple[_Session, ...]) -> None:
        self._rows, self._sessions = rows, sessions
        ranks = {session.run_id: rank for rank, session in enumerate(sessions)}
        codes, run_ids = rows.codes("run_id")
        rank = np.array([ranks[run_id] for run_id in run_ids], dtype=np.int64)[codes]
        self._series, self._first = rows.groups(_KEY)
        cells, self._cell_row, cell = np.unique(
            self._series * len(sessions) + rank, return_index=True, return_inverse=True
        )
        self._cell_series, self._cell_rank = np.divmod(cells, len(sessions))
        self._cell = cell
        self._runs = np.bincount(cell, rows.usable)
        self._all = np.bincount(cell)
        self._is_log = self._scales()
        self._means = self._cell_means()
        self._edges = np.searchsorted(self._cell_series, np.arange(self._first.size + 1))
        self._nights_of = self._profile_nights()
        self._why = self._reasons()

    def series(self) -> Iterator[Series]:
        """Yield one series per key."""
        for number in range(self._first.size):
            yield self._one(number)

    def _one(self, number: int) -> Series:
        row = int(self._first[number])
        cells = range(int(self._edges[number]), int(self._edges[number + 1]))
        points = [cell for cell in cells if self._runs[cell]]
        gaps = [self._gap(cell) for cell in cells if self._runs[cell] < self._all[cell]]
        seen = {int(self._cell_rank[cell]) for cell in cells}
        first = int(self._cell_rank[cells[0]])
        last = int(self._cell_rank[points[-1]]) if points else -1
        nights = self._nights_of[self._group(row)]
        absent = [rank for rank in nights if first < rank < last and rank not in seen]
        gaps += [self._absent(rank) for rank in absent]
        return Series(
            key=SeriesKey(*(self._rows.at(name, row) for name in _KEY)),
            unit=self._rows.at("unit", row),
            better=self._rows.at("better", row),
            is_log=bool(self._is_log[number]),
            nights=tuple(map(self._night, points)),
            gaps=tuple(sorted(gaps, key=lambda gap: gap.time)),
            silent=sum(rank > last for rank in nights) if points else len(nights),
        )

    def _night(self, cell: int) -> Night:
        session = self._sessions[self._cell_rank[cell]]
        row = int(self._cell_row[cell])
        return Night(
            run_id=session.run_id,
            time=session.time,
            value=float(self._means[cell]),
            runs=int(self._runs[cell]),
            engine_version=self._rows.at("engine_version", row),
            commit=self._rows.at("commit", row),
        )

    def _gap(self, cell: int) -> Gap:
        session = self._sessions[self._cell_rank[cell]]
        left = int(self._all[cell] - self._runs[cell])
        is_whole = left == self._all[cell]
        share = "" if is_whole else f"{left} of {self._all[cell]} runs left out: "
        why = share + "; ".join(self._why[cell])
        return Gap(session.run_id, session.time, why, bool(is_whole))

    def _absent(self, rank: int) -> Gap:
        session = self._sessions[rank]
        return Gap(session.run_id, session.time, "no value", is_whole=True)

    def _scales(self) -> NDArray[np.bool_]:
        """Return per series whether all its values are above 0."""
        low = self._rows.usable & (self._rows.value <= 0.0)
        above: NDArray[np.bool_] = np.bincount(self._series, low, self._first.size) == 0
        return above

    def _cell_means(self) -> FloatArray:
        """Return one mean per cell: geometric for series on the log scale."""
        usable, value = self._rows.usable, self._rows.value
        is_log = self._is_log[self._series] & usable
        logs = np.log(value, out=np.zeros_like(value), where=is_log)
        runs = np.maximum(self._runs, 1)
        means = np.bincount(self._cell, np.where(usable, value, 0.0)) / runs
        geometric = np.exp(np.bincount(self._cell, logs) / runs)
        # A single run stays exactly its value, without the way through the logarithm.
        is_mean = self._is_log[self._cell_series] & (self._runs > 1)
        return np.where(is_mean, geometric, means)

    def _group(self, row: int) -> tuple[str, ...]:
        return tuple(self._rows.at(name, row) for name in ("hardware", "engine", "profile", "role"))

    def _profile_nights(self) -> dict[tuple[str, ...], list[int]]:
        """Return the sessions of each profile, engine and role: what a series could have."""
        found: dict[tuple[str, ...], set[int]] = {}
        group, first = self._rows.groups(("hardware", "engine", "profile", "role"))
        cell_group = group[self._cell_row]
        for number, row in enumerate(first):
            ranks = np.unique(self._cell_rank[cell_group == number])
            found.setdefault(self._group(int(row)), set()).update(map(int, ranks))
        return {name: sorted(ranks) for name, ranks in found.items()}

    def _reasons(self) -> dict[int, list[str]]:
        """Return by cell why values of it cannot be used."""
        found: dict[int, list[str]] = {}
        for row in np.flatnonzero(~self._rows.usable):
            value = float(self._rows.value[row])
            why = self._rows.at("invalid", row) or ("NaN" if math.isnan(value) else f"{value}")
            reasons = found.setdefault(int(self._cell[row]), [])
            if why not in reasons:
                reasons.append(why)
        return found


def _clock_notes(rows: _Rows, sessions: tuple[_Session, ...]) -> Iterator[str]:
    """Name the sessions whose time contradicts the order of appending, or that of their runs."""
    places: dict[tuple[str, str], list[_Session]] = {}
    for session in sessions:
        places.setdefault((session.hardware, session.profile), []).append(session)
    for (hardware, profile), here in places.items():
        odd = [session.run_id for session in _out_of_order(here)]
        if odd:
            yield (
                f"{profile} on {hardware}: time and order of appending contradict each other at "
                f"{_few(odd)}. A clock went wrong, a run was added late, or branches were merged. "
                "Series go by time."
            )
    early = np.flatnonzero(rows.numbers("time") < rows.numbers("session_time"))
    odd = sorted({rows.at("run_id", int(row)) for row in early})
    if odd:
        yield f"{_few(odd)}: runs from before the session began; a clock went backwards."


def _out_of_order(sessions: list[_Session]) -> list[_Session]:
    """Return the fewest sessions without which times and order of appending agree.

    Args:
        sessions: In order of time.

    Source:
        C. Schensted, Canad. J. Math. 13 (1961) 179-191: the longest ascending
        subsequence, by patience; the rest is returned.
    """
    ends: list[int] = []  # the least last number of an ascending run of each length
    length = []
    for session in sessions:
        place = bisect_right(ends, session.sequence)
        ends[place : place + 1] = [session.sequence]
        length.append(place)
    kept, wanted = set(), len(ends) - 1
    for index in range(len(sessions) - 1, -1, -1):
        if length[index] == wanted:
            kept.add(index)
            wanted -= 1
    return [session for index, session in enumerate(sessions) if index not in kept]


def _few(run_ids: list[str]) -> str:
    rest = len(run_ids) - _NAMED
    return ", ".join(run_ids[:_NAMED]) + (f" and {rest} more" if rest > 0 else "")
