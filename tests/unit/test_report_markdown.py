"""The Markdown for a pull request, compared with one file per outcome."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from draftgate.report.markdown import LIMIT_CHARACTERS, escaped, render_markdown
from draftgate.report.summary import summarise
from draftgate.specs import Arm
from draftgate.verdict import Outcome
from tests.support.report_runs import SITUATIONS, SMALL, stored_run, verdict_of
from tests.support.samples import make_profile, make_run, make_verdicts

EXPECTED = Path(__file__).parent / "expected"

REWRITE = "DRAFTGATE_WRITE_EXPECTED"
"""Set to 1 to write the expected files anew; look at their diff before committing it."""


@pytest.mark.parametrize("outcome", list(Outcome), ids=lambda outcome: outcome.value)
def test_markdown_is_the_expected_file(tmp_path: Path, outcome: Outcome) -> None:
    """The report of one run with this outcome is the committed file, byte for byte."""
    profile = make_profile(concurrencies=(1, 8))
    run = stored_run(tmp_path, profile, verdicts=[verdict_of(outcome)], baseline="example.json")
    file = EXPECTED / f"report_{outcome.value}.md"

    text = render_markdown(summarise(run))

    if os.environ.get(REWRITE) == "1":
        file.write_text(text, encoding="utf-8")
    assert text == file.read_text(encoding="utf-8"), f"{REWRITE}=1 writes the expected files anew"


@pytest.mark.parametrize("situation", ["traffic_only", "mixed"])
def test_markdown_of_traffic_is_the_expected_file(tmp_path: Path, situation: str) -> None:
    """Acceptance by traffic, alone or beside speed, is the committed file, byte for byte."""
    file = EXPECTED / f"report_{situation}.md"

    text = render_markdown(summarise(SITUATIONS[situation](tmp_path)))

    if os.environ.get(REWRITE) == "1":
        file.write_text(text, encoding="utf-8")
    assert text == file.read_text(encoding="utf-8"), f"{REWRITE}=1 writes the expected files anew"


@pytest.mark.parametrize("situation", SITUATIONS)
def test_every_situation_gives_markdown(tmp_path: Path, situation: str) -> None:
    """Whatever is missing, the comment starts with the outcome and stays in its limit."""
    text = render_markdown(summarise(SITUATIONS[situation](tmp_path)))

    assert text.startswith("### ")
    assert len(text) <= LIMIT_CHARACTERS
    assert text.count("<details>") == text.count("</details>")


def test_rows_have_as_many_cells_as_their_heading(tmp_path: Path) -> None:
    """No cell breaks its table, whatever an arm is called."""
    nasty = "a|b\n|c"
    profile = make_profile(concurrencies=(1,))
    profile = replace(profile, arms=(profile.arms[0], Arm(nasty, profile.arms[1].engine)))
    runs = [make_run(arm, repeat=r, **SMALL) for r in range(2) for arm in ("none", nasty)]

    text = render_markdown(summarise(stored_run(tmp_path, profile, runs)))

    rows = [line.replace("\\|", "") for line in text.splitlines() if line.startswith("|")]
    assert {row.count("|") for row in rows[:4]} == {9}
    assert any("a\\|b \\|c" in line for line in text.splitlines())


def test_huge_run_stays_in_the_limit(tmp_path: Path) -> None:
    """A run with hundreds of cells, long texts and failures is cut, and says so."""
    profile = make_profile(concurrencies=tuple(range(1, 400)), repeats=1)
    verdicts = [
        replace(v, concurrency=c, reason="reason " * 40 + str(c))
        for v in make_verdicts()
        for c in profile.workload.concurrencies
    ]

    text = render_markdown(summarise(stored_run(tmp_path, profile, (), verdicts)))

    assert len(text) <= LIMIT_CHARACTERS
    assert text.rstrip().endswith("More is in `report.html`.")
    assert text.count("<details>") == text.count("</details>")


def test_escaped_text_is_text() -> None:
    """Markdown's and HTML's signs lose their meaning, line ends become spaces."""
    assert escaped("<b>*a*</b> | `x`\n @me") == ("&lt;b&gt;\\*a\\*&lt;/b&gt; \\| \\`x\\` \\@me")
