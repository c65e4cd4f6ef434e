"""Mixed traffic: a changed mix is no fault, a worse kind is one, both are told apart."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from draftgate.datasets import load_prompts
from draftgate.datasets.builtin import KINDS
from draftgate.drift.baseline import load_acceptance
from draftgate.drift.family import DRIFT_FAMILY_LEVEL
from draftgate.drift.judge import TRAFFIC_GATE
from draftgate.drift.mixed import (
    MixedVerdict,
    judge_mixed,
    requests_of,
)
from draftgate.drift.periods import FEWEST_OF_KIND, Periods, RequestSteps
from draftgate.verdict import Outcome
from tests.support.traffic import make_traffic

ROOT = Path(__file__).parents[2]
(BASELINE,) = (ROOT / "baselines").glob("**/*.acceptance.json")
MEASURED = {
    found.kind: np.array([value for _, value in found.tokens_per_step])
    for found in load_acceptance(BASELINE).traffic
    if found.arm == "ngram"
}
"""Tokens per step of the committed n-gram measurements, by kind."""

LEVELS = {"arithmetic": 1.4, "chat": 2.0, "code": 3.0}
CODE_HEAVY = {"code": 300, "chat": 100, "arithmetic": 100}
ARITHMETIC_HEAVY = {"code": 100, "chat": 100, "arithmetic": 300}


def _period(
    counts: Mapping[str, int], seed: int, factors: Mapping[str, float] | None = None
) -> tuple[RequestSteps, ...]:
    """Return requests of a draft that gives each kind its own level, with 20 % of noise."""
    rng = np.random.default_rng(seed)
    return tuple(
        RequestSteps(kind, LEVELS[kind] * (factors or {}).get(kind, 1.0) * float(noise))
        for kind, count in counts.items()
        for noise in rng.lognormal(0.0, 0.2, count)
    )


def _judge(base: tuple[RequestSteps, ...], candidate: tuple[RequestSteps, ...]) -> MixedVerdict:
    return judge_mixed(base, candidate, arm="ngram", concurrency=8)


def test_moved_mix_is_no_fault_of_the_draft() -> None:
    """The plain mean falls by a quarter, all kinds are as they were: PASS, and the mix is named."""
    found = _judge(_period(CODE_HEAVY, 1), _period(ARITHMETIC_HEAVY, 2))

    assert found.outcome is Outcome.PASS, found.verdict.reason
    assert found.verdict.causes == ("mix",)
    assert found.worse == ()
    assert found.change is not None
    assert found.change.mix.high < -0.3
    assert found.verdict.value is not None
    assert found.verdict.base_value is not None
    assert found.verdict.value < 0.85 * found.verdict.base_value
    assert "code 60 -> 20 %" in (found.verdict.cause or "")


def test_one_worse_kind_is_a_regression_that_names_it() -> None:
    """The same mix, code a third worse: REGRESSION, the draft is the cause and code the kind."""
    found = _judge(_period(CODE_HEAVY, 1), _period(CODE_HEAVY, 2, {"code": 0.67}))

    assert found.outcome is Outcome.REGRESSION
    assert found.verdict.causes == ("draft",)
    assert found.worse == ("code",)
    assert "worse by more than 5 %: code " in found.verdict.reason
    assert "p <= 0.00025 each (Bonferroni)" in found.verdict.reason
    assert found.verdict.next_step


def test_a_rare_kind_gets_worse_while_the_whole_stays() -> None:
    """Arithmetic loses 40 % and is a fifth of the traffic: REGRESSION names it alone."""
    found = _judge(_period(CODE_HEAVY, 1), _period(CODE_HEAVY, 2, {"arithmetic": 0.6}))

    assert found.outcome is Outcome.REGRESSION
    assert found.worse == ("arithmetic",)


def test_both_are_told_with_the_larger_part_first() -> None:
    """Mix and a kind moved: REGRESSION with both causes, in order of their part."""
    found = _judge(_period(CODE_HEAVY, 1), _period(ARITHMETIC_HEAVY, 2, {"code": 0.7}))

    assert found.outcome is Outcome.REGRESSION
    assert found.verdict.causes == ("mix", "draft")
    assert found.worse == ("code",)


def test_a_mix_that_hides_a_worse_draft_does_not_pass() -> None:
    """All kinds lose a fifth while easy requests take over: the mean rises, REGRESSION."""
    worse = dict.fromkeys(LEVELS, 0.8)

    found = _judge(_period(ARITHMETIC_HEAVY, 1), _period(CODE_HEAVY, 2, worse))

    assert found.change is not None
    assert found.change.change > 0.0
    assert found.outcome is Outcome.REGRESSION
    assert "draft" in found.verdict.causes


def test_better_kinds_are_an_improvement() -> None:
    """Two-sided: a rise in every kind is said, and not passed in silence."""
    found = _judge(_period(CODE_HEAVY, 1), _period(CODE_HEAVY, 2, dict.fromkeys(LEVELS, 1.3)))

    assert found.outcome is Outcome.IMPROVEMENT
    assert found.verdict.causes == ("draft",)
    assert "code" in found.better


def test_nothing_moved_names_nothing() -> None:
    """The same draft and mix give PASS without a cause."""
    verdict = _judge(_period(CODE_HEAVY, 1), _period(CODE_HEAVY, 1)).verdict

    assert (verdict.outcome, verdict.cause, verdict.causes) == (Outcome.PASS, None, ())
    assert verdict.arm == "ngram on mixed traffic"


def test_order_of_requests_does_not_matter() -> None:
    """A period is a set: reversed, parts and outcome are the same."""
    base, candidate = _period(CODE_HEAVY, 1), _period(ARITHMETIC_HEAVY, 2)

    forth, back = _judge(base, candidate), _judge(base[::-1], candidate[::-1])

    assert forth.outcome is back.outcome
    assert forth.change is not None
    assert back.change is not None
    assert forth.change.mix.estimate == pytest.approx(back.change.mix.estimate)


def test_kind_with_few_requests_is_named_and_not_judged() -> None:
    """A few requests are of a kind too rare to judge: told, and the rest judged."""
    counts = {"code": 200, "chat": 200, "arithmetic": FEWEST_OF_KIND - 1}

    found = _judge(_period(counts, 1), _period(counts, 1))

    assert found.outcome is Outcome.PASS
    assert "not judged, too few requests: arithmetic" in found.verdict.reason


@pytest.mark.parametrize(
    ("base", "candidate", "reason"),
    [
        ({"code": 15}, {"code": 40}, "15 requests are too few"),
        ({}, {"code": 40}, "0 requests are too few"),
        ({"code": 20}, {"chat": 20}, "no kind has enough: 16 needed on each side, 8 of a kind"),
        ({"code": 30, "chat": 10}, {"code": 30, "chat": 5}, "20 % of the traffic is of kinds"),
    ],
)
def test_too_little_to_compare_is_no_pass(
    base: dict[str, int], candidate: dict[str, int], reason: str
) -> None:
    """Few requests, no kind in common, or much of a rare kind: INCONCLUSIVE, with the reason."""
    found = _judge(_period(base, 1), _period(candidate, 2))

    assert found.outcome is Outcome.INCONCLUSIVE
    assert reason in found.verdict.reason
    assert found.change is None
    assert found.verdict.next_step


def test_noisy_traffic_is_no_pass() -> None:
    """Sixteen requests with little in common neither pass nor fail."""
    rng = np.random.default_rng(1)
    sides = [
        tuple(RequestSteps("chat", float(v)) for v in 1.0 + rng.exponential(2.0, 16))
        for _ in range(2)
    ]

    found = _judge(*sides)

    assert found.outcome is Outcome.INCONCLUSIVE


def _drawn(counts: Mapping[str, int], rng: np.random.Generator) -> tuple[RequestSteps, ...]:
    return tuple(
        RequestSteps(kind, float(value))
        for kind, count in counts.items()
        for value in rng.choice(MEASURED[kind], count)
    )


@pytest.mark.parametrize("after", [CODE_HEAVY, ARITHMETIC_HEAVY])
def test_unchanged_kinds_do_not_alarm(after: Mapping[str, int]) -> None:
    """In 1,500 pairs of periods from the committed measurements, no kind or total alarms.

    Same mix or moved, 3,000 in all: that bounds the rate by 0.1 % (3 / 3,000, at 95 %).
    """
    rng = np.random.default_rng(6)
    alarms = 0
    for _ in range(1500):
        sides = (_drawn(CODE_HEAVY, rng), _drawn(after, rng))
        periods = Periods(*sides, TRAFFIC_GATE, DRIFT_FAMILY_LEVEL)
        found = [periods.beyond(kinds) for kinds in (["code"], ["chat"], ["arithmetic"], KINDS)]
        alarms += any(one.worse or one.better for one in found)

    assert alarms == 0


@pytest.mark.parametrize(("after", "named"), [(CODE_HEAVY, 0), (ARITHMETIC_HEAVY, 10)])
def test_mix_is_named_where_it_moved_alone(after: Mapping[str, int], named: int) -> None:
    """Ten pairs of periods each: no REGRESSION or IMPROVEMENT, and the mix where it moved."""
    rng = np.random.default_rng(7)
    found = [_judge(_drawn(CODE_HEAVY, rng), _drawn(after, rng)) for _ in range(10)]

    assert {one.outcome for one in found} <= {Outcome.PASS, Outcome.INCONCLUSIVE}
    assert [one.verdict.causes for one in found].count(("mix",)) == named


def test_requests_of_a_measurement_have_the_kinds_of_its_prompts() -> None:
    """Each prompt's value stands for one request of the prompt's kind."""
    prompts = load_prompts("mixed", seed=1)[:6]
    values = tuple((prompt.prompt_id, 1.5) for prompt in prompts)
    found = make_traffic(kind="mixed", tokens_per_step=values)

    requests = requests_of(found, {prompt.prompt_id: prompt.kind for prompt in prompts})

    assert requests == tuple(RequestSteps(prompt.kind, 1.5) for prompt in prompts)
