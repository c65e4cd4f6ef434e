"""Acceptance by traffic: the numbers of the table and of the plot."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from draftgate.drift.judge import tokens_per_step
from draftgate.records import SpeculationCounters, TrafficAcceptance
from draftgate.report.format import MISSING
from draftgate.report.positions import step_figure, step_table
from draftgate.report.summary import Summary, summarise
from draftgate.report.table import Entry
from draftgate.report.traffic import traffic_figure, traffic_setting, traffic_table
from draftgate.verdict import Outcome, Verdict
from tests.support import report_runs
from tests.support.report_runs import stored_run
from tests.support.traffic import make_traffic


def _summary(
    path: Path, traffic: Sequence[TrafficAcceptance], verdicts: Sequence[Verdict] = ()
) -> Summary:
    return summarise(stored_run(path, samples=(), traffic=traffic, verdicts=verdicts))


def _row(path: Path, found: TrafficAcceptance) -> tuple[Entry, ...]:
    table = traffic_table(_summary(path, [found]))
    assert table is not None
    (row,) = table.rows
    return row


def test_row_is_what_was_measured(tmp_path: Path) -> None:
    """Mean and interval are those of `draftgate.drift`; the rest is the counters' arithmetic."""
    found = make_traffic(counters=SpeculationCounters(200, 600, 270, (130, 90, 50)))
    mean = tokens_per_step(found)
    assert mean is not None

    row = _row(tmp_path, found)

    assert row[1] == Entry(f"{mean.estimate:.2f}", f"{mean.low:.2f}\N{EN DASH}{mean.high:.2f}")
    assert [entry.text for entry in row[2:6]] == ["45.0", "2.35", "65 / 45 / 25", "60"]
    assert row[6].text == "not judged"


def test_verdict_is_that_of_the_arm_and_kind(tmp_path: Path) -> None:
    """Each row has its own badge and change, in order of measuring."""
    table = traffic_table(summarise(report_runs.traffic_only(tmp_path)))

    assert table is not None
    assert [group.title for group in table.groups] == ["ngram", "draft_model"]
    assert [row[6].outcome for row in table.rows] == [
        Outcome.PASS,
        Outcome.REGRESSION,
        Outcome.IMPROVEMENT,
        Outcome.NO_BASELINE,
        Outcome.INVALID_RUN,
        Outcome.NO_BASELINE,
    ]
    assert [row[6].detail[:2] for row in table.rows[:4]] == ["±0", "\N{MINUS SIGN}1", "+2", ""]


def test_invalid_measurement_shows_no_number(tmp_path: Path) -> None:
    """What can't be used is named, without its values."""
    row = _row(tmp_path, make_traffic(invalid=("the server stopped",)))

    assert row[0] == Entry("chat", "invalid")
    assert [entry.text for entry in row[1:5]] == [MISSING] * 4


@pytest.mark.parametrize("counters", [None, SpeculationCounters(0, 0, 0, (0, 0, 0))])
def test_without_drafts_there_is_no_acceptance(
    tmp_path: Path, counters: SpeculationCounters | None
) -> None:
    """No counters, or none that counted, is a gap and not 0 %, and no panel."""
    found = make_traffic(counters=counters)

    assert [entry.text for entry in _row(tmp_path, found)[2:5]] == [MISSING] * 3
    figure = traffic_figure(_summary(tmp_path, [found]))
    assert figure.panels == ()
    assert figure.table is None


@pytest.mark.parametrize(("prompts", "detail"), [(1, "one prompt"), (0, "")])
def test_too_few_prompts_have_no_interval(tmp_path: Path, prompts: int, detail: str) -> None:
    """One prompt is shown as it is, none as a gap."""
    assert _row(tmp_path, make_traffic(prompts=prompts))[1].detail == detail


def test_figure_draws_each_kind_of_an_arm(tmp_path: Path) -> None:
    """One panel an arm; invalid and uncounted kinds are left out; a kind keeps its style."""
    figure = traffic_figure(summarise(report_runs.traffic_only(tmp_path)))

    assert [panel.title for panel in figure.panels] == ["ngram", "draft_model"]
    ngram, draft_model = (panel.series for panel in figure.panels)
    assert [line.name for line in ngram] == ["chat", "code", "arithmetic"]
    assert ngram[0].y == (52.0, 38.0, 24.0)
    assert draft_model == ngram[:1]
    assert figure.legend == (("chat", 1), ("code", 2), ("arithmetic", 3))


