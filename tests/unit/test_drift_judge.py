"""Judging acceptance by kind of traffic: each outcome, and for the stated reason."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from draftgate.drift.judge import FEWEST_PROMPTS, TRAFFIC_GATE, judge_traffic, result_line
from draftgate.plugin.asked import Options
from draftgate.plugin.outcomes import settle
from draftgate.records import SpeculationCounters
from draftgate.specs import GateSpec
from draftgate.verdict import Outcome, Verdict
from tests.support.samples import make_verdicts
from tests.support.traffic import SETTING, make_traffic

BASE = make_traffic()


@pytest.mark.parametrize(
    ("changes", "outcome"),
    [
        ({}, Outcome.PASS),
        ({"factor": 0.97, "noise": 0.02}, Outcome.PASS),
        ({"factor": 1.03, "noise": 0.02}, Outcome.PASS),
        ({"factor": 0.90, "noise": 0.02}, Outcome.REGRESSION),
        ({"factor": 1.10, "noise": 0.02}, Outcome.IMPROVEMENT),
        ({"factor": 0.95, "noise": 0.02}, Outcome.INCONCLUSIVE),
        ({"noise": 0.4}, Outcome.INCONCLUSIVE),
    ],
)
def test_outcome_follows_interval_and_margin(changes: dict[str, Any], outcome: Outcome) -> None:
    """The interval of the loss against a margin of 5 % decides."""
    verdict = judge_traffic(BASE, make_traffic(**changes))

    assert verdict.outcome is outcome, verdict.reason
    assert bool(verdict.next_step) is not outcome.green


def test_unchanged_traffic_is_a_point_without_cause() -> None:
    """Equal values give an interval of no width, PASS, and name nothing."""
    verdict = judge_traffic(BASE, BASE)

    assert verdict.comparison is not None
    assert verdict.comparison.low_ratio == verdict.comparison.high_ratio == 1.0
    assert (verdict.cause, verdict.causes) == (None, ())
    assert "over 60 prompts, 0 of which changed" in verdict.reason
    assert verdict.base_value == verdict.value


def test_regression_names_acceptance_and_shows_both_sides() -> None:
    """A loss is acceptance's, told with rate and positions of then and now."""
    weak = make_traffic(factor=0.8, counters=SpeculationCounters(1000, 3000, 600, (300, 200, 100)))

    verdict = judge_traffic(BASE, weak)

    assert verdict.causes == ("acceptance",)
    assert verdict.cause is not None
    assert "then acceptance 38 %, by position 52/38/24 %" in verdict.cause
    assert "now acceptance 20 %, by position 30/20/10 %" in verdict.cause
    assert (verdict.arm, verdict.concurrency) == ("ngram on chat", 8)
    assert verdict.gate == TRAFFIC_GATE
    assert verdict.value == pytest.approx(0.8 * (verdict.base_value or 0))


def test_order_of_prompts_does_not_matter() -> None:
    """Prompts are paired by id, so a file in another order says the same."""
    moved = replace(BASE, tokens_per_step=tuple(reversed(BASE.tokens_per_step)))
    weak = make_traffic(factor=0.9, noise=0.05)

    assert judge_traffic(moved, weak) == judge_traffic(BASE, weak)


def test_regression_over_half_the_prompts_is_found_where_the_mean_hides_in_their_spread() -> None:
    """Pairing finds a loss of 12 % in half of the prompts that differ fourfold among themselves."""
    values = tuple(
        (prompt, value * (0.85 if i % 2 else 0.95))
        for i, (prompt, value) in enumerate(BASE.tokens_per_step)
    )

    verdict = judge_traffic(BASE, replace(BASE, tokens_per_step=values))

    assert verdict.outcome is Outcome.REGRESSION


@pytest.mark.parametrize(
    ("changes", "differs"),
    [
        ({"setting": replace(SETTING, max_tokens=24)}, "max_tokens is 48 there and 24 here"),
        ({"setting": replace(SETTING, prompts="f" * 16)}, "prompts is '0123456789abcdef' there"),
        ({"setting": replace(SETTING, dtype="float32")}, "dtype is 'bfloat16' there"),
        ({"num_speculative_tokens": 5}, "num_speculative_tokens is 3 there and 5 here"),
        ({"method": "eagle3"}, "method is 'ngram' there and 'eagle3' here"),
        ({"tokens_per_step": BASE.tokens_per_step[:-1]}, "it holds other prompts"),
    ],
)
def test_other_traffic_is_no_baseline(changes: dict[str, Any], differs: str) -> None:
    """What was measured otherwise is not compared, and the reason says in what it differs."""
    verdict = judge_traffic(BASE, make_traffic(**changes))

    assert verdict.outcome is Outcome.NO_BASELINE
    assert differs in verdict.reason
    assert verdict.comparison is None


