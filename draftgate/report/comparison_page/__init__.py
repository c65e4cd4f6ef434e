"""The HTML page of a paired comparison: one file that asks the network for nothing.

Answer first, then every gate's interval against its margin, pairs in time
order, causes, all numbers and raw values. Made from the stored records alone.
"""

import shlex
from pathlib import Path
from typing import Any

from draftgate.compare.records import StoredComparison
from draftgate.errors import MeasurementError
from draftgate.files import write_text
from draftgate.report.comparison.answer import headline, notes
from draftgate.report.comparison_page.causes import cause_figure, cell_causes, position_figure
from draftgate.report.comparison_page.head import effort_facts, plan_facts, side_facts
from draftgate.report.comparison_page.intervals import interval_figure
from draftgate.report.comparison_page.marks import (
    cause_keys,
    outcome_keys,
    pair_keys,
    zone_keys,
)
from draftgate.report.comparison_page.order import any_left_out, order_figure
from draftgate.report.comparison_page.tables import (
    left_out_table,
    numbers_table,
    open_tables,
    raw_tables,
)
from draftgate.report.format import minute
from draftgate.report.html import machine
from draftgate.report.templating import templates

__all__ = ["page", "write_page"]


def page(comparison: StoredComparison, history: str | None = None) -> str:
    """Return the whole page.

    Args:
        comparison: What was asked, taken and found.
        history: HTML that is placed under "History" as it is, so it must be safe;
            None leaves the section out.
    """
    template = templates().get_template("comparison.html.j2")
    return template.render(_shown(comparison), history=history) + "\n"


def write_page(comparison: StoredComparison, path: Path, history: str | None = None) -> Path:
    """Write the page to `path`, whole or not at all; return `path`.

    Args:
        comparison: What was asked, taken and found.
        path: Where it goes.
        history: As for `page`.

    Raises:
        MeasurementError: If it cannot be written; the comparison's records stand.
    """
    try:
        write_text(path, page(comparison, history))
    except OSError as error:
        raise MeasurementError(
            f"report {path}: cannot be written ({error.strerror or error}). The comparison's "
            "records are whole; free some space or name another path, and make the page again."
        ) from error
    return path


def _shown(comparison: StoredComparison) -> dict[str, Any]:
    """Return everything the template shows, by the template's names."""
    header, results = comparison.header, comparison.result.gates
    causes = cell_causes(results)
    return {
        "header": header,
        "outcome": comparison.result.outcome,
        "when": minute(header.started_at),
        "sentence": headline(comparison).partition(": ")[2],
        "sides": side_facts(comparison),
        "effort": effort_facts(comparison),
        "notes": notes(comparison),
        "open": open_tables(comparison),
        "gates": len(results),
        "intervals": interval_figure(results),
        "interval_keys": (*outcome_keys({r.outcome for r in results}), *zone_keys()),
        "order": order_figure(comparison),
        "order_keys": pair_keys(left_out=any_left_out(comparison)),
        "causes": cause_figure(causes),
        "cause_keys": cause_keys(),
        "positions": position_figure(causes),
        "numbers": numbers_table(comparison),
        "raw": raw_tables(comparison),
        "left_out": left_out_table(comparison),
        "machine": machine(header.environment),
        "plan": plan_facts(comparison),
        "command": shlex.join(header.argv),
    }
