"""Causes: every factor of a changed cell with its interval, and acceptance by position.

Gates of one cell that share a cause share its panels; relative factors and
those in seconds or tokens have panels of their own. Chooses what is drawn;
`rows` and `draftgate.report.plots` draw it.
"""

import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from draftgate.compare.gates import title
from draftgate.compare.records import Cause, FactorLoss, GateResult
from draftgate.report.comparison.words import factor_text
from draftgate.report.comparison_page.marks import NAMED, NOT_NAMED
from draftgate.report.comparison_page.names import cell_title, worse_when
from draftgate.report.comparison_page.rows import Block, Row, reach_of, row_plot
from draftgate.report.figures import FigureView, Panel, position_plot
from draftgate.report.format import MISSING, Scale, number, percent, scale_for
from draftgate.report.plots import Series
from draftgate.report.table import Column, Entry, Group, Table

WIDEST = 1000.0
"""Ends of the axis of factors, percent or unit: beyond it nothing is told apart."""

LABEL_CHARACTERS = 24
"""What fits beside a row."""


@dataclass(frozen=True, slots=True)
class CellCause:
    """One cause and the gates of its cell that it explains.

    Attributes:
        place: Arm and streams.
        metrics: Titles of the gates' metrics.
        cause: The cause.
    """

    place: str
    metrics: tuple[str, ...]
    cause: Cause

    @property
    def heading(self) -> str:
        """Place and metrics in one line."""
        return f"{self.place}: {'; '.join(self.metrics)}"


def cell_causes(results: Sequence[GateResult]) -> tuple[CellCause, ...]:
    """Return each stated cause once per cell, in the order of the gates."""
    found: dict[tuple[str, Cause], list[str]] = {}
    for result in results:
        if result.cause is not None and result.cause.factors:
            gate = result.gate
            known = cell_title(gate.arm, gate.concurrency), result.cause
            found.setdefault(known, []).append(title(gate.metric))
    return tuple(CellCause(place, tuple(of), cause) for (place, cause), of in found.items())


def cause_figure(causes: Sequence[CellCause]) -> FigureView:
    """Return the figure of factors; without panels if no cause is stated."""
    panels = tuple(
        _factor_panel(f"cause{index}x{place}", found, unit)
        for index, found in enumerate(causes)
        for place, unit in enumerate(dict.fromkeys(f.unit for f in found.cause.factors))
    )
    return FigureView(
        "causes",
        "Causes",
        "Change of every factor from base to candidate with its 95 % interval; under each stands "
        "which way is worse. A factor is named if its interval leaves out 0 and it carries at "
        "least a third of the change.",
        (),
        panels,
        "No cause is stated: no gate changed, or its metric has no factors.",
        factor_table(causes) if panels else None,
    )


def factor_table(causes: Sequence[CellCause]) -> Table:
    """Return the numbers of the plot."""
    columns = (
        Column("Factor"),
        Column("Change", "[95 % interval]"),
        Column("Share of the change"),
        Column("Worse if"),
        Column("Named"),
        Column("Measured by"),
    )
    groups = (
        Group(found.heading, tuple(_factor_row(factor) for factor in found.cause.factors))
        for found in causes
    )
    return Table("Factors of the changes", columns, tuple(groups))


def position_figure(causes: Sequence[CellCause]) -> FigureView | None:
    """Return acceptance by draft position of both sides; None where it did not move."""
    moved = {(found.place, found.cause.positions) for found in causes if found.cause.positions}
    cells = sorted(moved)
    if not cells:
        return None
    panels = tuple(
        _position_panel(f"position{index}", place, positions)
        for index, (place, positions) in enumerate(cells)
    )
    groups = tuple(Group(place, tuple(map(_position_row, known))) for place, known in cells)
    columns = (
        Column("Draft position", "0 is the first"),
        Column("Base", "accepted, %"),
        Column("Candidate", "accepted, %"),
        Column("Difference", "percentage points"),
        Column("Interval", "percentage points"),
    )
    return FigureView(
        "positions",
        "Acceptance by draft position",
        "Share of drafts whose token at this position was accepted, mean over starts; the "
        "candidate with the interval of its difference to the base.",
        (("base", 0), ("candidate", 1)),
        panels,
        "",
        Table("Acceptance by draft position", columns, groups),
    )


Positions = tuple[tuple[int, float, float, float, float], ...]


def _factor_panel(key: str, found: CellCause, unit: str) -> Panel:
    factors = [factor for factor in found.cause.factors if factor.unit == unit]
    scale = _scale(factors)
    rows = tuple(_row(factor, scale) for factor in factors)
    reach = reach_of(rows, lowest=-WIDEST, highest=WIDEST)
    label = f"Change from base to candidate ({scale.unit})"
    words = "; ".join(factor_text(factor) for factor in factors)
    svg = row_plot(key, (Block("", rows),), label, reach)
    return Panel(found.heading, f"{found.heading}. {words}.", svg, ())


def _scale(factors: Sequence[FactorLoss]) -> Scale:
    ends = [value for factor in factors for value in (factor.change, factor.low, factor.high)]
    return scale_for(factors[0].unit, ends)


def _row(factor: FactorLoss, scale: Scale) -> Row:
    worse = _worse(factor)
    label = textwrap.fill(factor.label, LABEL_CHARACTERS)
    change, low, high = (v * scale.factor for v in (factor.change, factor.low, factor.high))
    return Row(
        label=f"{label}\nworse if {worse}" if worse else label,
        estimate=change,
        low=low,
        high=high,
        mark=NAMED if factor.named else NOT_NAMED,
        text=factor_text(factor).removeprefix(f"{factor.label} "),
    )


def _worse(factor: FactorLoss) -> str:
    """Return which way is worse; a factor in seconds is a wait, whatever metric it is read from."""
    return "higher" if factor.unit == "s" else worse_when(factor.metric)


def _factor_row(factor: FactorLoss) -> tuple[Entry, ...]:
    return (
        Entry(factor.label),
        Entry(factor_text(factor).removeprefix(f"{factor.label} ")),
        Entry(percent(factor.share) if factor.share else MISSING),
        Entry(_worse(factor) or MISSING),
        Entry("yes" if factor.named else "no"),
        Entry(title(factor.metric)),
    )


def _position_panel(key: str, place: str, positions: Positions) -> Panel:
    at = tuple(float(position) for position, *_ in positions)
    base = Series("base", 0, at, _percents(one[1] for one in positions))
    candidate = Series(
        "candidate",
        1,
        at,
        _percents(one[2] for one in positions),
        _percents(one[1] + one[3] for one in positions),
        _percents(one[1] + one[4] for one in positions),
    )
    words = "; ".join(
        f"position {p}: {number(b * 100)} % to {number(c * 100)} %" for p, b, c, _, _ in positions
    )
    return Panel(place, f"{place}. {words}.", position_plot(key, (base, candidate)), ())


def _percents(shares: Iterable[float]) -> tuple[float, ...]:
    return tuple(share * 100.0 for share in shares)


def _position_row(known: tuple[int, float, float, float, float]) -> tuple[Entry, ...]:
    position, base, candidate, low, high = known
    points = [number(value * 100.0) for value in (base, candidate, candidate - base, low, high)]
    return (Entry(str(position)), *map(Entry, points[:3]), Entry(f"[{points[3]}, {points[4]}]"))
