"""The benchmark of evidence: wrong rules are laws, the right one is right, the page is current."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.correctness import tables
from benchmarks.correctness.contexts import KINDS, K
from benchmarks.correctness.goals import Study, goals, joint_limit, within_reach
from benchmarks.correctness.places import Place, nucleus
from benchmarks.correctness.rules import RULES, TUNED, Rule, honest, same_noise
from benchmarks.gate.page import Section

VOCABULARY = 9
FOLDER = Path(tables.__file__).parent
NAMES = (
    "power-greedy",
    "power-sampled",
    "power-greedy-other",
    "power-sampled-other",
    "false_alarms",
)


def place(seed: int, number: int, *, greedy: bool) -> Place:
    """Return a place with random laws."""
    rng = np.random.default_rng(seed)
    laws = [rng.dirichlet(np.full(VOCABULARY, 0.6)) for _ in range(8)]
    proposal = int(laws[6].argmax())
    return Place(
        number=number,
        target=laws[0],
        before=laws[1],
        recent=laws[1],
        older=laws[2],
        stale=laws[3],
        bare=laws[4],
        hot=laws[5],
        draft=np.eye(VOCABULARY)[proposal] if greedy else laws[6],
        model=laws[6],
        cool=laws[7],
        proposal=proposal,
    )


@pytest.mark.parametrize("rule", [*RULES, *TUNED.values()], ids=lambda rule: rule.name)
@pytest.mark.parametrize("greedy", [True, False], ids=["greedy", "sampled"])
@pytest.mark.parametrize("number", [0, 2, K])
def test_rules_are_laws(rule: Rule, number: int, *, greedy: bool) -> None:
    """What a place emits, accepted or not, is at least 0 and adds up to 1."""
    for seed in range(5):
        masses = np.array(rule.masses(place(seed, number, greedy=greedy)))

        assert (masses >= 0).all()
        assert masses.sum() == pytest.approx(1)


@pytest.mark.parametrize("greedy", [True, False], ids=["greedy", "sampled"])
@pytest.mark.parametrize("number", [1, K])
def test_the_right_rule_emits_the_target(number: int, *, greedy: bool) -> None:
    """Accepted and recovered mass together are the target's law."""
    one = place(3, number, greedy=greedy)

    assert sum(honest(one)) == pytest.approx(one.target)


def test_shared_noise_agrees_with_races() -> None:
    """The quadrature's law of recovered tokens is that of 200,000 simulated races, within .005."""
    one = place(4, 1, greedy=False)
    p, q = one.target, one.draft
    rng = np.random.default_rng(5)
    noise = rng.exponential(size=(200_000, VOCABULARY))
    proposal = (noise / q).argmin(axis=1)
    refused = rng.random(len(noise)) * q[proposal] >= p[proposal]
    rest = np.maximum(p - q, 0.0)
    with np.errstate(divide="ignore"):
        tokens = (noise[refused] / rest).argmin(axis=1)

    law = same_noise(one)[1]
    seen = np.bincount(tokens, minlength=VOCABULARY) / len(tokens)
    assert law / law.sum() == pytest.approx(seen, abs=0.005)


def test_nucleus_keeps_the_fewest_tokens_that_reach_the_mass() -> None:
    """.5 + .3 reach .7, the other tokens are cut."""
    assert nucleus(np.array([0.1, 0.5, 0.3, 0.1]), 0.7) == pytest.approx([0, 0.625, 0.375, 0])


@pytest.mark.parametrize("name", NAMES)
def test_the_page_says_what_the_numbers_say(name: str) -> None:
    """RESULTS.md holds the tables made from the committed JSON."""
    render = tables.false_alarms if name == "false_alarms" else tables.power
    result = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    page = (FOLDER / "RESULTS.md").read_text(encoding="utf-8")

    assert Section(name).placed(page, render(result)) == page


def row(fault: str, ours: int | None, joint: int | None = None) -> dict[str, Any]:
    """Return a fault's numbers with a limit of 10 tokens."""
    return {"fault": fault, "kl": 0.9, "limit": 10.0, "ours": ours, "oracle": 15, "joint": joint}


def test_goals_are_judged_by_their_numbers() -> None:
    """Median 2.4, largest 9, one fault not found, one of two jointly in a tenth of the tokens."""
    rows = [row("a", 20, 2), row("b", 24, 20), row("c", 90), row("d", 21), row("e", None)]
    limits = {name: {"kl": 0.9, "impossible": 0.0} for name in "ab"}

    found = goals(Study("greedy", rows, limits))
    assert [goal.found for goal in found] == ["2.40", "9.0", "e", "1: a"]
    assert [goal.met for goal in found] == [True, False, False, False]


def test_joint_limit_counts_impossible_events_where_they_come_first() -> None:
    """Impossible events at .5 a token show within ln(10) / .5 tokens in nine of ten streams."""
    limits = {"a": {"kl": 0.09, "impossible": 0.5}, "b": {"kl": 1.8, "impossible": 0.0}}
    study = Study("greedy", [row("a", 50), row("b", 50)], limits)

    assert joint_limit(study, row("a", 50)) == (pytest.approx(4.605, abs=1e-3), True)
    assert joint_limit(study, row("b", 50)) == (pytest.approx(5.0), False)
    assert [one["fault"] for one in within_reach(study)] == ["a", "b"]


def test_the_page_says_which_goals_are_met() -> None:
    """RESULTS.md holds the goals as the committed JSON of both kinds of drafts has them."""
    studies = [
        tables.study_of(json.loads((FOLDER / f"power-{kind}.json").read_text(encoding="utf-8")))
        for kind in KINDS
    ]
    remedies = json.loads((FOLDER / "remedies.json").read_text(encoding="utf-8"))
    page = (FOLDER / "RESULTS.md").read_text(encoding="utf-8")

    assert Section("goals").placed(page, tables.goals_part(studies, remedies)) == page
