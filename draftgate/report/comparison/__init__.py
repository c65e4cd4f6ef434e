"""A comparison's result as text and data: Markdown, JUnit XML, JSON, terminal.

Everything is worked out from `StoredComparison`, so it can be made again at any
time. Decides nothing, writes no file; the HTML page is a package of its own.
"""

from draftgate.report.comparison.answer import headline
from draftgate.report.comparison.document import document, schema
from draftgate.report.comparison.junit import junit_xml
from draftgate.report.comparison.markdown import comment, marker, step_summary
from draftgate.report.comparison.terminal import print_comparison

__all__ = [
    "comment",
    "document",
    "headline",
    "junit_xml",
    "marker",
    "print_comparison",
    "schema",
    "step_summary",
]
