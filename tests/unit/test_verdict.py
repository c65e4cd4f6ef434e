"""The judging rule: every outcome, its reason and cause, and how often it errs."""

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from draftgate.errors import SpecError
from draftgate.metrics import compute_all
from draftgate.specs import SLO, GateSpec
from draftgate.verdict import Outcome, Verdict, judge_cell, worst
from tests.support.samples import make_cell, make_verdicts

SPEED = GateSpec("output_tokens_per_s", 0.05)
LATENCY = GateSpec("step_gap_p50_s", 0.05)


def _runs(metric: str, values: Sequence[float]) -> list[dict[str, float]]:
    return [{metric: value} for value in values]


def _judge(
    gate: GateSpec, base: Sequence[float], candidate: Sequence[float], invalid: Sequence[str] = ()
) -> Verdict:
    verdicts = judge_cell(
        "ngram",
        8,
        base=_runs(gate.metric, base),
        candidate=_runs(gate.metric, candidate),
        gates=[gate],
        invalid=invalid,
    )
    assert len(verdicts) == 1
    return verdicts[0]


@cache
def _measured(seed: int, **changes: float) -> list[dict[str, float]]:
    settings = {"tokens_per_step": 2.0, "requests": 20, **changes}
    runs = make_cell(5, method="ngram", k=3, concurrency=4, seed=seed, **settings)
    return [compute_all(run, SLO()) for run in runs]


TIGHT = (0.999, 1.0, 1.001)
WIDE = (0.8, 1.0, 1.25)


@pytest.mark.parametrize(
    ("gate", "base", "factor", "outcome"),
    [
        (SPEED, TIGHT, 1.0, Outcome.PASS),
        (SPEED, TIGHT, 0.97, Outcome.PASS),
        (SPEED, TIGHT, 1.04, Outcome.PASS),
        (SPEED, TIGHT, 0.9, Outcome.REGRESSION),
        (SPEED, TIGHT, 1.1, Outcome.IMPROVEMENT),
        (SPEED, TIGHT, 0.95, Outcome.INCONCLUSIVE),
        (SPEED, WIDE, 1.0, Outcome.INCONCLUSIVE),
        (SPEED, WIDE, 0.9, Outcome.INCONCLUSIVE),
        (LATENCY, TIGHT, 1.0, Outcome.PASS),
        (LATENCY, TIGHT, 1.03, Outcome.PASS),
        (LATENCY, TIGHT, 1.1, Outcome.REGRESSION),
        (LATENCY, TIGHT, 0.9, Outcome.IMPROVEMENT),
        (LATENCY, TIGHT, 1.05, Outcome.INCONCLUSIVE),
        (LATENCY, WIDE, 1.1, Outcome.INCONCLUSIVE),
    ],
)
def test_verdict_follows_the_interval_of_the_loss(
    gate: GateSpec, base: tuple[float, ...], factor: float, outcome: Outcome
) -> None:
    """Direction, margin and spread decide together; only ruled-out losses pass."""
    verdict = _judge(gate, [10 * v for v in base], [10 * v * factor for v in base])

    assert verdict.outcome is outcome
    assert verdict.outcome.green == (outcome in (Outcome.PASS, Outcome.IMPROVEMENT))
    assert verdict.comparison is not None
    assert verdict.comparison.estimate_ratio == pytest.approx(factor)
    assert verdict.value == pytest.approx(10 * factor, rel=0.01)
    assert bool(verdict.next_step) == (not outcome.green)


