"""The planted faults' own arithmetic, outside any server."""

import itertools
from pathlib import Path

import pytest

from tests.planted.site import draftgate_planted as planted


def test_one_step_of_each_block_stalls_at_a_random_place() -> None:
    """1 % is exactly one of each hundred steps, and not always the same one."""
    steps = list(itertools.islice(planted.stall_steps(0.01, seed=1), 5000))

    places = [block.index(True) for block in _blocks(steps, 100)]

    assert [sum(block) for block in _blocks(steps, 100)] == [1] * 50
    assert len(set(places)) > 20


def test_equal_seeds_stall_at_equal_steps() -> None:
    """The places depend on the seed alone."""
    first, again, other = (
        list(itertools.islice(planted.stall_steps(0.05, seed=seed), 400)) for seed in (1, 1, 2)
    )

    assert first == again != other


def test_bad_start_is_claimed_once(tmp_path: Path) -> None:
    """The first server takes the share and the file is gone for all others."""
    path = tmp_path / "bad"
    path.write_text("0.3\n", encoding="utf-8")

    shares = [planted.claim(path), planted.claim(path)]

    assert shares == [0.3, 0.0]
    assert list(tmp_path.iterdir()) == []


def test_delays_add_up_to_what_was_asked(capsys: pytest.CaptureFixture[str]) -> None:
    """Each kind of delay is its own share of the step, and says so on stderr."""
    step, prefill = planted._share_of_step(0.05), planted._share_of_prefill(0.3)
    token, constant = planted._per_prompt_token(0.002), planted._constant(0.01)

    assert step(0.02, 0) == pytest.approx(0.001)
    assert (prefill(0.02, 0), prefill(0.02, 40)) == (0.0, pytest.approx(0.006))
    assert token(0.02, 40) == pytest.approx(0.08)
    assert constant(0.02, 0) == 0.01
    told = capsys.readouterr().err
    assert "planted: every step is 5.0% longer" in told
    assert "planted: prefill is 2 ms longer per prompt token" in told


def test_nothing_is_planted_unasked() -> None:
    """A fault whose variable is unset or zero is no delay at all."""
    made = [
        planted._constant(0.0),
        planted._share_of_step(0.0),
        planted._per_prompt_token(0.0),
        planted._share_of_prefill(0.0),
        planted._stalls(0.0, 0.01, 1),
        planted._stalls(0.1, 0.0, 1),
    ]

    assert made == [None] * 6


def _blocks(steps: list[bool], size: int) -> list[list[bool]]:
    return [steps[at : at + size] for at in range(0, len(steps), size)]
