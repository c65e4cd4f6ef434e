"""What is asked of the evidence, and what was found, from the JSON of both kinds of drafts.

Pure: rows in, goals out. `tables` writes them into RESULTS.md.
"""

from collections.abc import Mapping, Sequence
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


def out_of_reach(study: Study) -> list[Row]:
    """Return the faults for which even their own likelihood ratio takes over MEDIAN limits."""
    found = zip(study.rows, factors(study.rows, "oracle"), strict=True)
    return [row for row, factor in found if factor > MEDIAN]


def goals(study: Study) -> tuple[Goal, ...]:
    """Return the goals of one study with what was found."""
    return (_median(study), _largest(study), _missing(study), _joint(study))


def _median(study: Study) -> Goal:
    found = median(factors(study.rows))
    what = f"median over the limit, {study.kind} drafts"
    return Goal(what, f"at most {MEDIAN:g}", f"{found:.2f}", found <= MEDIAN)


def _largest(study: Study) -> Goal:
    found = max(x for x in factors(study.rows) if x < inf)
    what = f"largest over the limit of those found, {study.kind} drafts"
    return Goal(what, f"at most {LARGEST:g}", f"{found:.1f}", found <= LARGEST)


def _missing(study: Study) -> Goal:
    names = ", ".join(row["fault"] for row in study.rows if not row["ours"])
    return Goal(f"not found, {study.kind} drafts", "none", names or "none", not names)


def _joint(study: Study) -> Goal:
    asked = len(asked_jointly(study))
    enough = [row["fault"] for row in study.rows if row["joint"] and fewer(row) >= FEWER]
    what = f"joint verdict in at most a tenth of the tokens, {study.kind} drafts"
    found = f"{len(enough)}: {', '.join(enough)}"
    return Goal(what, f"all {asked}", found, len(enough) == asked)


def fewer(row: Row) -> float:
    """Return by how much the joint verdict's tokens are fewer than the evidence's."""
    return float(row["ours"] / row["joint"]) if row["ours"] and row["joint"] else 0.0
