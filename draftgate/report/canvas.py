"""A drawing as SVG text that follows the page's light or dark theme.

Matplotlib draws with sentinel colours and no background; afterwards each
sentinel is replaced by the CSS variable that it stands for; the font is the
page's. Knows nothing of what is drawn.
"""

import io
import re
from collections.abc import Callable
from contextlib import AbstractContextManager

import matplotlib as mpl
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

FOREGROUND, MUTED, GRID, CARD = "#0a0b01", "#0a0b02", "#0a0b03", "#0a0b04"
SERIES = ("#0a0c00", "#0a0c01", "#0a0c02", "#0a0c03", "#0a0c04", "#0a0c05", "#0a0c06")
GOOD, BAD, WARN, INFO = "#0a0d01", "#0a0d02", "#0a0d03", "#0a0d04"
GOOD_AREA, BAD_AREA, WARN_AREA = "#0a0e01", "#0a0e02", "#0a0e03"

_VARIABLES = {
    FOREGROUND: "var(--fg)",
    MUTED: "var(--muted)",
    GRID: "var(--grid)",
    CARD: "var(--card)",
    **{sentinel: f"var(--c{index})" for index, sentinel in enumerate(SERIES)},
    GOOD: "var(--good)",
    BAD: "var(--bad)",
    WARN: "var(--warn)",
    INFO: "var(--info)",
    GOOD_AREA: "var(--good-bg)",
    BAD_AREA: "var(--bad-bg)",
    WARN_AREA: "var(--warn-bg)",
}


def variable(sentinel: str) -> str:
    """Return the CSS value that stands in the page for a sentinel colour."""
    return _VARIABLES[sentinel]


def drawing(
    key: str, size_in: tuple[float, float], fill: Callable[[Figure], None], *, fitted: bool = True
) -> str:
    """Return what `fill` draws as SVG text for a page.

    Args:
        key: Word that no other drawing of the page has.
        size_in: Width and height in inches; the page scales it to the room there is.
        fill: Draws with sentinel colours.
        fitted: Whether margins follow the labels; False leaves them to `fill`,
            which is much quicker.
    """
    with _shared_style():
        figure = Figure(figsize=size_in, layout="constrained" if fitted else None)
        FigureCanvasSVG(figure)
        fill(figure)
        out = io.StringIO()
        figure.savefig(out, format="svg", transparent=True, metadata={"Date": None})
    return themed(out.getvalue(), key)


def _shared_style() -> AbstractContextManager[None]:
    return mpl.rc_context(
        {
            "svg.fonttype": "none",
            "svg.hashsalt": "draftgate",
            "font.size": 10.5,
            "axes.spines.top": False,
            "axes.spines.right": False,
            "axes.edgecolor": MUTED,
            "axes.labelcolor": MUTED,
            "axes.labelsize": 10.5,
            "axes.linewidth": 0.8,
            "axes.grid": True,
            "axes.axisbelow": True,
            "grid.color": GRID,
            "grid.linewidth": 0.8,
            "text.color": FOREGROUND,
            "xtick.color": MUTED,
            "ytick.color": MUTED,
            "xtick.labelsize": 10.0,
            "ytick.labelsize": 10.0,
            "lines.linewidth": 1.8,
            "lines.markersize": 5.0,
            "figure.facecolor": "none",
            "axes.facecolor": "none",
        }
    )


def themed(svg: str, key: str) -> str:
    """Return matplotlib's SVG fit to stand inside a page.

    Drops the prologue, metadata and fixed size, makes every id unique by
    `key`, and puts CSS variables in place of sentinel colours; the font is left to the page.

    Args:
        svg: The file as matplotlib writes it.
        key: Word that no other plot of the page has.
    """
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r'<svg [^>]*?viewBox="([^"]+)"[^>]*>', r'<svg viewBox="\1">', svg, count=1)
    svg = re.sub(r'\bid="([^"]+)"', rf'id="{key}-\1"', svg)
    svg = re.sub(r"url\(#([^)]+)\)", rf"url(#{key}-\1)", svg)
    svg = re.sub(r'xlink:href="#([^"]+)"', rf'href="#{key}-\1"', svg)
    for sentinel, name in _VARIABLES.items():
        svg = svg.replace(sentinel, name)
    svg = re.sub(r"<style.*?</style>", "", svg, flags=re.DOTALL)
    svg = re.sub(r" ?font-family: [^;\"]+;?", "", svg)
    return _lean(re.sub(r"\n\s*", "\n", svg).strip())


def _lean(svg: str) -> str:
    """Return half the text for the same picture: a page may hold dozens of drawings.

    Drops turns by nothing, ids that nothing refers to and digits of coordinates
    beyond a hundredth of a point, and says the style of points in a row once.
    """
    svg = svg.replace(' transform="rotate(-0 ', ' transform="rotate(0 ')
    svg = re.sub(r' transform="rotate\(0 [^)]*\)"', "", svg)
    used = set(re.findall(r'(?:url\(|href=")#([^")]+)', svg))
    svg = re.sub(r' id="([^"]+)"', lambda at: at[0] if at[1] in used else "", svg)
    svg = re.sub(r"<[^>]*>", _rounded, svg)
    svg = re.sub(r'<g( clip-path="[^"]*")?>\n((?:<use [^>]*>\n)+)</g>', _styled_once, svg)
    return re.sub(r" ?\n(?=[LMCQz\"])", " ", svg)


def _rounded(tag: re.Match[str]) -> str:
    """Return a tag with its coordinates rounded; the text between tags stays as it is."""
    return re.sub(r"\d+\.\d{3,}", lambda at: f"{float(at[0]):.2f}", tag[0])


def _styled_once(points: re.Match[str]) -> str:
    clip, uses = points[1] or "", points[2]
    styles = set(re.findall(r' style="([^"]*)"', uses))
    if len(styles) != 1:
        return points[0]
    bare = re.sub(r' style="[^"]*"', "", uses)
    return f'<g{clip} style="{styles.pop()}">\n{bare}</g>'
