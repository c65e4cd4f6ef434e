"""Shapes and colours of outcomes and pairs, and the legends that explain them.

Every mark has a shape of its own, so that colour only repeats what it says.
"""

from dataclasses import dataclass

from draftgate.report.canvas import (
    BAD,
    BAD_AREA,
    FOREGROUND,
    GOOD,
    GOOD_AREA,
    INFO,
    MUTED,
    SERIES,
    WARN,
    WARN_AREA,
    variable,
)
from draftgate.report.headline import LABELS
from draftgate.verdict import Outcome


@dataclass(frozen=True, slots=True)
class Mark:
    """How one kind of point is drawn.

    Attributes:
        marker: Matplotlib's letter.
        colour: Sentinel colour.
        hollow: Whether only the outline is.
    """

    marker: str
    colour: str
    hollow: bool = False


@dataclass(frozen=True, slots=True)
class Key:
    """One entry of a legend: a point, a line or an area, and what it means.

    Attributes:
        text: What it means.
        colour: CSS colour.
        marker: Letter of its shape; empty for none.
        hollow: Whether only the outline is drawn.
        dash: Dashes of a line through it; None for no line.
        area: Whether it is a filled area.
    """

    text: str
    colour: str
    marker: str = ""
    hollow: bool = False
    dash: str | None = None
    area: bool = False


OUTCOMES = {
    Outcome.PASS: Mark("o", GOOD),
    Outcome.IMPROVEMENT: Mark("^", GOOD),
    Outcome.REGRESSION: Mark("X", BAD),
    Outcome.INCONCLUSIVE: Mark("D", WARN, hollow=True),
    Outcome.NO_BASELINE: Mark("s", INFO, hollow=True),
    Outcome.INVALID_RUN: Mark("P", BAD, hollow=True),
}

CANDIDATE_FIRST = Mark("o", SERIES[1])
BASE_FIRST = Mark("s", SERIES[2], hollow=True)
LEFT_OUT = Mark("X", MUTED)
NAMED = Mark("D", BAD)
NOT_NAMED = Mark("o", MUTED, hollow=True)

MARGIN_DASH, LIMIT_DASH = "4 2", "0"


def key(text: str, mark: Mark, dash: str | None = None) -> Key:
    """Return the legend's entry of a mark."""
    return Key(text, variable(mark.colour), mark.marker, mark.hollow, dash)


def outcome_keys(outcomes: set[Outcome]) -> tuple[Key, ...]:
    """Return the entries of the outcomes that occur, always in one order."""
    return tuple(
        key(LABELS[outcome], mark, "0") for outcome, mark in OUTCOMES.items() if outcome in outcomes
    )


def zone_keys() -> tuple[Key, ...]:
    """Return the entries of the shaded zones and their borders."""
    return (
        Key("tolerated", variable(GOOD_AREA), area=True),
        Key("margin", variable(MUTED), dash=MARGIN_DASH),
        Key("between", variable(WARN_AREA), area=True),
        Key("relevance limit", variable(MUTED), dash=LIMIT_DASH),
        Key("relevant", variable(BAD_AREA), area=True),
    )


def pair_keys(*, left_out: bool) -> tuple[Key, ...]:
    """Return the entries of the plots of pairs in order."""
    found = (
        key("candidate first", CANDIDATE_FIRST),
        key("base first", BASE_FIRST),
        Key("mean so far", variable(FOREGROUND), dash="0"),
        Key("margin", variable(BAD), dash=MARGIN_DASH),
    )
    return (*found, key("left out", LEFT_OUT)) if left_out else found


def cause_keys() -> tuple[Key, ...]:
    """Return the entries of the plots of factors."""
    return key("named as a cause", NAMED, "0"), key("not named", NOT_NAMED, "0")
