"""JUnit XML of a comparison."""

import os
from collections import Counter
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from draftgate.compare.records import StoredComparison
from draftgate.report.comparison import junit_xml
from draftgate.report.comparison.junit import case_seconds, held
from draftgate.verdict import Outcome
from tests.support.comparisons import (
    gate_of,
    not_started,
    one_of_each,
    only,
    stored_comparison,
    with_gates,
)

FILE = Path(__file__).parent / "expected" / "comparison_each.xml"

REWRITE = "DRAFTGATE_WRITE_EXPECTED"
"""Set to 1 to write the expected file anew; look at its diff before committing it."""

COMPARISON = stored_comparison()
EACH = one_of_each(COMPARISON)


def _suite(comparison: StoredComparison) -> ET.Element:
    suite = ET.fromstring(junit_xml(comparison)).find("testsuite")
    assert suite is not None
    return suite


def _properties(element: ET.Element) -> dict[str, str]:
    return {p.attrib["name"]: p.attrib["value"] for p in element.iterfind("properties/property")}


def test_document_is_the_expected_file() -> None:
    """One gate of each outcome gives the committed file, byte for byte."""
    text = junit_xml(EACH)

    if os.environ.get(REWRITE) == "1":
        FILE.write_text(text, encoding="utf-8")
    assert text == FILE.read_text(encoding="utf-8"), f"{REWRITE}=1 writes the expected file anew"


@pytest.mark.parametrize(
    ("outcome", "element", "kind"),
    [
        (Outcome.PASS, None, None),
        (Outcome.IMPROVEMENT, None, None),
        (Outcome.REGRESSION, "failure", "REGRESSION"),
        (Outcome.INVALID_RUN, "error", "INVALID_RUN"),
        (Outcome.INCONCLUSIVE, "skipped", None),
        (Outcome.NO_BASELINE, "skipped", None),
    ],
)
def test_outcomes_are_what_a_ci_system_knows(
    outcome: Outcome, element: str | None, kind: str | None
) -> None:
    """A regression fails, an unusable run is an error, an open question is skipped."""
    gate = gate_of(EACH, outcome)

    case = _suite(with_gates(EACH, [gate])).find("testcase")

    assert case is not None
    told = [child for child in case if child.tag != "properties"]
    assert [child.tag for child in told] == ([] if element is None else [element])
    for child in told:
        assert child.get("message") == gate.reason
        assert child.get("type") == kind
        assert f"next: {gate.next_step}" in (child.text or "")


def test_every_gate_is_one_case_with_a_name_of_its_own() -> None:
    """Class is profile and arm, name is metric and streams; no two are alike."""
    cases = _suite(COMPARISON).findall("testcase")

    names = [(case.attrib["classname"], case.attrib["name"]) for case in cases]
    assert len(names) == len(set(names)) == len(COMPARISON.result.gates)
    assert names[0] == ("example.none", "output_tokens_per_s x 1")


def test_counts_are_those_of_the_elements() -> None:
    """The totals of root and suite are what the cases hold."""
    root = ET.fromstring(junit_xml(COMPARISON))
    suite = _suite(COMPARISON)

    found = Counter(child.tag for case in suite.iterfind("testcase") for child in case)
    for element in (root, suite):
        assert element.get("tests") == str(found["properties"]) == "22"
        assert element.get("failures") == str(found["failure"]) == "5"
        assert element.get("errors") == str(found["error"]) == "1"
        assert element.get("skipped") == str(found["skipped"]) == "1"


def test_times_of_cases_add_up_to_the_comparison_s() -> None:
    """CI systems sum the cases: they get the time that was spent, each arm by its pairs."""
    suite = _suite(COMPARISON)

    times = [float(case.attrib["time"]) for case in suite.iterfind("testcase")]
    assert sum(times) == pytest.approx(183.4 * 60, abs=0.001 * len(times))
    assert float(suite.attrib["time"]) == pytest.approx(183.4 * 60)
    shares = case_seconds(COMPARISON)
    assert shares["none"] * 6 / (shares["ngram"] * 8) == pytest.approx(33 / 32)


def test_comparison_without_pairs_still_has_times() -> None:
    """Before the first pair every case has an even part of what was spent, here nothing."""
    suite = _suite(not_started(COMPARISON))

    assert {case.attrib["time"] for case in suite.iterfind("testcase")} == {"0.000"}
    assert suite.get("skipped") == "22"


def test_comparison_without_gates_is_an_empty_suite() -> None:
    """No gate, no case."""
    suite = _suite(with_gates(COMPARISON, []))

    assert suite.get("tests") == "0"
    assert not suite.findall("testcase")


def test_properties_hold_the_numbers_in_the_metric_s_direction() -> None:
    """A regression's case holds its change, both stages and the corrected p-value."""
    gate = gate_of(COMPARISON, Outcome.REGRESSION)
    assert gate.confirm is not None

    case = _suite(only(COMPARISON, Outcome.REGRESSION)).find("testcase")

    assert case is not None
    found = _properties(case)
    assert float(found["change"]) == pytest.approx(-gate.confirm.loss, rel=1e-5)
    assert float(found["change_low"]) == pytest.approx(-gate.confirm.high, rel=1e-5)
    assert (found["stage_one_pairs"], found["stage_two_pairs"]) == ("8", "24")
    assert float(found["adjusted_p"]) == pytest.approx(gate.adjusted_p, rel=1e-5)
    assert "instead_of" not in found


def test_what_xml_can_not_hold_is_replaced() -> None:
    """Control characters, half surrogates and markup from outside leave a document that parses."""
    nasty = "a\x00b\x1b[31m\x0b\ufffe\ud800 <failure> & ]]> \"'"
    gate = replace(gate_of(COMPARISON, Outcome.REGRESSION), reason=nasty, next_step=nasty)
    found = with_gates(stored_comparison(labels=(nasty, nasty), notes=(nasty,)), [gate])

    suite = _suite(found)

    clean = "a\ufffdb\ufffd[31m\ufffd\ufffd\ufffd <failure> & ]]> \"'"
    assert held(nasty) == clean
    assert _properties(suite)["base"] == clean
    assert [e.get("message") for e in suite.iter("failure")] == [clean]
    assert suite.findtext("system-out") == clean


def test_text_that_xml_can_hold_is_kept() -> None:
    """Tabs, line ends and characters of all planes stay."""
    text = "\t\n é 中 \U0001f600 \ue000"

    assert held(text) == text
