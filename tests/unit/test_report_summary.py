"""The arranged run: which runs count, what is missing, what is compared."""

from dataclasses import replace
from pathlib import Path

import pytest

from draftgate.metrics import compute_all
from draftgate.report.headline import best_arms, sentence
from draftgate.report.summary import SPEED, summarise
from draftgate.verdict import Outcome
from tests.support import report_runs
from tests.support.report_runs import SMALL, stored_run, verdict_of
from tests.support.samples import make_profile, make_runs, make_verdicts


def test_cell_holds_the_metrics_of_its_runs_by_repeat(tmp_path: Path) -> None:
    """Every number is that of `compute_all`, found under its repeat."""
    run = stored_run(tmp_path)

    values = summarise(run).cell("ngram", 8).by_repeat(SPEED)

    own = {s.repeat: s for s in run.samples if (s.arm, s.concurrency) == ("ngram", 8)}
    expected = {
        repeat: compute_all(sample, run.profile.slo)[SPEED] for repeat, sample in own.items()
    }
    assert values == expected
    assert len(values) == 3


def test_spread_is_mean_and_sample_deviation(tmp_path: Path) -> None:
    """The spread of a cell is that of its per-run values."""
    cell = summarise(stored_run(tmp_path)).cell("none", 1)
    values = sorted(cell.by_repeat(SPEED).values())

    spread = cell.spread(SPEED)

    assert spread is not None
    assert spread.mean == pytest.approx(sum(values) / 3)
    squares = sum((value - spread.mean) ** 2 for value in values)
    assert spread.deviation == pytest.approx((squares / 2) ** 0.5)
    assert (spread.low, spread.high, spread.runs) == (values[0], values[-1], 3)
    assert cell.spread("acceptance_ratio") is None


def test_invalid_runs_enter_no_number(tmp_path: Path) -> None:
    """One invalid run of three leaves two in its cell, and is named as missing."""
    profile = make_profile(concurrencies=(1,))
    runs = list(make_runs(profile, **SMALL))
    runs[0] = replace(runs[0], invalid=("stalled",))

    summary = summarise(stored_run(tmp_path, profile, runs))

    cell = summary.cell("none", 1)
    assert sorted(cell.by_repeat(SPEED)) == [1, 2]
    assert len(cell.invalid) == 1
    assert "Invalid and in no number: 1 of 3 runs of none at 1 stream." in summary.gaps


def test_speed_up_pairs_by_repeat_and_multiplies(tmp_path: Path) -> None:
    """Tokens per step, steps per second and decode share multiply to the speed-up."""
    summary = summarise(stored_run(tmp_path))

    speed = summary.ratio("draft_model", 8, SPEED)
    tokens = summary.ratio("draft_model", 8, "tokens_per_step")
    step = summary.ratio("draft_model", 8, "step_time_s")
    share = summary.ratio("draft_model", 8, "decode_share_ratio")

    assert speed is not None
    assert tokens is not None
    assert step is not None
    assert share is not None
    assert speed.paired
    product = tokens.estimate * step.inverse().estimate * share.estimate
    assert product == pytest.approx(speed.estimate, rel=1e-9)


def test_reference_is_not_compared_with_itself(tmp_path: Path) -> None:
    """The arm without speculation has no ratio."""
    assert summarise(stored_run(tmp_path)).ratio("none", 1, SPEED) is None


@pytest.mark.parametrize(
    ("situation", "gap"),
    [
        ("without_reference", "The profile has no arm 'none'"),
        ("all_invalid", "No run can be used"),
        ("without_requests", "Without output tokens in the window: ngram at 1 stream."),
        ("nothing", "Nothing was measured"),
        ("aborted", "Not measured: ngram, draft_model at 8 streams."),
        ("aborted", "1 of 3 runs: none, ngram, draft_model at 1 stream; none at 8 streams."),
    ],
)
def test_gaps_say_what_is_missing(tmp_path: Path, situation: str, gap: str) -> None:
    """Whatever a reader would look for in vain is said in a sentence."""
    summary = summarise(report_runs.SITUATIONS[situation](tmp_path))

    assert any(sentence.startswith(gap) for sentence in summary.gaps), summary.gaps


