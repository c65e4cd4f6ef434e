"""The history's page in headless Chromium: offline, quiet, fitting, readable.

Needs `/usr/bin/chromium`. Without it the tests are skipped, or fail where
DRAFTGATE_REQUIRE_BROWSER=1 says that it must be there.
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser

from draftgate.history.findings import findings
from draftgate.history.series import history_of
from draftgate.report.history import history_page
from tests.support.browser import COLOURS, OPEN_ALL, TYPE_SIZES, contrast, windows
from tests.support.history import ROW, at, closure_for, levels, night_of, table_of

NIGHTS = 90
VALUES = {
    "none": levels(5, NIGHTS, {40: 0.93}),
    "ngram": levels(2, NIGHTS, {30: 1.1, 38: 0.93, 70: 0.9}),
}


def _page() -> str:
    """Return a page with open and closed items, gaps and an odd session."""
    order = [*range(10), *range(11, NIGHTS), 10]
    made = [
        night_of(
            number,
            [
                replace(
                    ROW,
                    time=at(number),
                    arm=arm,
                    value=values[number],
                    invalid="event-loop lag of 80 ms" if number in (20, 21) else "",
                    engine_version="0.33.0" if number >= 40 else "0.32.0",
                )
                for arm, values in VALUES.items()
            ],
        )
        for number in order
    ]
    history = history_of(table_of(made))
    closed = closure_for(findings(history).items[0])
    return history_page(findings(history, (closed,)), every_series=True)


@pytest.fixture(name="pages", scope="module")
def _pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Return the written page."""
    path = tmp_path_factory.mktemp("history") / "history.html"
    path.write_text(_page(), encoding="utf-8")
    return {"history": path}


@pytest.fixture(name="visit")
def _visit(browser: Browser, pages: dict[str, Path]) -> Iterator[Any]:
    """Yield a function that opens the page offline in a window of its own."""
    with windows(browser, pages) as visit:
        yield visit


def test_page_loads_alone_and_without_complaint(visit: Any) -> None:
    """Offline, the only request is the file itself and the console stays empty."""
    seen = visit("history")

    assert "open item" in seen.page.title()
    assert seen.complaints == []
    assert [url for url in seen.requests if not url.startswith("data:")] == [seen.url]


@pytest.mark.parametrize("width", [390, 1280])
def test_page_is_no_wider_than_the_screen(visit: Any, width: int) -> None:
    """Nothing scrolls sideways but tables inside their own frame, all parts opened."""
    page = visit("history", width).page
    page.evaluate(OPEN_ALL)

    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_plot_type_is_readable_on_a_phone(visit: Any) -> None:
    """Labels are at least 9 pixels high on a phone, after scaling."""
    sizes = visit("history", 390).page.evaluate(TYPE_SIZES)

    assert sizes
    assert min(sizes) >= 9.0


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_is_readable_in_both_schemes(visit: Any, scheme: str) -> None:
    """All text has a contrast of 4.5 at least."""
    page = visit("history", scheme=scheme).page
    page.evaluate(OPEN_ALL)

    for selector in ("body", "p", "a", "td", "th", "small", "li", "code", "h4", ".good", ".bad"):
        pairs = page.evaluate(COLOURS, selector)
        assert pairs, selector
        worst = min(contrast(text, below) for text, below in pairs)
        assert worst >= 4.5, f"{selector} in {scheme}: contrast {worst:.2f}"