@settings(deadline=None)  # a busy machine is no failure
@given(
    factor=st.floats(0.3, 3.0),
    noise=st.floats(0.0, 0.2),
    margin=st.floats(0.0, 0.3),
    gate=st.sampled_from([SPEED, LATENCY]),
)
def test_verdict_is_the_rule_in_its_slow_form(
    factor: float, noise: float, margin: float, gate: GateSpec
) -> None:
    """The outcome is the one that the interval in the verdict itself leads to."""
    base = [1.0, 1.0 + noise, 1.0 - noise, 1.0 + noise / 3]
    verdict = _judge(replace(gate, margin_ratio=margin), base, [v * factor for v in base])
    found = verdict.comparison
    assert found is not None
    ends = (found.low_ratio - 1, found.high_ratio - 1)
    losses = ends if gate is LATENCY else (-ends[0], -ends[1])

    expected = Outcome.INCONCLUSIVE
    if min(losses) > margin:
        expected = Outcome.REGRESSION
    elif max(losses) < -margin:
        expected = Outcome.IMPROVEMENT
    elif max(losses) <= margin:
        expected = Outcome.PASS
    assert verdict.outcome is expected


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("gate", [SPEED, LATENCY])
def test_verdict_is_never_green_without_a_number(gate: GateSpec, bad: float) -> None:
    """NaN or infinity in one run, on either side, is not compared away."""
    now = _judge(gate, [1.0, 1.0, 1.0], [1.0, bad, 1.0])
    before = _judge(gate, [1.0, bad, 1.0], [1.0, 1.0, 1.0])

    assert now.outcome is Outcome.INVALID_RUN
    assert "not a finite number" in now.reason
    assert before.outcome is Outcome.INCONCLUSIVE
    assert "base: expected finite numbers" in before.reason


@pytest.mark.parametrize(
    ("base", "candidate"), [([0.0] * 3, [0.0] * 3), ([0.5] * 3, [0.0] * 3), ([0.0] * 3, [0.5] * 3)]
)
def test_verdict_on_zero_is_inconclusive(base: list[float], candidate: list[float]) -> None:
    """A relative change from or to 0 is not defined, and not a pass."""
    verdict = _judge(GateSpec("acceptance_ratio", 0.05), base, candidate)

    assert verdict.outcome is Outcome.INCONCLUSIVE
    assert "expected values above 0" in verdict.reason
    assert "mean_acceptance_length" in verdict.next_step
    assert verdict.comparison is None


def test_verdict_without_baseline_names_the_command() -> None:
    """No stored runs: NO_BASELINE, with the one command that records some."""
    verdict = _judge(SPEED, [], [1.0, 1.0, 1.0])

    assert verdict.outcome is Outcome.NO_BASELINE
    assert "no runs for arm 'ngram' at 8 streams" in verdict.reason
    assert 'draftgate baseline accept --reason "..."' in verdict.next_step
    assert verdict.base_value is None
    assert verdict.value == pytest.approx(1.0)


def test_reason_counts_one_stream_as_one() -> None:
    """One stream is not "1 streams"."""
    (verdict,) = judge_cell("ngram", 1, base=[], candidate=[{SPEED.metric: 1.0}], gates=[SPEED])

    assert verdict.reason.removeprefix("the baseline has ") == "no runs for arm 'ngram' at 1 stream"


def test_verdict_on_a_metric_the_baseline_lacks() -> None:
    """A baseline without this metric is no baseline for it."""
    base = _runs("requests_per_s", [1.0, 1.0, 1.0])
    candidate = [{**run, "goodput_per_s": 1.0} for run in base]

    (verdict,) = judge_cell(
        "none", 1, base=base, candidate=candidate, gates=[GateSpec("goodput_per_s", 0.1)]
    )

    assert verdict.outcome is Outcome.NO_BASELINE
    assert "none with goodput_per_s" in verdict.reason


def test_verdict_on_a_metric_that_is_gone() -> None:
    """A metric the baseline has and a run lacks is a failure to measure."""
    base = _runs(SPEED.metric, [1.0, 1.0, 1.0])

    (verdict,) = judge_cell("none", 1, base=base, candidate=[{}, *base[:2]], gates=[SPEED])
    (gone,) = judge_cell("none", 1, base=base, candidate=[{}, {}, {}], gates=[SPEED])

    assert verdict.outcome is gone.outcome is Outcome.INVALID_RUN
    assert "missing in 1 of 3 runs" in verdict.reason
    assert "missing in 3 of 3 runs" in gone.reason


def test_verdict_of_a_cell_that_was_not_measured() -> None:
    """No candidate runs are no pass, with or without a baseline."""
    for base in ([1.0, 1.0, 1.0], []):
        verdict = _judge(SPEED, base, [])
        assert verdict.outcome is Outcome.INVALID_RUN
        assert "was not measured" in verdict.reason


