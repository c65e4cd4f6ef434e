"""The report of a distribution check: whole in every situation, escaped, true to its records."""

import math
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from draftgate.checks.distribution import Arms, gather
from draftgate.checks.kept import CHECKED, PLAIN, RESULT
from draftgate.checks.outcome import CheckOutcome, CheckResult
from draftgate.cli import Exit, main
from draftgate.clock import ManualClock
from draftgate.codec import encode, to_lines
from draftgate.errors import BaselineError, MeasurementError
from draftgate.report.check import (
    EVIDENCE,
    evidence_of,
    page,
    read_evidence,
    summary,
    write_check_report,
    write_evidence,
)
from draftgate.report.check.head import example_facts, margin_sentence, tiles
from draftgate.report.check.heat import (
    by_family,
    directions_table,
    heat_figure,
    shown_processes,
    strongest,
)
from draftgate.report.check.markdown import LONGEST_COMMAND
from draftgate.report.check.paths import MOST_POINTS, path_figure, thinned
from draftgate.report.check.words import FAMILIES, SCOPES, family_name, log_value, visible
from draftgate.stats import directions as stats
from tests.support.check_results import (
    FIRED,
    NAMES,
    QUIET,
    SITUATIONS,
    WORST,
    Stored,
    lossy,
    nonconforming,
    numerics,
    passing,
    too_few,
    without_evidence,
)
from tests.support.html_page import parsed_page
from tests.support.scripted_law import PROMPTS, ScriptedReference, model_ask, plan

SECTIONS = ("evidence", "where", "rule", "example")

NASTY = "<img src=x onerror=alert(1)>&\"'|`@team \x1b[31m\x00"


@pytest.fixture(name="rendered", scope="module")
def _rendered() -> dict[str, str]:
    """Return the page of every situation."""
    made = {name: make() for name, make in SITUATIONS.items()}
    return {name: page(stored.result, stored.kept) for name, stored in made.items()}


def _text(html: str) -> str:
    return " ".join(" ".join(parsed_page(html).text).split())


@pytest.mark.parametrize("situation", SITUATIONS)
def test_every_situation_gives_a_whole_page(rendered: dict[str, str], situation: str) -> None:
    """Whatever is missing, tags nest, ids are unique, and the sections are there in order."""
    html = rendered[situation]
    parsed = parsed_page(html)

    assert parsed.wrong == []
    assert parsed.open == []
    assert len(parsed.ids) == len(set(parsed.ids))
    assert tuple(re.findall(r'<section id="(\w+)">', html)) == SECTIONS
    assert tuple(re.findall(r'<a href="#(\w+)"', html)) == SECTIONS
    assert "http" not in "".join(re.findall(r'(?:src|href)="([^"]*)"', html))


@pytest.mark.parametrize(
    ("situation", "verdict", "words"),
    [
        ("pass", "PASS", "no alarm in 7200 tokens"),
        ("pass", "PASS", "Margin to an alarm"),
        ("pass", "PASS", "so no token is held against the server"),
        ("lossy", "LOSSY", "alarm after 260 of 2400 tokens"),
        ("lossy", "LOSSY", "the server without speculation follows the same reference"),
        ("lossy", "LOSSY", "was likely"),
        ("lossy", "LOSSY", "curl -N http://127.0.0.1:8000/v1/completions"),
        ("lossy_infinite", "LOSSY", "This reference can't tell what was likely."),
        ("lossy_infinite", "LOSSY", "∞"),
        ("lossy_infinite", "LOSSY", "none: no server without speculation was given"),
        ("nonconforming", "NONCONFORMING", "3 of them are impossible under the rule"),
        ("nonconforming", "NONCONFORMING", "names no single token"),
        ("mismatch", "MISMATCH", "min_p: honoured, or refused by name: got token 16 at index 0"),
        (
            "mismatch",
            "MISMATCH",
            "no more tokens than max_tokens: got 49, expected at most 48 (the first of 6)",
        ),
        ("mismatch", "MISMATCH", "honoured: top_k; ignored: min_p; refused: logit_bias"),
        ("numerics", "INCONCLUSIVE (numerics)", "A/A arm, T=0.8,top_p=0.95"),
        ("too_few", "INCONCLUSIVE (too few tokens)", "Stopped by Ctrl-C"),
        ("too_few", "INCONCLUSIVE (too few tokens)", "2 of 242 requests brought no answer"),
        ("too_few", "INCONCLUSIVE (too few tokens)", "Not looked at"),
        ("too_few", "INCONCLUSIVE (too few tokens)", "a condition has no token"),
        ("without_evidence", "LOSSY", "The paths of this check were not kept."),
    ],
)
def test_page_says_what_was_found(
    rendered: dict[str, str], situation: str, verdict: str, words: str
) -> None:
    """The verdict comes first and its grounds, margins and gaps are told in words."""
    said = _text(rendered[situation])

    assert f"{verdict}: smollm2" in said[:80]
    assert words in said


