"""Losses of pairs: signs, orders and the estimate without the order's effect."""

import math

import numpy as np
import pytest
from scipy import stats

from draftgate.stats.losses import (
    absolute_losses,
    candidate_first,
    checked_losses,
    estimate,
    log_loss,
    loss_ratio,
    relative_losses,
)


@pytest.mark.parametrize(
    ("candidate", "higher", "expected"),
    [(95.0, True, -math.log(0.95)), (105.0, False, math.log(1.05)), (105.0, True, -math.log(1.05))],
)
def test_worse_is_positive(*, candidate: float, higher: bool, expected: float) -> None:
    """A loss is positive in either direction of the metric, a gain negative."""
    found = relative_losses([100.0], [candidate], higher_is_better=higher)

    assert found == pytest.approx([expected])


@pytest.mark.parametrize("higher", [True, False])
def test_a_loss_survives_the_log_scale(*, higher: bool) -> None:
    """5 % as a log and back is 5 %, and it is the loss of a pair that lost 5 %."""
    log = log_loss(0.05, higher_is_better=higher)
    pair = relative_losses([1.0], [0.95 if higher else 1.05], higher_is_better=higher)

    assert loss_ratio(log, higher_is_better=higher) == pytest.approx(0.05)
    assert pair == pytest.approx([log])


def test_absolute_losses_compare_a_prompt_with_itself() -> None:
    """Prompts that differ widely cancel; each pair gives its mean difference."""
    base = np.array([[0.9, 0.1, 0.5], [0.8, 0.2, 0.5]])
    candidate = base - np.array([[0.03, 0.03, 0.03], [0.06, 0.0, 0.0]])

    assert absolute_losses(base, candidate) == pytest.approx([0.03, 0.02])


@pytest.mark.parametrize(
    ("base", "candidate", "message"),
    [
        ([1.0, 2.0], [1.0], "2 base and 1 candidate"),
        ([], [], "too few pairs, got 0"),
        ([1.0, math.nan], [1.0, 1.0], "base: got NaN"),
        ([1.0, 1.0], [1.0, math.inf], "candidate: got NaN or infinity"),
        ([0.0], [1.0], "base: expected values above 0"),
        ([1.0], [-1.0], "candidate: expected values above 0"),
    ],
)
def test_relative_losses_refuse(base: list[float], candidate: list[float], message: str) -> None:
    """Unlike lengths, no pair, NaN, infinity, zero and negative values are named."""
    with pytest.raises(ValueError, match=message):
        relative_losses(base, candidate, higher_is_better=True)


@pytest.mark.parametrize(
    ("base", "candidate", "message"),
    [
        (np.ones((2, 3)), np.ones((2, 2)), "shapes"),
        (np.ones(3), np.ones(3), "n_pairs, n_prompts"),
        (np.ones((0, 3)), np.ones((0, 3)), "shapes"),
        (np.ones((1, 2)), np.array([[1.0, math.nan]]), "candidate: got NaN"),
    ],
)
def test_absolute_losses_refuse(
    base: np.ndarray[tuple[int, ...], np.dtype[np.float64]],
    candidate: np.ndarray[tuple[int, ...], np.dtype[np.float64]],
    message: str,
) -> None:
    """A prompt without a partner, no pair and NaN are named."""
    with pytest.raises(ValueError, match=message):
        absolute_losses(base, candidate)


@pytest.mark.parametrize("loss", [-0.01, 1.0, math.nan])
def test_log_loss_refuses(loss: float) -> None:
    """A loss outside [0, 1) has no log."""
    with pytest.raises(ValueError, match="loss_ratio"):
        log_loss(loss, higher_is_better=True)


def test_checked_losses_refuse_another_shape() -> None:
    """A table is not a row of losses."""
    with pytest.raises(ValueError, match="shape"):
        checked_losses(np.ones((2, 2)), least=2)


@pytest.mark.parametrize("block", [2, 4])
def test_order_is_balanced_in_every_block_and_seeded(block: int) -> None:
    """Half of each block has the candidate first; a longer order continues a shorter one."""
    order = candidate_first(24, seed=7, block_pairs=block)

    assert {sum(order[k : k + block]) for k in range(0, 24, block)} == {block // 2}
    assert candidate_first(10, seed=7, block_pairs=block) == order[:10]


def test_every_order_of_a_block_occurs_equally_often() -> None:
    """Over 6,000 seeds each of the six orders of four pairs comes 1,000 times, within 4 sd."""
    orders = [candidate_first(4, seed=seed) for seed in range(6000)]
    counts = [orders.count(order) for order in set(orders)]

    assert len(counts) == 6
    assert all(abs(count - 1000) < 4 * math.sqrt(6000 * 5 / 36) for count in counts)


@pytest.mark.parametrize(("pairs", "block"), [(0, 4), (4, 3), (4, 0)])
def test_order_refuses(pairs: int, block: int) -> None:
    """No pair and blocks that can't be balanced are refused."""
    with pytest.raises(ValueError, match="must be"):
        candidate_first(pairs, seed=1, block_pairs=block)


def test_estimate_without_order_is_students() -> None:
    """The p-value and the bound are those of scipy's one-sample test."""
    losses = np.random.default_rng(1).normal(0.02, 0.03, 12)
    oracle = stats.ttest_1samp(losses, 0.01, alternative="greater")
    found = estimate(losses)

    assert found.p_above(0.01) == pytest.approx(oracle.pvalue)
    assert found.bound(0.005) == pytest.approx(oracle.confidence_interval(0.995).low)


@pytest.mark.parametrize("pairs", [7, 8, 12])
def test_estimate_with_order_is_least_squares(pairs: int) -> None:
    """Mean, error and degrees are the intercept's of an explicit regression, balanced or not."""
    rng = np.random.default_rng(pairs)
    first = candidate_first(pairs, seed=3)
    order = np.where(first, 1.0, -1.0)
    losses = 0.02 + 0.05 * order + rng.normal(0, 0.01, pairs)
    design = np.column_stack([np.ones(pairs), order])
    solution = np.linalg.lstsq(design, losses)[0]
    rest = losses - design @ solution
    cover = np.linalg.inv(design.T @ design) * (rest @ rest) / (pairs - 2)
    found = estimate(losses, first)

    assert found.mean == pytest.approx(solution[0])
    assert found.error == pytest.approx(math.sqrt(cover[0, 0]))
    assert found.degrees == pairs - 2
    assert found.adjusted == pytest.approx(losses - solution[1] * order)


def test_equal_losses_have_no_error() -> None:
    """Counts that never vary are exact: p is 0 above the margin and 1 at or under it."""
    found = estimate(np.full(8, 0.1))
    with_order = estimate(np.array([0.1, 0.3] * 4), [True, False] * 4)

    assert (found.error, found.p_above(0.05), found.p_above(0.1)) == (0.0, 0.0, 1.0)
    assert (with_order.error, with_order.mean) == (0.0, pytest.approx(0.2))


@pytest.mark.parametrize(
    ("first", "message"),
    [
        ([True] * 4, "too few pairs to tell"),
        ([True, False], "order of 2 pairs for 4"),
    ],
)
def test_estimate_refuses_an_order_that_tells_nothing(first: list[bool], message: str) -> None:
    """An order of another length or with one order only is named."""
    with pytest.raises(ValueError, match=message):
        estimate(np.arange(4.0), first)
