"""What the plots of a comparison's page are drawn from: losses of pairs, marks, axes, amounts."""

import math
import re
from collections import Counter
from dataclasses import replace

import pytest
from matplotlib.figure import Figure

from draftgate.compare.records import Scale, Stage, StoredComparison
from draftgate.report.canvas import GOOD, drawing
from draftgate.report.comparison_page.marks import (
    BASE_FIRST,
    CANDIDATE_FIRST,
    LEFT_OUT,
    NAMED,
    NOT_NAMED,
    OUTCOMES,
    Mark,
)
from draftgate.report.comparison_page.names import loss_scale, worse_when
from draftgate.report.comparison_page.order import losses_table
from draftgate.report.comparison_page.points import points, running_mean
from draftgate.report.comparison_page.rows import Row, reach_of
from draftgate.report.comparison_page.sequence import Dot, Run, sequence_plot, whole_ticks
from draftgate.verdict import Outcome
from tests.support.comparisons import gate_of, stored_comparison

MINUS = chr(0x2212)


@pytest.fixture(name="made", scope="module")
def _made() -> StoredComparison:
    """Return a comparison with gates of every common outcome."""
    return stored_comparison()


def test_points_are_the_judged_losses(made: StoredComparison) -> None:
    """Of every gate with numbers, the losses of valid pairs are those of its stages, in order."""
    for result in made.result.gates:
        found = points(made.pairs, result.gate)
        for stage, numbers in ((Stage.SEARCH, result.search), (Stage.CONFIRM, result.confirm)):
            if numbers is not None:
                of = [p.loss for p in found if p.pair.stage is stage and not p.pair.invalid]
                assert of == pytest.approx(numbers.losses)


def test_invalid_pair_keeps_its_place(made: StoredComparison) -> None:
    """A pair that was left out has a number of its own, and a loss where it has values."""
    gate = next(g for g in made.header.gates if g.arm == "none")
    found = points(made.pairs, gate)

    assert [point.number for point in found] == list(range(1, 34))
    assert [point.number for point in found if point.pair.invalid] == [4]
    assert found[3].loss is not None


def test_missing_value_is_no_loss(made: StoredComparison) -> None:
    """Pairs without the metric on one side have no loss; the others keep theirs."""
    gate = gate_of(made, Outcome.INVALID_RUN).gate
    found = points(made.pairs, gate)

    assert [point.loss is None for point in found[:4]] == [True, True, True, False]


@pytest.mark.parametrize("metric", ["output_tokens_per_s", "per_token_p50_s"])
def test_running_mean_ends_at_the_mean_of_logs(made: StoredComparison, metric: str) -> None:
    """The last value is the share that the mean of the logs stands for, per direction."""
    gate = replace(made.header.gates[0], metric=metric)
    raw = (0.02, 0.05, -0.01)
    mean = sum(raw) / 3

    found = running_mean(gate, raw)

    loss = 1 - math.exp(-mean) if metric == "output_tokens_per_s" else math.exp(mean) - 1
    assert len(found) == 3
    assert found[-1] == pytest.approx(loss)


def test_table_of_losses_has_every_pair(made: StoredComparison) -> None:
    """One group per cell, one row per pair, a dash where the cell is not asked the metric."""
    gates = made.header.gates
    table = losses_table(made.pairs, {gate: points(made.pairs, gate) for gate in gates})

    assert [len(group.rows) for group in table.groups] == [33, 33, 32, 32, 20, 20]
    assert table.groups[0].rows[3][1].text == "one, left out"
    assert table.columns[-1].unit == "loss, tokens"
    assert table.groups[0].rows[0][-1].text == "—"
    shown = table.groups[1].rows[0][3].text
    first = points(made.pairs, next(g for g in gates if g.concurrency == 8))[0]
    assert first.loss is not None
    assert shown == f"+{first.loss * 100:.1f}"


@pytest.mark.parametrize(
    "marks",
    [tuple(OUTCOMES.values()), (CANDIDATE_FIRST, BASE_FIRST, LEFT_OUT), (NAMED, NOT_NAMED)],
)
def test_marks_differ_without_colour(marks: tuple[Mark, ...]) -> None:
    """Marks that stand in one plot have shapes of their own."""
    assert len({mark.marker for mark in marks}) == len(marks)


def test_every_outcome_has_a_mark() -> None:
    """No outcome is left without a shape."""
    assert set(OUTCOMES) == set(Outcome)


def _row(low: float, estimate: float, high: float) -> Row:
    return Row("a row", estimate, low, high, NAMED, "", zones=(1.0, 5.0))


@pytest.mark.parametrize(
    ("ends", "low", "high"),
    [
        ((-0.5, 0.0, 0.5), -1.39, 5.89),
        ((-50.0, 0.0, 50.0), -10.0, 20.0),
        ((-math.inf, 0.0, math.inf), -1.39, 5.89),
    ],
)
def test_axis_shows_zones_and_stays_in_bounds(
    ends: tuple[float, float, float], low: float, high: float
) -> None:
    """Margin and limit are always on the axis; a wild or endless interval does not widen it."""
    found = reach_of([_row(*ends)], lowest=-10.0, highest=20.0)

    assert found == pytest.approx((low, high))


