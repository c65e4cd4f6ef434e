"""The pull request comment of a comparison."""

import os
import re
from dataclasses import replace
from pathlib import Path

import pytest

from draftgate.compare.records import StoredComparison
from draftgate.errors import SpecError
from draftgate.report.comparison import comment, marker, step_summary
from draftgate.report.markdown import LIMIT_CHARACTERS
from draftgate.verdict import Outcome
from tests.support.comparisons import (
    gate_of,
    not_started,
    one_of_each,
    only,
    stored_comparison,
    with_gates,
)
from tests.support.samples import make_profile

EXPECTED = Path(__file__).parent / "expected"

REWRITE = "DRAFTGATE_WRITE_EXPECTED"
"""Set to 1 to write the expected files anew; look at their diff before committing it."""

COMPARISON = stored_comparison()


SITUATIONS = {
    "whole": COMPARISON,
    "green": only(COMPARISON, Outcome.PASS, Outcome.IMPROVEMENT),
    "each": one_of_each(COMPARISON),
    "not_started": not_started(COMPARISON),
}


@pytest.mark.parametrize("name", SITUATIONS)
def test_comment_is_the_expected_file(name: str) -> None:
    """The comment is the committed file, byte for byte."""
    file = EXPECTED / f"comparison_{name}.md"

    text = comment(SITUATIONS[name], run_url="https://ci.example/runs/1")

    if os.environ.get(REWRITE) == "1":
        file.write_text(text, encoding="utf-8")
    assert text == file.read_text(encoding="utf-8"), f"{REWRITE}=1 writes the expected files anew"


def test_first_line_is_the_marker_of_the_profile() -> None:
    """A script finds its comment by a line that only the profile decides."""
    first, second = comment(COMPARISON).splitlines()[:2]

    assert first == "<!-- draftgate:compare:example -->"
    assert first == comment(only(COMPARISON, Outcome.PASS)).splitlines()[0]
    assert second.startswith("### ")


def test_marker_can_not_be_left() -> None:
    """A profile's name neither ends the hidden comment nor makes two profiles one."""
    nasty = marker("a --> <b>\n")

    assert nasty == "<!-- draftgate:compare:a%20--%3E%20%3Cb%3E%0A -->"
    assert marker("a b") != marker("a_b")


def test_step_summary_is_the_comment_without_its_marker() -> None:
    """Both hold the same."""
    whole = comment(COMPARISON, run_url="https://ci.example/1")

    assert whole.split("\n", 1)[1] == step_summary(COMPARISON, run_url="https://ci.example/1")


def test_green_comparison_lists_nothing_but_the_folded_table() -> None:
    """Where all is well there is one table, and it is folded."""
    before, folded = comment(SITUATIONS["green"]).split("<details>")

    assert "|" not in before
    assert folded.count("\n| ✓ Pass |") == 13


def test_gates_that_are_not_green_come_before_the_folded_table() -> None:
    """Each of the seven has a line with its cause or reason."""
    before, folded = comment(COMPARISON).split("<details>")

    rows = [line for line in before.splitlines() if line.startswith("| ") and "**" in line]
    assert len(rows) == 7
    assert sum("| acceptance -8 % " in row for row in rows) == 3
    assert len(re.findall(r"^\| \S ", folded, re.MULTILINE)) == 22


@pytest.mark.parametrize("url", ["javascript:alert(1)", "ci.example/1", "https://", ""])
def test_run_url_must_be_http(url: str) -> None:
    """Another kind of address is refused, an empty one is none."""
    if not url:
        assert "[Run]" not in comment(COMPARISON, run_url=url)
        return

    with pytest.raises(SpecError, match="expected an address that starts with http"):
        comment(COMPARISON, run_url=url)


def test_run_url_can_not_leave_its_link() -> None:
    """Brackets, spaces and line ends of an address are encoded."""
    text = comment(COMPARISON, run_url="https://ci.example/a b>)[x](y)\n|")

    assert "[Run](<https://ci.example/a%20b%3E%29[x]%28y%29%0A%7C>)" in text


NASTY = "<img src=x>|\n- `a` @team #1 $x$ --> **b** [c](d)\x1b[0m"


def test_outside_text_is_neither_markup_nor_a_new_cell() -> None:
    """Labels, arms, reasons, steps and notes keep every table whole and open no tag."""
    text = comment(_nasty(NASTY))

    rows = [re.sub(r"\\\|", "", line) for line in text.splitlines() if line.startswith("|")]
    assert {row.count("|") for row in rows} == {6, 11}
    own = re.sub(r"</?(details|summary|span)>", "", text.split("\n", 1)[1])
    assert not re.search(r"<[a-z!/]", own)
    assert "\x1b" not in text
    for sign in ("@team", "#1", "`a`", "**b**", "[c]", "$x$"):
        assert sign not in text.replace("\\`", "").replace("\\*", "")


def _nasty(text: str, times: int = 1) -> StoredComparison:
    """Return a comparison in which everything that is said from outside is `text`."""
    gate = gate_of(COMPARISON, Outcome.INCONCLUSIVE)
    gates = [
        replace(
            gate,
            gate=replace(gate.gate, arm=f"{text}{number}", note=text),
            reason=text,
            next_step=f"{text}{number}",
        )
        for number in range(times)
    ]
    found = with_gates(
        stored_comparison(labels=(text, text), engines=(text, text), profile=make_profile(text)),
        gates,
    )
    return replace(found, result=replace(found.result, notes=(text, f"{text}2")))


@pytest.mark.parametrize("text", ["a long reason " * 50, "$@#|<" * 200], ids=["words", "signs"])
def test_huge_comparison_stays_in_the_limit_and_counts_what_is_left_out(text: str) -> None:
    """Hundreds of gates with long texts are cut at whole lines, and the rest is counted."""
    found = comment(_nasty(text, 700))

    assert len(found) <= LIMIT_CHARACTERS
    assert found.count("<details>") == found.count("</details>") == 1
    before, folded = found.split("<details>")
    assert _rows(before) + _left(r"Not listed here: (\d+) more gates", before) == 700
    assert _rows(folded) + _left(r"^(\d+) more gates left out here", folded) == 700
    steps = before.split("**Next**")[1].split("**Notes**")[0]
    assert steps.count("\n- ") - 1 + _left(r"^- and (\d+) more$", steps) == 700


def _rows(text: str) -> int:
    return len(re.findall(r"^\| \? Inconclusive ", text, re.MULTILINE))


def _left(pattern: str, text: str) -> int:
    found = re.search(pattern, text, re.MULTILINE)
    assert found is not None
    return int(found[1])


def test_rows_that_just_fit_are_kept() -> None:
    """A comparison of a hundred gates with usual texts is not cut."""
    gates = [
        replace(gate, gate=replace(gate.gate, arm=f"{gate.gate.arm}-{number}"))
        for number in range(10)
        for gate in only(COMPARISON, Outcome.PASS).result.gates
    ]

    text = comment(with_gates(COMPARISON, gates))

    assert text.count("\n| ✓ Pass |") == 130
    assert "left out here" not in text