@pytest.mark.parametrize(("held", "got"), [(2, 3), (3, 2), (1, 1)])
def test_verdict_on_too_few_runs_is_inconclusive(held: int, got: int) -> None:
    """Fewer runs than the gate asks for, on either side, decide nothing."""
    verdict = _judge(SPEED, [1.0] * held, [1.0] * got)

    assert verdict.outcome is Outcome.INCONCLUSIVE
    assert f"too few runs: {held} in the baseline, {got} now, 3 needed" in verdict.reason
    assert ("workload.repeats = 3" in verdict.next_step) == (got < 3)
    assert ("extend the baseline to 3" in verdict.next_step) == (held < 3)


def test_verdict_needs_two_runs_whatever_the_gate_says() -> None:
    """One run has no spread, so min_runs = 1 does not make it evidence."""
    verdict = _judge(replace(SPEED, min_runs=1), [1.0], [1.0])

    assert verdict.outcome is Outcome.INCONCLUSIVE
    assert "2 needed" in verdict.reason


@pytest.mark.parametrize("base", [[1.0, 1.0, 1.0], []])
def test_verdict_on_invalid_runs_gives_their_reasons(base: list[float]) -> None:
    """Runs that cannot be used are not judged, however good their numbers look."""
    verdict = _judge(SPEED, base, [2.0, 2.0, 2.0], ["client lagged 40 ms", "3 of 40 failed"])

    assert verdict.outcome is Outcome.INVALID_RUN
    assert verdict.reason == "client lagged 40 ms; 3 of 40 failed"


def test_metric_that_cannot_be_resolved_takes_out_its_own_gate_alone() -> None:
    """The reason stands at the gate it is of, and the others are judged."""
    runs = _runs(SPEED.metric, [1.0, 1.0, 1.0])
    why = {SPEED.metric: "too small"}
    gates = [SPEED, GateSpec("ttft_p99_s", 0.1)]
    runs = [{**run, "ttft_p99_s": 0.2} for run in runs]

    speed, wait = judge_cell("none", 1, base=runs, candidate=runs, gates=gates, unresolved=why)

    assert (speed.outcome, speed.reason) == (Outcome.INVALID_RUN, "too small")
    assert wait.outcome is Outcome.PASS


def test_gates_that_do_not_apply_give_no_verdict() -> None:
    """Acceptance of an arm that has none on either side is no question."""
    runs = _runs(SPEED.metric, [1.0, 1.0, 1.0])
    gates = [GateSpec("mean_acceptance_length", 0.05), SPEED, GateSpec("ttft_p99_s", 0.1)]

    verdicts = judge_cell("none", 1, base=runs, candidate=runs, gates=gates)

    assert [verdict.metric for verdict in verdicts] == [SPEED.metric]


@pytest.mark.parametrize("metric", ["gpu_use_ratio", "itl"])
def test_gate_that_cannot_be_judged_is_an_error(metric: str) -> None:
    """A gate on an unknown metric, or one without a better direction, is the user's mistake."""
    with pytest.raises(SpecError, match=metric):
        _judge(GateSpec(metric, 0.1), [1.0] * 3, [1.0] * 3)


def test_inconclusive_says_how_many_runs_would_decide() -> None:
    """With as many runs as it asks for, at the same spread, the interval clears the margin."""
    gate = replace(SPEED, confidence=0.95)
    base = [98.0, 100.0, 102.0, 100.0]
    verdict = _judge(gate, base, base)
    assert verdict.outcome is Outcome.PASS

    wide = [94.0, 100.0, 106.0, 100.0]
    verdict = _judge(gate, wide, wide)
    needed = int(verdict.next_step.split(" runs")[0].removeprefix("About "))

    assert verdict.outcome is Outcome.INCONCLUSIVE
    assert len(wide) < needed < 20
    repeated = wide * math.ceil(needed / len(wide))
    assert _judge(gate, repeated, repeated).outcome is Outcome.PASS


def test_inconclusive_on_the_margin_asks_for_another_setting() -> None:
    """Where the loss is as large as the margin, more runs are no advice."""
    base = [98.0, 100.0, 102.0]
    verdict = _judge(SPEED, base, [value * 0.9501 for value in base])

    assert verdict.outcome is Outcome.INCONCLUSIVE
    assert "for more runs alone to settle it" in verdict.next_step
    assert "margin_ratio" in verdict.next_step