def test_setting_names_each_way_of_sending(tmp_path: Path) -> None:
    """Streams, length and temperature are said once where they agree."""
    one = make_traffic()
    other = replace(one, setting=replace(one.setting, concurrency=1, max_tokens=1))

    assert traffic_setting(_summary(tmp_path, [one, make_traffic(kind="code")])) == (
        "Each prompt was sent once: 8 streams, 48 tokens per answer, temperature 0."
    )
    assert "; 1 stream, 1 token per answer" in traffic_setting(_summary(tmp_path, [one, other]))


def test_run_without_traffic_has_no_table(tmp_path: Path) -> None:
    """A run that measured speed alone has nothing to say here."""
    summary = summarise(report_runs.complete(tmp_path))

    assert traffic_table(summary) is None
    assert traffic_setting(summary) == ""


def test_steps_are_shown_by_position_with_intervals(tmp_path: Path) -> None:
    """Length, rate and each position with its interval; an arm with a smaller K leaves gaps."""
    three = make_traffic(step_yields=((10, 5, 3, 2),) * 30 + ((10, 5, 5, 0),) * 30)
    two = make_traffic("eagle3", num_speculative_tokens=2, step_yields=((5, 3, 2),) * 60)

    table = step_table(_summary(tmp_path, [three, two]))

    assert table is not None
    assert [group.title for group in table.groups] == ["ngram, K = 3", "eagle3, K = 2"]
    first, second = table.rows
    assert [entry.text for entry in first] == [
        "chat",
        "0",
        "1.80",
        "26.7",
        "50",
        "25",
        "5",
        "1,200",
    ]
    assert first[6].detail == "3\N{EN DASH}7"
    assert [entry.text for entry in second[4:7]] == ["50", "20", MISSING]


def test_without_steps_there_is_no_such_table(tmp_path: Path) -> None:
    """Older measurements, and invalid ones, have none."""
    lost = make_traffic(invalid=("dead",), step_yields=((1, 2),) * 60)

    assert step_table(_summary(tmp_path, [make_traffic(), lost])) is None


def test_heat_map_has_a_cell_per_kind_and_position(tmp_path: Path) -> None:
    """One panel an arm with a row per kind; each cell shows its percentage, also in words."""
    chat = make_traffic(step_yields=((10, 5, 3, 2),) * 60)
    code = make_traffic(kind="code", step_yields=((0, 0, 3, 7),) * 60)

    (panel,) = step_figure(_summary(tmp_path, [chat, code])).panels

    assert panel.title == "ngram, K = 3"
    assert panel.label == "ngram, K = 3. chat: 50 %, 25 %, 10 %; code: 100 %, 100 %, 70 %."
    for told in ("chat", "code", "50", "25", "10", "100", "70"):
        assert f">{told}</text>" in panel.svg
    assert "#0a0c01" not in panel.svg


def test_without_steps_there_is_no_heat_map(tmp_path: Path) -> None:
    """Nothing is drawn of measurements that do not tell their steps."""
    assert step_figure(_summary(tmp_path, [make_traffic()])).panels == ()


def test_sampled_traffic_comes_after_greedy_and_has_no_line(tmp_path: Path) -> None:
    """Tables list greedy kinds first; the plot of lines leaves sampled ones to the heat map."""
    greedy = make_traffic(step_yields=((1, 2),) * 60)
    warm = replace(greedy, kind="chat at T=0.7", setting=replace(greedy.setting, temperature=0.7))
    summary = _summary(tmp_path, [warm, greedy])

    tables = traffic_table(summary), step_table(summary)

    for table in tables:
        assert table is not None
        assert [row[0].text for row in table.rows] == ["chat", "chat at T=0.7"]
    assert [line.name for line in traffic_figure(summary).panels[0].series] == ["chat"]