@pytest.mark.parametrize("situation", SITUATIONS)
def test_page_names_what_the_reference_can_not_see(
    rendered: dict[str, str], situation: str
) -> None:
    """Blind spots stand on every page, whatever the outcome."""
    said = _text(rendered[situation])

    assert "What the reference can't see" in said
    assert "tokens beyond the 20 likeliest are known by their sum alone" in said


@pytest.mark.parametrize(
    ("situation", "paths", "heats"),
    [("pass", 3, 3), ("numerics", 3, 4), ("too_few", 2, 2), ("without_evidence", 0, 0)],
)
def test_every_process_is_drawn(situation: str, paths: int, heats: int) -> None:
    """Each condition with tokens has its drawings; the A/A arm has a heat map if it alarmed."""
    stored = SITUATIONS[situation]()

    assert len(path_figure(stored.result, stored.kept).panels) == paths
    assert len(heat_figure(stored.result, stored.kept).panels) == heats


def test_condition_that_fired_comes_first() -> None:
    """Heat maps and directions begin with the condition nearest to its bound, and name the part."""
    stored = lossy()
    first = heat_figure(stored.result, stored.kept).panels[0]
    table = directions_table(stored.result, stored.kept)

    assert first.title == "T=0.8,top_p=0.95"
    assert "strongest is towards the draft, later places of the chain" in first.label
    assert table is not None
    assert table.caption == "Strongest directions, T=0.8,top_p=0.95"
    assert [cell.text for cell in table.rows[0][:3]] == [
        "0.3 of the draft's law",
        "towards the draft",
        "later places of the chain",
    ]


def test_alarm_with_the_most_evidence_a_token_comes_first() -> None:
    """Of two alarms the page begins with the one that the verdict names."""
    stored = lossy()
    assert stored.kept is not None
    small, other, large = stored.result.findings.checked
    steep = replace(small, alarm_at=90, nats_per_token=2 * large.nats_per_token)
    findings = replace(stored.result.findings, checked=(steep, other, large))

    shown = shown_processes(replace(stored.result, findings=findings), stored.kept)

    assert [entry.condition for _, entry, _ in shown] == ["T=0.8", "T=0.8,top_p=0.95", "T=1"]


def test_example_of_the_aa_arm_says_so() -> None:
    """A worst example stands for the server under test only where that alarmed."""
    result = numerics().result
    quiet = tuple(replace(entry, alarm_at=None) for entry in result.findings.checked)
    plain_alone = replace(result, findings=replace(result.findings, checked=quiet))

    assert example_facts(result)[0] == ("Arm", "the server under test")
    assert example_facts(plain_alone)[0] == ("Arm", "the A/A arm: the other one is quiet")


def test_alarm_is_marked_where_it_came() -> None:
    """A panel's words name the tokens after which the bound was reached, and only those."""
    stored = lossy()
    labels = [panel.label for panel in path_figure(stored.result, stored.kept).panels]

    assert labels[2].startswith(
        "T=0.8,top_p=0.95, server under test: log e-value 94.0 after 2400 tokens, bound 10.3, "
        "alarm after 260 tokens; T=0.8,top_p=0.95, A/A arm: log e-value \N{MINUS SIGN}1.2 "
    )
    assert [label.count("no alarm") for label in labels] == [2, 2, 1]


def test_family_cell_is_its_directions_mean_e_value() -> None:
    """A cell of the heat map is the log of the plain mean of the family's e-values."""
    kept = lossy().kept
    assert kept is not None
    process = kept.processes["checked", "T=1"]
    rows = [i for i, name in enumerate(kept.families) if name == "draft"]

    found = by_family(process, kept)["draft"]

    expected = [math.log(np.mean([math.exp(process.parts[r, s]) for r in rows])) for s in range(5)]
    assert found == pytest.approx(expected)
    assert strongest(process, kept) == FIRED


def test_silence_is_no_evidence() -> None:
    """Parts that said nothing are dashes; they get no frame, whatever their weight, and no row."""
    stored = passing()
    assert stored.kept is not None
    quiet = stored.kept.processes["checked", "T=1"]
    parts = np.where(quiet.parts > 0, -0.5, quiet.parts)
    parts[np.array(stored.kept.families) == "draft"] = 0.0
    process = replace(quiet, parts=parts)
    kept = replace(stored.kept, processes={("checked", entry): process for entry in NAMES})

    cells = by_family(process, kept)
    table = directions_table(stored.result, kept)

    assert np.isnan(cells["draft"]).all()
    assert not np.isnan(cells["greedy"]).any()
    assert strongest(process, kept) is None
    label = heat_figure(stored.result, kept).panels[0].label
    assert label.endswith("no direction speaks against the server.")
    assert table is not None
    assert "towards the draft" not in {row[1].text for row in table.rows}


