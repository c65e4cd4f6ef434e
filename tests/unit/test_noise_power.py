"""What a runner can show: the theory against the gate itself, and which tails are asked."""

import math
import re
from dataclasses import replace

import numpy as np
import pytest

from draftgate.compare.records import Gate, Scale
from draftgate.errors import SpecError
from draftgate.noise.advice import smallest_limit, smallest_margin
from draftgate.noise.judgeable import judgeable
from draftgate.noise.power import PowerRow, power_table, with_gates
from draftgate.noise.records import NoiseStudy
from draftgate.specs import CompareSpec
from draftgate.stats.confirm import stage_two
from draftgate.stats.losses import candidate_first, log_loss
from draftgate.stats.paired import Interval
from draftgate.stats.sequential import PASS_CONFIDENCE, LookPlan, Standing, stage_one
from tests.support.noise import (
    ARM,
    GATES,
    MEDIAN,
    PROMPTS,
    RATE,
    STREAMS,
    TAIL,
    World,
    make_study,
    noise_pairs,
)

PLAN = CompareSpec()
LOWER = replace(TAIL, metric="ttft_p95_s")
STUDY = make_study(noise_pairs(world=World(within_sd=0.05)), trials=1)


def _known(
    gate: Gate, *, pair_sd: float, within_sd: float = 0.0, requests: int = 120
) -> NoiseStudy:
    """Return a study that knows one gate's noise exactly."""
    (held,) = make_study(gates=(replace(gate, metric=RATE.metric),), trials=1).gates
    known = replace(
        held,
        gate=gate,
        pair_sd=Interval(pair_sd, pair_sd, pair_sd),
        within_sd=within_sd,
        within_known=within_sd > 0.0,
        requests=requests,
    )
    return replace(make_study(gates=(RATE,), trials=1), gates=(known,))


def _row(study: NoiseStudy, **question: float) -> PowerRow:
    (row,) = power_table(study, **question)  # type: ignore[arg-type] - pairs and loss by name
    return row


def _found(loss: float, sd: float, trials: int, rng: np.random.Generator) -> float:
    """Return the share of simulated gates, both stages, that end as a REGRESSION."""
    plan = LookPlan(log_loss(0.01, higher_is_better=True), log_loss(0.05, higher_is_better=True))
    found = 0
    for seed in range(trials):
        first, fresh = candidate_first(20, seed=seed), candidate_first(24, seed=seed + trials)
        if stage_one(rng.normal(loss, sd, 20), plan, first=first).standing is Standing.SUSPECT:
            losses = rng.normal(loss, sd, 24)
            found += stage_two(
                losses, margin=plan.margin, seed=seed, first=fresh, flips=199
            ).confirmed
    return found / trials


@pytest.mark.parametrize("loss", [0.04, 0.05])
def test_power_agrees_with_the_gate_itself(loss: float) -> None:
    """Theory within 8 points of 250 simulated gates through both stages."""
    row = _row(_known(RATE, pair_sd=0.04), loss=loss)
    simulated = _found(log_loss(loss, higher_is_better=True), 0.04, 250, np.random.default_rng(1))

    assert simulated == pytest.approx(row.power, abs=0.08)


def test_smallest_loss_has_80_percent_and_its_pairs_are_those_asked() -> None:
    """Asked for the smallest loss of 20 pairs, the answer is 80 % and about 20 pairs."""
    study = _known(RATE, pair_sd=0.04)
    smallest = _row(study).smallest_loss
    assert smallest is not None
    again = _row(study, loss=smallest)

    assert again.power == pytest.approx(0.8, abs=0.001)
    assert again.pairs_needed is not None
    assert abs(again.pairs_needed - 20) <= 1


def test_more_gates_need_more() -> None:
    """Stage two is judged at Holm's first step, so power falls with the size of the family."""
    one = _known(RATE, pair_sd=0.05)
    other = replace(one.gates[0], gate=replace(RATE, concurrency=1))
    many = replace(one, gates=tuple(replace(g) for g in (one.gates[0], *[other] * 47)))

    assert power_table(many)[0].power < power_table(one)[0].power - 0.05


