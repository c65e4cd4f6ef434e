"""The page in headless Chromium: offline, quiet, as wide as the screen, readable.

Needs `/usr/bin/chromium`. Without it the tests are skipped, or fail where
DRAFTGATE_REQUIRE_BROWSER=1 says that it must be there.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser

from draftgate.report import write_report
from tests.support.browser import COLOURS, OPEN_ALL, TYPE_SIZES, contrast, luminance, windows
from tests.support.report_runs import SITUATIONS

WIDTHS = (390, 1280)

NAMES = ("complete", "aborted", "no_baseline", "nothing", "traffic_only", "mixed")
"""Situations whose page is opened."""


@pytest.fixture(name="pages", scope="module")
def _pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Return the written page of some situations."""
    return {name: write_report(SITUATIONS[name](tmp_path_factory.mktemp(name))) for name in NAMES}


@pytest.fixture(name="visit")
def _visit(browser: Browser, pages: dict[str, Path]) -> Iterator[Any]:
    """Yield a function that opens a page offline in a window of its own."""
    with windows(browser, pages) as visit:
        yield visit


@pytest.mark.parametrize("name", NAMES)
def test_page_loads_alone_and_without_complaint(visit: Any, name: str) -> None:
    """Offline, the only request is the file itself and the console stays empty."""
    seen = visit(name)

    assert seen.page.title()
    assert seen.complaints == []
    assert [url for url in seen.requests if not url.startswith("data:")] == [seen.url]


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", NAMES)
def test_page_is_no_wider_than_the_screen(visit: Any, name: str, width: int) -> None:
    """Nothing scrolls sideways but tables inside their own frame, all parts opened."""
    page = visit(name, width).page
    page.evaluate(OPEN_ALL)

    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.evaluate("innerWidth") == width


def test_wide_table_scrolls_and_keeps_its_first_column(visit: Any) -> None:
    """On a phone the main table scrolls in its frame while the arm's name stays in sight."""
    page = visit("complete", 390).page
    frame = page.locator("#speed .scroll")
    first = page.locator("#speed tbody th[scope=row]").first
    before = first.bounding_box()

    frame.evaluate("element => { element.scrollLeft = 300; }")

    assert frame.evaluate("element => element.scrollLeft") == 300
    assert first.bounding_box() == before


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_is_readable_in_both_schemes(visit: Any, scheme: str) -> None:
    """The background follows the scheme, and all text has a contrast of 4.5 at least."""
    page = visit("complete", scheme=scheme).page
    page.evaluate(OPEN_ALL)

    ((_, background),) = page.evaluate(COLOURS, "body")
    assert (luminance(background) < 0.1) == (scheme == "dark")
    for selector in ("body", "p", "a", "td", "th", "small", "dt", "dd", "pre", ".badge", ".muted"):
        pairs = page.evaluate(COLOURS, selector)
        assert pairs, selector
        worst = min(contrast(text, below) for text, below in pairs)
        assert worst >= 4.5, f"{selector} in {scheme}: contrast {worst:.2f}"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_plots_follow_the_scheme(visit: Any, scheme: str) -> None:
    """Lines and labels of the plots take the page's colours and stand out from it."""
    page = visit("complete", scheme=scheme).page
    card = page.evaluate("getComputedStyle(document.querySelector('.panel')).backgroundColor")
    label = "getComputedStyle(document.querySelector('#speedup text')).fill"
    strokes = page.evaluate(
        "[...document.querySelectorAll('.key line')].map(line => getComputedStyle(line).stroke)"
    )

    assert contrast(page.evaluate(label), card) >= 4.5
    assert len(set(strokes)) == 3
    assert min(contrast(stroke, card) for stroke in strokes) >= 3.0


@pytest.mark.parametrize(("width", "scheme"), [(390, "dark"), (1280, "light")])
def test_page_can_be_looked_at(visit: Any, tmp_path: Path, width: int, scheme: str) -> None:
    """A screenshot of the whole page is there and holds every section with some height."""
    page = visit("complete", width, scheme).page
    picture = tmp_path / "page.png"

    page.screenshot(path=picture, full_page=True)

    assert picture.stat().st_size > 50_000
    heights = page.evaluate("[...document.querySelectorAll('section')].map(s => s.offsetHeight)")
    assert len(heights) == 8
    assert min(heights) > 60


def test_plot_type_is_readable_on_a_phone(visit: Any) -> None:
    """Axis labels are at least 9 pixels high on a phone, after scaling."""
    page = visit("complete", 390).page

    sizes = page.evaluate(TYPE_SIZES)

    assert sizes
    assert min(sizes) >= 9.0


def test_contrast_of_known_colours() -> None:
    """Black on white is 21, and a grey known to miss 4.5 misses it."""
    assert contrast("rgb(0, 0, 0)", "rgb(255, 255, 255)") == pytest.approx(21.0)
    assert contrast("rgb(119, 119, 119)", "rgb(255, 255, 255)") == pytest.approx(4.48, abs=0.01)
