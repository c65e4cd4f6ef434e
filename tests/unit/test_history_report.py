"""The history as page, fragment, list and table: whole, escaped, and the same in all."""

import math
import re
from dataclasses import replace
from typing import Any

import pytest
from rich.console import Console

from draftgate.history.findings import Findings, findings
from draftgate.history.items import item_id, judge_series
from draftgate.history.records import NightRows, Series
from draftgate.history.series import history_of
from draftgate.report.format import MINUS
from draftgate.report.history import (
    SHOWN_ITEMS,
    answer,
    history_fragment,
    history_markdown,
    history_page,
)
from draftgate.report.history_plot import history_plot
from draftgate.report.history_tables import gap_table, items_table, latest_table
from draftgate.report.history_terminal import print_history
from tests.support.history import (
    KEY,
    ROW,
    at,
    closure_for,
    levels,
    night_of,
    run_id,
    series_of,
    table_of,
)
from tests.support.html_page import parsed_page

NIGHTS = 60
STEPS = levels(2, NIGHTS, {30: 0.8})
FLAT = levels(3, NIGHTS)


def nights(arm: str = "ngram", **changes: Any) -> list[NightRows]:
    """Return nights of one series with a fall after an engine update, and one without a change."""
    return [
        night_of(
            number,
            [
                replace(
                    ROW,
                    time=at(number),
                    arm=arm,
                    value=STEPS[number],
                    engine_version="0.33.0" if number >= 30 else "0.32.0",
                    commit="c0ffee0123456789" if number >= 30 else "",
                ),
                replace(
                    ROW, time=at(number), metric="ttft_p50_s", unit="s", better="lower",
                    value=math.nan if number == 7 else FLAT[number] / 1000,
                ),
            ],
            **changes,
        )
        for number in range(NIGHTS)
    ]  # fmt: skip


def printed(found: Findings, *, every: bool = False) -> str:
    """Return what the terminal shows in 80 columns."""
    console = Console(width=80, record=True, file=None, quiet=False, color_system=None)
    with console.capture() as capture:
        print_history(found, console, every=every)
    return capture.get()


@pytest.fixture(name="found", scope="module")
def _found() -> Findings:
    """Return findings with one open item."""
    return findings(history_of(table_of(nights())))


@pytest.fixture(name="page", scope="module")
def _page(found: Findings) -> str:
    """Return the page of them."""
    return history_page(found)


@pytest.mark.parametrize("every", [False, True])
def test_page_is_whole_and_asks_for_nothing(found: Findings, *, every: bool) -> None:
    """Tags balance, ids are unique, and there is no script, address or leftover sentinel."""
    page = history_page(found, every_series=every)
    parsed = parsed_page(page)
    sections = re.findall(r'<section id="(\w+)">', page)

    assert parsed.wrong == []
    assert parsed.open == []
    assert len(parsed.ids) == len(set(parsed.ids))
    assert re.findall(r'<a href="#(\w+)"', page) == sections
    assert not re.search(r"<script|https?://(?!www\.w3\.org)|url\(http|#0a0[bcde]\d\d", page)
    assert page.count("<svg") == (2 if every else 1)


def test_page_says_what_changed_when_and_with_which_build(found: Findings, page: str) -> None:
    """Change, levels, night, builds before and after, and the id to close it by."""
    (item,) = found.open_items

    for words in (
        "History: 1 open item",
        item.id,
        f"{at(30):%Y-%m-%d}",
        "vllm 0.32.0 → 0.33.0",
        "commit unknown → c0ffee012",
        "draftgate history close ITEM",
        "output tokens/s",
        "They fail nothing",
    ):
        assert words in page
    assert re.search(rf"{MINUS}(19|20|21)\.\d %", page)


def test_page_names_what_could_not_be_used(found: Findings, page: str) -> None:
    """A NaN is a row of the gaps and a cross in the plot, not silence."""
    table = gap_table(found.judged)

    assert table is not None
    assert [entry.text for entry in table.rows[0]] == [
        run_id(7),
        "NaN",
        "ngram, 8 streams, time to first token, p50",
    ]
    assert "NaN" in page


def test_names_from_outside_are_escaped() -> None:
    """An arm or reason can't become markup, neither in HTML nor in Markdown."""
    evil = "<img src=x>|`*[a](b)"
    found = findings(history_of(table_of(nights(arm=evil))))
    closed = findings(
        history_of(table_of(nights(arm=evil))), (closure_for(found.items[0], reason=evil, by=evil),)
    )

    assert closed.open_items == ()
    for text in (history_page(found), history_fragment(found), history_page(closed)):
        assert "<img" not in text
        assert "&lt;img src=x&gt;" in text
    markdown = history_markdown(found)
    assert "<img" not in markdown
    assert r"\|\`\*\[a\](b)" in markdown


