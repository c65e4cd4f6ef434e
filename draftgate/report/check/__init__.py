"""Every form of a distribution check's report, written beside its records.

    report.html    for people
    summary.md     for a CI job's summary page

Made from `check.json` and `evidence.npz` alone, so it can be made again at any time.
"""

from pathlib import Path

from draftgate.checks.kept import read_check
from draftgate.errors import MeasurementError
from draftgate.files import write_text
from draftgate.report.check.evidence import (
    EVIDENCE,
    KeptEvidence,
    evidence_of,
    read_evidence,
    write_evidence,
)
from draftgate.report.check.markdown import summary
from draftgate.report.check.page import page

__all__ = [
    "EVIDENCE",
    "KeptEvidence",
    "evidence_of",
    "page",
    "read_evidence",
    "summary",
    "write_check_report",
    "write_evidence",
]

PAGE, SUMMARY = "report.html", "summary.md"


def write_check_report(folder: Path) -> Path:
    """Write both forms of the check in `folder` and return the page.

    Raises:
        BaselineError: If there is no check in it, or it is damaged.
        MeasurementError: If a form can't be written; the records stand.
    """
    result = read_check(folder)
    kept = read_evidence(folder, result)
    for name, text in ((SUMMARY, summary(result)), (PAGE, page(result, kept))):
        _write(folder / name, text)
    return folder / PAGE


def _write(path: Path, text: str) -> None:
    try:
        write_text(path, text)
    except OSError as error:
        raise MeasurementError(
            f"report {path}: cannot be written ({error.strerror or error}). The check's records "
            "are whole; free some space and make it again with `draftgate report`."
        ) from error
