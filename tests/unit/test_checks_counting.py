"""Counters that fit are let through; each contradiction is found."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from draftgate.checks.counting import (
    counter_findings,
    fall_findings,
    step_findings,
    total_findings,
)
from draftgate.laws.answer import Answer
from draftgate.laws.parameters import LawParameters
from draftgate.records import EngineCounters, SpeculationCounters

RIGHT = SpeculationCounters(10, 30, 17, (9, 5, 3))
ANSWER = Answer(
    request=1,
    prompt_id="p",
    prompt_token_ids=(1, 2, 3),
    token_ids=tuple(range(20)),
    chunks=(),
    finish_reason="length",
    parameters=LawParameters(),
)


def counted(**values: int) -> EngineCounters:
    """Return a span's counters in which one answer ran, but for `values`."""
    right = EngineCounters(20, 3, 0.0, 1, None, RIGHT)
    return replace(right, **values)


def test_right_counters_have_no_finding() -> None:
    """Counters that fit each other are let through, also those without positions."""
    assert counter_findings(RIGHT, 3) == ()
    assert counter_findings(replace(RIGHT, num_accepted_tokens_per_pos=()), 3) == ()
    assert counter_findings(SpeculationCounters(0, 0, 0, (0, 0, 0)), 3) == ()


@pytest.mark.parametrize(
    ("counters", "where"),
    [
        (replace(RIGHT, num_drafts=-1), "num_drafts"),
        (replace(RIGHT, num_accepted_tokens_per_pos=(20, -1, -2)), "accepted at position 1"),
        (SpeculationCounters(10, 30, 31, (10, 10, 11)), "accepted tokens"),
        (replace(RIGHT, num_draft_tokens=31), "draft tokens"),
        (replace(RIGHT, num_accepted_tokens_per_pos=(5, 9, 3)), "accepted at position 1"),
        (replace(RIGHT, num_accepted_tokens_per_pos=(11, 4, 2)), "accepted at position 0"),
        (replace(RIGHT, num_accepted_tokens_per_pos=(8, 5, 3, 1)), "positions"),
        (replace(RIGHT, num_accepted_tokens=16), "accepted over all positions"),
    ],
)
def test_contradiction_is_found(counters: SpeculationCounters, where: str) -> None:
    """Each planted contradiction is found at the counter that holds it."""
    assert where in [finding.where for finding in counter_findings(counters, 3)]


@settings(deadline=None)
@given(st.lists(st.integers(0, 4), max_size=30), st.integers(4, 6))
def test_counters_of_any_run_are_right(accepted: list[int], k: int) -> None:
    """Whatever number of drafts each step accepts, the counters made of it pass."""
    per_position = tuple(sum(n > i for n in accepted) for i in range(k))
    counters = SpeculationCounters(len(accepted), k * len(accepted), sum(accepted), per_position)

    assert counter_findings(counters, k) == ()


def test_fall_is_found() -> None:
    """A counter that fell between two scrapes is named with both values."""
    later = SpeculationCounters(11, 33, 16, (10, 3, 3))

    assert fall_findings(RIGHT, replace(RIGHT, num_drafts=11)) == ()
    assert [(f.where, f.got, f.expected) for f in fall_findings(RIGHT, later)] == [
        ("num_accepted_tokens", "16", ">= 17, as before"),
        ("accepted at position 1", "3", ">= 5, as before"),
    ]


@pytest.mark.parametrize(
    ("values", "found"),
    [
        ({}, []),
        ({"generation_tokens": 21}, [("counted generation tokens", "21", "20")]),
        ({"prompt_tokens": 4}, [("counted prompt tokens", "4", "3")]),
    ],
)
def test_totals_are_held_against_the_answers(
    values: dict[str, int], found: list[tuple[str, str, str]]
) -> None:
    """The engine must have counted exactly the ids that came out."""
    got = total_findings([ANSWER], counted(**values))

    assert [(f.where, f.got, f.expected) for f in got] == found


@pytest.mark.parametrize(
    ("drafts", "accepted", "found"),
    [(5, 14, []), (5, 17, []), (6, 17, ["23"]), (5, 13, ["18"])],
    ids=["exact", "cut", "too-many", "too-few"],
)
def test_steps_are_held_against_the_answers(drafts: int, accepted: int, found: list[str]) -> None:
    """Verified tokens may exceed those that came out by a cut chain alone."""
    counters = SpeculationCounters(drafts, 3 * drafts, accepted, ())

    got = step_findings([ANSWER], counters, 3, drafts_in_every_step=True)

    assert [finding.got for finding in got] == found


def test_steps_without_drafts_are_allowed_where_they_occur() -> None:
    """A method that proposes nothing at times (ngram) may count fewer steps."""
    assert step_findings([ANSWER], SpeculationCounters(5, 15, 13, ()), 3) == ()
