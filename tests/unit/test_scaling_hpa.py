"""The model of the HPA controller against stored cases, a recorded run, and planted faults.

`data/hpa_vectors.jsonl` holds 187 of 600 single steps, chosen so that each branch comes twice and
each fault planted below fails three of them. 113 of the 360 steps of kind `behavior` were confirmed
by the code of controller 1.20.2, the rest come from a port of the newer functions. Set
`DRAFTGATE_HPA_VECTORS` to the file of all 600 to run them too.

`data/hpa_trace.csv` was recorded from controller 1.20.2 with API server and etcd, on toy servers.
"""

import csv
import json
import math
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftgate.clock import ManualClock
from draftgate.errors import SpecError
from draftgate.scaling import (
    DEFAULT_SCALE_DOWN,
    DEFAULT_SCALE_UP,
    SYNC_PERIOD_S,
    Controller,
    ControllerRules,
    Decision,
    ExternalAverageValue,
    ExternalValue,
    HPASpec,
    Limit,
    Past,
    Pods,
    PodsMetric,
    PolicyType,
    Recent,
    ScalingPolicy,
    ScalingRules,
    SelectPolicy,
    Unreadable,
    behavior,
    proposal,
    propose,
)
from draftgate.scaling.behavior import limit, scale_down_limit, scale_up_limit, stabilize
from tests.support.scaling import rules_of

DATA = Path(__file__).parent / "data"
VECTORS = "DRAFTGATE_HPA_VECTORS"
"""Environment variable with the path of all 600 cases."""

TARGET = 200_000
LOST = Unreadable("FailedGetExternalMetric")


NO_HISTORY = Recent()


@dataclass(frozen=True)
class Step:
    """One stored case, as the model takes it."""

    spec: HPASpec
    recent: Recent = NO_HISTORY


Fault = Callable[[Step], Step]


def read_vectors(path: Path) -> list[dict[str, Any]]:
    """Return the stored cases."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def past(entries: Iterable[dict[str, Any]]) -> tuple[Past, ...]:
    """Return entries of a history."""
    return tuple(Past(entry["age_s"], entry["n"]) for entry in entries)


def with_tolerances(up: float, down: float, **limits: Any) -> HPASpec:
    """Return an autoscaler with the API's defaults but for tolerances and limits."""
    return HPASpec(
        **limits,
        scale_up=replace(DEFAULT_SCALE_UP, tolerance=up),
        scale_down=replace(DEFAULT_SCALE_DOWN, tolerance=down),
    )


def step_of(case: dict[str, Any]) -> Step:
    """Return what a case hands to the model."""
    if case["kind"] != "behavior":
        up, down = case["tolerance_up"], case["tolerance_down"]
        return Step(with_tolerances(up, down, max_replicas=100, min_replicas=0))
    return Step(
        HPASpec(case["max"], case["min"], rules_of(case["scale_up"]), rules_of(case["scale_down"])),
        Recent(
            past(case["recommendations"]),
            past(case["scale_up_events"]),
            past(case["scale_down_events"]),
        ),
    )


def outcome(case: dict[str, Any], fault: Fault = lambda step: step) -> object:
    """Return what the model answers to a case, in the form of `wanted`."""
    step = fault(step_of(case))
    if case["kind"] == "behavior":
        stable = stabilize(step.spec, case["current"], case["desired"], step.recent.proposals)
        limited = limit(step.spec, case["current"], stable, step.recent)
        return stable, limited.replicas, limited.limit
    series, target = (case["usage_milli"],), case["target_milli"]
    if case["kind"] == "external_value":
        pods = Pods(case["current"], case["current"], case["ready"])
        return propose(step.spec, pods, (ExternalValue(series, target),))
    pods = Pods(case["status"], case["status"], case["status"])
    return propose(step.spec, pods, (ExternalAverageValue(series, target),))


def wanted(case: dict[str, Any]) -> object:
    """Return what a case says is right."""
    if case["kind"] == "behavior":
        return case["stabilized"], case["want"], case["limit"]
    return case["want"]


def failures(cases: Iterable[dict[str, Any]], fault: Fault = lambda step: step) -> int:
    """Return how many cases the model, with a fault, gets wrong."""
    return sum(outcome(case, fault) != wanted(case) for case in cases)


CASES = read_vectors(DATA / "hpa_vectors.jsonl")


