"""Acceptance by position from chunk sizes: right, unbiased by the end, with intervals that hold."""

import numpy as np
import pytest

from draftgate.stats.positions import room_counts, step_acceptance

LAW = np.array([0.4, 0.25, 0.15, 0.2])
"""Chance that a step with K = 3 gives 1, 2, 3, 4 tokens."""

BY_POSITION = (0.6, 0.35, 0.2)


def _answer(rng: np.random.Generator, tokens: int, law: np.ndarray) -> list[int]:
    """Return the steps of one answer; the last is cut by its length."""
    left, steps = tokens, []
    while left:
        steps.append(min(left, int(rng.choice(4, p=law)) + 1))
        left -= steps[-1]
    return steps


def _counts(rng: np.random.Generator, prompts: int, spread: float = 0.0) -> list[tuple[int, ...]]:
    """Return counts of answers of 47 tokens, prompts differing by `spread`."""
    laws = rng.dirichlet(LAW / spread, prompts) if spread else [LAW] * prompts
    return [room_counts(_answer(rng, 47, law), 47, 3) for law in laws]


def test_counts_leave_out_steps_without_room() -> None:
    """Eleven tokens, K = 3: steps that begin with 11, 7 and 5 left count, 3 and 1 not."""
    assert room_counts([4, 2, 2, 2, 1], 11, 3) == (0, 2, 0, 1)


def test_chunk_of_two_steps_is_left_out() -> None:
    """Five tokens in one chunk at K = 3 can't be one step."""
    assert room_counts([5, 2, 4, 1], 12, 3) == (0, 1, 0, 1)


def test_answer_too_short_has_no_steps() -> None:
    """Three tokens never have room for four."""
    assert room_counts([2, 1], 3, 3) == (0, 0, 0, 0)


def test_shares_are_those_of_loops() -> None:
    """Length, rate and positions agree with counting step by step."""
    counts = _counts(np.random.default_rng(1), 20)
    yields = [n + 1 for row in counts for n, times in enumerate(row) for _ in range(times)]

    found = step_acceptance(counts, confidence=0.9, seed=1, resamples=99)

    assert found is not None
    assert found.steps == len(yields)
    assert found.length.estimate == pytest.approx(np.mean(yields))
    assert found.rate.estimate == pytest.approx(np.mean([(n - 1) / 3 for n in yields]))
    assert [share.estimate for share in found.by_position] == pytest.approx(
        [np.mean([n > p + 1 for n in yields]) for p in range(3)]
    )


def test_the_end_of_answers_does_not_bias() -> None:
    """Over 4,000 answers each position is within 4 errors of its chance; dropping cut steps is not.

    The last step of an answer is longer than others, so leaving it out, or
    taking it as it was cut, says too little.
    """
    rng = np.random.default_rng(2)
    answers = [_answer(rng, 15, LAW) for _ in range(4000)]
    found = step_acceptance(
        [room_counts(steps, 15, 3) for steps in answers], confidence=0.9, seed=1, resamples=99
    )
    without_last = [n for steps in answers for n in steps[:-1]]

    assert found is not None
    error = np.sqrt(0.25 / found.steps)
    for share, true in zip(found.by_position, BY_POSITION, strict=True):
        assert share.estimate == pytest.approx(true, abs=4 * error)
    assert np.mean([n > 1 for n in without_last]) < BY_POSITION[0] - 4 * error


def test_intervals_hold_the_truth_as_often_as_stated() -> None:
    """Of 200 sets of 40 prompts that differ, 95 % intervals miss the first position in 1 to 10 %.

    The truth is that of 4,000 prompts: a prompt with long answers in steps weighs more.
    """
    rng = np.random.default_rng(3)
    many = np.array(_counts(rng, 4000, spread=0.3)).sum(axis=0)
    truth = many[1:].sum() / many.sum()
    missed = 0
    for _ in range(200):
        found = step_acceptance(
            _counts(rng, 40, spread=0.3), confidence=0.95, seed=1, resamples=499
        )
        assert found is not None
        missed += not found.by_position[0].low <= truth <= found.by_position[0].high

    assert 2 <= missed <= 20


def test_planted_loss_moves_the_interval() -> None:
    """The second position loses half: its interval leaves the old one, the first's does not."""
    rng = np.random.default_rng(4)
    weak = np.array([0.4, 0.425, 0.075, 0.1])
    before = step_acceptance(_counts(rng, 60), confidence=0.99, seed=1)
    after = step_acceptance(
        [room_counts(_answer(rng, 47, weak), 47, 3) for _ in range(60)], confidence=0.99, seed=1
    )

    assert before is not None
    assert after is not None
    assert after.by_position[1].high < before.by_position[1].low
    assert after.by_position[0].high > before.by_position[0].low


def test_full_acceptance_is_a_point() -> None:
    """A draft that is always right has no made-up uncertainty."""
    found = step_acceptance([(0, 0, 5), (0, 0, 9)], confidence=0.99, seed=1, resamples=99)

    assert found is not None
    assert (found.length.low, found.length.high) == (3.0, 3.0)
    assert [share.estimate for share in found.by_position] == [1.0, 1.0]


@pytest.mark.parametrize("counts", [[], [(3, 1)], [(3, 1), (0, 0)]])
def test_fewer_than_two_prompts_have_none(counts: list[tuple[int, ...]]) -> None:
    """One prompt, or none, has no interval."""
    assert step_acceptance(counts, confidence=0.99, seed=1) is None


@pytest.mark.parametrize("counts", [[1, 2], [(1,), (2,)], [(1, -1), (1, 2)]])
def test_impossible_counts_are_refused(counts: object) -> None:
    """One row, K = 0 or a negative count is a mistake."""
    with pytest.raises(ValueError, match="expected counts >= 0 of shape"):
        step_acceptance(counts, confidence=0.99, seed=1)  # type: ignore[arg-type]