def test_traffic_alone_misses_no_speed(tmp_path: Path) -> None:
    """Of a run without perf samples only gaps of acceptance are told."""
    run = report_runs.traffic_only(tmp_path)

    gaps = summarise(replace(run, traffic=run.traffic[:4])).gaps

    assert gaps == (
        "Acceptance not measured: draft_model on code.",
        "Acceptance not measured: draft_model on arithmetic.",
    )


def test_complete_run_misses_nothing(tmp_path: Path) -> None:
    """A run with all its cells has no gaps."""
    assert summarise(report_runs.complete(tmp_path)).gaps == ()


def test_verdicts_that_are_not_green_come_first(tmp_path: Path) -> None:
    """The order of reading puts green last."""
    summary = summarise(stored_run(tmp_path, verdicts=make_verdicts()))

    greens = [verdict.outcome.green for verdict in summary.verdicts]
    assert greens == sorted(greens)
    assert summary.verdicts[0].outcome is Outcome.REGRESSION
    assert len(greens) == len(make_verdicts())


@pytest.mark.parametrize(
    ("outcome", "start"),
    [
        (Outcome.PASS, "The one gate passed."),
        (Outcome.IMPROVEMENT, "Nothing regressed; 1 of 1 gate improved, ngram at 1 stream:"),
        (Outcome.REGRESSION, "1 of 1 gate regressed, ngram at 1 stream: output tokens/s"),
        (Outcome.INCONCLUSIVE, "1 of 1 gate could not be decided"),
        (Outcome.NO_BASELINE, "1 of 1 gate could not be judged"),
        (Outcome.INVALID_RUN, "1 of 1 gate can't be judged because runs are unusable: 2 of 12"),
    ],
)
def test_sentence_says_the_outcome(tmp_path: Path, outcome: Outcome, start: str) -> None:
    """Each outcome has a sentence of its own."""
    summary = summarise(stored_run(tmp_path, verdicts=[verdict_of(outcome)]))

    assert sentence(summary).startswith(start)


def test_regression_leads_with_the_largest_loss(tmp_path: Path) -> None:
    """Of two regressions the headline names the larger one."""
    small, large = verdict_of(Outcome.REGRESSION), verdict_of(Outcome.REGRESSION)
    assert large.comparison is not None
    large = replace(
        large, arm="draft_model", comparison=replace(large.comparison, estimate_ratio=0.5)
    )

    text = sentence(summarise(stored_run(tmp_path, verdicts=[small, large])))

    assert text.startswith("2 of 2 gates regressed, most of all draft_model at 1 stream")


def test_run_without_verdicts_is_not_judged(tmp_path: Path) -> None:
    """No verdict is no outcome, and says why."""
    summary = summarise(stored_run(tmp_path))

    assert summary.outcome is None
    assert sentence(summary) == "Measured, not judged: the run ended before its verdicts."
    drift = replace(report_runs.traffic_only(tmp_path), verdicts=())
    assert sentence(summarise(drift)) == "Measured, not judged: the run ended before its verdicts."
    ungated = stored_run(tmp_path, make_profile(gates=()))
    assert sentence(summarise(ungated)) == "Measured, not judged: the profile has no gates."


def test_best_arm_is_the_fastest_or_none(tmp_path: Path) -> None:
    """The tile names the fastest arm, and admits where none gains."""
    fast = best_arms(summarise(stored_run(tmp_path)))[0]
    profile = make_profile(concurrencies=(1,))
    slow_runs = [
        run if run.arm == "none" else slow
        for run, slow in zip(
            make_runs(profile, **SMALL), make_runs(profile, step_s=0.5, **SMALL), strict=True
        )
    ]
    slow = best_arms(summarise(stored_run(tmp_path, profile, slow_runs)))[0]

    assert (fast.arm, fast.tone) == ("draft_model", "good")
    assert (slow.arm, slow.words, slow.tone) == ("none", "no gain", "bad")
