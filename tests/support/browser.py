"""Headless Chromium on a page: offline windows, what they asked for, contrast of what they show."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from playwright.sync_api import Browser, Page

CHROMIUM = Path("/usr/bin/chromium")

OPEN_ALL = "document.querySelectorAll('details').forEach(part => { part.open = true; })"

COLOURS = """
selector => [...document.querySelectorAll(selector)].map(element => {
  const solid = colour => !/rgba\\(.*, 0\\)|transparent/.test(colour);
  let below = element;
  while (below && !solid(getComputedStyle(below).backgroundColor)) below = below.parentElement;
  return [getComputedStyle(element).color, getComputedStyle(below).backgroundColor];
})
"""
"""Text colour of each element and the colour of the nearest painted background."""

TYPE_SIZES = """
[...document.querySelectorAll('.panel text')].map(text => {
  const { a, b } = text.getScreenCTM();
  return parseFloat(getComputedStyle(text).fontSize) * Math.hypot(a, b);
})
"""
"""Height of every label of every plot in pixels, after scaling."""


@dataclass(slots=True)
class Visit:
    """An opened page and everything it complained about or asked for."""

    page: Page
    url: str
    complaints: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)


@contextmanager
def windows(browser: Browser, pages: Mapping[str, Path]) -> Iterator[Callable[..., Visit]]:
    """Yield a function that opens a page by name, offline and in a window of its own."""
    contexts = []

    def visit(name: str, width: int = 1280, scheme: str = "light") -> Visit:
        context = browser.new_context(
            offline=True,
            viewport={"width": width, "height": 844},
            color_scheme="dark" if scheme == "dark" else "light",
        )
        contexts.append(context)
        seen = Visit(context.new_page(), pages[name].as_uri())
        seen.page.on("console", lambda message: seen.complaints.append(message.text))
        seen.page.on("pageerror", lambda error: seen.complaints.append(str(error)))
        seen.page.on("request", lambda asked: seen.requests.append(asked.url))
        seen.page.goto(seen.url)
        return seen

    try:
        yield visit
    finally:
        for context in contexts:
            context.close()


def _channels(colour: str) -> list[float]:
    parts = colour[colour.index("(") + 1 : colour.index(")")].split(",")
    return [float(part) / 255.0 for part in parts[:3]]


def luminance(colour: str) -> float:
    """Return relative luminance as WCAG 2.1 defines it."""
    linear = [
        c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in _channels(colour)
    ]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(first: str, second: str) -> float:
    """Return the contrast ratio of two colours as WCAG 2.1 defines it."""
    light, dark = sorted((luminance(first), luminance(second)), reverse=True)
    return (light + 0.05) / (dark + 0.05)