def test_missing_base_names_the_command() -> None:
    """Without a base the next step is the one command that records one."""
    verdict = judge_traffic(None, BASE)

    assert verdict.outcome is Outcome.NO_BASELINE
    assert 'draftgate baseline accept --reason "..."' in verdict.next_step


def test_invalid_measurement_is_never_judged() -> None:
    """Trouble outranks even a perfect agreement."""
    verdict = judge_traffic(BASE, replace(BASE, invalid=("3 of 60 requests failed\nlog",)))

    assert verdict.outcome is Outcome.INVALID_RUN
    assert verdict.reason == "3 of 60 requests failed"


def test_few_prompts_are_no_evidence() -> None:
    """One prompt below the limit gives INCONCLUSIVE, at the limit there is a verdict."""
    few = make_traffic(prompts=FEWEST_PROMPTS - 1)
    enough = make_traffic(prompts=FEWEST_PROMPTS)

    assert judge_traffic(few, few).outcome is Outcome.INCONCLUSIVE
    assert judge_traffic(enough, enough).outcome is Outcome.PASS


def test_false_alarms_of_the_whole_rule() -> None:
    """In 60 same-versus-same pairs with an eighth of noise per prompt, nothing has changed."""
    outcomes = [
        judge_traffic(make_traffic(noise=0.12, seed=seed), make_traffic(noise=0.12, seed=99 + seed))
        for seed in range(60)
    ]

    assert all(one.outcome in (Outcome.PASS, Outcome.INCONCLUSIVE) for one in outcomes)


def test_result_line_says_what_was_measured() -> None:
    """Mean, interval, rate and positions in one line."""
    line = result_line(make_traffic(arm="ngram", kind="code"))

    assert line.startswith("ngram on code: 1.")
    assert line.endswith("], acceptance 38 %, by position 52/38/24 %")


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"counters": None, "prompts": 1}, "ngram on chat: 1.71 tokens per step"),
        ({"tokens_per_step": (), "invalid": ("dead\nlog",)}, "ngram on chat: INVALID, dead"),
    ],
)
def test_result_line_leaves_out_what_is_not_there(changes: dict[str, Any], line: str) -> None:
    """No counters, one prompt or no prompt at all: less is said, and nothing made up."""
    assert result_line(make_traffic(**changes)) == line


def _settled(verdicts: tuple[Verdict, ...], **options: bool) -> str:
    """Return what the running test would be."""
    given = {"require_baseline": False, "require_verdict": False, **options}
    try:
        settle(verdicts, Options(Path(), Path(), argv=(), **given))
    except pytest.skip.Exception:
        return "skipped"
    except pytest.fail.Exception:
        return "failed"
    return "passed"


@pytest.mark.parametrize(
    ("outcome", "options", "expected"),
    [
        (Outcome.PASS, {}, "passed"),
        (Outcome.IMPROVEMENT, {}, "passed"),
        (Outcome.REGRESSION, {}, "failed"),
        (Outcome.INVALID_RUN, {}, "failed"),
        (Outcome.NO_BASELINE, {}, "skipped"),
        (Outcome.NO_BASELINE, {"require_verdict": True}, "skipped"),
        (Outcome.NO_BASELINE, {"require_baseline": True}, "failed"),
        (Outcome.INCONCLUSIVE, {}, "skipped"),
        (Outcome.INCONCLUSIVE, {"require_baseline": True}, "skipped"),
        (Outcome.INCONCLUSIVE, {"require_verdict": True}, "failed"),
    ],
)
def test_outcome_becomes_what_pytest_reports(
    outcome: Outcome, options: dict[str, bool], expected: str
) -> None:
    """Only green passes; what is no evidence skips, or fails where evidence is demanded."""
    verdicts = tuple(one for one in make_verdicts() if one.outcome is outcome)
    assert len(verdicts) == 1

    assert _settled(verdicts, **options) == expected


def test_no_verdict_at_all_is_no_pass() -> None:
    """Nothing judged skips, and fails where a verdict is demanded."""
    assert _settled(()) == "skipped"
    assert _settled((), require_verdict=True) == "failed"


def test_gate_can_be_another() -> None:
    """A wider margin lets the same loss through."""
    weak = make_traffic(factor=0.9)

    assert judge_traffic(BASE, weak, GateSpec("tokens_per_step", 0.2)).outcome is Outcome.PASS
