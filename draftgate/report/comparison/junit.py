"""A comparison as JUnit XML, which CI systems show as tests: one test case per gate.

REGRESSION is a failure, INVALID_RUN an error; what could not be decided or
compared is skipped with the reason. Built as a tree, so nothing from outside
can become markup.
"""

import re
from collections import Counter
from collections.abc import Iterable
from xml.etree import ElementTree as ET

from draftgate.compare.gates import title
from draftgate.compare.losses import change_of
from draftgate.compare.records import GateResult, Role, StageNumbers, StoredComparison
from draftgate.report.comparison.answer import engines, headline
from draftgate.report.comparison.words import (
    bounds_text,
    change_text,
    decisive,
    pairs_text,
    values_text,
)
from draftgate.verdict import Outcome

ELEMENTS = {
    Outcome.REGRESSION: "failure",
    Outcome.INVALID_RUN: "error",
    Outcome.INCONCLUSIVE: "skipped",
    Outcome.NO_BASELINE: "skipped",
}
"""How each outcome that is not green stands in a test case."""

_UNHELD = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that XML 1.0 cannot hold, not even as references (production 2, Char)."""


def junit_xml(comparison: StoredComparison) -> str:
    """Return the comparison as a JUnit document.

    The time of the suite is that of the whole comparison. Gates share their
    pairs, so each test case has an even part of its arm's, and an arm has the
    part of all pairs that were taken for it: the times of all cases add up.
    """
    root = ET.Element("testsuites", {"name": "draftgate compare", **_totals(comparison)})
    root.append(_suite(comparison))
    ET.indent(root)
    data: bytes = ET.tostring(root, encoding="utf-8", xml_declaration=True)
    return data.decode("utf-8") + "\n"


def _totals(comparison: StoredComparison) -> dict[str, str]:
    found = Counter(ELEMENTS.get(gate.outcome, "") for gate in comparison.result.gates)
    return {
        "tests": str(len(comparison.result.gates)),
        "failures": str(found["failure"]),
        "errors": str(found["error"]),
        "skipped": str(found["skipped"]),
        "time": _seconds(comparison.result.minutes * 60),
    }


def _suite(comparison: StoredComparison) -> ET.Element:
    header = comparison.header
    suite = ET.Element(
        "testsuite",
        {
            "name": held(header.profile.name),
            **_totals(comparison),
            "timestamp": held(header.started_at),
            "hostname": held(header.environment.host),
        },
    )
    suite.append(_properties(_facts(comparison)))
    times = case_seconds(comparison)
    for gate in comparison.result.gates:
        suite.append(_case(header.profile.name, gate, times[gate.gate.arm]))
    if comparison.result.notes:
        out = ET.SubElement(suite, "system-out")
        out.text = held("\n".join(comparison.result.notes))
    return suite


def _facts(comparison: StoredComparison) -> Iterable[tuple[str, object]]:
    header, result = comparison.header, comparison.result
    yield "id", header.id
    yield "outcome", result.outcome.value
    yield "headline", headline(comparison)
    yield "ended", result.ended
    yield "base", header.base.label
    yield "base_engine", ", ".join(engines(comparison, Role.BASE))
    yield "candidate", header.candidate.label
    yield "candidate_engine", ", ".join(engines(comparison, Role.CANDIDATE))
    yield "hardware", header.environment.hardware
    yield "pairs_taken", len(comparison.pairs)
    yield "family_level_ratio", result.family_level


def case_seconds(comparison: StoredComparison) -> dict[str, float]:
    """Return the time of one test case by arm, seconds; see `junit_xml`."""
    taken = Counter(pair.arm for pair in comparison.pairs)
    gates = Counter(gate.gate.arm for gate in comparison.result.gates)
    whole = comparison.result.minutes * 60
    total = sum(taken[arm] for arm in gates)
    if not total:
        return {arm: whole / sum(gates.values()) for arm in gates}
    return {arm: whole * taken[arm] / total / gates[arm] for arm in gates}


def _case(profile: str, result: GateResult, seconds: float) -> ET.Element:
    gate = result.gate
    case = ET.Element(
        "testcase",
        {
            "classname": held(f"{profile}.{gate.arm}"),
            "name": held(f"{gate.metric} x {gate.concurrency}"),
            "time": _seconds(seconds),
        },
    )
    case.append(_properties(_numbers(result)))
    if result.outcome in ELEMENTS:
        name = ELEMENTS[result.outcome]
        told = {"message": held(result.reason)}
        if name != "skipped":
            told["type"] = result.outcome.name
        ET.SubElement(case, name, told).text = held("\n".join(_lines(result)))
    return case


def _numbers(result: GateResult) -> Iterable[tuple[str, object]]:
    """Yield the numbers of a gate under the names that `document` gives them."""
    gate = result.gate
    yield "outcome", result.outcome.value
    yield "scale", gate.scale.value
    yield "margin", gate.margin
    yield "limit", gate.limit
    yield "base_value", result.base_value
    yield "candidate_value", result.value
    numbers = decisive(result)
    if numbers is not None:
        found = change_of(gate, numbers)
        yield "change", found.estimate
        yield "change_low", found.low
        yield "change_high", found.high
    yield from _stage("stage_one", result.search)
    yield from _stage("stage_two", result.confirm)
    yield "adjusted_p", result.adjusted_p
    yield "pairs_needed", result.pairs_needed
    yield "requests", result.requests
    yield "instead_of", gate.instead_of


def _stage(name: str, numbers: StageNumbers | None) -> Iterable[tuple[str, object]]:
    if numbers is not None:
        yield f"{name}_pairs", numbers.pairs
        yield f"{name}_p_value", numbers.p_value


def _lines(result: GateResult) -> Iterable[str]:
    """Yield what a person reads under a case that is not green."""
    gate = result.gate
    if decisive(result) is not None:
        base, candidate = values_text(result)
        yield f"{title(gate.metric)}: {change_text(result)}, {base} to {candidate}"
        yield f"margin / limit: {bounds_text(gate)}; pairs: {pairs_text(result)}"
    said = (
        ("reason", result.reason),
        ("cause", result.cause.text if result.cause else ""),
        ("next", result.next_step),
        ("note", gate.note),
    )
    yield from (f"{word}: {what}" for word, what in said if what)


def _properties(values: Iterable[tuple[str, object]]) -> ET.Element:
    """Return a list of properties; what is not there is left out, floats have six digits."""
    parent = ET.Element("properties")
    for name, value in values:
        if value is not None and value != "":
            shown = f"{value:.6g}" if isinstance(value, float) else str(value)
            ET.SubElement(parent, "property", {"name": name, "value": held(shown)})
    return parent


def held(text: str) -> str:
    """Return text with what XML cannot hold replaced."""
    return _UNHELD.sub("\N{REPLACEMENT CHARACTER}", text)


def _seconds(seconds: float) -> str:
    return f"{seconds:.3f}"
