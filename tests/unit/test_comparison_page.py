"""The page of a comparison: complete, escaped, self-contained, and there in every situation."""

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from draftgate.compare.gates import title
from draftgate.compare.records import Cause, FactorLoss, GateResult, Scale, StoredComparison
from draftgate.errors import MeasurementError
from draftgate.report.comparison_page import page, write_page
from draftgate.report.comparison_page.causes import cause_figure, cell_causes, position_figure
from draftgate.report.comparison_page.intervals import interval_figure
from draftgate.report.comparison_page.tables import OPEN_ROWS, open_tables, raw_tables
from draftgate.verdict import Outcome
from tests.support.comparison_situations import SITUATIONS, no_pairs
from tests.support.comparisons import gate_of, only, stored_comparison, with_gates
from tests.support.html_page import parsed_page

SECTIONS = ("open", "loss", "time", "why", "numbers", "raw", "setup")

NASTY = "<img src=x onerror=alert(1)>&\"'"


@pytest.fixture(name="made", scope="module")
def _made() -> StoredComparison:
    """Return a comparison with gates of every common outcome."""
    return stored_comparison()


@pytest.fixture(name="rendered", scope="module")
def _rendered() -> dict[str, str]:
    """Return the page of every situation that is quick to draw."""
    return {name: page(make()) for name, make in SITUATIONS.items()}


@pytest.fixture(name="whole")
def _whole(rendered: dict[str, str]) -> str:
    """Return the page of a complete comparison."""
    return rendered["complete"]


def _text(html: str) -> str:
    return " ".join(" ".join(parsed_page(html).text).split())


def _section(html: str, name: str) -> str:
    return html.split(f'<section id="{name}">')[1].split("</section>", maxsplit=1)[0]


@pytest.mark.parametrize("situation", SITUATIONS)
def test_every_situation_gives_a_whole_page(rendered: dict[str, str], situation: str) -> None:
    """Whatever is missing, tags nest, ids are unique, and the sections are there in order."""
    parsed = parsed_page(rendered[situation])
    links = re.findall(r'<a href="#(\w+)"', rendered[situation])

    assert parsed.wrong == []
    assert parsed.open == []
    assert len(parsed.ids) == len(set(parsed.ids))
    assert tuple(re.findall(r'<section id="(\w+)">', rendered[situation])) == SECTIONS
    assert tuple(links) == SECTIONS


@pytest.mark.parametrize(
    ("situation", "words"),
    [
        ("no_pairs", "none taken yet"),
        ("no_pairs", "No gate has an estimate yet."),
        ("no_pairs", "No pair has a value on both sides."),
        ("no_pairs", "No pair was taken."),
        ("no_pairs", "interrupted, can be resumed"),
        ("invalid_only", "0 used, 5 left out"),
        ("invalid_only", "candidate: did not start: exit code 1"),
        ("invalid_only", "No pair has a value on both sides."),
        ("green", "all green."),
        ("no_gates", "No gate was asked."),
        ("complete", "84 used (none 32, ngram 32, draft_model 20), 1 left out"),
        ("complete", "invalid run: no estimate"),
    ],
)
def test_page_says_what_is_missing(rendered: dict[str, str], situation: str, words: str) -> None:
    """A page without something says so in words."""
    assert words in _text(rendered[situation])


@pytest.mark.parametrize("situation", ["no_pairs", "invalid_only", "no_gates"])
def test_nothing_is_drawn_without_data(rendered: dict[str, str], situation: str) -> None:
    """Without a single loss there is no drawing at all."""
    assert 'class="panel' not in rendered[situation]


@pytest.mark.parametrize("situation", SITUATIONS)
def test_page_asks_the_network_for_nothing(rendered: dict[str, str], situation: str) -> None:
    """There is no address, import or script, and inner references lead somewhere."""
    html = rendered[situation]
    links = re.findall(r'\bhref="([^"]+)"', html)
    inner = {link[1:] for link in links if link != "data:,"}

    assert not re.search(r"https?://|//[a-z]+\.[a-z]|@import|<script|\bsrc=", html)
    assert all(link.startswith("#") or link == "data:," for link in links)
    assert inner | set(re.findall(r"url\(#([^)]+)\)", html)) <= set(parsed_page(html).ids)