def test_every_kind_of_case_is_stored() -> None:
    """The stored cases hold every kind, every limit and every way to choose a policy."""
    steps = [case for case in CASES if case["kind"] == "behavior"]

    assert {case["kind"] for case in CASES} == {"external_value", "external_average", "behavior"}
    assert {case["limit"] for case in steps} == set(Limit)
    assert {case["scale_up"]["selectPolicy"] for case in steps} == set(SelectPolicy)
    assert {case["scale_down"]["selectPolicy"] for case in steps} == set(SelectPolicy)


@pytest.mark.parametrize("number", range(len(CASES)))
def test_model_answers_a_stored_case(number: int) -> None:
    """One step gives what the stored case says."""
    assert outcome(CASES[number]) == wanted(CASES[number])


@pytest.mark.skipif(
    VECTORS not in os.environ, reason=f"all 600 cases: set {VECTORS} to their file; 187 are stored"
)
def test_model_answers_all_cases() -> None:
    """All 600 cases come out right, and the stored ones are among them."""
    cases = read_vectors(Path(os.environ[VECTORS]))

    assert len(cases) == 600
    assert failures(cases) == 0
    assert all(case in cases for case in CASES)


def up(step: Step, **changes: Any) -> Step:
    """Return a step with other scale-up rules."""
    return replace(step, spec=replace(step.spec, scale_up=replace(step.spec.scale_up, **changes)))


def down(step: Step, **changes: Any) -> Step:
    """Return a step with other scale-down rules."""
    return replace(
        step, spec=replace(step.spec, scale_down=replace(step.spec.scale_down, **changes))
    )


def forget(step: Step, **changes: Any) -> Step:
    """Return a step with another history."""
    return replace(step, recent=replace(step.recent, **changes))


def one_window(step: Step) -> Step:
    """Return a step by the rules of 1.20."""
    single = down(step, tolerance=step.spec.scale_up.tolerance)
    return replace(single, spec=replace(single.spec, rules=ControllerRules.V1_20))


FAULTS: dict[str, Fault] = {
    "scale-up window forgotten": lambda step: up(step, stabilization_window_s=0),
    "scale-down window forgotten": lambda step: down(step, stabilization_window_s=0),
    "windows of 1.20": one_window,
    "pods added lately forgotten": lambda step: forget(step, added=()),
    "pods removed lately forgotten": lambda step: forget(step, removed=()),
    "events of both directions swapped": lambda step: forget(
        step, added=step.recent.removed, removed=step.recent.added
    ),
    "scale-up: always the largest policy": lambda step: up(step, select_policy=SelectPolicy.MAX),
    "scale-up: always the smallest policy": lambda step: up(step, select_policy=SelectPolicy.MIN),
    "scale-down: always the largest policy": lambda step: down(
        step, select_policy=SelectPolicy.MAX
    ),
    "scale-down: always the smallest policy": lambda step: down(
        step, select_policy=SelectPolicy.MIN
    ),
    "scale-up: first policy alone": lambda step: up(step, policies=step.spec.scale_up.policies[:1]),
    "minReplicas ignored": lambda step: replace(step, spec=replace(step.spec, min_replicas=0)),
    "maxReplicas ignored": lambda step: replace(step, spec=replace(step.spec, max_replicas=100)),
    "one tolerance for both directions": lambda step: down(
        step, tolerance=step.spec.scale_up.tolerance
    ),
}


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
def test_stored_cases_catch_a_forgotten_rule(fault: Fault) -> None:
    """A model without one of the rules fails at least three stored cases."""
    assert failures(CASES, fault) >= 3


