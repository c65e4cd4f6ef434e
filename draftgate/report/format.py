"""Numbers for people: three digits, a unit, a proper minus sign.

The only place where units are converted: everything below `draftgate.report`
is in seconds, bytes and plain ratios. Knows nothing of runs or pages.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

MISSING = "—"
"""Shown where there is no number; never 0, which is one."""

MINUS = "\N{MINUS SIGN}"
TIMES = "\N{MULTIPLICATION SIGN}"
TO = "\N{EN DASH}"


@dataclass(frozen=True, slots=True)
class Scale:
    """How a unit of the record is shown: displayed value = value * factor."""

    factor: float
    unit: str

    def show(self, value: float | None) -> str:
        """Return the value without its unit, as it stands in a column."""
        return number(None if value is None else value * self.factor)

    def full(self, value: float | None) -> str:
        """Return the value with its unit, as it stands in a sentence."""
        text = self.show(value)
        return text if text == MISSING or not self.unit else f"{text} {self.unit}"


def number(value: float | None) -> str:
    """Return `value` with at least three significant digits and grouped thousands."""
    if value is None or not math.isfinite(value):
        return MISSING
    return fixed(value, decimals_of(value))


def decimals_of(value: float) -> int:
    """Return the decimals that give `value` three significant digits, at least 0."""
    if value == 0:
        return 0
    decimals = max(0, 2 - math.floor(math.log10(abs(value))))
    if decimals and abs(round(value, decimals)) >= 10.0 ** (3 - decimals):
        return decimals - 1  # 9.996 is 10.0, not 10.00
    return decimals


def fixed(value: float, decimals: int) -> str:
    """Return `value` with `decimals` decimals and grouped thousands."""
    return f"{value:,.{decimals}f}".replace("-", MINUS)


def times(ratio: float | None) -> str:
    """Return a ratio as a factor, a number and the sign of multiplication."""
    return MISSING if ratio is None else f"{number(ratio)}{TIMES}"


def deviation(mean: float, spread: float) -> str:
    """Return a deviation to two digits, but never finer than its mean by more than one."""
    own = decimals_of(spread) - 1 if spread else 0
    return f"± {fixed(spread, max(0, min(own, decimals_of(mean) + 1)))}"


def change(ratio: float | None) -> str:
    """Return a ratio as a signed change in percent, for example `+12.3 %`."""
    if ratio is None or not math.isfinite(ratio):
        return MISSING
    relative = (ratio - 1.0) * 100.0
    rounded = round(relative, 1 if abs(relative) < 99.95 else 0)
    sign = "+" if rounded > 0 else MINUS if rounded < 0 else "±"
    return f"{sign}{abs(rounded):,.{1 if abs(rounded) < 100 else 0}f} %"


def percent(share: float | None) -> str:
    """Return a share in percent without a sign, for example `5 %`."""
    return MISSING if share is None else f"{share * 100:.3g} %"


def count(amount: int, noun: str, plural: str | None = None) -> str:
    """Return `1 stream`, `8 streams`."""
    return f"{amount:,} {noun if amount == 1 else plural or noun + 's'}"


def minute(started_at: str) -> str:
    """Return an ISO 8601 time as `2026-01-31 14:05 UTC`."""
    return f"{datetime.fromisoformat(started_at):%Y-%m-%d %H:%M} UTC"


def second(started_at: str) -> str:
    """Return an ISO 8601 time as `2026-01-31 14:05:59`, for a column headed UTC."""
    return f"{datetime.fromisoformat(started_at):%Y-%m-%d %H:%M:%S}"


def scale_for(unit: str, values: Iterable[float] = ()) -> Scale:
    """Return how to show `unit`, chosen so that the values of one table read alike.

    Seconds become milliseconds unless every value reaches one second; bytes
    become GB; ratios, which have no unit, become percent.

    Args:
        unit: Unit of a metric's definition.
        values: All values that will stand beside each other.
    """
    present = [abs(value) for value in values if math.isfinite(value) and value]
    if unit == "s":
        return Scale(1.0, "s") if present and min(present) >= 1.0 else Scale(1e3, "ms")
    if unit == "bytes":
        return Scale(1e-9, "GB")
    if unit == "":
        return Scale(100.0, "%")
    return Scale(1.0, unit)