@pytest.mark.parametrize(
    "words",
    [
        "vllm:0.31.0 (image): vllm 0.31.0",
        "vllm:0.32.0 (image): vllm 0.32.0",
        "cpu-example-2c; host example",
        "example: An invented profile for tests.",
        "3.1 hours",
        "at most 0.2 % false REGRESSION over all 22 gates together",
        "the sides' engines differ",
        "time to first token, p90 stands instead of time to first token, p99",
    ],
)
def test_top_of_the_page_tells_what_was_compared(whole: str, words: str) -> None:
    """Sides with engines, machine, profile, time, error rate and notes stand before any section."""
    assert words in _text(whole.split("<main>", maxsplit=1)[0])


def test_answer_names_outcome_and_cause(whole: str) -> None:
    """The first card holds the outcome as text and the factor that decided it."""
    answer = whole.split('class="answer card"')[1].split("</div>", maxsplit=1)[0]

    assert "Regression" in answer
    assert "Acceptance" in answer
    assert "5 of 22 gates regressed" in answer


def test_open_gates_tell_reason_cause_and_next_step(made: StoredComparison, whole: str) -> None:
    """Every gate that is not green is a row with its words; no green one is."""
    rows = re.findall(r"<tr><th scope=\"row\">.*?</tr>", _section(whole, "open"), re.DOTALL)
    expected = [gate for gate in made.result.gates if not gate.outcome.green]

    assert len(rows) == len(expected) == 7
    for gate in expected:
        words = (gate.reason, gate.next_step, gate.cause.text if gate.cause else "—")
        assert any(all(word in _text(row) for word in words) for row in rows)


def test_many_open_gates_are_folded_after_the_first() -> None:
    """A long list of open gates shows its head and folds the rest, none lost."""
    shown, folded = open_tables(no_pairs())

    assert len(shown.rows) == OPEN_ROWS
    assert len(folded.rows) == 22 - OPEN_ROWS


def test_text_from_outside_is_escaped(made: StoredComparison) -> None:
    """Markup in labels, names, reasons, causes, notes and commands arrives as text."""
    html = page(_nasty(made))

    assert "<img" not in html
    assert html.count("onerror=alert(1)&gt;") > 20


def _nasty(made: StoredComparison) -> StoredComparison:
    """Return a comparison of two gates with markup wherever a text comes from outside."""
    result = gate_of(made, Outcome.REGRESSION)
    assert result.cause is not None
    factors = tuple(replace(factor, label=NASTY) for factor in result.cause.factors)
    positions = ((0, 0.6, 0.5, -0.2, -0.1),)
    spoilt = replace(
        result,
        gate=replace(result.gate, arm=NASTY, note=NASTY, instead_of="ttft_p99_s"),
        reason=NASTY,
        next_step=NASTY,
        cause=Cause(NASTY, factors, positions),
    )
    pairs = [
        replace(pair, arm=NASTY, host=NASTY, candidate=replace(pair.candidate, engine=NASTY))
        for pair in made.pairs
        if pair.arm == result.gate.arm
    ]
    pairs[-1] = replace(pairs[-1], base=replace(pairs[-1].base, invalid=(NASTY,)))
    found = with_gates(replace(made, pairs=tuple(pairs)), (spoilt,))
    header = found.header
    return replace(
        found,
        header=replace(
            header,
            id=NASTY,
            argv=(NASTY,),
            confirms=NASTY,
            base=replace(header.base, label=NASTY, kind=NASTY),
            profile=replace(header.profile, name=NASTY, description=NASTY, text=NASTY),
            environment=replace(header.environment, hardware=NASTY),
        ),
        result=replace(found.result, notes=(NASTY,)),
    )


def test_history_is_shown_as_given(made: StoredComparison, whole: str) -> None:
    """A fragment stands under History unchanged; without one there is no such section."""
    fragment = '<p class="muted">a <b>fragment</b> &amp; more</p>'

    html = page(only(made, Outcome.INVALID_RUN), history=fragment)

    assert fragment in _section(html, "history")
    assert '<a href="#history">' in html
    assert "History" not in whole


def test_every_drawing_has_words_and_numbers(whole: str) -> None:
    """Each drawing has a label that starts with its figure's title, each figure a table."""
    figures = re.findall(r"<figure.*?</figure>", whole, flags=re.DOTALL)

    assert len(figures) == 4
    for figure in figures:
        heading = re.findall(r"<h[23]>(.*?)</h[23]>", figure)[0]
        labels = re.findall(r'role="img" aria-label="([^"]+)"', figure)
        assert len(labels) == figure.count('class="panel card"') >= 1
        assert all(label.startswith(f"{heading}. ") for label in labels)
        assert "<table" in figure


