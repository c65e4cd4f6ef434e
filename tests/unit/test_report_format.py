"""Numbers of the report as text."""

import math

import pytest

from draftgate.report.format import (
    MINUS,
    MISSING,
    Scale,
    change,
    count,
    deviation,
    minute,
    number,
    percent,
    scale_for,
    times,
)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0"),
        (0.00123, "0.00123"),
        (0.4, "0.400"),
        (1.0, "1.00"),
        (9.994, "9.99"),
        (9.996, "10.0"),
        (99.96, "100"),
        (0.9996, "1.00"),
        (12.345, "12.3"),
        (123.4, "123"),
        (12345.6, "12,346"),
        (-1.5, f"{MINUS}1.50"),
        (None, MISSING),
        (math.nan, MISSING),
        (math.inf, MISSING),
    ],
)
def test_number_keeps_three_digits(value: float | None, text: str) -> None:
    """A number has three significant digits at least, and none is no 0."""
    assert number(value) == text


@pytest.mark.parametrize(
    ("ratio", "text"),
    [
        (1.123, "+12.3 %"),
        (0.955, f"{MINUS}4.5 %"),
        (1.0, "±0.0 %"),
        (1.0004, "±0.0 %"),
        (0.9996, "±0.0 %"),
        (2.0, "+100 %"),
        (1.9996, "+100 %"),
        (25.0, "+2,400 %"),
        (None, MISSING),
        (math.nan, MISSING),
    ],
)
def test_change_is_signed_percent(ratio: float | None, text: str) -> None:
    """A ratio of 1 is no change, and no change has no sign."""
    assert change(ratio) == text


@pytest.mark.parametrize(
    ("mean", "spread", "text"),
    [(221.0, 3.92, "± 3.9"), (73.1, 0.759, "± 0.76"), (54.1, 0.0, "± 0"), (404.0, 14.3, "± 14")],
)
def test_deviation_is_no_finer_than_its_mean_asks_for(
    mean: float, spread: float, text: str
) -> None:
    """A deviation has two digits."""
    assert deviation(mean, spread) == text


@pytest.mark.parametrize(
    ("unit", "values", "scale"),
    [
        ("s", [0.02, 3.0], Scale(1e3, "ms")),
        ("s", [1.0, 3.0], Scale(1.0, "s")),
        ("s", [0.0, 2.0], Scale(1.0, "s")),
        ("s", [], Scale(1e3, "ms")),
        ("bytes", [5e9], Scale(1e-9, "GB")),
        ("", [0.5], Scale(100.0, "%")),
        ("tokens/s", [5.0], Scale(1.0, "tokens/s")),
    ],
)
def test_scale_is_one_for_all_values(unit: str, values: list[float], scale: Scale) -> None:
    """The unit shown follows from the smallest of the values that stand together."""
    assert scale_for(unit, values) == scale


def test_small_words() -> None:
    """Counts, factors, shares and times read as a person would write them."""
    assert count(1, "stream") == "1 stream"
    assert count(1200, "stream") == "1,200 streams"
    assert times(1.625) == "1.62\N{MULTIPLICATION SIGN}"
    assert percent(0.05) == "5 %"
    assert Scale(1e3, "ms").full(0.0123) == "12.3 ms"
    assert Scale(1e3, "ms").full(None) == MISSING
    assert minute("2026-01-31T14:05:59+00:00") == "2026-01-31 14:05 UTC"
