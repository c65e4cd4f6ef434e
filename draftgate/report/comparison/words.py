"""Numbers and names of a comparison as people read them.

A loss is positive where worse; a reader sees the change of the metric in its
own direction: tokens/s -5 %, time +5 %. Short plain text only; knows no
Markdown, XML or terminal, and escapes nothing.
"""

import math
import unicodedata
from collections.abc import Sequence

from draftgate.compare.gates import BY_PROMPT, title
from draftgate.compare.losses import Change, change_of
from draftgate.compare.records import FactorLoss, Gate, GateResult, Scale, StageNumbers
from draftgate.metrics import definition
from draftgate.report.format import (
    MINUS,
    MISSING,
    TIMES,
    decimals_of,
    fixed,
    percent,
    scale_for,
)
from draftgate.report.table import streams

LARGEST_PERCENT = 999.0
"""Changes beyond it say nothing but that they are large."""

SMALLEST_P = 0.0001
LARGEST_PAIRS = 1000
"""More further pairs than that nobody starts."""

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"


def unit(metric: str) -> str:
    """Return the unit of a gated metric's values; empty for a ratio.

    Raises:
        SpecError: If there is no such metric.
    """
    return "tokens" if metric == BY_PROMPT else definition(metric).unit


def place(gate: Gate) -> str:
    """Return `ngram at 8 streams`."""
    return f"{gate.arm} at {streams(gate.concurrency)}"


def short_place(gate: Gate) -> str:
    """Return `ngram`, the sign of multiplication and `8`, for narrow columns."""
    return f"{gate.arm} {TIMES} {gate.concurrency}"


def decisive(result: GateResult) -> StageNumbers | None:
    """Return the numbers to show: of stage two where there is one, else of stage one."""
    return result.confirm or result.search


def pairs_text(result: GateResult) -> str:
    """Return the pairs judged: `8`, or `8 + 24` for both stages."""
    stages = [stage for stage in (result.search, result.confirm) if stage is not None]
    return " + ".join(str(stage.pairs) for stage in stages) or MISSING


def change_text(result: GateResult, *, units: bool = True) -> str:
    """Return the change with its interval, as in `+8 % [6, 10]`; a dash where there is none.

    Args:
        result: A gate.
        units: Whether a difference has its unit; a relative change always has its sign.
    """
    numbers = decisive(result)
    if numbers is None:
        return MISSING
    found = change_of(result.gate, numbers)
    if result.gate.scale is Scale.RATIO:
        return percent_interval(found)
    return unit_interval(found, unit(result.gate.metric), units=units)


def percent_interval(found: Change) -> str:
    """Return relative changes as `+8 % [6, 10]`."""
    ends = f"[{percent_number(found.low)}, {percent_number(found.high)}]"
    return f"{_signed(percent_number(found.estimate))} % {ends}"


def unit_interval(found: Change, name: str, *, units: bool = True) -> str:
    """Return differences in a metric's unit as `-0.12 tokens [-0.13, -0.11]`.

    Args:
        found: The differences.
        name: Their unit as in a metric's definition.
        units: Whether the unit is shown.
    """
    ends = (found.estimate, found.low, found.high)
    scale = scale_for(name, ends)
    values = [value * scale.factor for value in ends]
    decimals = _decimals(values)
    shown = [fixed(v + 0.0, decimals) if math.isfinite(v) else MISSING for v in values]
    space = f" {scale.unit}" if scale.unit and units else ""
    return f"{_signed(shown[0])}{space} [{shown[1]}, {shown[2]}]"


def _decimals(values: Sequence[float]) -> int:
    """Return two digits of the interval's half width, at most three of the largest number."""
    finite = [value for value in values if math.isfinite(value)]
    if not finite:
        return 0
    half = (max(finite) - min(finite)) / 2
    most = decimals_of(max(finite, key=abs))
    return min(most, max(0, decimals_of(half) - 1)) if half else most


def percent_number(share: float) -> str:
    """Return a share in percent without the sign: one decimal under 10, none above."""
    if math.isnan(share):
        return MISSING
    value = share * 100
    if abs(value) > LARGEST_PERCENT:
        return f">{LARGEST_PERCENT:.0f}" if value > 0 else f"<{MINUS}{LARGEST_PERCENT:.0f}"
    rounded = round(value, 1) if abs(value) < 10 else float(round(value))
    return fixed(rounded + 0.0, 0 if rounded == round(rounded) else 1)  # 0.0 drops the sign of -0


def factor_text(factor: FactorLoss) -> str:
    """Return a factor's change with its interval, as in `step time +8 % [6, 10]`.

    Where the label is not the name of what was measured, that stands beside it:
    `acceptance (tokens per step -8 % [-9, -7])`. Seconds of a label speak for
    themselves.

    Raises:
        SpecError: If its metric is not registered.
    """
    found = Change(factor.change, factor.low, factor.high)
    told = unit_interval(found, factor.unit) if factor.unit else percent_interval(found)
    measured = title(factor.metric)
    if factor.unit == "s" or factor.label == measured:
        return f"{factor.label} {told}"
    return f"{factor.label} ({measured} {told})"


def bounds_text(gate: Gate) -> str:
    """Return margin and relevance limit: `1 % / 5 %`, `0.02 / 0.1 tokens`."""
    if gate.scale is Scale.RATIO:
        return f"{percent(gate.margin)} / {percent(gate.limit)}"
    return f"{gate.margin:g} / {gate.limit:g} {unit(gate.metric)}"


def values_text(result: GateResult) -> tuple[str, str]:
    """Return the values of base and candidate in one unit, a dash where there is none."""
    both = (result.base_value, result.value)
    scale = scale_for(unit(result.gate.metric), [value for value in both if value is not None])
    return scale.full(both[0]), scale.full(both[1])


def p_text(p_value: float | None) -> str:
    """Return a p-value to two digits, `<0.0001` where smaller."""
    if p_value is None or not math.isfinite(p_value):
        return MISSING
    return f"<{SMALLEST_P:g}" if p_value < SMALLEST_P else f"{p_value:.2g}"


def minutes_text(minutes: float) -> str:
    """Return a time in minutes, in hours from two hours on."""
    if minutes >= 120:
        return f"{minutes / 60:.1f} hours"
    return f"{f'{minutes:.2g}' if minutes < 10 else round(minutes)} minutes"


def needed_text(pairs: int) -> str:
    """Return how many further pairs would decide."""
    if pairs > LARGEST_PAIRS:
        return f"more than {LARGEST_PAIRS:,} more pairs"
    return f"about {pairs} more pair{'' if pairs == 1 else 's'}"


def stand_in(gate: Gate) -> str:
    """Return which metric was asked for instead, and why it could not be; empty if none was."""
    if gate.instead_of is None:
        return ""
    why = f": {gate.note}" if gate.note else ""
    return f"{title(gate.metric)} stands instead of {title(gate.instead_of)}{why}"


def plain(text: str, longest: int | None = None) -> str:
    """Return outside text as one line without control characters.

    Terminal escapes, NUL and marks that turn the direction of writing become
    the replacement character.

    Args:
        text: Anything.
        longest: Characters to keep; the rest becomes an ellipsis.
    """
    line = " ".join(text.split())
    line = "".join(REPLACEMENT if _is_control(char) else char for char in line)
    return line if longest is None or len(line) <= longest else line[: longest - 1] + "…"


def _is_control(char: str) -> bool:
    return unicodedata.category(char) in ("Cc", "Cf", "Cs")


def _signed(shown: str) -> str:
    positive = shown[:1].isdigit() and any(digit in "123456789" for digit in shown)
    return f"+{shown}" if positive else shown
