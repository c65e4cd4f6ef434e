"""What is asked of the evidence, and what was found, from the JSON of both kinds of drafts.

Pure: rows in, goals out. `tables` writes them into RESULTS.md.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf, log
from statistics import median
from typing import Any

Row = dict[str, Any]

MEDIAN = 2.5
"""Most tokens over the limit, in the median of the faults."""

LARGEST = 8.0
"""Most tokens over the limit of any fault."""

FEWER = 10.0
"""Least tokens of the evidence over those of the joint verdict."""

EXCLUDED = 1e-6
"""Probability per token of impossible events below which they are not counted on."""


@dataclass(frozen=True, slots=True)
class Study:
    """The numbers of one kind of drafts.

    Attributes:
        kind: Kind of drafts.
        rows: One a fault.
        limits: What the best joint test could do, by fault.
    """

    kind: str
    rows: Sequence[Row]
    limits: Mapping[str, Row]


@dataclass(frozen=True, slots=True)
class Goal:
    """One number that is asked for.

    Attributes:
        what: Of which study.
        asked: What is asked.
        found: What was found.
        met: Whether that is enough.
    """

    what: str
    asked: str
    found: str
    met: bool


def factors(rows: Sequence[Row], name: str = "ours") -> list[float]:
    """Return a column's tokens over the limit, infinite where it did not alarm."""
    return [row[name] / row["limit"] if row[name] else inf for row in rows]


def joint_limit(study: Study, row: Row) -> tuple[float, bool]:
    """Return what the best joint test needs, and whether impossible events decide it.

    ln(1 / alpha) over the joint divergence, or where that is less, the tokens until
    what the rule excludes has shown in 90 % of streams; infinite where nothing is known.
    """
    known = study.limits.get(row["fault"], {"kl": 0.0, "impossible": 0.0})
    shown = log(10) / known["impossible"] if known["impossible"] > EXCLUDED else inf
    limit = row["limit"] * row["kl"] / known["kl"] if known["kl"] > 0 else inf
    return min(shown, limit), shown < limit


def asked_jointly(study: Study) -> list[Row]:
    """Return the faults for which something is known of the best joint test."""
    return [row for row in study.rows if joint_limit(study, row)[0] < inf]


def within_reach(study: Study) -> list[Row]:
    """Return those whose joint limit is at most a tenth of the evidence's tokens."""
    return [
        row
        for row in asked_jointly(study)
        if row["ours"] and FEWER * joint_limit(study, row)[0] <= row["ours"]
    ]


def goals(study: Study) -> Iterator[Goal]:
    """Yield the goals of one study with what was found."""
    kind, rows, found = study.kind, study.rows, factors(study.rows)
    yield Goal(
        f"median over the limit, {kind} drafts",
        f"at most {MEDIAN:g}",
        f"{median(found):.2f}",
        median(found) <= MEDIAN,
    )
    over = [
        f"{row['fault']} ({x:.1f})" for row, x in zip(rows, found, strict=True) if LARGEST < x < inf
    ]
    most = max(x for x in found if x < inf)
    yield Goal(
        f"largest over the limit of those found, {kind} drafts",
        f"at most {LARGEST:g}",
        ", ".join(over) or f"{most:.1f}",
        most <= LARGEST,
    )
    missing = [row["fault"] for row in rows if not row["ours"]]
    yield Goal(
        f"faults that are not found, {kind} drafts",
        "none",
        ", ".join(missing) or "none",
        not missing,
    )
    fewer = [row for row in rows if row["joint"] and row["ours"]]
    enough = [row for row in fewer if row["ours"] >= FEWER * row["joint"]]
    yield Goal(
        f"joint verdict in at most a tenth of the tokens, {kind} drafts",
        f"all {len(asked_jointly(study))}",
        f"{len(enough)} ({', '.join(row['fault'] for row in enough)})",
        len(enough) == len(asked_jointly(study)),
    )