def test_limits_let_unchanged_builds_pass() -> None:
    """At the advised limit 80 % of 600 simulated unchanged builds pass by that look, or more."""
    rng = np.random.default_rng(5)
    limit = smallest_limit(0.03, 8, confidence=PASS_CONFIDENCE)
    plan = LookPlan(limit / 2, limit, (8,))
    passed = np.mean(
        [stage_one(rng.normal(0, 0.03, 8), plan).standing is Standing.PASS for _ in range(600)]
    )

    assert passed == pytest.approx(0.8, abs=0.05)


def test_margin_keeps_unchanged_builds_from_suspicion() -> None:
    """At the advised margin at most half a percent of 1,500 unchanged builds become suspect."""
    rng = np.random.default_rng(6)
    margin = smallest_margin(0.03, (8, 12))
    losses = rng.normal(0, 0.03, (1500, 12))

    def suspects(margin: float) -> int:
        plan = LookPlan(margin, margin + 1e-9, (8, 12))
        return sum(stage_one(row, plan).standing is Standing.SUSPECT for row in losses)

    assert 0.0 < margin < 0.01
    assert suspects(margin) / 1500 < 0.008
    assert suspects(0.0) > suspects(margin) > suspects(3 * margin)


def test_advice_of_a_study_is_in_shares() -> None:
    """Limits fall with pairs and lie above the margin; 5 % is found with the pairs stated."""
    held = STUDY.noise(ARM, STREAMS, RATE.metric)
    assert held is not None
    (first, wide), (second, narrow) = held.advice.limits

    assert (first, second) == (8, 12)
    assert held.advice.margin < narrow < wide < 0.06
    assert held.advice.pairs_needed == _row_of(STUDY, RATE).pairs_needed


def _row_of(study: NoiseStudy, gate: Gate) -> PowerRow:
    return next(row for row in power_table(study) if row.gate.metric == gate.metric)


def test_requests_are_known_for_percentiles_only() -> None:
    """A rate's runs do not say what more requests would do, a percentile's do."""
    rate, median = _row_of(STUDY, RATE), _row_of(STUDY, MEDIAN)

    assert (rate.within_known, rate.requests_needed) == (False, None)
    assert median.within_known
    assert median.requests_needed is not None


def test_requests_needed_reach_the_power() -> None:
    """With that many requests the power is 80 %, with a tenth less it is not."""
    row = _row(_known(TAIL, pair_sd=0.15, within_sd=0.10, requests=120))
    assert row.requests_needed is not None
    assert row.requests_needed > 120
    scale = math.sqrt(120 / row.requests_needed)
    between = 0.15**2 / 2 - 0.10**2
    enough = math.sqrt(2 * (between + (0.10 * scale) ** 2))
    short = math.sqrt(2 * (between + (0.10 * scale) ** 2 / 0.9))

    assert _row(_known(TAIL, pair_sd=enough)).power >= 0.8 > _row(_known(TAIL, pair_sd=short)).power


def test_starts_that_differ_too_much_need_pairs_not_requests() -> None:
    """Where the spread is between starts no number of requests helps."""
    row = _row(_known(TAIL, pair_sd=0.15, within_sd=0.01))

    assert row.requests_needed is None
    assert row.pairs_needed is not None
    assert row.pairs_needed > 20


def test_a_metric_that_never_varies_shows_every_loss() -> None:
    """Equal numbers in all pairs: any loss above the margin is found at the first look."""
    row = _row(_known(PROMPTS, pair_sd=0.0))

    assert (row.smallest_loss, row.power, row.pairs_needed) == (PROMPTS.margin, 1.0, 8)
    assert _row(_known(PROMPTS, pair_sd=0.0), loss=0.00001).power == 0.0


def test_a_share_of_tokens_per_step_is_taken_of_their_mean() -> None:
    """5 % of 2 tokens per step are 0.1 tokens."""
    rows = power_table(STUDY, loss=0.05)

    assert next(r.loss for r in rows if r.gate == PROMPTS) == pytest.approx(0.1, rel=0.02)
    assert next(r.loss for r in rows if r.gate == RATE) == 0.05


def test_a_loss_within_the_margin_is_never_found() -> None:
    """What is tolerated needs no number of pairs."""
    assert _row(_known(RATE, pair_sd=0.02), loss=0.01).pairs_needed is None


