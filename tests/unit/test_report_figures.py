"""Series behind the plots: the numbers that are drawn."""

from pathlib import Path

import numpy as np
import pytest

from draftgate.metrics.latency import ttft_values
from draftgate.report.figures import FigureView, figures, style_of
from draftgate.report.summary import SPEED, summarise
from tests.support.report_runs import SITUATIONS, complete


@pytest.fixture(name="drawn", scope="module")
def _drawn(tmp_path_factory: pytest.TempPathFactory) -> dict[str, FigureView]:
    """Return the figures of a complete run by key."""
    summary = summarise(complete(tmp_path_factory.mktemp("run")))
    return {figure.key: figure for figure in figures(summary)}


def test_speed_up_is_the_ratio_of_the_summary(tmp_path: Path, drawn: dict[str, FigureView]) -> None:
    """The plot shows what the table says, at each concurrency."""
    summary = summarise(complete(tmp_path))

    (panel,) = drawn["speedup"].panels

    ngram = next(line for line in panel.series if line.name == "ngram")
    ratios = [summary.ratio("ngram", c, SPEED) for c in (1, 8)]
    assert ngram.x == (1.0, 8.0)
    assert ngram.y == tuple(ratio.estimate for ratio in ratios if ratio is not None)


def test_distribution_is_the_empirical_one(tmp_path: Path, drawn: dict[str, FigureView]) -> None:
    """With few samples every one is a step of equal height, in order, ending at 100 %."""
    run = complete(tmp_path)
    cell = [s for s in run.samples if (s.arm, s.concurrency) == ("none", 1)]
    samples = sorted(value * 1e3 for sample in cell for value in ttft_values(sample))

    panel = drawn["ttft"].panels[0]

    none = next(line for line in panel.series if line.name == "none")
    assert none.x[1:] == pytest.approx(samples)
    assert none.y == pytest.approx(np.linspace(0.0, 100.0, len(samples) + 1))


def test_long_distribution_is_thinned_to_quantiles_that_were_measured(
    drawn: dict[str, FigureView],
) -> None:
    """Many samples give a bounded number of points, monotone, from smallest to largest."""
    panel = drawn["stepgap"].panels[1]

    none = next(line for line in panel.series if line.name == "none")
    assert len(none.x) == 161
    assert list(none.x) == sorted(none.x)
    assert (none.y[0], none.y[-1]) == (0.0, 100.0)


def test_acceptance_is_that_of_the_counters(tmp_path: Path, drawn: dict[str, FigureView]) -> None:
    """The first point of an arm is the mean share accepted at position 0, in percent."""
    run = complete(tmp_path)
    counters = [
        s.counters.speculation
        for s in run.samples
        if (s.arm, s.concurrency) == ("draft_model", 8) and s.counters is not None
    ]
    shares = [c.num_accepted_tokens_per_pos[0] / c.num_drafts for c in counters if c is not None]

    panel = drawn["acceptance"].panels[1]

    line = next(line for line in panel.series if line.name == "draft_model")
    assert line.x == (0.0, 1.0, 2.0)
    assert line.y[0] == pytest.approx(100.0 * sum(shares) / 3)


def test_drift_is_distance_from_the_mean_of_the_arm(drawn: dict[str, FigureView]) -> None:
    """Distances of one arm sum to zero and stand in order of measuring."""
    for panel in drawn["drift"].panels:
        assert len(panel.series) == 3
        for line in panel.series:
            assert sum(line.y) == pytest.approx(0.0, abs=1e-9)
            assert list(line.x) == sorted(line.x)


def test_an_arm_has_one_style_in_every_figure(tmp_path: Path, drawn: dict[str, FigureView]) -> None:
    """Colour, dash and marker of an arm are the same wherever it is drawn."""
    summary = summarise(complete(tmp_path))

    styles = {pair for figure in drawn.values() for pair in figure.legend}

    assert styles == {(arm, style_of(summary, arm)) for arm in summary.arms}
    assert dict(styles)["none"] == 0


@pytest.mark.parametrize("situation", SITUATIONS)
def test_figure_has_panels_and_a_table_or_says_why_not(tmp_path: Path, situation: str) -> None:
    """There is never an empty frame."""
    for figure in figures(summarise(SITUATIONS[situation](tmp_path))):
        assert bool(figure.panels) == (figure.table is not None)
        assert figure.missing.endswith(".")
