"""From a stored run to something a person reads: HTML, Markdown, terminal.

Everything is computed from `StoredRun`, so a report can be made again at any
time. Decides nothing and measures nothing. Units are converted here only.
"""

from pathlib import Path

from rich.console import Console

from draftgate.errors import MeasurementError
from draftgate.files import write_text
from draftgate.report.history import fragment_of
from draftgate.report.html import render_html
from draftgate.report.markdown import render_markdown
from draftgate.report.summary import summarise
from draftgate.report.terminal import print_summary
from draftgate.runstore import StoredRun

__all__ = ["print_report", "write_report"]


def write_report(run: StoredRun, history: Path | None = None) -> Path:
    """Write report.html and report.md into the run's folder; return the HTML file.

    Args:
        run: The run.
        history: Folder of the history whose open items the page shows; None shows none.

    Raises:
        MeasurementError: If they cannot be written; the run's records stand.
    """
    summary = summarise(run)
    page = run.path / "report.html"
    try:
        write_text(run.path / "report.md", render_markdown(summary))
        write_text(page, render_html(summary, _open_items(run, history)))
    except OSError as error:
        raise MeasurementError(
            f"report {page}: cannot be written ({error.strerror or error}). The run's records are "
            f"whole; free some space and make it again with 'draftgate report {run.path}'."
        ) from error
    return page


def _open_items(run: StoredRun, history: Path | None) -> str | None:
    if history is None:
        return None
    return fragment_of(history, run.profile.name, run.environment.hardware)


def print_report(run: StoredRun, console: Console) -> None:
    """Print the answer, the main table and what is not green."""
    print_summary(summarise(run), console)