def test_a_p99_of_few_requests_has_no_verdict_and_a_p95_in_its_place() -> None:
    """14 requests in 20 pairs are 280: no bound of a p99, but one of a p95."""
    study = make_study(noise_pairs(world=World(requests=14)), trials=1)
    row = _row_of(study, TAIL)

    assert (row.tail_requests, row.requests_total, row.possible) == (299, 280, False)
    assert row.pairs_needed == math.ceil(299 / 14)
    assert row.instead is not None
    assert (row.instead.gate, row.instead.tail_requests) == (LOWER, 59)
    assert row.instead.possible


@pytest.mark.parametrize(("pairs", "loss"), [(1, 0.05), (20, 0.0), (20, 1.0), (20, math.nan)])
def test_questions_out_of_range_are_refused(pairs: int, loss: float) -> None:
    """One pair has no spread, and a loss is a share."""
    with pytest.raises(SpecError, match="power: got"):
        power_table(STUDY, pairs=pairs, loss=loss)


def test_margins_may_change_after_the_study() -> None:
    """Noise stays, margins and stand-ins follow the gates that are asked now."""
    wider = replace(TAIL, margin=0.05, limit=0.20)
    study = with_gates(STUDY, (wider, replace(RATE, arm="other")), PLAN)

    assert [held.gate for held in study.gates] == [wider, replace(LOWER, margin=0.05, limit=0.20)]
    assert study.gates[0].pair_sd == STUDY.gates[2].pair_sd


def test_gates_that_can_be_judged_stay_as_they_are() -> None:
    """Quiet tails of enough requests, with or without a study."""
    assert judgeable(STUDY, GATES, {STREAMS: 120}, PLAN) == GATES
    assert judgeable(None, GATES, {STREAMS: 15}, PLAN) == GATES


def test_a_p99_of_too_few_requests_is_asked_as_a_p95() -> None:
    """Without a study requests decide: 14 in 20 pairs are under 299."""
    asked = judgeable(None, GATES, {STREAMS: 14}, PLAN)

    assert asked == (
        RATE,
        MEDIAN,
        replace(
            LOWER,
            instead_of="ttft_p99_s",
            note="ttft_p99_s needs 15 requests per start (300 over 20 pairs); there are "
            "14 requests per start (280 over 20 pairs)",
        ),
        PROMPTS,
    )


def test_what_the_study_counted_goes_before_what_is_sure() -> None:
    """A study with 120 requests per start is not overruled by a floor of 2."""
    assert judgeable(STUDY, GATES, {STREAMS: 2}, PLAN) == GATES


def test_a_p95_that_cannot_pass_either_says_so() -> None:
    """2 requests in 20 pairs bound no p95; it stays a p95 and its note has the number."""
    (gate,) = judgeable(None, (TAIL,), {STREAMS: 2}, PLAN)

    assert gate.metric == "ttft_p95_s"
    assert gate.note.endswith("The p95 needs 59 in all, so it can't pass either")


@pytest.mark.parametrize(
    ("within_sd", "need"),
    [
        (0.10, r"it needs [\d,]+ requests per start \([\d,]+ over 20 pairs\)$"),
        (0.001, r"starts differ too much for more requests to do: it needs \d+ pairs$"),
    ],
)
def test_a_p99_that_is_too_noisy_is_asked_as_a_p95(within_sd: float, need: str) -> None:
    """Power under 80 % at the limit: the note has the power and what would do."""
    (gate,) = judgeable(
        _known(TAIL, pair_sd=0.15, within_sd=within_sd), (TAIL,), {STREAMS: 120}, PLAN
    )

    assert (gate.metric, gate.instead_of) == ("ttft_p95_s", "ttft_p99_s")
    assert re.match(r"ttft_p99_s finds a loss of 10% with \d+%, not 80%", gate.note)
    assert re.search(need, gate.note)


@pytest.mark.parametrize("order", [1, -1])
def test_a_p95_that_is_a_gate_already_takes_the_note(order: int) -> None:
    """No question is asked twice, and its own margin stays."""
    own = replace(LOWER, margin=0.03)
    (gate,) = judgeable(None, (TAIL, own)[::order], {STREAMS: 2}, PLAN)

    assert (gate.metric, gate.margin, gate.instead_of) == ("ttft_p95_s", 0.03, "ttft_p99_s")


def test_absolute_gates_need_no_direction() -> None:
    """Tokens per step by prompt are no registered metric, and have a row like all others."""
    row = _row_of(STUDY, PROMPTS)

    assert row.gate.scale is Scale.ABSOLUTE
    assert row.power > 0.99
