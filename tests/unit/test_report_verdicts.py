"""Verdicts as words and bars."""

from dataclasses import replace

from draftgate.report.verdicts import blocks, view
from draftgate.specs import GateSpec
from draftgate.verdict import Outcome
from tests.support.report_runs import verdict_of
from tests.support.samples import make_verdicts


def test_every_verdict_is_in_one_block() -> None:
    """No verdict is lost between the blocks."""
    found = blocks(make_verdicts() * 2)

    assert [block.gates for block in found] == [2] * len(Outcome)
    assert {block.outcome for block in found} == set(Outcome)


def test_bar_puts_a_loss_on_the_side_of_its_direction() -> None:
    """A loss lies left where higher is better and right where lower is."""
    rate = verdict_of(Outcome.REGRESSION)
    assert rate.comparison is not None
    slower = replace(rate.comparison, estimate_ratio=1.25, low_ratio=1.2, high_ratio=1.3)
    time = replace(
        rate, metric="per_token_p50_s", gate=GateSpec("per_token_p50_s", 0.1), comparison=slower
    )

    left, right = view(rate, reach=0.5).bar, view(time, reach=0.5).bar

    assert left is not None
    assert right is not None
    assert left.loss_left
    assert not right.loss_left
    assert left.low < left.estimate < left.high < left.margin < left.zero == 50.0
    assert (right.margin, right.low, right.estimate, right.high) == (60.0, 70.0, 75.0, 80.0)


def test_bar_ends_at_its_reach() -> None:
    """An interval longer than the bar is cut at its ends, not drawn outside."""
    verdict = verdict_of(Outcome.REGRESSION)

    bar = view(verdict, reach=0.1).bar

    assert bar is not None
    assert (bar.low, bar.estimate) == (0.0, 0.0)


def test_view_says_values_and_change() -> None:
    """Values carry their unit, the change its interval."""
    item = view(verdict_of(Outcome.REGRESSION), reach=1.0)

    assert item.values == "40.0 → 32.0 tokens/s"
    assert item.change == "\N{MINUS SIGN}20.0 %"
    assert item.margin == "5 %"
    assert item.confidence == "99 %"


def test_value_without_baseline_stands_alone() -> None:
    """Without a baseline only the present value is said."""
    verdict = replace(verdict_of(Outcome.NO_BASELINE), value=0.02, metric="ttft_p99_s")

    assert view(verdict, reach=1.0).values == "now 20.0 ms"


def test_uncompared_gates_of_a_cell_stand_together() -> None:
    """Two gates without a baseline in one cell are one item; what all share is said once."""
    first = verdict_of(Outcome.NO_BASELINE)
    second = replace(first, metric="ttft_p99_s")
    other = replace(first, concurrency=1)

    (block,) = blocks([first, second, other])

    assert block.gates == 3
    assert [item.metric for item in block.items] == [
        "output tokens/s; time to first token, p99",
        "output tokens/s",
    ]
    assert block.next_step == first.next_step
    assert all(not item.next_step for item in block.items)


def test_compared_gates_stay_apart() -> None:
    """Two equal regressions are two items."""
    verdict = verdict_of(Outcome.REGRESSION)

    (block,) = blocks([verdict, verdict])

    assert len(block.items) == 2
