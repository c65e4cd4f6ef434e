"""Prompts shared by several engines, and answers in the prompts' order again."""

import os
from pathlib import Path

import pytest

from draftgate.drafts import asking
from draftgate.drafts.asking import Answers, Ask, answer_all, gpu_options, together
from tests.support.drafts import small_recipe


def echo(ask: Ask) -> tuple[Answers, str]:
    """Answer each prompt with itself, its process and its seed, once a temperature."""
    row = [[*ids, os.getpid(), ask.seed] for ids in ask.prompts]
    return [row for _ in ask.recipe.temperatures], "1.2"


def asked(count: int, engines: int) -> Ask:
    """Return an ask of numbered prompts."""
    recipe = small_recipe().answers
    return Ask(Path("target"), recipe, 7, [[number] for number in range(count)], engines)


@pytest.mark.parametrize("count", [1, 2, 7])
def test_answers_of_several_engines_stand_in_order(
    count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each prompt has its own answer, from processes that are not this one, with unlike seeds."""
    monkeypatch.setattr(asking, "_one", echo)
    ask = asked(count, engines=3)
    answers, version = answer_all(ask)

    assert version == "1.2"
    assert len(answers) == len(ask.recipe.temperatures)
    for row in answers:
        assert [answer[0] for answer in row] == list(range(count))
        engines = min(3, count)
        assert [answer[2] for answer in row] == [7 + at % engines for at in range(count)]
    pids = {answer[1] for row in answers for answer in row}
    assert (os.getpid() in pids) == (count == 1)


def test_one_engine_stays_in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without need no process is started."""
    monkeypatch.setattr(asking, "_one", echo)
    (row, *_), _ = answer_all(asked(4, engines=1))

    assert {answer[1] for answer in row} == {os.getpid()}


def test_shares_of_unlike_length_are_put_together() -> None:
    """The first shares may have one more."""
    shares = [[[[0], [3], [6]]], [[[1], [4]]], [[[2], [5]]]]

    assert together(shares) == [[[0], [1], [2], [3], [4], [5], [6]]]


def test_engines_share_the_memory_of_a_gpu() -> None:
    """All caches fit into the share that one engine would have."""
    alone, one_of_eight = gpu_options(1, 100_000), gpu_options(8, 100_000)

    assert "kv_cache_memory_bytes" not in alone
    assert alone["gpu_memory_utilization"] == 8 * one_of_eight["gpu_memory_utilization"]
    assert 8 * one_of_eight["kv_cache_memory_bytes"] <= 50_000
    assert one_of_eight["max_num_seqs"] == 256