def test_drawings_follow_the_theme(whole: str) -> None:
    """No drawing holds a colour or a font of its own."""
    drawings = "".join(re.findall(r'<svg viewBox="0 0 331.*?</svg>', whole, flags=re.DOTALL))

    assert drawings
    assert not re.search(r"#[0-9a-f]{6}\b", drawings)
    assert "font-family" not in drawings


def test_page_can_be_made_again(made: StoredComparison) -> None:
    """The same records give the same page."""
    few = only(made, Outcome.INVALID_RUN)

    assert page(few) == page(few)


def test_interval_panels_part_arms_and_scales(made: StoredComparison) -> None:
    """There is one panel per arm for shares and one for tokens, and no gate is in two."""
    panels = interval_figure(made.result.gates).panels
    rows = [len(re.findall(r": (?:pass|imp|reg|inc|inv)", panel.label)) for panel in panels]

    assert [panel.title for panel in panels[:3]] == ["Arm none", "Arm ngram", "Arm draft_model"]
    assert panels[3].title == "Tokens per step by prompt, all arms"
    assert rows == [6, 6, 6, 4]
    assert all(">Loss (%), worse to the right<" in panel.svg for panel in panels[:3])
    assert ">Loss (tokens), worse to the right<" in panels[3].svg


def test_interval_table_holds_what_is_drawn(made: StoredComparison) -> None:
    """The table has the decisive stage's loss and ends, with units."""
    result = next(
        gate
        for gate in made.result.gates
        if gate.confirm is not None and gate.gate.scale is Scale.RATIO
    )
    table = interval_figure((result,)).table

    assert table is not None
    assert [entry.text for entry in table.rows[0]] == [
        title(result.gate.metric),
        "",
        "+7.4 %",
        "[+7.3, +7.7]",
        "1 %",
        "5 %",
        "two",
    ]


@pytest.mark.parametrize(
    ("loss", "words"), [(0.9, ">+90.0 %<"), (-0.9, f">{chr(0x2212)}90.0 %<"), (0.03, None)]
)
def test_estimate_off_the_axis_is_told_in_words(
    made: StoredComparison, loss: float, words: str | None
) -> None:
    """An estimate beyond the axis leaves an arrow and its value; others leave neither."""
    result = gate_of(made, Outcome.PASS)
    assert result.search is not None
    search = replace(result.search, loss=loss, low=loss - 0.01, high=loss + 0.01)

    (panel,) = interval_figure((replace(result, search=search, confirm=None),)).panels

    found = re.findall(rf">[+{chr(0x2212)}]\d+\.\d %<", panel.svg)
    assert found == ([words] if words else [])


def test_unbounded_interval_is_drawn(made: StoredComparison) -> None:
    """Ends at infinity run off both sides and leave no coordinate that is no number."""
    result = gate_of(made, Outcome.PASS)
    assert result.search is not None
    search = replace(result.search, low=float("-inf"), high=float("inf"))

    figure = interval_figure((replace(result, search=search),))

    points = re.findall(r'<g[^>]*style="fill: var\(--good\)[^>]*>\n<use', figure.panels[0].svg)
    assert len(points) == 3
    assert not re.search(r"\b(nan|inf)\b", figure.panels[0].svg)
    assert figure.table is not None
    assert figure.table.rows[0][3].text == "[—, —]"


def test_pairs_are_drawn_where_a_look_is_needed(made: StoredComparison, whole: str) -> None:
    """Tokens/s of every cell and every gate that is no plain pass has a panel, others none."""
    drawn = re.findall(r"<h4>(.*?)</h4>", _section(whole, "time"))
    wanted = [
        result
        for result in made.result.gates
        if result.outcome is not Outcome.PASS or result.gate.metric == "output_tokens_per_s"
    ]

    assert len(drawn) == len(set(drawn)) == len(wanted) == 12
    for heading, result in zip(drawn, wanted, strict=True):
        assert heading.startswith(f"{result.gate.arm}, {result.gate.concurrency} stream")
        assert title(result.gate.metric) in heading


def test_raw_values_stand_as_base_and_candidate(made: StoredComparison) -> None:
    """Each pair has a row; a value that is missing is a dash and no zero."""
    tables = {table.caption: table for table in raw_tables(made)}
    table = tables["ngram, 1 stream"]
    place = [column.title for column in table.columns].index("Time to first token, p90")
    first = made.pairs[9]

    assert len(tables) == 6
    assert len(table.rows) == 32
    assert first.arm == "ngram"
    shown = [row[place].text for row in table.rows]
    assert [text.endswith("→ —") for text in shown[:4]] == [True, True, True, False]
    assert shown[0].startswith(f"{dict(first.base.cells[0].values)['ttft_p90_s'] * 1e3:.0f} ")
    assert table.columns[place].unit == "base → candidate, ms"