@pytest.mark.parametrize(
    ("change", "cause", "unchanged"),
    [
        ({"step_s": 0.04}, "step time", "acceptance"),
        ({"tokens_per_step": 1.5}, "acceptance", "step time"),
        ({"ttft_s": 0.6}, "prefill or queueing", "step time"),
    ],
)
def test_verdict_names_the_planted_cause(
    change: dict[str, float], cause: str, unchanged: str
) -> None:
    """Slower steps, worse drafts and slower prefill are told apart, each alone."""
    (verdict,) = judge_cell(
        "ngram", 4, base=_measured(1), candidate=_measured(2, **change), gates=[SPEED]
    )

    assert verdict.outcome is Outcome.REGRESSION
    assert verdict.causes == (cause,)
    assert verdict.cause is not None
    assert verdict.cause.startswith(cause)
    assert f"{unchanged} unchanged [" in verdict.cause


def test_verdict_names_the_cause_of_an_improvement_too() -> None:
    """What made it faster is as interesting."""
    (verdict,) = judge_cell(
        "ngram", 4, base=_measured(1), candidate=_measured(2, step_s=0.02), gates=[SPEED]
    )

    assert verdict.outcome is Outcome.IMPROVEMENT
    assert verdict.causes == ("step time",)


def test_verdict_names_two_causes_when_both_carry_the_change() -> None:
    """Slower steps and worse drafts of like size are both named, the larger first."""
    (verdict,) = judge_cell(
        "ngram",
        4,
        base=_measured(1),
        candidate=_measured(2, step_s=0.04, tokens_per_step=1.4),
        gates=[SPEED],
    )

    assert verdict.causes == ("acceptance", "step time")


@pytest.mark.parametrize(
    ("metric", "change", "cause"),
    [
        ("mean_acceptance_length", {"tokens_per_step": 1.5}, "acceptance"),
        ("acceptance_ratio", {"tokens_per_step": 1.5}, "acceptance"),
        ("per_token_p50_s", {"step_s": 0.04}, "step time"),
        ("step_gap_p50_s", {"step_s": 0.04}, "step time"),
        ("ttft_p50_s", {"ttft_s": 0.2}, "prefill or queueing"),
    ],
)
def test_verdict_on_other_metrics_names_their_own_cause(
    metric: str, change: dict[str, float], cause: str
) -> None:
    """Acceptance is its own cause, and latencies have theirs."""
    (verdict,) = judge_cell(
        "ngram",
        4,
        base=_measured(1),
        candidate=_measured(2, **change),
        gates=[GateSpec(metric, 0.05)],
    )

    assert verdict.outcome is Outcome.REGRESSION
    assert verdict.causes == (cause,)


def _factored(
    tokens_per_step: Sequence[float], step_time_s: Sequence[float], speed: Sequence[float]
) -> list[dict[str, float]]:
    names = ("tokens_per_step", "step_time_s", "decode_share_ratio", SPEED.metric)
    columns = zip(tokens_per_step, step_time_s, (0.9, 0.9, 0.9), speed, strict=True)
    return [dict(zip(names, row, strict=True)) for row in columns]


def test_verdict_does_not_name_a_factor_that_carries_little() -> None:
    """A sure but small change is shown and is not called the cause."""
    base = _factored([2.0, 2.001, 1.999], [0.03, 0.03001, 0.02999], [60.0, 60.1, 59.9])
    candidate = _factored([1.6, 1.601, 1.599], [0.0306, 0.03061, 0.03059], [47.0, 47.1, 46.9])

    (verdict,) = judge_cell("ngram", 8, base=base, candidate=candidate, gates=[SPEED])

    assert verdict.causes == ("acceptance",)
    assert verdict.cause is not None
    assert "; step time +2 % [" in verdict.cause


def test_verdict_does_not_name_a_factor_that_may_not_have_moved() -> None:
    """A large but unsure change is no cause, even where no other is found."""
    base = _factored([2.0, 1.5, 2.5], [0.03, 0.03001, 0.02999], [60.0, 60.1, 59.9])
    candidate = _factored([1.6, 1.2, 2.0], [0.03, 0.03001, 0.02999], [47.0, 47.1, 46.9])

    (verdict,) = judge_cell("ngram", 8, base=base, candidate=candidate, gates=[SPEED])

    assert verdict.outcome is Outcome.REGRESSION
    assert verdict.causes == ()
    assert verdict.cause is not None
    assert verdict.cause.startswith("no factor stands out: acceptance unchanged [")


