"""Every form of a comparison's result, written beside its pairs.

    result.json    for programs; report/comparison/schema.json describes it
    comment.md     for a pull request
    summary.md     for a CI job's summary page
    junit.xml      for CI systems
    report.html    for people

Binds the forms to a comparison's folder; what they say is theirs.
"""

import json
from pathlib import Path

from draftgate.compare.records import StoredComparison
from draftgate.compare.store import ComparisonFolder
from draftgate.report.comparison.document import document
from draftgate.report.comparison.junit import junit_xml
from draftgate.report.comparison.markdown import comment, step_summary
from draftgate.report.comparison.terminal import print_comparison
from draftgate.report.comparison_page import page
from draftgate.report.history import fragment_of

__all__ = ["print_comparison", "write_comparison"]


def write_comparison(
    comparison: StoredComparison, folder: ComparisonFolder, history: Path | None = None
) -> Path:
    """Write all forms and return the page.

    Args:
        comparison: What is there, finished or not.
        folder: Where it lies.
        history: Folder of the history whose open items the page shows; None shows none.

    Raises:
        MeasurementError: If one cannot be written; those before it are whole.
    """
    result = json.dumps(document(comparison), indent=1, allow_nan=False)
    folder.write_report("result.json", result + "\n")
    folder.write_report("comment.md", comment(comparison))
    folder.write_report("summary.md", step_summary(comparison))
    folder.write_report("junit.xml", junit_xml(comparison))
    header = comparison.header
    items = None
    if history is not None:
        items = fragment_of(history, header.profile.name, header.environment.hardware)
    return folder.write_report("report.html", page(comparison, items))