def test_raw_value_by_prompt_is_its_mean(made: StoredComparison) -> None:
    """Tokens per step by prompt stands as the mean over the prompts of a start."""
    table = next(table for table in raw_tables(made) if table.caption == "draft_model, 1 stream")
    first = next(pair for pair in made.pairs if pair.arm == "draft_model")
    sides = [start.cells[0].prompts for start in (first.base, first.candidate)]
    means = [sum(value for _, value in prompts) / len(prompts) for prompts in sides]

    place = [column.title for column in table.columns].index("Tokens per step by prompt")

    assert table.rows[0][place].text == f"{means[0]:.2f} → {means[1]:.2f}"


def _explained(result: GateResult, *factors: FactorLoss) -> GateResult:
    return replace(result, cause=Cause("a cause", factors))


def _factor(label: str, unit: str, *, named: bool) -> FactorLoss:
    metric = "step_time_s" if unit == "" else "queue_time_mean_s"
    return FactorLoss(label, metric, 0.08, 0.06, 0.10, unit, 0.9 if named else 0.0, named)


def test_gates_that_share_a_cause_share_its_panel(made: StoredComparison) -> None:
    """Two causes behind five gates are two panels, each with the metrics it explains."""
    causes = cell_causes(made.result.gates)

    assert [len(found.metrics) for found in causes] == [2, 3]
    assert [panel.title for panel in cause_figure(causes).panels] == [
        "none, 8 streams: output tokens/s; time per token, p50",
        "ngram, 8 streams: output tokens/s; time per token, p50; tokens per step by prompt",
    ]


def test_factors_of_unlike_units_have_panels_of_their_own(made: StoredComparison) -> None:
    """Percent and milliseconds never share an axis, and both are in the table."""
    result = _explained(
        gate_of(made, Outcome.REGRESSION),
        _factor("step time", "", named=True),
        _factor("queueing", "s", named=False),
    )

    figure = cause_figure(cell_causes((result,)))

    assert [_axis(panel.svg) for panel in figure.panels] == ["%", "ms"]
    assert figure.table is not None
    assert [row[1].text for row in figure.table.rows] == ["+8 % [6, 10]", "+80 ms [60, 100]"]
    assert [row[4].text for row in figure.table.rows] == ["yes", "no"]


def _axis(svg: str) -> str:
    (unit,) = re.findall(r">Change from base to candidate \(([^)]+)\)<", svg)
    return unit


def test_cause_without_factors_draws_nothing(made: StoredComparison) -> None:
    """A cause that is not known has no panel; its words stay in the table of open gates."""
    result = _explained(gate_of(made, Outcome.REGRESSION))

    assert cell_causes((result,)) == ()
    assert cause_figure(()).panels == ()
    assert "a cause" in _cells(open_tables(with_gates(made, (result,)))[0].rows[0])


def _cells(row: Sequence[object]) -> list[str]:
    return [getattr(entry, "text", "") for entry in row]


def test_acceptance_by_position_shows_both_sides(made: StoredComparison) -> None:
    """Where acceptance moved, base, candidate and the difference with its interval are told."""
    figure = position_figure(cell_causes(made.result.gates))

    assert figure is not None
    assert figure.table is not None
    minus = chr(0x2212)
    assert _cells(figure.table.rows[0]) == [
        "0",
        "62.0",
        "57.0",
        f"{minus}5.00",
        f"[{minus}6.10, {minus}3.90]",
    ]
    assert position_figure(cell_causes(made.result.gates)[:1]) is None


def test_page_is_written_whole(made: StoredComparison, tmp_path: Path) -> None:
    """The file holds the page, and nothing else is left beside it."""
    few = only(made, Outcome.INVALID_RUN)

    path = write_page(few, tmp_path / "report.html")

    assert path.read_text(encoding="utf-8") == page(few)
    assert list(tmp_path.iterdir()) == [path]


def test_unwritable_path_is_one_clear_error(tmp_path: Path) -> None:
    """A page that can't be written says which and what to do."""
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")

    with pytest.raises(MeasurementError, match=r"report .*file/report\.html: cannot be written"):
        write_page(no_pairs(), blocked / "report.html")