def test_verdict_on_wild_runs_is_inconclusive() -> None:
    """An interval without end is an open question in plain words, not a crash."""
    verdict = _judge(replace(SPEED, confidence=0.9999, min_runs=2), [1.0, 1e6], [1.0, 2e6])

    assert verdict.outcome is Outcome.INCONCLUSIVE
    assert "[-100, inf]" in verdict.reason
    assert "for more runs alone to settle it" in verdict.next_step


def test_verdict_without_factors_says_so() -> None:
    """A regression stands even where its cause cannot be found."""
    verdict = _judge(SPEED, [1.0, 1.001, 0.999], [0.5, 0.501, 0.499])

    assert verdict.outcome is Outcome.REGRESSION
    assert verdict.cause == "not known: tokens_per_step was not measured in every run"
    assert verdict.causes == ()


def test_green_verdicts_state_no_cause() -> None:
    """Where nothing is claimed to have changed, nothing is explained."""
    (verdict,) = judge_cell(
        "ngram",
        4,
        base=_measured(1),
        candidate=_measured(2),
        gates=[replace(SPEED, margin_ratio=0.2)],
    )

    assert verdict.outcome is Outcome.PASS
    assert verdict.cause is None


def test_verdict_text_reads_as_agreed() -> None:
    """The change stands with its interval in percent, the margin beside it."""
    verdict = _judge(SPEED, [99.9, 100.0, 100.1], [89.9, 90.0, 90.1])

    assert verdict.reason == (
        "output tokens/s -10 % [-10, -9.6] over 3 and 3 runs: worse by more than the margin of 5 %"
    )


def test_false_regressions_stay_below_the_stated_rate() -> None:
    """Same against same, 2,000 cells of 3 + 3 runs: under 0.5 % false REGRESSION or IMPROVEMENT.

    With a margin of 0, the rule's two wrong outcomes are the two tails of a
    99 % interval, so 1 % is the stated rate; with a margin of 2 % at 3 % of
    noise fewer. Both are counted.
    """
    rng = np.random.default_rng(5)
    trials = 2000
    samples = rng.lognormal(3.0, 0.03, (trials, 2, 3))
    wrong = {0.0: 0, 0.02: 0}
    for margin in wrong:
        gate = replace(SPEED, margin_ratio=margin)
        for base, candidate in samples:
            outcome = _judge(gate, base.tolist(), candidate.tolist()).outcome
            wrong[margin] += outcome in (Outcome.REGRESSION, Outcome.IMPROVEMENT)

    assert 0 < wrong[0.0] / trials <= 0.019  # 1 % and four standard errors
    assert wrong[0.02] / trials <= 0.005


def test_missed_losses_stay_below_the_stated_rate() -> None:
    """A loss just above the margin passes in about 0.5 % of 2,000 cells; a large one never.

    One tail of a 99 % interval is 0.5 %; the asserted bound adds four standard
    errors of a share over 2,000 trials.
    """
    rng = np.random.default_rng(6)
    trials = 2000
    samples = rng.lognormal(3.0, 0.01, (trials, 2, 4))
    just = [_judge(SPEED, b.tolist(), (c * 0.949).tolist()).outcome for b, c in samples]
    large = [_judge(SPEED, b.tolist(), (c * 0.85).tolist()).outcome for b, c in samples]

    assert 0 < sum(outcome.green for outcome in just) / trials <= 0.0113
    assert not any(outcome.green for outcome in large)
    assert large.count(Outcome.REGRESSION) / trials > 0.95


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ((), Outcome.INCONCLUSIVE),
        (("IMPROVEMENT",), Outcome.IMPROVEMENT),
        (("IMPROVEMENT", "PASS"), Outcome.PASS),
        (("PASS", "INCONCLUSIVE"), Outcome.INCONCLUSIVE),
        (("INCONCLUSIVE", "NO_BASELINE"), Outcome.NO_BASELINE),
        (("NO_BASELINE", "INVALID_RUN"), Outcome.INVALID_RUN),
        (("INVALID_RUN", "REGRESSION", "PASS"), Outcome.REGRESSION),
    ],
)
def test_worst_outcome_decides(names: tuple[str, ...], expected: Outcome) -> None:
    """One red verdict is not outvoted, and no verdict is no pass."""
    every = {verdict.outcome.name: verdict for verdict in make_verdicts()}

    assert worst([every[name] for name in names]) is expected
