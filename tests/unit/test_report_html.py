"""The HTML page: complete, escaped, self-contained, and there in every situation."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from draftgate.errors import MeasurementError
from draftgate.report import write_report
from draftgate.report.html import render_html
from draftgate.report.summary import summarise
from tests.support import report_runs
from tests.support.html_page import parsed_page
from tests.support.report_runs import SITUATIONS, complete, stored_run
from tests.support.samples import make_environment, make_profile, make_verdicts

SPEED_SECTIONS = ("speed", "why", "verdicts", "plots", "metrics", "setup", "health", "definitions")

SECTIONS = {
    "traffic_only": ("traffic", "verdicts", "setup"),
    "mixed": (*SPEED_SECTIONS[:2], "traffic", *SPEED_SECTIONS[2:]),
}
"""Sections of situations that do not have those of speed alone."""


@pytest.fixture(name="rendered", scope="module")
def _rendered(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return the page of every situation."""
    folder = tmp_path_factory.mktemp("run")
    return {name: render_html(summarise(make(folder))) for name, make in SITUATIONS.items()}


@pytest.fixture(name="page")
def _page(rendered: dict[str, str]) -> str:
    """Return the page of a complete run."""
    return rendered["complete"]


@pytest.mark.parametrize("situation", SITUATIONS)
def test_every_situation_gives_a_whole_page(rendered: dict[str, str], situation: str) -> None:
    """Whatever is missing, tags nest, ids are unique, and the sections are there in order."""
    parsed = parsed_page(rendered[situation])
    sections = re.findall(r'<section id="(\w+)">', rendered[situation])
    links = re.findall(r'href="#(\w+)"', rendered[situation])

    assert parsed.wrong == []
    assert parsed.open == []
    assert len(parsed.ids) == len(set(parsed.ids))
    assert sections == list(SECTIONS.get(situation, SPEED_SECTIONS))
    assert links == sections


@pytest.mark.parametrize(
    ("situation", "words"),
    [
        ("without_reference", "No usable run of an arm without speculation"),
        ("without_reference", "No arm could be compared with none."),
        ("one_repeat", "one run"),
        ("one_repeat", "so no drift can be seen"),
        ("all_invalid", "event-loop lag of 80 ms"),
        ("all_invalid", "No run can be used"),
        ("no_baseline", "there is nothing stored to compare with yet"),
        ("without_counters", "No arm reported speculation counters."),
        ("without_requests", "Without output tokens in the window: ngram at 1 stream."),
        ("aborted", "Not measured: ngram, draft_model at 8 streams."),
        ("aborted", "early end"),
        ("aborted", "2 of 48 requests failed"),
        ("nothing", "Nothing was measured, so nothing was judged."),
        ("nothing", "No run was taken."),
        ("traffic_only", "Invalid acceptance, in no number: draft_model on code: 3 of 60 requests"),
        ("mixed", "3 of 60 requests failed (early end)"),
    ],
)
def test_page_says_what_is_missing(rendered: dict[str, str], situation: str, words: str) -> None:
    """A page without something says that it is missing, in words."""
    text = " ".join(parsed_page(rendered[situation]).text)

    assert words in text


def test_page_asks_the_network_for_nothing(page: str) -> None:
    """There is no address, import or script anywhere in the page."""
    assert not re.search(r"https?://|//[a-z]+\.[a-z]|@import|<script|\bsrc=", page)
    links = re.findall(r'\bhref="([^"]+)"', page)
    assert links
    assert all(link.startswith("#") or link == "data:," for link in links)
    assert not re.search(r"url\((?!#)", page)


@pytest.mark.parametrize("situation", ["traffic_only", "mixed"])
def test_acceptance_by_traffic_has_table_and_plot(rendered: dict[str, str], situation: str) -> None:
    """Each kind is a row with its badge; arms with counters are drawn, with words and numbers."""
    part = rendered[situation].split('<section id="traffic">')[1].split("</section>")[0]
    table, figure = part.split("<figure")

    assert re.findall(r'<th scope="row">(\w+)', table) == ["chat", "code", "arithmetic"] * 2
    assert re.findall(r'class="badge (\w+)', table) == [
        "pass",
        "regression",
        "improvement",
        "no_baseline",
        "invalid_run",
        "no_baseline",
    ]
    assert re.findall(r'aria-label="[^"]*traffic\. (\w+)\. chat: 52.0 %', figure) == [
        "ngram",
        "draft_model",
    ]
    assert "<table" in figure


