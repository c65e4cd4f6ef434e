"""Fixtures that more than one file of flow tests asks for."""

import os
from collections.abc import Iterator
from typing import Any

import pytest


@pytest.fixture(name="browser", scope="module")
def _browser() -> Iterator[Any]:
    """Yield a headless Chromium.

    Of one file: Playwright keeps an event loop running in this thread, in which tests of
    later files could start none of their own.
    """
    from playwright.sync_api import sync_playwright

    from tests.support.browser import CHROMIUM

    if not CHROMIUM.exists():
        message = f"no {CHROMIUM}: the page is not looked at in a browser. Install chromium."
        if os.environ.get("DRAFTGATE_REQUIRE_BROWSER") == "1":
            pytest.fail(message)
        pytest.skip(message)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=str(CHROMIUM), args=["--no-sandbox", "--disable-gpu"]
        )
        yield browser
        browser.close()
