"""The fallback controller: planted faults it must act on, and equal traffic it must leave alone."""

import itertools
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import fmean

import numpy as np
import pytest

from draftgate.baselines.stored import load_baseline
from draftgate.errors import BaselineError, SpecError
from draftgate.serve.fallback.breakeven import BreakEven, StepTimes, break_even_of
from draftgate.serve.fallback.classes import MOST_CLASSES, OTHER, Classes, class_of
from draftgate.serve.fallback.controller import Controller, Policy, Reason, Switch
from draftgate.serve.fallback.evidence import (
    Evidence,
    Reading,
    Rule,
    detector,
    independent_sd,
    reading,
    take,
)

ROOT = Path(__file__).parents[2]
BASELINE = ROOT / "baselines" / "cpu-amd-epyc-family-25-model-17-2c" / "vllm" / "cpu-smollm2.json"

TIMES = BreakEven(
    StepTimes("none", (1, 8), (0.02, 0.02)),
    (
        StepTimes("eagle3", (1, 8), (0.03, 0.06)),
        StepTimes("ngram", (1, 8), (0.024, 0.04)),
    ),
    "a test",
)
"""Break-even of eagle3: 1.5 tokens per step at 1 stream, 3 at 8; of ngram: 1.2 and 2."""

LADDER = ("eagle3", "ngram", "none")
K = 3
STEPS = 100
RULE = Rule(window_steps=STEPS, probe_steps=STEPS)
REQUEST_STEPS = 25
"""Steps of one simulated request; all of them share its chance of acceptance."""

LEARNING = RULE.learn_windows