def test_thinned_path_keeps_a_single_crossing() -> None:
    """One token above the bound among 20,000 stays in the drawing, and so do both ends."""
    path = np.full(20_000, -2.0)
    path[12_345] = 15.0
    path[-1] = -3.0

    x, y = thinned(path)

    assert len(x) <= MOST_POINTS + 2
    assert (x[0], y[0], x[-1], y[-1]) == (0, 0.0, 20_000, -3.0)
    assert y[list(x).index(12_346)] == 15.0


def test_margin_is_said_for_a_pass_alone() -> None:
    """The margin is the distance of the nearest path to its bound, and no alarm has one."""
    quiet = passing().result

    said = margin_sentence(quiet)

    assert said is not None
    assert f"({NAMES[1]}) stayed {log_value(math.log(3e4) - QUIET[1])} below it" in said
    assert "an alarm takes 30,000" in said
    assert margin_sentence(lossy().result) is None
    assert margin_sentence(numerics().result) is None


@pytest.mark.parametrize(
    ("make", "last"),
    [
        (passing, ("Margin to an alarm", "8.2")),
        (lossy, ("Alarm after", "260")),
        (nonconforming, ("Alarm of the rule after", "7")),
        (numerics, ("Alarm of the A/A arm after", "540")),
    ],
)
def test_tiles_end_with_margin_or_alarm(make: Callable[[], Stored], last: tuple[str, str]) -> None:
    """The last of the four numbers says how near an alarm came, or when it came."""
    tile = tiles(make().result)[-1]

    assert (tile.title, tile.value) == last


def test_every_family_and_scope_has_words() -> None:
    """What the statistics look for, the report can name."""
    assert set(FAMILIES) >= set(stats.FAMILIES)
    assert set(SCOPES) >= {scope.label for scope in stats.SCOPES}
    assert family_name("of a later version") == "of a later version"


def _nasty() -> CheckResult:
    result = lossy().result
    return replace(
        result,
        subject=replace(result.subject, model=NASTY, blind_to=(NASTY,)),
        worst=replace(WORST, prefix=NASTY, text=NASTY, prompt_id=NASTY, curl=NASTY),
        failures=(NASTY,),
    )


def test_outside_text_stays_text_in_the_page() -> None:
    """Names, texts and commands open no tag and carry no control characters."""
    html = page(_nasty(), None)

    assert "<img" not in html
    assert html.count("&lt;img src=x") >= 6
    assert "\x1b" not in html
    assert "\x00" not in html
    assert parsed_page(html).wrong == []


def test_outside_text_stays_text_in_the_summary() -> None:
    """In Markdown it opens no tag, mentions nobody and breaks no table; the fence holds."""
    result = _nasty()
    ticks = replace(WORST, curl="curl ```` x")
    text = summary(result)
    outside = re.sub(r"\n(`{3,})\n.*?\n\1\n", "\n", text, flags=re.DOTALL)

    assert "<img" not in outside
    assert "@team" not in outside
    assert "\x1b" not in text
    assert "\n`````\ncurl ```` x\n`````\n" in summary(replace(result, worst=ticks))


@pytest.mark.parametrize("situation", SITUATIONS)
def test_summary_says_the_verdict_and_every_condition(situation: str) -> None:
    """The heading is the outcome; each condition of each arm has a row of its own."""
    result = SITUATIONS[situation]().result
    text = summary(result)
    head = text.splitlines()[0]
    entries = (*result.findings.checked, *result.findings.plain)

    assert result.judgement.outcome.value.upper() in head
    assert head.startswith("### ")
    rows = [line for line in text.splitlines() if line.startswith("|") and "T=" in line]
    assert len(rows) == len(entries) + len(result.findings.joint)
    assert ("Margin:" in text) == (result.judgement.outcome is CheckOutcome.PASS)
    assert "What the reference can't see" in text


def test_long_command_is_counted_in_the_summary() -> None:
    """A command that a summary can't hold is told by its length, not cut in two."""
    curl = "curl " + "1, " * LONGEST_COMMAND
    text = summary(replace(lossy().result, worst=replace(WORST, curl=curl)))

    assert f"has {len(curl):,} characters" in text
    assert len(text) < 10_000


