"""The null engine's schedule: due times and tokens are exactly what the script says."""

from itertools import pairwise

import pytest

from draftgate.null_engine.pace import Pace, Step
from draftgate.null_engine.script import Alignment, Script, TokenCycle, TokenUniform

MS = 1_000_000


def _steps(script: Script, max_tokens: int, *, number: int = 1, arrived_ns: int = 0) -> list[Step]:
    return list(Pace(script, 0).steps(number, arrived_ns, max_tokens))


def _gaps_ms(steps: list[Step]) -> list[int]:
    return [(after[0] - before[0]) // MS for before, after in pairwise(steps)]


def test_due_times_count_from_the_arrival() -> None:
    """The first step is due after `ttft_s`, the others every `gap_s`, whatever is late."""
    steps = _steps(Script(ttft_s=0.05, gap_s=0.01), 3, arrived_ns=7)

    assert steps == [(50 * MS + 7, 0, 1), (60 * MS + 7, 1, 1), (70 * MS + 7, 2, 1)]


@pytest.mark.parametrize(
    ("first", "max_tokens", "counts"),
    [(1, 12, [1, 1, 2, 3, 4, 1]), (4, 12, [4, 1, 2, 3, 2]), (4, 3, [3]), (4, 4, [4])],
)
def test_tokens_follow_the_cycle_up_to_the_length(
    first: int, max_tokens: int, counts: list[int]
) -> None:
    """The first step has its own count, then the cycle begins; the last step is cut."""
    script = Script(tokens_per_step=TokenCycle((1, 2, 3, 4)), first_tokens=first)
    steps = _steps(script, max_tokens)

    assert [count for _, _, count in steps] == counts
    assert [given for _, given, _ in steps] == [sum(counts[:i]) for i in range(len(counts))]


def test_drawn_tokens_are_even_and_differ_between_requests() -> None:
    """Each count from 1 to 4 takes a quarter of the steps, within 5 standard deviations."""
    script = Script(tokens_per_step=TokenUniform(1, 4), seed=3)
    drawn = [count for _, _, count in _steps(script, 10_000)[1:-1]]
    other = [count for _, _, count in _steps(script, 10_000, number=2)[1:-1]]

    assert set(drawn) == {1, 2, 3, 4}
    assert all(abs(drawn.count(n) / len(drawn) - 0.25) < 0.035 for n in (1, 2, 3, 4))
    assert drawn[:100] != other[:100]
    assert _steps(script, 100) == _steps(script, 100)


@pytest.mark.parametrize("share", [0.0, 0.04, 0.25, 1.0])
def test_slow_gaps_have_their_share(share: float) -> None:
    """Of 10,000 gaps in a row exactly the share is slow, and every hundred has its part."""
    script = Script(gap_s=0.01, slow_gap_share=share, slow_gap_s=0.1)
    slow = [gap == 100 for gap in _gaps_ms(_steps(script, 10_001))]

    assert sum(slow) == round(share * 10_000)
    assert {sum(slow[i : i + 100]) for i in range(0, 10_000, 100)} == {round(share * 100)}


def test_requests_have_their_slow_gaps_at_different_places() -> None:
    """One moment's slow gaps do not hit all streams of a round alike."""
    script = Script(gap_s=0.01, slow_gap_share=0.04, slow_gap_s=0.1)
    first_slow = {_gaps_ms(_steps(script, 64, number=n)).index(100) for n in range(1, 26)}

    assert len(first_slow) > 10


def test_one_grid_holds_all_streams() -> None:
    """Aligned steps fall on common times, and a slow step is slow for everybody."""
    script = Script(
        ttft_s=0.015, gap_s=0.01, slow_gap_share=0.2, slow_gap_s=0.05, align=Alignment.STEPS
    )
    grid, at = [0], 0
    for n in range(200):
        at += 50 if n % 5 == 4 else 10
        grid.append(at)
    one = [due for due, _, _ in _steps(script, 40)]
    other = [due for due, _, _ in _steps(script, 40, number=2, arrived_ns=77 * MS + 1)]

    assert [due // MS for due in one] == grid[2:42]
    assert [due // MS for due in other] == grid[6:46]
    assert all(due % MS == 0 for due in one + other)


def test_the_grid_goes_on_after_its_cycle() -> None:
    """A server that has run for long still puts steps on the grid that began with it."""
    script = Script(ttft_s=0, gap_s=0.01, align=Alignment.STEPS)
    steps = _steps(script, 3, arrived_ns=3_600_000 * MS - 1)

    assert [due // MS for due, _, _ in steps] == [3_600_000, 3_600_010, 3_600_020]


def test_bursts_wait_for_their_last_step() -> None:
    """Three steps go out when the third is due; the first step and the rest do not wait longer."""
    steps = _steps(Script(ttft_s=0.05, gap_s=0.01, burst_steps=3), 9)

    assert [due // MS for due, _, _ in steps] == [50, 80, 80, 80, 110, 110, 110, 130, 130]
    assert [given for _, given, _ in steps] == list(range(9))
