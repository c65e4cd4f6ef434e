"""Plots as SVG text that fits a page."""

import math
import re

import pytest

from draftgate.report.canvas import FOREGROUND, SERIES
from draftgate.report.plots import (
    Axis,
    Series,
    cdf_plot,
    line_plot,
    log_ticks,
    speed_up_plot,
)

LINES = (
    Series("ngram", 1, (1.0, 8.0), (1.2, 0.9), (1.1, math.nan), (1.3, math.nan)),
    Series("draft_model", 2, (1.0, 8.0), (1.5, 1.1)),
)
AXIS = Axis("Streams", "Speed-up", (1.0, 8.0), x_log=True)


@pytest.fixture(name="svg")
def _svg() -> str:
    """Return one drawn plot."""
    return speed_up_plot("speedup", LINES, AXIS)


def test_colours_are_variables_of_the_page(svg: str) -> None:
    """No fixed colour is left, so the plot follows the theme."""
    assert not re.search(r"#[0-9a-f]{6}\b", svg)
    for variable in ("--fg", "--muted", "--grid", "--c1", "--c2"):
        assert f"var({variable})" in svg


def test_text_stays_text_in_the_font_of_the_page(svg: str) -> None:
    """Labels are text elements without a font of their own."""
    assert ">break-even<" in svg
    assert ">Streams<" in svg
    assert "font-family" not in svg


def test_svg_stands_alone_in_a_page(svg: str) -> None:
    """No prologue, style sheet, fixed size or address is left."""
    assert svg.startswith("<svg viewBox=")
    assert svg.endswith("</svg>")
    for word in ("<?xml", "<!DOCTYPE", "<style", "<metadata", "http", "xlink"):
        assert word not in svg


def test_ids_are_unique_by_key_and_references_resolve(svg: str) -> None:
    """Two plots share no id, and each reference points into its own plot."""
    ids = re.findall(r'\bid="([^"]+)"', svg)
    other = re.findall(r'\bid="([^"]+)"', line_plot("drift1", LINES, AXIS))
    references = re.findall(r'href="#([^"]+)"', svg) + re.findall(r"url\(#([^)]+)\)", svg)

    assert len(ids) == len(set(ids))
    assert not set(ids) & set(other)
    assert references
    assert set(references) <= set(ids)


def test_drawing_is_repeatable(svg: str) -> None:
    """The same numbers give the same text."""
    assert speed_up_plot("speedup", LINES, AXIS) == svg


def test_missing_interval_draws_no_bar(svg: str) -> None:
    """An interval that is not there leaves no coordinate behind."""
    assert "nan" not in svg.lower()


def test_styles_repeat_after_the_last() -> None:
    """An arm beyond the last colour is still drawn."""
    line = Series("many", len(SERIES) + 1, (1.0, 2.0), (1.0, 2.0))

    assert "var(--c1)" in cdf_plot("many", [line], Axis("x", "y"))
    assert FOREGROUND not in cdf_plot("many", [line], Axis("x", "y"))


@pytest.mark.parametrize(
    ("low", "high", "ticks"),
    [
        (0.9, 1100.0, (1, 10, 100, 1000)),
        (9.0, 110.0, (10, 20, 50, 100)),
        (20.0, 100.0, (20, 30, 50, 70, 100)),
        (50.0, 51.0, (50,)),
    ],
)
def test_log_ticks_are_round_and_enough(low: float, high: float, ticks: tuple[float, ...]) -> None:
    """A span of less than a decade has ticks too."""
    assert log_ticks(low, high) == pytest.approx(ticks)