@pytest.mark.parametrize(
    ("module", "rounding", "wrong"),
    [
        (proposal, "ceil", math.floor),
        (proposal, "ceil", round),
        (behavior, "ceil", math.floor),
        (behavior, "int", math.ceil),
        (behavior, "int", round),
    ],
)
def test_stored_cases_catch_a_wrong_rounding(
    module: Any, rounding: str, wrong: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A model that rounds another way fails at least three stored cases."""
    monkeypatch.setattr(module, rounding, wrong, raising=False)

    assert failures(CASES) >= 3


# The recorded run: controller 1.20.2, one metric, External, type Value.

TRACE_SYNC_S = 5.13
"""Distance of two syncs: 5 s, and what the work itself took. Fitted to the rows."""

TRACE_FIRST_SYNC_S = {"load_steps": 0.2, "metric_lost": 0.26}
"""Phase of the syncs, fitted likewise."""

TRACE_LAG_S = 1.85
"""Largest time from a sync to the row that shows it."""

CONDITIONS = ("able_to_scale", "scaling_active", "scaling_limited")
NAMED_STEPS = ("41.7", "349.6")
"""Where 1.20 scaled up although the metric lay below its target."""

Row = dict[str, str]


def trace_rows(run: str) -> list[Row]:
    """Return the rows of one recorded run."""
    with (DATA / "hpa_trace.csv").open(encoding="utf-8", newline="") as file:
        return [row for row in csv.DictReader(file) if row["run"] == run]


def synced_rows(run: str) -> dict[int, Row]:
    """Return the rows that a sync wrote, by the sync's number."""
    rows = trace_rows(run)
    seen = ("queue_wait_ms", *CONDITIONS)
    return {
        int((float(row["t_s"]) - TRACE_FIRST_SYNC_S[run]) // TRACE_SYNC_S): row
        for before, row in pairwise(rows)
        if any(before[field] != row[field] for field in seen)
    }


def ready_at(rows: list[Row], t_s: float) -> int:
    """Return the ready pods shown by the last row before a time."""
    return [int(row["ready_replicas"]) for row in rows if float(row["t_s"]) < t_s][-1]


def trace_metric(row: Row) -> ExternalValue | Unreadable:
    """Return the metric that a row shows."""
    if row["scaling_active"] != "ValidMetricFound":
        return Unreadable(row["scaling_active"])
    return ExternalValue((round(float(row["queue_wait_ms"]) * 1000),), TARGET)


def trace_spec(rules: ControllerRules) -> HPASpec:
    """Return the autoscaler that was recorded: one pod per 15 s, 30 s of patience downwards."""
    step = (ScalingPolicy(PolicyType.PODS, 1, 15),)
    return HPASpec(4, 1, ScalingRules(0, step), ScalingRules(30, step), rules)


def replay(run: str, rules: ControllerRules) -> list[tuple[Row, Decision]]:
    """Return what the model decides where a row was written.

    Each sync is told the count that was recorded, so one other decision does not change the next.
    Syncs that wrote no row saw what the last one saw.
    """
    rows, synced = trace_rows(run), synced_rows(run)
    clock = ManualClock()
    controller = Controller(trace_spec(rules), clock)
    shown = rows[0]
    decided = []
    for number in range(min(synced), max(synced) + 1):
        t_s = TRACE_FIRST_SYNC_S[run] + TRACE_SYNC_S * number
        clock.t_ns = round(t_s * 1e9)
        replicas = int(shown["spec_replicas"])
        shown = synced.get(number, shown)
        ready = ready_at(rows, float(shown["t_s"]) if number in synced else t_s)
        decision = controller.sync(Pods(replicas, replicas, ready), (trace_metric(shown),))
        decided += [(shown, decision)] if number in synced else []
        assert number in synced or decision.replicas == replicas
    return decided


@pytest.mark.parametrize("run", TRACE_FIRST_SYNC_S)
def test_recorded_rows_fit_the_grid_of_syncs(run: str) -> None:
    """Each row comes soon after a sync of its own."""
    first_s = TRACE_FIRST_SYNC_S[run]
    rows = synced_rows(run)
    lags = [float(row["t_s"]) - first_s - TRACE_SYNC_S * number for number, row in rows.items()]

    assert len(rows) == {"load_steps": 62, "metric_lost": 7}[run]
    assert all(0 <= lag <= TRACE_LAG_S for lag in lags)


@pytest.mark.parametrize("run", TRACE_FIRST_SYNC_S)
def test_rules_of_1_20_give_the_recorded_run(run: str) -> None:
    """Replicas and the reasons of all three conditions are those of the recorded controller."""
    for row, decision in replay(run, ControllerRules.V1_20):
        assert str(decision.replicas) == row["spec_replicas"], row
        assert decision.able_to_scale == row["able_to_scale"], row
        assert decision.scaling_active == row["scaling_active"], row
        assert decision.scaling_limited in {row["scaling_limited"], None}, row


@pytest.mark.parametrize("run", TRACE_FIRST_SYNC_S)
def test_current_rules_differ_in_two_named_steps(run: str) -> None:
    """By today's rules only two steps give another count: there it would have held."""
    differs = {
        row["t_s"]: decision.replicas
        for row, decision in replay(run, ControllerRules.CURRENT)
        if str(decision.replicas) != row["spec_replicas"]
    }

    assert differs == (dict.fromkeys(NAMED_STEPS, 3) if run == "load_steps" else {})


# Properties over whole runs.

POLICIES = st.builds(
    ScalingPolicy, st.sampled_from(PolicyType), st.integers(1, 100), st.integers(1, 120)
)
RULES = st.builds(
    ScalingRules,
    st.integers(0, 120),
    st.lists(POLICIES, min_size=1, max_size=3).map(tuple),
    st.sampled_from(SelectPolicy),
    st.sampled_from((0.0, 0.1, 0.3)),
)
SPECS = st.builds(
    lambda low, more, up, down: HPASpec(low + more, low, up, down),
    st.integers(1, 5),
    st.integers(0, 10),
    RULES,
    RULES,
)
VALUES = st.integers(0, 5 * TARGET).map(lambda milli: ExternalValue((milli,), TARGET))
METRICS = st.lists(st.one_of(VALUES, st.just(LOST)), min_size=1, max_size=2).map(tuple)
RUNS = st.lists(st.tuples(METRICS, st.floats(0, 1)), min_size=1, max_size=20)
"""Metrics of each sync, and the share of the pods that are ready."""


def simulate(
    controller: Controller, clock: ManualClock, replicas: int, run: list[Any]
) -> list[tuple[int, Decision]]:
    """Return each sync's count before and its decision."""
    decided = []
    for metrics, share in run:
        pods = Pods(replicas, replicas, round(share * replicas))
        decision = controller.sync(pods, metrics)
        decided.append((replicas, decision))
        replicas = decision.replicas
        clock.advance(SYNC_PERIOD_S)
    return decided


@given(SPECS, st.integers(1, 30), RUNS)
def test_count_stays_inside_the_limits(spec: HPASpec, start: int, run: list[Any]) -> None:
    """Whatever the metrics say, and wherever the count starts, it lands inside min and max."""
    clock = ManualClock()
    decided = simulate(Controller(spec, clock), clock, start, run)

    assert all(spec.min_replicas <= made.replicas <= spec.max_replicas for _, made in decided)


@given(SPECS, st.data())
def test_nothing_moves_inside_the_tolerance(spec: HPASpec, data: st.DataObject) -> None:
    """A metric that swings inside the tolerance never changes the count."""
    start = data.draw(st.integers(spec.min_replicas, spec.max_replicas))
    low = math.ceil(TARGET * (1 - spec.scale_down.tolerance))
    high = math.floor(TARGET * (1 + spec.scale_up.tolerance))
    inside = st.integers(low, high).filter(lambda milli: spec.is_tolerated(milli / TARGET))
    swings = data.draw(st.lists(inside, min_size=1, max_size=20))
    run = [((ExternalValue((milli,), TARGET),), 1.0) for milli in swings]
    clock = ManualClock()

    assert all(
        made.replicas == start for _, made in simulate(Controller(spec, clock), clock, start, run)
    )


@given(SPECS, st.data(), RUNS)
def test_scale_down_waits_for_its_window(
    spec: HPASpec, data: st.DataObject, run: list[Any]
) -> None:
    """The count falls only to what no proposal of the whole window lay above."""
    start = data.draw(st.integers(spec.min_replicas, spec.max_replicas))
    clock = ManualClock()
    decided = simulate(Controller(spec, clock), clock, start, run)
    proposals = [(0.0, start)]
    for number, (before, made) in enumerate(decided):
        now_s = number * SYNC_PERIOD_S
        proposals += [] if made.proposal is None else [(now_s, made.proposal)]
        window = [
            n for at_s, n in proposals if now_s - at_s < spec.scale_down.stabilization_window_s
        ]

        assert made.replicas >= before or made.replicas >= max([*window, made.proposal or 0])


@given(SPECS, st.data(), RUNS)
def test_unreadable_metrics_freeze(spec: HPASpec, data: st.DataObject, run: list[Any]) -> None:
    """Without any metric the count stays; with one of two it never falls."""
    start = data.draw(st.integers(spec.min_replicas, spec.max_replicas))
    clock = ManualClock()
    decided = simulate(Controller(spec, clock), clock, start, run)
    for (metrics, _), (before, made) in zip(run, decided, strict=True):
        if set(metrics) == {LOST}:
            assert made == Decision(before, scaling_active=LOST.reason)
        elif LOST in metrics:
            assert made.replicas >= before


@given(SPECS, st.data(), RUNS)
def test_memory_is_long_enough(spec: HPASpec, data: st.DataObject, run: list[Any]) -> None:
    """A controller that drops what is old decides like one step over the whole history."""
    start = data.draw(st.integers(spec.min_replicas, spec.max_replicas))
    clock = ManualClock()
    decided = simulate(Controller(spec, clock), clock, start, run)
    proposals, changes = [(0.0, start)], []
    for number, (before, made) in enumerate(decided):
        now_s = number * SYNC_PERIOD_S
        recent = Recent(
            tuple(Past(now_s - at_s, n) for at_s, n in proposals),
            tuple(Past(now_s - at_s, n) for at_s, n in changes if n > 0),
            tuple(Past(now_s - at_s, -n) for at_s, n in changes if n < 0),
        )
        if made.proposal is not None:
            stable = stabilize(spec, before, made.proposal, recent.proposals)
            assert made.stabilized == stable
            assert made.replicas == limit(spec, before, stable, recent).replicas
            proposals.append((now_s, made.proposal))
        changes.append((now_s, made.replicas - before))


# Single rules by hand.


def test_an_entry_as_old_as_the_window_no_longer_counts() -> None:
    """Proposals and events count while younger than window and period, and not at their age."""
    spec = HPASpec(20, 1, DEFAULT_SCALE_UP, DEFAULT_SCALE_DOWN)
    young, old = Past(299.9, 9), Past(300.0, 9)

    assert stabilize(spec, 9, 2, (young,)) == 9
    assert stabilize(spec, 9, 2, (old,)) == 2
    assert scale_up_limit(spec, 9, Recent(added=(Past(14.9, 8),))) == 5  # 1 + 4 pods
    assert scale_up_limit(spec, 9, Recent(added=(Past(15.0, 8),))) == 18
    assert scale_down_limit(spec, 9, Recent(removed=(Past(14.9, 8),))) == 0


PODS_METRICS = {
    "all report: 3 x 1.5": (((300_000,) * 3, 0, 0), 5),
    "inside the tolerance": (((210_000,) * 3, 0, 0), 3),
    "down, and the silent pod counts as the target: (2 x 0.2 + 1) / 3 x 3": (
        ((40_000,) * 2, 1, 0),
        2,
    ),
    "up, and the silent pod counts as 0: 2 x 2 / 3 x 3": (((400_000,) * 2, 1, 0), 4),
    "up, and silent pods land inside the tolerance: 2 x 1.5 / 3": (((300_000,) * 2, 1, 0), 3),
    "up, and pending pods turn it round: 1.5 / 3": (((300_000,), 0, 2), 3),
    "down: pending pods do not count": (((100_000,) * 2, 0, 1), 1),
    "more pods report than are asked for: nothing grows on the way down": (
        ((140_000,) * 5, 0, 0),
        4,
    ),
}


@pytest.mark.parametrize(("samples", "want"), PODS_METRICS.values(), ids=PODS_METRICS)
def test_pods_metric_by_hand(samples: tuple[Any, ...], want: int) -> None:
    """Three replicas, target 200."""
    metric = PodsMetric(*samples, target_milli=TARGET)

    assert propose(HPASpec(10), Pods(3, 3, 3), (metric,)) == want


def test_pods_metric_never_turns_round_against_the_count() -> None:
    """Filled up, the mean is below the target but asks for more pods than there are: no change."""
    metric = PodsMetric((40_000,) * 4, missing=4, pending=0, target_milli=TARGET)

    assert propose(HPASpec(10), Pods(3, 3, 3), (metric,)) == 3  # 0.6 x 8 pods = 4.8


def test_pods_metric_without_samples_is_unreadable() -> None:
    """No pod that reports is no metric, not a metric of 0."""
    metric = PodsMetric((), missing=3, pending=0, target_milli=TARGET)

    assert propose(HPASpec(10), Pods(3, 3, 3), (metric,)) == Unreadable("FailedGetPodsMetric")


def test_value_target_without_ready_pods_proposes_none() -> None:
    """If overload makes every pod unready, the proposal is 0 however long the queue is."""
    metric = ExternalValue((50 * TARGET,), TARGET)

    assert propose(HPASpec(10), Pods(4, 4, 0), (metric,)) == 0


def test_series_of_an_external_metric_are_summed() -> None:
    """Two series of 300 with a target of 200 ask for three times the pods."""
    metric = ExternalValue((300_000, 300_000), TARGET)

    assert propose(HPASpec(10), Pods(2, 2, 2), (metric,)) == 6


def test_average_value_from_no_pods() -> None:
    """Where no pod exists, the sum over the target counts alone."""
    metric = ExternalAverageValue((450_000,), TARGET)

    assert propose(HPASpec(10, 0), Pods(0, 0, 0), (metric,)) == 3


def test_the_largest_of_several_proposals_counts() -> None:
    """One metric asks for 4, one for 1: 4. If the first is lost, nothing falls to 1."""
    high, low = ExternalValue((2 * TARGET,), TARGET), ExternalValue((1,), TARGET)
    pods = Pods(2, 2, 2)

    assert propose(HPASpec(10), pods, (low, high)) == 4
    assert propose(HPASpec(10), pods, (low, LOST)) == LOST
    assert propose(HPASpec(10), pods, (high, LOST)) == 4


def test_a_restarted_controller_holds_the_count_for_a_window() -> None:
    """It enters the current count as a proposal, so an idle pool shrinks only 300 s later."""
    clock = ManualClock()
    idle = [((ExternalValue((0,), TARGET),), 1.0)] * 21
    decided = simulate(Controller(HPASpec(10), clock), clock, 5, idle)

    assert [made.replicas for _, made in decided] == [5] * 20 + [1]


def test_default_rules_grow_by_four_or_double() -> None:
    """From 1 replica at ten times the target, every 15 s: 5, 10, 20, and maxReplicas."""
    clock = ManualClock()
    flood = [((ExternalValue((10 * TARGET,), TARGET),), 1.0)] * 4
    decided = simulate(Controller(HPASpec(30), clock), clock, 1, flood)

    assert [made.replicas for _, made in decided] == [5, 10, 20, 30]
    assert decided[-1][1].scaling_limited is Limit.TOO_MANY


def test_no_replicas_turn_the_autoscaler_off() -> None:
    """At 0 replicas with minReplicas 1 somebody else has switched the workload off."""
    made = Controller(HPASpec(4), ManualClock()).sync(Pods(0, 0, 0), (LOST,))

    assert made == Decision(0, scaling_active="ScalingDisabled")


WRONG = {
    "limits": (lambda: HPASpec(1, 2), "minReplicas <= maxReplicas"),
    "no replicas": (lambda: HPASpec(0, 0), "maxReplicas >= 1"),
    "value": (lambda: ScalingPolicy(PolicyType.PODS, 0, 15), "value > 0, got 0"),
    "period": (lambda: ScalingPolicy(PolicyType.PODS, 1, 1801), "1 to 1800, got 1801"),
    "window": (lambda: replace(DEFAULT_SCALE_UP, stabilization_window_s=3601), "got 3601"),
    "policies": (lambda: ScalingRules(0, ()), "at least one policy"),
    "tolerance": (lambda: replace(DEFAULT_SCALE_UP, tolerance=float("nan")), "got nan"),
    "two tolerances": (
        lambda: replace(with_tolerances(0.1, 0.3, max_replicas=4), rules=ControllerRules.V1_20),
        "1.20 has one tolerance",
    ),
    "target": (lambda: ExternalValue((1,), 0), "target > 0"),
    "average target": (lambda: ExternalAverageValue((1,), -1), "target > 0"),
    "pods target": (lambda: PodsMetric((1,), 0, 0, 0), "target > 0"),
    "missing": (lambda: PodsMetric((1,), -1, 0, TARGET), "-1 missing"),
    "counts": (lambda: Pods(1, 1, -1), "-1 ready"),
    "no metrics": (lambda: propose(HPASpec(4), Pods(1, 1, 1), ()), "at least one metric"),
}


@pytest.mark.parametrize(("build", "message"), WRONG.values(), ids=WRONG)
def test_wrong_input_is_one_clear_error(build: Callable[[], object], message: str) -> None:
    """What the API would refuse, the model refuses too, and says what it got."""
    with pytest.raises(SpecError, match=message):
        build()