def test_closed_item_moves_to_its_own_table(found: Findings) -> None:
    """With who closed it and why; the list for comments is empty then."""
    closed = findings(history_of(table_of(nights())), (closure_for(found.items[0], is_real=False),))
    page = history_page(closed)

    assert "History: 0 open items" in page
    assert "mira, 2026-05-01: false alarm: expected" in page
    assert answer(closed).startswith("No open item in 2 series over 60 nights")
    assert "Close one" not in history_markdown(closed)
    assert "stroke-dasharray" in page


def test_closure_without_its_change_is_shown(found: Findings) -> None:
    """What was closed and is not seen any more stays on the page."""
    item = found.items[0]
    gone = closure_for(found.items[0], id=item_id(item.series, 50, is_rise=True), reason="long ago")
    page = history_page(findings(history_of(table_of(nights())), (gone,)))

    assert "not seen any more" in page
    assert "long ago" in page


def test_fragment_is_part_of_a_page(found: Findings) -> None:
    """It has no head of its own, one plot, and balances."""
    part = history_fragment(found)
    parsed = parsed_page(part)

    assert parsed.wrong == []
    assert parsed.open == []
    assert "<html" not in part
    assert "<style" not in part
    assert part.count("<svg") == 1


def test_fragment_stays_short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond so many plots it counts the rest."""
    monkeypatch.setattr("draftgate.report.history.SHOWN_PLOTS", 2)
    many = [series_of(STEPS, key=replace(KEY, concurrency=n)) for n in range(1, 6)]
    part = history_fragment(_findings_of(*many))

    assert part.count("<svg") == 2
    assert "3 more series with an open item" in part


def test_comment_is_a_list_by_event(found: Findings) -> None:
    """What changed on one night stands under one heading, with id, interval and levels."""
    (item,) = found.open_items
    text = history_markdown(found)

    assert text.startswith("#### History\n\n1 open item (1 worse) in 2 series over 60 nights")
    assert f"**{at(30):%Y-%m-%d} · example on cpu-example-2c, vllm · vllm 0.32.0 → 0.33.0" in text
    assert re.search(rf"- `{item.id}` ngram, 8 streams, output tokens/s: \*\*{MINUS}", text)


def test_comment_stays_short() -> None:
    """Beyond twenty items it counts the rest."""
    many = [series_of(STEPS, key=replace(KEY, concurrency=n)) for n in range(1, SHOWN_ITEMS + 6)]
    text = history_markdown(_findings_of(*many))

    assert text.count("\n- `") == SHOWN_ITEMS
    assert "and 5 more" in text


def test_terminal_fits_80_columns(found: Findings) -> None:
    """No line is longer, and the answer is the last one."""
    text = printed(found, every=True)

    assert max(map(len, text.splitlines())) <= 80
    assert "1 open item (1 worse)" in text.splitlines()[-1]
    assert found.open_items[0].id in text


def test_terminal_shows_closed_items_only_with_all(found: Findings) -> None:
    """A closed item is not in the way, and can be found."""
    closed = findings(history_of(table_of(nights())), (closure_for(found.items[0]),))

    assert found.items[0].id not in printed(closed)
    assert f"{found.items[0].id}: mira, 2026-05-01: expected" in printed(closed, every=True)


def test_short_series_are_told() -> None:
    """Nine nights can't be judged, which is said rather than shown as no change."""
    found = _findings_of(series_of([100.0] * 9))
    table = latest_table(found.judged)

    assert "Too short to judge, with fewer than 10 nights: 1 series." in answer(found)
    assert table is not None
    assert table.rows[0][1].detail == "of 10 needed"


def test_empty_findings_make_a_page() -> None:
    """Tables that would be empty are left out in words."""
    page = history_page(Findings((), (), ("odd",), 0))

    assert "No series has changed." in page
    assert "odd" in page
    assert items_table("x", ()) is None
    assert latest_table(()) is None


@pytest.mark.parametrize(
    ("values", "unit"),
    [([5.0], "s"), ([0.0] * 12, ""), ([-1.0, 1.0], "W"), ([100.0] * 400, "tokens/s")],
    ids=["one night", "all zero", "negative", "a year, constant"],
)
def test_any_series_can_be_drawn(values: list[float], unit: str) -> None:
    """One night, equal values or values below 0 give a plot without a NaN in it."""
    series: Series = series_of(values, unit=unit, is_log=min(values) > 0)
    svg = history_plot("k", judge_series(series))

    assert svg.startswith("<svg")
    assert "nan" not in svg.lower()
    assert svg.count("L ") >= len(values)


def test_plot_marks_every_night_level_change_and_gap(found: Findings) -> None:
    """A dot per night, a level per segment, a labelled line per change, a cross per gap."""
    fallen, missing = found.judged
    svg = history_plot("a", fallen)

    assert re.search(rf"{MINUS}\d\d\.\d %", svg)
    assert "var(--bad)" in svg
    assert "var(--bad)" in history_plot("b", missing)
    assert "var(--bad)" not in history_plot("c", replace(missing, series=replace(
        missing.series, gaps=())))  # fmt: skip


def _findings_of(*series: Series) -> Findings:
    return Findings(tuple(map(judge_series, series)), (), (), NIGHTS)
