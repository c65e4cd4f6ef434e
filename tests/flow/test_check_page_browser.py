"""The page of a distribution check in headless Chromium: offline, quiet, fitting, readable, small.

Needs `/usr/bin/chromium`. Without it the tests are skipped, or fail where
DRAFTGATE_REQUIRE_BROWSER=1 says that it must be there.
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser

from draftgate.cli import Exit
from draftgate.report.check import page
from tests.flow.test_comparison_page_browser import OUTSIDE, OVERLAPS
from tests.support.browser import COLOURS, OPEN_ALL, TYPE_SIZES, contrast, luminance, windows
from tests.support.check_results import SITUATIONS
from tests.support.fake import fake_server
from tests.support.flow import Started
from tests.support.scripted_law import VOCABULARY, scripted

MOST_BYTES = 400_000

CELLS = """
[...document.querySelectorAll('#evidence-heat svg path')].map(cell => {
  const { fill, opacity } = getComputedStyle(cell);
  const card = getComputedStyle(cell.closest('.panel')).backgroundColor;
  return { fill, opacity: parseFloat(opacity), card };
}).filter(cell => cell.fill.startsWith('rgb') && cell.opacity > 0 && cell.opacity < 1)
"""
"""Coloured cells of heat maps: colour, opacity, and the colour below."""

LABELS = "getComputedStyle(document.body).color"


@pytest.fixture(name="pages", scope="module")
def _pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Return the written page of every situation."""
    folder = tmp_path_factory.mktemp("pages")
    pages = {name: folder / f"{name}.html" for name in SITUATIONS}
    for name, path in pages.items():
        stored = SITUATIONS[name]()
        path.write_text(page(stored.result, stored.kept), encoding="utf-8")
    return pages


@pytest.fixture(name="visit")
def _visit(browser: Browser, pages: dict[str, Path]) -> Iterator[Any]:
    """Yield a function that opens a page offline in a window of its own."""
    with windows(browser, pages) as visit:
        yield visit


@pytest.mark.parametrize("name", SITUATIONS)
def test_page_loads_alone_and_without_complaint(visit: Any, name: str) -> None:
    """Offline, the only request is the file itself and the console stays empty."""
    seen = visit(name)

    assert seen.page.title()
    assert seen.complaints == []
    assert [url for url in seen.requests if not url.startswith("data:")] == [seen.url]


@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("name", SITUATIONS)
def test_page_is_no_wider_than_the_screen(visit: Any, name: str, width: int) -> None:
    """Nothing scrolls sideways but tables inside their own frame, all parts opened."""
    page = visit(name, width).page
    page.evaluate(OPEN_ALL)

    assert page.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("name", ["lossy", "lossy_infinite", "numerics"])
def test_labels_of_plots_are_whole_and_apart(visit: Any, name: str, width: int) -> None:
    """No label lies on another or runs off its plot, and each is at least 9 pixels high."""
    page = visit(name, width).page

    assert page.evaluate(OVERLAPS) == []
    assert page.evaluate(OUTSIDE) == []
    assert min(page.evaluate(TYPE_SIZES)) >= 9.0


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_is_readable_in_both_schemes(visit: Any, scheme: str) -> None:
    """The background follows the scheme, and all text has a contrast of 4.5 at least."""
    page = visit("lossy", scheme=scheme).page
    page.evaluate(OPEN_ALL)

    ((_, background),) = page.evaluate(COLOURS, "body")
    assert (luminance(background) < 0.1) == (scheme == "dark")
    for selector in ("p", "a", "td", "th", "small", "dt", "dd", "li", ".badge", ".key", "pre span"):
        pairs = page.evaluate(COLOURS, selector)
        assert pairs, selector
        worst = min(contrast(text, below) for text, below in pairs)
        assert worst >= 4.5, f"{selector} in {scheme}: contrast {worst:.2f}"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_numbers_in_coloured_cells_are_readable(visit: Any, scheme: str) -> None:
    """The strongest cell of a heat map is coloured, and its number has a contrast of 4.5."""
    page = visit("lossy", scheme=scheme).page
    label = page.evaluate(LABELS)

    cells = page.evaluate(CELLS)

    assert len(cells) >= 1
    for cell in cells:
        assert contrast(label, _blended(cell)) >= 4.5


def _blended(cell: dict[str, Any]) -> str:
    over, below = (_numbers(cell[name]) for name in ("fill", "card"))
    share = cell["opacity"]
    mixed = [share * a + (1.0 - share) * b for a, b in zip(over, below, strict=True)]
    return f"rgb({', '.join(map(str, mixed))})"


def _numbers(colour: str) -> list[float]:
    return [float(part) for part in colour[colour.index("(") + 1 : -1].split(",")[:3]]


def test_pages_are_small(pages: dict[str, Path]) -> None:
    """Each page fits into an attachment, plots and all."""
    assert max(path.stat().st_size for path in pages.values()) < MOST_BYTES


@pytest.mark.parametrize(("width", "scheme"), [(400, "dark"), (1280, "light")])
def test_page_can_be_looked_at(visit: Any, tmp_path: Path, width: int, scheme: str) -> None:
    """A screenshot of the whole page is there and holds every section with some height."""
    page = visit("lossy", width, scheme).page
    picture = tmp_path / "page.png"

    page.screenshot(path=picture, full_page=True)

    assert picture.stat().st_size > 50_000
    heights = page.evaluate("[...document.querySelectorAll('section')].map(s => s.offsetHeight)")
    assert len(heights) == 4
    assert min(heights) > 60


def test_check_leaves_its_page_beside_the_result(tmp_path: Path) -> None:
    """A check on a faulty server writes page, summary and evidence, and says where the page is."""
    words = ["--k", "4", "--dtype", "float32", "--vocabulary", str(VOCABULARY), "--seed", "3"]
    with fake_server(scripted(fault="greedy")) as checked, fake_server(scripted(k=0)) as plain:
        servers = ["--url", checked.url, "--reference", plain.url]
        extent = ["--budget", "20000", "--condition", "T=1"]
        command = [sys.executable, "-m", "draftgate.cli", "check", *servers, *words, *extent]
        ended = Started(command, cwd=tmp_path).end()

    assert ended.code == Exit.REGRESSION, ended.output
    (folder,) = (tmp_path / "runs").iterdir()
    names = ["check.json", "evidence.npz", "report.html", "scores.npz", "summary.md"]
    assert sorted(path.name for path in folder.iterdir()) == names
    assert f"report: {(folder / 'report.html').relative_to(tmp_path)}" in ended.output
    html = (folder / "report.html").read_text(encoding="utf-8")
    assert "LOSSY" in html
    assert html.count('class="panel card"') == 2
