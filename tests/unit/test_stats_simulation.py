"""The simulation of the gate: its code agrees with the product, its page with its numbers."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from benchmarks.gate.cells import Cell, rate
from benchmarks.gate.peers import benchstat, pooled_welch, pytest_benchmark, welch_starts
from benchmarks.gate.rates import gate_rows, sign_row
from benchmarks.gate.scenarios import P99_200, SCENARIOS, TOKENS, Scenario, paired_levels
from benchmarks.gate.simulate import as_text
from benchmarks.gate.tables import pick, placed, render
from draftgate.stats.family import STAGE_ONE_LEVEL

GATE = Path(__file__).parents[2] / "benchmarks" / "gate"
RESULT: dict[str, Any] = json.loads((GATE / "simulation.json").read_text(encoding="utf-8"))
NAMES = [scenario.name for scenario in SCENARIOS]


def test_page_says_what_the_numbers_say() -> None:
    """RESULTS.md holds the tables of the committed simulation.json."""
    page = (GATE / "RESULTS.md").read_text(encoding="utf-8")

    assert placed(page, render(RESULT)) == page


def test_numbers_are_written_a_row_a_line() -> None:
    """The committed file is what `as_text` makes of its own content."""
    assert as_text(RESULT) == (GATE / "simulation.json").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", NAMES)
def test_false_regressions_stay_under_the_goal(name: str) -> None:
    """In each scenario even the interval's upper end is under 0.1 %, over 200,000 comparisons."""
    rows = pick(RESULT["gate"], scenario=name, loss=0.0)

    assert {row["regression"]["trials"] for row in rows} == {200_000}
    assert max(row["regression"]["high"] for row in rows) < 0.001


@pytest.mark.parametrize(
    ("scenario", "metric", "goal"),
    [
        ("typical", "tokens/s", 0.95),
        ("quiet", "tokens/s", 0.99),
        ("typical", "p99, 200 requests", 0.70),
        ("typical", "p99, 1000 requests", 0.95),
    ],
)
def test_power_reaches_the_goal_even_among_48_gates(
    scenario: str, metric: str, goal: float
) -> None:
    """The interval's lower end at the corrected level is above what was asked for."""
    (row,) = pick(
        [row for row in RESULT["gate"] if row["loss"]],
        scenario=scenario,
        metric=metric,
        method="gate",
    )

    assert row["regression_in_family"]["low"] > goal


def test_family_stays_under_its_level() -> None:
    """With every gate at its margin the upper end of any false REGRESSION is under 0.2 %."""
    assert max(row["any_false_regression"]["high"] for row in RESULT["family"]) < 0.002


def test_level_of_stage_one_covers_the_simulated_rate() -> None:
    """The constant of `stats.family` lies above the interval of both simulated rates."""
    simulated = [row["high"] for row in RESULT["stage_one_level"] if "trials" in row]

    assert len(simulated) == 2
    assert max(simulated) <= STAGE_ONE_LEVEL


@pytest.mark.parametrize("scenario", SCENARIOS, ids=NAMES)
def test_vectorised_gate_agrees_with_the_product(scenario: Scenario) -> None:
    """A hundred comparisons give the same decisions; the rows raise if one does not."""
    (gate, _, plain) = gate_rows(Cell(scenario, P99_200, 0.1, 100))
    sign = sign_row(Cell(scenario, TOKENS, 0.05, 100))

    assert gate["suspect"]["hits"] + gate["pass"]["hits"] + gate["inconclusive"]["hits"] == 100
    assert plain["mean_pairs"] >= 8
    assert sign["mean_pairs"] >= 8


def test_slots_are_balanced_and_blind_to_the_build() -> None:
    """In each block the candidate is first twice, and slots make no difference on average."""
    rng = np.random.default_rng(1)
    pairs = paired_levels(rng, Scenario("slots", 0.001, slot_sd=0.5), (500, 8), 4)

    assert (pairs.first.reshape(500, 2, 4).sum(axis=2) == 2).all()
    assert abs((pairs.candidate - pairs.base).mean(axis=1)).max() < 0.01


@pytest.mark.parametrize(("hits", "trials"), [(0, 50), (3, 50), (50, 50)])
def test_intervals_are_clopper_and_pearsons(hits: int, trials: int) -> None:
    """Both ends are those of scipy's exact interval."""
    oracle = stats.binomtest(hits, trials).proportion_ci(0.95)
    found = rate(hits, trials)

    assert (found["low"], found["high"]) == pytest.approx((oracle.low, oracle.high))


def test_benchstat_is_mann_whitney() -> None:
    """An alarm is scipy's exact two-sided p under 0.05 with a loss, in 300 comparisons."""
    rng = np.random.default_rng(2)
    base, candidate = rng.normal(0, 1, (300, 10)), rng.normal(0.8, 1, (300, 10))
    oracle = stats.mannwhitneyu(candidate, base, axis=1, method="exact").pvalue
    worse = np.median(candidate, axis=1) > np.median(base, axis=1)

    assert (benchstat(base, candidate) == ((oracle < 0.05) & worse)).all()


@pytest.mark.parametrize("use_min", [False, True])
@pytest.mark.parametrize(("change", "alarm"), [(0.04, False), (0.06, True)])
def test_pytest_benchmark_is_a_threshold(*, change: float, alarm: bool, use_min: bool) -> None:
    """Five percent more than the stored mean, or minimum, fails."""
    base = np.zeros((1, 5))
    found = pytest_benchmark(base, base + np.log1p(change), threshold=0.05, use_min=use_min)

    assert found.tolist() == [alarm]


def test_welch_finds_its_rate_in_independent_requests() -> None:
    """Where starts do not differ, both Welch tests alarm in 2.5 %, within 4 sd of 4,000."""
    rng = np.random.default_rng(3)
    level = np.zeros((4000, 10))
    pooled = pooled_welch(rng, level, level, requests=200, request_sd=0.05)
    starts = welch_starts(rng.normal(0, 1, level.shape), rng.normal(0, 1, level.shape))

    assert abs(pooled.sum() - 100) < 40
    assert abs(starts.sum() - 100) < 40
