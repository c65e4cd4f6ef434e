"""The HTML page of a distribution check: one file that asks the network for nothing.

Verdict first, then the e-processes as tokens came in, what kind of fault they look like
and where in the chain, the stated rule, the worst example, and the set-up.
"""

from typing import Any

from draftgate.checks.outcome import CheckOutcome, CheckResult
from draftgate.checks.words import title
from draftgate.report.canvas import variable
from draftgate.report.check.evidence import KeptEvidence
from draftgate.report.check.head import (
    effort_facts,
    example_facts,
    margin_sentence,
    no_example,
    notes,
    subject_facts,
    tiles,
)
from draftgate.report.check.heat import directions_table, heat_figure
from draftgate.report.check.paths import ARMS, BOUNDS, path_figure
from draftgate.report.check.tables import example_table, rule_table
from draftgate.report.check.words import SYMBOLS, TONES, visible
from draftgate.report.format import minute
from draftgate.report.templating import templates


def page(result: CheckResult, kept: KeptEvidence | None) -> str:
    """Return the whole page.

    Args:
        result: What the check found.
        kept: Its e-processes; None where they were not kept, which leaves their plots out.
    """
    template = templates().get_template("check.html.j2")
    return visible(template.render(_shown(result, kept)) + "\n")


def _shown(result: CheckResult, kept: KeptEvidence | None) -> dict[str, Any]:
    """Return everything the template shows, by the template's names."""
    outcome, worst = result.judgement.outcome, result.worst
    return {
        "result": result,
        "title": title(result.judgement),
        "symbol": SYMBOLS[outcome],
        "tone": TONES[outcome],
        "green": outcome is CheckOutcome.PASS,
        "when": minute(result.started_at),
        "tiles": tiles(result),
        "margin": margin_sentence(result),
        "subject": subject_facts(result),
        "effort": effort_facts(result),
        "notes": notes(result),
        "paths": path_figure(result, kept),
        "path_keys": _keys(result),
        "heat": heat_figure(result, kept),
        "directions": directions_table(result, kept),
        "rule": rule_table(result),
        "worst": worst,
        "example": None if worst is None else example_table(worst),
        "example_facts": example_facts(result),
        "no_example": no_example(result),
    }


def _keys(result: CheckResult) -> tuple[dict[str, str], ...]:
    """Return the entries of the paths' legend: name, colour and dashes of each line."""
    dashes = {"-": "0"}
    found = []
    for arm, (name, colour, style) in ARMS.items():
        if arm == next(iter(ARMS)) or result.findings.plain:
            bound_colour, bound_style = BOUNDS[arm]
            found.append(_key(name, colour, dashes.get(str(style)) or _dash(style)))
            found.append(_key(f"bound of the {name}", bound_colour, _dash(bound_style)))
    return tuple(found)


def _key(text: str, colour: str, dash: str) -> dict[str, str]:
    return {"text": text, "colour": variable(colour), "dash": dash}


def _dash(style: Any) -> str:
    """Return matplotlib's dashes as those of an SVG line twice as wide."""
    return " ".join(str(2 * length) for length in style[1])
