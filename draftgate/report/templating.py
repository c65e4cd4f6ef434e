"""The template engine of all pages: escaping, strict names, what every template may call.

Knows no page. The globals are those that `templates/parts.html.j2` needs.
"""

from jinja2 import Environment as Templates
from jinja2 import PackageLoader, StrictUndefined

from draftgate.report.format import count
from draftgate.report.headline import SYMBOLS, label
from draftgate.report.plots import DASHES, MARKERS
from draftgate.report.table import streams


def templates() -> Templates:
    """Return the engine: text is escaped, and a name that is not there is an error."""
    engine = Templates(
        loader=PackageLoader("draftgate.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    legend = [{"dash": d, "marker": m} for d, m in zip(DASHES, MARKERS, strict=True)]
    engine.globals.update(symbols=SYMBOLS, label=label, streams=streams, count=count, legend=legend)
    return engine