def test_run_of_traffic_alone_shows_no_speed(rendered: dict[str, str]) -> None:
    """Without perf samples there is no empty table, and no word that nothing was measured."""
    text = " ".join(parsed_page(rendered["traffic_only"]).text)

    for words in ("Nothing was measured", "Speed-up", "tokens/s", "not measured", "None."):
        assert words not in text
    assert "1 of 6 gates regressed, ngram on code at 8 streams" in text


def test_every_inner_link_has_a_target(page: str) -> None:
    """Links and drawings refer only to ids that exist."""
    ids = set(parsed_page(page).ids)

    assert set(re.findall(r'href="#([^"]+)"', page)) <= ids
    assert set(re.findall(r"url\(#([^)]+)\)", page)) <= ids


def test_text_from_outside_is_escaped(tmp_path: Path) -> None:
    """Markup in names, reasons, commands and environment arrives as text."""
    nasty = "<img src=x onerror=alert(1)>&\"'"
    profile = make_profile(name=nasty, concurrencies=(1,), repeats=2)
    profile = replace(profile, description=nasty, text=nasty)
    verdicts = [
        replace(v, reason=nasty, next_step=nasty, cause=nasty, arm=nasty) for v in make_verdicts()
    ]
    run = replace(
        stored_run(tmp_path, profile, verdicts=verdicts, baseline=nasty),
        id=nasty,
        argv=(nasty,),
        environment=make_environment(host=nasty, cpu_model=nasty, engine=nasty),
        commands={nasty: nasty},
    )
    run = replace(
        run, samples=tuple(replace(s, arm=nasty, invalid=(nasty,)) for s in run.samples[:1])
    )

    page = render_html(summarise(run))

    assert "<img" not in page
    assert "onerror=alert(1)&gt;" in page


def test_verdict_is_told_without_colour(page: str) -> None:
    """Every badge holds its outcome as text."""
    badges = re.findall(r'<span class="badge (\w+)[^"]*">.*?</span> ([^<]+)</span>', page)

    labels = dict(badges)
    assert labels["regression"] == "Regression"
    assert labels["no_baseline"] == "No baseline"
    assert len(labels) == 6


def test_plots_have_words_and_numbers(page: str) -> None:
    """Each drawing has a label, each figure a table."""
    figures = re.findall(r"<figure.*?</figure>", page, flags=re.DOTALL)

    assert len(figures) == 6
    for figure in figures:
        title = re.findall(r"<h3>(.*?)</h3>", figure)[0]
        labels = re.findall(r'role="img" aria-label="([^"]+)"', figure)
        assert len(labels) == figure.count('class="panel card"') >= 1
        assert all(label.startswith(f"{title}. ") and "draft_model: " in label for label in labels)
        assert "<table" in figure


def test_page_holds_what_reproduces_it(page: str) -> None:
    """Command line, start commands, profile and files are on the page."""
    for words in (
        "draftgate measure --profile &#39;a b&#39;",
        "serve --arm draft_model",
        "draftgate report ",
        "Example CPU @ 2.0GHz",
        "baselines/example.json",
        "report.md",
        "first chunk - sent",
    ):
        assert words in page


def test_write_report_leaves_both_files(tmp_path: Path) -> None:
    """The page and the Markdown are in the run's folder, and nothing else is."""
    (tmp_path / "run.json").write_text("{}")

    page = write_report(complete(tmp_path))

    assert page == tmp_path / "report.html"
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "report.html",
        "report.md",
        "run.json",
    ]
    assert "run.json" in page.read_text(encoding="utf-8")


def test_report_can_be_written_again(tmp_path: Path) -> None:
    """A second report from the same run is the same page."""
    run = report_runs.one_repeat(tmp_path)

    first = write_report(run).read_bytes()

    assert write_report(run).read_bytes() == first


def test_unwritable_folder_is_one_clear_error(tmp_path: Path) -> None:
    """A report that can't be written says which and what to do."""
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")

    with pytest.raises(MeasurementError, match=r"report .*file/report\.html: cannot be written"):
        write_report(report_runs.nothing(blocked))