def yields(mean: float, seed: int, spread: float = 0.25) -> Iterator[tuple[float, float, float]]:
    """Yield what windows of whole requests gave: requests differ, steps of one are alike.

    A step accepts a number of drafts, binomial of K with the chance of its request, which is
    drawn from a beta law of relative spread `spread`: tokens per step have the stated mean.
    """
    rng = np.random.default_rng(seed)
    chance = (mean - 1) / K
    if chance == 0:
        while True:
            yield float(STEPS), 0.0, 0.0
    parts = (1 - chance) / (spread**2 * chance) - 1
    while True:
        own = rng.beta(chance * parts, (1 - chance) * parts, STEPS // REQUEST_STEPS)
        accepted = float(rng.binomial(K * REQUEST_STEPS, own).sum())
        yield STEPS + accepted, 0.0, accepted


def controller(policy: Policy | None = None, ladder: tuple[str, ...] = LADDER) -> Controller:
    """Return a controller that may switch at once."""
    return Controller(ladder, policy or Policy(RULE, dwell_s=0.0), TIMES.tokens_per_step, 0.0)


def feed(
    one: Controller,
    arm: str,
    mean: float,
    windows: int,
    *,
    seed: int = 1,
    streams: float = 1.0,
    start_s: float = 0.0,
) -> tuple[int, Switch] | None:
    """Feed windows until a switch; return how many that took, and it; None without one."""
    source = yields(mean, seed)
    for number in range(1, windows + 1):
        switch = one.take(arm, next(source), streams, start_s + number)
        if switch is not None:
            return number, switch
    return None


def taught(arms: tuple[str, ...] = ("eagle3", "ngram"), policy: Policy | None = None) -> Controller:
    """Return a controller that knows the spread of these arms, from good traffic of each."""
    one = controller(policy)
    for arm in arms:
        one.in_force = one._chosen = arm
        assert feed(one, arm, 2.0, LEARNING) is None
    one.in_force = one._chosen = LADDER[0]
    return one


@pytest.mark.parametrize("seed", range(20))
def test_bad_head_is_left_within_five_windows(seed: int) -> None:
    """From 2.0 tokens per step to 1.1, with break-even at 1.5."""
    one = taught()
    assert feed(one, "eagle3", 2.0, 200, seed=100 + seed) is None

    found = feed(one, "eagle3", 1.1, 50, seed=seed)

    assert found is not None
    number, switch = found
    assert number <= 5
    assert (switch.before, switch.after, switch.reason) == ("eagle3", "ngram", Reason.BELOW)
    assert switch.window is not None
    assert switch.window.tokens_per_step < switch.window.break_even == pytest.approx(1.5)


def test_head_that_accepts_nothing_is_left() -> None:
    """Tokens per step of exactly 1: windows without any spread of their own."""
    assert feed(taught(), "eagle3", 1.0, 5) is not None


@pytest.mark.parametrize("mean", [1.5, 1.55, 2.0])
def test_unchanged_acceptance_at_or_above_break_even_is_left_alone(mean: float) -> None:
    """No switch in 10,000 windows, whatever the windows scatter, nor at break-even itself."""
    assert feed(taught(), "eagle3", mean, 10_000, seed=7) is None


def test_run_length_holds_where_it_is_worst() -> None:
    """At the edge of the band, 40,000 windows give at most the 4 alarms that are stated.

    Alarms of a detector with a run length of 10,000 or more come at a rate of at most one in
    10,000; more than 10 in 40,000 would come by chance once in 350 times (Poisson of mean 4).
    """
    edge = 1.5 / (1 + RULE.band)
    one, alarms, left = taught(), 0, 40_000
    source = yields(edge, 3)
    while left:
        left -= 1
        if one.take("eagle3", next(source), 1.0, 0.0) is not None:
            alarms += 1
            one.in_force = one._chosen = "eagle3"

    assert alarms <= 10


def test_evidence_begins_anew_after_a_switch() -> None:
    """What spoke against the arm before does not count twice; its spread stays known."""
    one = taught()
    spreads = {arm: evidence.level for arm, evidence in one.evidence.items()}
    one.take("eagle3", (30.0, 0.0, 5.0), 1.0, 0.0)
    assert feed(one, "eagle3", 1.1, 10) is not None

    assert [evidence.shares(RULE) for evidence in one.evidence.values()] == [(0.0, 0.0)] * 2
    assert [evidence.windows for evidence in one.evidence.values()] == [0, 0]
    assert [evidence.gathered for evidence in one.evidence.values()] == [Reading()] * 2
    assert {arm: evidence.level for arm, evidence in one.evidence.items()} == spreads


def test_bad_probes_bring_nothing_back() -> None:
    """10,000 windows of probes just under break-even: the arm below stays."""
    one = taught()
    assert feed(one, "eagle3", 1.1, 10) is not None

    assert feed(one, "eagle3", 1.5, 10_000, seed=5) is None
    assert one.in_force == "ngram"


def test_good_probes_bring_the_arm_back() -> None:
    """Within five windows of probes at 2.0 tokens per step."""
    one = taught()
    assert feed(one, "eagle3", 1.1, 10) is not None

    found = feed(one, "eagle3", 2.0, 50)

    assert found is not None
    number, switch = found
    assert number <= 5
    assert (switch.before, switch.after, switch.reason) == ("ngram", "eagle3", Reason.RETURN)
    assert one.in_force == "eagle3"


def test_ladder_goes_down_one_arm_at_a_time_and_to_any_arm_up() -> None:
    """eagle3, ngram, none; then straight back to eagle3 when its probes say so."""
    one = taught()
    assert feed(one, "eagle3", 1.1, 10) is not None
    assert feed(one, "ngram", 1.0, 10) is not None
    assert one.in_force == "none"

    assert feed(one, "eagle3", 2.2, 10) is not None
    assert one.in_force == "eagle3"


def test_what_the_last_arm_gives_says_nothing() -> None:
    """There is nothing below it."""
    one = controller(ladder=("eagle3", "none"))
    one.in_force = one._chosen = "none"

    assert feed(one, "none", 1.0, 100) is None


def test_larger_batch_makes_the_same_acceptance_a_loss() -> None:
    """2.0 tokens per step pay at 1 stream (break-even 1.5) and not at 8 (3.0)."""
    one = taught()
    assert feed(one, "eagle3", 2.0, 500, streams=1.0) is None

    found = feed(one, "eagle3", 2.0, 10, streams=8.0)

    assert found is not None
    assert found[1].window is not None
    assert found[1].window.streams == pytest.approx(8.0)


def test_dwell_holds_a_switch_back_and_then_lets_it_go() -> None:
    """Evidence is there after a few seconds; the switch comes when the dwell is over."""
    one = taught(policy=Policy(RULE, dwell_s=60.0))
    one._since_s = 0.0

    found = feed(one, "eagle3", 1.0, 100)

    assert found is not None
    assert found[0] == 60


def test_dwell_bounds_the_switches_of_traffic_that_alternates() -> None:
    """Acceptance that turns every 20 s can switch at most once in the 60 s of a dwell."""
    one = taught(policy=Policy(RULE, dwell_s=60.0))
    sources = [yields(2.2, 1), yields(1.0, 2)]
    switches = []
    for second in range(1, 1_201):
        counted = next(sources[second // 20 % 2])
        switch = one.take("eagle3", counted, 1.0, float(second))
        switches += [second] if switch is not None else []

    assert 1 <= len(switches) <= 20
    assert min(b - a for a, b in itertools.pairwise(switches)) >= 60


def test_no_arm_is_judged_before_its_spread_is_known() -> None:
    """Twenty windows of no acceptance teach; the ones after them are evidence."""
    one = controller()

    found = feed(one, "eagle3", 1.1, 100)

    assert found is not None
    assert LEARNING < found[0] <= LEARNING + 5


def test_windows_that_wander_teach_nothing_and_say_so() -> None:
    """A slow slide has no spread: learning begins anew, with the reason kept."""
    evidence, rule = Evidence(), Rule(window_steps=STEPS, learn_windows=60)
    for number in range(60):
        tokens = STEPS * (1.2 + 0.02 * number)
        evidence = take(evidence, reading(tokens, 0, tokens - STEPS, 1.5, 1.0), STEPS, rule)

    assert evidence.level is None
    assert evidence.problem is not None
    assert "wander" in evidence.problem


def test_probes_are_the_stated_share_and_go_to_each_arm_above_in_turn() -> None:
    """None while the wanted arm is in force; then 1 in 20, shared by the arms further up."""
    one = controller()
    assert {turn.arm for _ in range(100) if (turn := one.next())} == {"eagle3"}
    one.in_force = one._chosen = "none"
    one._requests = 0

    turns = [turn for _ in range(400) if (turn := one.next())]

    probes = [turn.arm for turn in turns if turn.probe]
    assert len(probes) == 20
    assert {arm: probes.count(arm) for arm in set(probes)} == {"eagle3": 10, "ngram": 10}
    assert {turn.arm for turn in turns if not turn.probe} == {"none"}


def test_engine_that_is_gone_is_left_at_once_and_taken_again() -> None:
    """Without waiting for the dwell; requests go to the next living arm meanwhile."""
    one = controller(Policy(RULE, dwell_s=1e6))

    gone = one.set_alive("eagle3", 1.0, alive=False)
    turn = one.next()
    back = one.set_alive("eagle3", 2.0, alive=True)

    assert gone is not None
    assert back is not None
    assert (gone.before, gone.after, gone.reason) == ("eagle3", "ngram", Reason.GONE)
    assert turn is not None
    assert turn.arm == "ngram"
    assert (back.before, back.after, back.reason) == ("ngram", "eagle3", Reason.BACK)


def test_engine_that_is_gone_is_not_probed() -> None:
    """Nor does its death move traffic that is elsewhere."""
    one = taught()
    assert feed(one, "eagle3", 1.1, 10) is not None

    assert one.set_alive("eagle3", 1.0, alive=False) is None
    assert {turn.arm for _ in range(100) if (turn := one.next())} == {"ngram"}


def test_no_engine_left_is_no_turn() -> None:
    """The caller then refuses."""
    one = controller()
    for arm in LADDER:
        one.set_alive(arm, 1.0, alive=False)

    assert one.next() is None


def test_request_that_failed_at_an_arm_goes_to_another() -> None:
    """Even to one further up; None once all were tried."""
    one = controller()
    one.in_force = one._chosen = "none"

    turn = one.next(frozenset({"none"}))

    assert turn is not None
    assert (turn.arm, turn.probe) == ("ngram", False)
    assert one.next(frozenset(LADDER)) is None


def test_classes_are_judged_apart() -> None:
    """A class whose acceptance falls leaves the arm alone."""
    classes = Classes(LADDER, Policy(RULE, dwell_s=0.0), TIMES.tokens_per_step, 0.0)
    _, chat = classes.of("chat", 0.0)
    _, code = classes.of("code", 0.0)
    for one in (chat, code):
        assert feed(one, "eagle3", 2.0, LEARNING) is None

    assert feed(chat, "eagle3", 1.1, 10) is not None
    assert (chat.in_force, code.in_force) == ("ngram", "eagle3")


def test_classes_are_bounded_and_learn_of_dead_engines() -> None:
    """Clients choose labels, so there is an end to them."""
    classes = Classes(LADDER, Policy(), TIMES.tokens_per_step, 0.0)
    classes.set_alive("eagle3", alive=False)
    names = {classes.of(f"class-{number}", 0.0)[0] for number in range(100)}

    assert len(classes.controllers) == MOST_CLASSES + 1
    assert OTHER in names
    assert classes.of("class-0", 0.0)[1].in_force == "ngram"


@pytest.mark.parametrize(
    ("label", "name"),
    [(None, ""), (b"", ""), (b"chat", "chat"), (b" a.b-C_1 ", "a.b-C_1"), (b'x"} 1', OTHER)],
)
def test_label_of_a_client_is_kept_short_and_plain(label: bytes | None, name: str) -> None:
    """It ends in a metric's label."""
    assert class_of(label) == name
    assert class_of(b"y" * 33) == OTHER


def test_break_even_is_interpolated_over_streams() -> None:
    """Half way between 1 and 8 streams the step of eagle3 takes 45 ms; beyond 8 it is that at 8."""
    assert TIMES.tokens_per_step("eagle3", 4.5) == pytest.approx(0.045 / 0.02)
    assert TIMES.tokens_per_step("eagle3", 100) == pytest.approx(3.0)
    assert TIMES.tokens_per_step("eagle3", 0.2) == pytest.approx(1.5)
    assert TIMES.tokens_per_step("none", 3.0) == 1.0


def test_break_even_of_the_committed_baseline() -> None:
    """By its step times: the head pays at 1 stream and not at 32."""
    baseline = load_baseline(BASELINE)
    runs = {(cell.arm, cell.concurrency): cell.per_run() for cell in baseline.cells}

    def mean(arm: str, metric: str) -> float:
        return fmean(run[metric] for run in runs[arm, 1])

    found = break_even_of(baseline, ["eagle3", "ngram"], "none")

    ratio = mean("eagle3", "step_time_s") / mean("none", "step_time_s")
    assert found.tokens_per_step("eagle3", 1) == pytest.approx(ratio, rel=0.01)
    given = mean("eagle3", "tokens_per_step")
    assert found.tokens_per_step("eagle3", 1) < given < found.tokens_per_step("eagle3", 32)


def test_baseline_without_the_arm_is_an_error_that_says_so() -> None:
    """What was sought, what there is, and what to do."""
    with pytest.raises(BaselineError, match=r"no step_time_s of arm 'medusa'.*holds the arms"):
        break_even_of(load_baseline(BASELINE), ["medusa"], "none")


@pytest.mark.parametrize(
    ("make", "about"),
    [
        (lambda: Policy(probe_share=0.0), "--probe-share must be above 0 and below 1, got 0"),
        (lambda: Policy(dwell_s=-1.0), "--dwell must be 0 or more seconds, got -1"),
        (lambda: Rule(window_steps=0), "a window needs 1 or more decode steps, got 0"),
        (lambda: Rule(band=0.2), "expected 0 <= band < change < 1, got 0.2 and 0.1"),
        (lambda: Rule(run_length=1.0), "run length must be above 1, got 1"),
        (lambda: Rule(learn_windows=5), "a spread needs 20 or more windows, got 5"),
        (lambda: controller(ladder=("none",)), "expected two or more different ones"),
        (lambda: StepTimes("a", (), ()), "expected one time for each"),
        (lambda: StepTimes("a", (1,), (0.0,)), "times > 0 s"),
    ],
)
def test_wrong_setting_is_one_clear_error(make: Callable[[], object], about: str) -> None:
    """What was got and what was expected."""
    with pytest.raises(SpecError) as caught:
        make()

    assert about in str(caught.value)


def test_reading_counts_steps_without_drafts() -> None:
    """100 tokens of 4 requests with 36 accepted: 60 steps, whether or not each had a draft."""
    one = reading(100, 4, 36, 1.5, 2.0) + Reading()

    assert one.steps == 60
    assert one.tokens_per_step == pytest.approx(1.6)
    assert one.break_even == pytest.approx(1.5)
    assert one.streams == pytest.approx(2.0)


def test_floor_of_the_spread_is_that_of_geometric_steps() -> None:
    """Against 20,000 simulated windows of independent geometric steps."""
    rng = np.random.default_rng(2)
    windows = rng.geometric(1 / 1.5, (20_000, 200)).mean(axis=1)

    assert independent_sd(1.5, 200) == pytest.approx(float(np.log(windows).std()), rel=0.03)
    assert independent_sd(0.9, 200) == independent_sd(1.0, 200) > 0


def test_detector_has_the_stated_run_length() -> None:
    """Its threshold bounds the average run length, and its margin is the band."""
    one = taught()
    level = one.evidence["eagle3"].level
    assert level is not None
    found = detector(level, RULE)

    assert found.threshold == RULE.run_length
    assert found.margin * level.sd_bound == pytest.approx(math.log1p(RULE.band))
