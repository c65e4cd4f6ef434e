"""The page of a comparison in headless Chromium: offline, quiet, fitting, readable, small.

Needs `/usr/bin/chromium`. Without it the tests are skipped, or fail where
DRAFTGATE_REQUIRE_BROWSER=1 says that it must be there.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser

from draftgate.report.comparison_page import write_page
from tests.support.browser import COLOURS, OPEN_ALL, TYPE_SIZES, contrast, luminance, windows
from tests.support.comparison_situations import SITUATIONS, large

NAMES = ("complete", "no_pairs", "invalid_only", "green", "large")

MOST_BYTES = 1_500_000

OVERLAPS = """
[...document.querySelectorAll('.panel svg')].flatMap(drawing => {
  const boxes = [...drawing.querySelectorAll('text')].map(text => {
    const { left, right, top, bottom } = text.getBoundingClientRect();
    return { words: text.textContent, left, right, top, bottom };
  });
  const meet = (a, b) => Math.min(a.right, b.right) - Math.max(a.left, b.left) > 1
    && Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 3;
  return boxes.flatMap((a, at) => boxes.slice(at + 1).filter(b => meet(a, b))
    .map(b => `${a.words} / ${b.words}`));
})
"""
"""Pairs of labels of one plot that lie on each other."""

OUTSIDE = """
[...document.querySelectorAll('.panel svg')].flatMap(drawing => {
  const frame = drawing.getBoundingClientRect();
  return [...drawing.querySelectorAll('text')].filter(text => {
    const { left, right, top, bottom } = text.getBoundingClientRect();
    return left < frame.left - 1 || right > frame.right + 1
      || top < frame.top - 1 || bottom > frame.bottom + 1;
  }).map(text => text.textContent);
})
"""
"""Labels that are cut off by the edge of their plot."""


@pytest.fixture(name="pages", scope="module")
def _pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Return the written page of some situations."""
    folder = tmp_path_factory.mktemp("pages")
    make = {**SITUATIONS, "large": large}
    return {name: write_page(make[name](), folder / f"{name}.html") for name in NAMES}


@pytest.fixture(name="visit")
def _visit(browser: Browser, pages: dict[str, Path]) -> Iterator[Any]:
    """Yield a function that opens a page offline in a window of its own."""
    with windows(browser, pages) as visit:
        yield visit


def test_large_comparison_stays_small(pages: dict[str, Path]) -> None:
    """54 gates that all need a look, over 44 pairs of each arm, fit into 1.5 MB."""
    text = pages["large"].read_text(encoding="utf-8")

    assert pages["large"].stat().st_size < MOST_BYTES
    assert text.count('class="panel card"') > 54


@pytest.mark.parametrize("name", NAMES)
def test_page_loads_alone_and_without_complaint(visit: Any, name: str) -> None:
    """Offline, the only request is the file itself and the console stays empty."""
    seen = visit(name)

    assert seen.page.title()
    assert seen.complaints == []
    assert [url for url in seen.requests if not url.startswith("data:")] == [seen.url]


@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("name", NAMES)
def test_page_is_no_wider_than_the_screen(visit: Any, name: str, width: int) -> None:
    """Nothing scrolls sideways but tables inside their own frame, all parts opened."""
    page = visit(name, width).page
    page.evaluate(OPEN_ALL)

    assert page.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("name", ["complete", "large"])
def test_labels_of_plots_are_whole_and_apart(visit: Any, name: str, width: int) -> None:
    """No label lies on another or runs off its plot, and each is at least 9 pixels high."""
    page = visit(name, width).page

    assert page.evaluate(OVERLAPS) == []
    assert page.evaluate(OUTSIDE) == []
    assert min(page.evaluate(TYPE_SIZES)) >= 9.0


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_is_readable_in_both_schemes(visit: Any, scheme: str) -> None:
    """The background follows the scheme, and all text has a contrast of 4.5 at least."""
    page = visit("complete", scheme=scheme).page
    page.evaluate(OPEN_ALL)

    ((_, background),) = page.evaluate(COLOURS, "body")
    assert (luminance(background) < 0.1) == (scheme == "dark")
    for selector in ("p", "a", "td", "th", "small", "dt", "dd", "li", ".badge", ".key"):
        pairs = page.evaluate(COLOURS, selector)
        assert pairs, selector
        worst = min(contrast(text, below) for text, below in pairs)
        assert worst >= 4.5, f"{selector} in {scheme}: contrast {worst:.2f}"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_marks_stand_out_from_the_zones(visit: Any, scheme: str) -> None:
    """Each outcome's mark has a contrast of 3 at least to every zone, and zones differ."""
    page = visit("complete", scheme=scheme).page
    style = "name => { const s = getComputedStyle(document.body); return s.getPropertyValue(name) }"
    marks = [page.evaluate(style, name).strip() for name in ("--good", "--bad", "--warn", "--info")]
    zones = [page.evaluate(style, f"{name}-bg").strip() for name in ("--good", "--bad", "--warn")]

    assert len(set(zones)) == 3
    for mark in marks:
        for zone in zones:
            assert contrast(_rgb(mark), _rgb(zone)) >= 3.0


def _rgb(colour: str) -> str:
    parts = [int(colour[at : at + 2], 16) for at in (1, 3, 5)]
    return f"rgb({parts[0]}, {parts[1]}, {parts[2]})"


@pytest.mark.parametrize(("width", "scheme"), [(400, "dark"), (1280, "light")])
def test_page_can_be_looked_at(visit: Any, tmp_path: Path, width: int, scheme: str) -> None:
    """A screenshot of the whole page is there and holds every section with some height."""
    page = visit("complete", width, scheme).page
    picture = tmp_path / "page.png"

    page.screenshot(path=picture, full_page=True)

    assert picture.stat().st_size > 50_000
    heights = page.evaluate("[...document.querySelectorAll('section')].map(s => s.offsetHeight)")
    assert len(heights) == 7
    assert min(heights) > 60