def _folder(path: Path, stored: Stored) -> Path:
    path.mkdir(parents=True, exist_ok=True)
    (path / RESULT).write_text(to_lines(encode(stored.result)) + "\n", encoding="utf-8")
    if stored.kept is not None:
        write_evidence(path, stored.kept)
    return path


def test_evidence_comes_back_as_it_was_written(tmp_path: Path) -> None:
    """Names, weights, paths and parts survive the file."""
    stored = too_few()
    folder = _folder(tmp_path, stored)

    back = read_evidence(folder, stored.result)

    assert back is not None
    assert stored.kept is not None
    assert (back.families, back.labels, back.scopes) == (
        stored.kept.families,
        stored.kept.labels,
        stored.kept.scopes,
    )
    assert set(back.processes) == {("checked", "T=0.8"), ("checked", "T=1")}
    assert back.processes["checked", "T=1"].path == pytest.approx(
        stored.kept.processes["checked", "T=1"].path, abs=0
    )


def test_evidence_of_a_taken_check_is_what_was_judged() -> None:
    """Paths of both arms, weights and names are those of the check's own e-processes."""
    arms = Arms(
        checked=model_ask(), plain=model_ask(k=0, seed=1), reference=ScriptedReference(), joint=None
    )
    found = gather(plan("700"), arms, PROMPTS, ManualClock(), lambda _: None)

    kept = evidence_of(found)

    assert set(kept.processes) == {(CHECKED, "T=1"), (PLAIN, "T=1")}
    for arm, ledger in ((CHECKED, found.checked), (PLAIN, found.plain)):
        judged = ledger.evidence(0) if ledger is not None else None
        assert judged is not None
        process = kept.processes[arm, "T=1"]
        assert np.array_equal(process.path, judged.path)
        assert np.array_equal(process.parts, judged.parts)
        spoke = judged.parts[judged.best] > 0
        assert not spoke or strongest(process, kept) == judged.best
    assert kept.labels == tuple(direction.label for direction in found.checked.family)


@pytest.mark.parametrize("situation", ["lossy_infinite", "without_evidence"])
def test_report_is_made_from_the_folder_alone(tmp_path: Path, situation: str) -> None:
    """Page and summary are those of the records, with or without kept evidence."""
    stored = SITUATIONS[situation]()
    folder = _folder(tmp_path, stored)

    found = write_check_report(folder)

    assert found == folder / "report.html"
    assert found.read_text(encoding="utf-8") == page(stored.result, stored.kept)
    assert (folder / "summary.md").read_text(encoding="utf-8") == summary(stored.result)


def test_report_command_makes_a_check_s_page_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`draftgate report FOLDER` writes both forms and prints the verdict, whatever it is."""
    folder = _folder(tmp_path, without_evidence())

    assert main(["report", str(folder)]) == Exit.OK

    said = capsys.readouterr().out
    assert said.startswith("LOSSY: smollm2-135m-instruct at http://127.0.0.1:8000")
    assert f"report: {folder / 'report.html'}" in said
    assert (folder / "summary.md").exists()


def test_evidence_of_another_check_is_refused(tmp_path: Path) -> None:
    """Paths that don't end where the result says are an error, never a wrong picture."""
    folder = _folder(tmp_path, passing())
    other = lossy()
    assert other.kept is not None
    write_evidence(folder, other.kept)

    with pytest.raises(BaselineError, match=r"checked T=0\.8,top_p=0\.95: .* another check's"):
        write_check_report(folder)
    assert not (folder / "report.html").exists()


@pytest.mark.parametrize("content", [b"", b"no archive", b"PK\x03\x04cut"])
def test_damaged_evidence_is_told(tmp_path: Path, content: bytes) -> None:
    """A file that is none says so, and what to do."""
    folder = _folder(tmp_path, without_evidence())
    (folder / EVIDENCE).write_bytes(content)

    with pytest.raises(BaselineError, match=r"no readable evidence: .* remove the file"):
        write_check_report(folder)


def test_report_that_can_not_be_written_is_told(tmp_path: Path) -> None:
    """A folder in the page's place is one clear error, and the records stand."""
    folder = _folder(tmp_path, without_evidence())
    (folder / "report.html").mkdir()

    with pytest.raises(MeasurementError, match=r"report .*report\.html: cannot be written"):
        write_check_report(folder)
    assert (folder / RESULT).exists()


def test_control_characters_are_made_visible() -> None:
    """Ends of lines and tabs stay; what a terminal or an encoder trips over does not."""
    assert visible("a\n\tb\x1b\x00\u202e\ud800") == "a\n\tb" + "\N{REPLACEMENT CHARACTER}" * 4