def _run(title: str, first: int, losses: tuple[float | None, ...]) -> Run:
    dots = tuple(
        Dot(first + at, loss, candidate_first=at % 2 == 0, left_out=loss is None)
        for at, loss in enumerate(losses)
    )
    return Run(title, dots, (first,), (losses[0] or 0.0,))


def test_sequence_parts_orders_stages_and_pairs_left_out() -> None:
    """Both orders, the pair left out without a loss, and both stages are told apart."""
    runs = [_run("Stage one", 1, (1.0, 2.0, None)), _run("Stage two", 4, (3.0,))]

    svg = sequence_plot("order0", runs, "Loss (%)", 1.0)

    for words in (">Stage one<", ">Stage two<", ">Loss (%)<", ">Pair of this arm, in the order"):
        assert words in svg
    styled = re.findall(r'<g style="([^"]*)">\n((?:<use [^>]*>\n)+)</g>', svg)
    counts: Counter[str] = Counter()
    for style, of in styled:
        counts[style.removesuffix("; stroke-linejoin: miter")] += of.count("<use")
    assert counts["fill: var(--c1)"] == 2
    assert counts["fill: var(--card); stroke: var(--c2); stroke-width: 1.3"] == 1
    assert counts["fill: var(--muted)"] == 1


@pytest.mark.parametrize(
    ("low", "high", "ticks"),
    [
        (0.3, 8.7, (1, 2, 3, 4, 5, 6, 7, 8)),
        (0.3, 9.7, (2, 4, 6, 8)),
        (0.3, 33.7, (5, 10, 15, 20, 25, 30)),
        (20.3, 28.7, (21, 22, 23, 24, 25, 26, 27, 28)),
        (0.3, 1000.7, (200, 400, 600, 800, 1000)),
    ],
)
def test_pairs_are_counted_in_whole_steps(low: float, high: float, ticks: tuple[int, ...]) -> None:
    """Ticks are round, whole and few, however many pairs there are."""
    assert whole_ticks(low, high) == ticks


def test_one_pair_is_drawn_with_whole_ticks() -> None:
    """A single pair leaves an axis of whole numbers."""
    svg = sequence_plot("order0", [_run("Stage one", 1, (1.0,))], "Loss (%)", 1.0)

    assert ">1<" in svg
    assert ">8<" in svg
    assert not re.search(r">\d\.4<", svg)


def test_drawing_says_the_style_of_points_once() -> None:
    """A row of points repeats neither style nor unused ids nor endless digits."""

    def fill(figure: Figure) -> None:
        figure.add_axes((0.1, 0.1, 0.8, 0.8)).plot([1.0, 3.0], "o", color=GOOD)

    svg = drawing("x", (2.0, 2.0), fill, fitted=False)

    uses = re.findall(r"<use [^>]*>", svg)
    assert len(uses) > 4
    assert not any("style=" in use for use in uses)
    assert svg.count('style="fill: var(--good); stroke: var(--good)') == 1
    assert not any(re.search(r"\.\d{3}", tag) for tag in re.findall(r"<[^>]*>", svg))
    assert set(re.findall(r' id="([^"]+)"', svg)) == set(
        re.findall(r'(?:url\(|href=")#([^")]+)', svg)
    )


def test_drawing_rounds_no_label() -> None:
    """Coordinates are rounded, numbers that people read are not."""

    def fill(figure: Figure) -> None:
        axes = figure.add_axes((0.3, 0.1, 0.6, 0.8))
        axes.set_xlim(0.0, 0.01)
        axes.set_xticks([0.0025], ["0.0025"])

    svg = drawing("x", (2.0, 2.0), fill, fitted=False)

    assert ">0.0025<" in svg


@pytest.mark.parametrize(
    ("scale", "loss", "text"),
    [
        (Scale.RATIO, 0.0123, "+1.2 %"),
        (Scale.RATIO, -0.0123, f"{MINUS}1.2 %"),
        (Scale.RATIO, -0.0001, "0.0 %"),
        (Scale.RATIO, 3.2, "+320 %"),
        (Scale.ABSOLUTE, 0.12066, "+0.121 tokens"),
        (Scale.RATIO, None, "—"),
        (Scale.RATIO, math.inf, "— %"),
    ],
)
def test_losses_read_as_people_write_them(scale: Scale, loss: float | None, text: str) -> None:
    """A loss has a sign, a proper minus and a unit; what is unknown is a dash."""
    assert loss_scale(scale).full(loss) == text


@pytest.mark.parametrize(
    ("metric", "worse"),
    [
        ("output_tokens_per_s", "lower"),
        ("step_time_s", "higher"),
        ("tokens_per_step_by_prompt", "lower"),
        ("gpu_use_ratio", ""),
    ],
)
def test_worse_way_of_a_metric(metric: str, worse: str) -> None:
    """The way that is worse follows the metric's direction."""
    assert worse_when(metric) == worse
