"""Verdicts on pairs that are bad, few, or about to decide: each named, none turned green."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from draftgate.compare.gates import BY_PROMPT, gates_of
from draftgate.compare.judge import judge, stage_one_level
from draftgate.compare.records import (
    CellValues,
    ComparisonHeader,
    GateResult,
    Pair,
    Role,
    ServerStart,
    Stage,
)
from draftgate.compare.schedule import order_of
from draftgate.errors import SpecError
from draftgate.specs import CompareSpec, PairedGateSpec
from draftgate.stats.family import STAGE_ONE_LEVEL
from draftgate.verdict import Outcome
from tests.support.samples import START
from tests.support.scripted_pairs import PLAN, SPEED, header

Values = dict[str, float]


def start(role: Role, values: Values, prompts: Sequence[tuple[str, float]] = ()) -> ServerStart:
    """Return a start that shows these values at eight streams."""
    cell = CellValues(8, tuple(values.items()), requests=40, prompts=tuple(prompts))
    return ServerStart(role, START.isoformat(), 20.0, "vllm 1.0", (cell,))


def pairs(
    head: ComparisonHeader,
    base: Callable[[int], Values],
    candidate: Callable[[int], Values],
    *,
    number: int = 8,
    stage: Stage = Stage.SEARCH,
) -> list[Pair]:
    """Return pairs whose values are functions of the slot."""
    order = order_of(head, "none", stage)
    return [
        Pair(
            arm="none",
            stage=stage,
            slot=slot,
            attempt=0,
            candidate_first=order[slot],
            host="here",
            base=start(Role.BASE, base(slot)),
            candidate=start(Role.CANDIDATE, candidate(slot)),
        )
        for slot in range(number)
    ]


def speed(slot: int) -> Values:
    """Return a speed that differs a little from pair to pair."""
    return {SPEED.metric: 100.0 + 0.3 * math.sin(slot)}


def only(head: ComparisonHeader, taken: Sequence[Pair]) -> GateResult:
    """Return the verdict on the only gate."""
    (result,) = judge(head, taken).gates
    return result


@pytest.mark.parametrize(
    ("value", "told"),
    [(0.0, "above 0"), (-1.0, "above 0"), (math.nan, "NaN"), (math.inf, "finite")],
)
def test_value_without_a_ratio_is_invalid_and_named(value: float, told: str) -> None:
    """Zero, negative, NaN and infinite values of one start make the gate INVALID_RUN."""
    head = header()
    taken = pairs(head, speed, lambda slot: {SPEED.metric: value} if slot == 3 else speed(slot))

    result = only(head, taken)

    assert result.outcome is Outcome.INVALID_RUN
    assert told in result.reason
    assert result.next_step


def test_gate_too_small_for_the_clients_stamps_is_invalid_alone() -> None:
    """One start's gap that the stamps can't resolve ends that gate; the speed is judged."""
    gap = PairedGateSpec("step_gap_p99_s", 0.02, 0.05)
    head = header(replace(PLAN, gates=(SPEED, gap)))
    taken = pairs(head, both, both)
    coarse = replace(taken[3].candidate.cells[0], unresolved=((gap.metric, "the gap is small"),))
    taken[3] = replace(taken[3], candidate=replace(taken[3].candidate, cells=(coarse,)))

    fast, small = judge(head, taken).gates

    assert fast.outcome is Outcome.PASS
    assert small.outcome is Outcome.INVALID_RUN
    assert small.reason == "the gap is small"


def both(slot: int) -> Values:
    """Return speed with a gap that goes with it."""
    return {**speed(slot), "step_gap_p99_s": 1.0 / speed(slot)[SPEED.metric]}


def test_metric_missing_in_some_starts_is_counted() -> None:
    """Two starts of the candidate without the metric are named with their number."""
    head = header()
    taken = pairs(head, speed, lambda slot: {} if slot in (2, 5) else speed(slot))

    result = only(head, taken)

    assert result.outcome is Outcome.INVALID_RUN
    assert "missing in 2 of 8 starts of the candidate" in result.reason


def test_metric_that_nobody_has_is_no_pass() -> None:
    """A gate on something that neither side shows is INVALID_RUN."""
    head = header()

    result = only(head, pairs(head, lambda _: {"other": 1.0}, lambda _: {"other": 1.0}))

    assert result.outcome is Outcome.INVALID_RUN
    assert "neither side has the metric" in result.reason


@pytest.mark.parametrize("number", [0, 1, 3, 7])
def test_too_few_pairs_are_open_and_say_how_many_are_missing(number: int) -> None:
    """Before the first look nothing is decided, whatever the values say."""
    head = header()

    result = only(head, pairs(head, speed, speed, number=number))

    assert result.outcome is Outcome.INCONCLUSIVE
    assert result.pairs_needed == 8 - number


def test_pair_after_a_gap_is_not_used() -> None:
    """A slot without a valid pair ends the sequence, so that order and blocks hold."""
    head = header()
    taken = pairs(head, speed, speed)
    del taken[5]

    result = only(head, taken)

    assert result.search is not None
    assert result.search.pairs == 5
    assert result.outcome is Outcome.INCONCLUSIVE


def test_loss_between_margin_and_limit_is_suspect_first() -> None:
    """A loss of 3 % known to .3 % is not green, although 5 % is ruled out."""
    head = header()

    result = only(
        head, pairs(head, speed, lambda slot: {SPEED.metric: 0.97 * speed(slot)[SPEED.metric]})
    )

    assert result.outcome is Outcome.INCONCLUSIVE
    assert "suspect" in result.reason
    assert result.pairs_needed == head.plan.confirm_pairs


def test_equal_values_in_all_pairs_pass() -> None:
    """Counts that do not differ at all are a PASS, not a division by zero."""
    head = header()

    assert only(
        head, pairs(head, lambda _: {SPEED.metric: 5.0}, lambda _: {SPEED.metric: 5.0})
    ).outcome is (Outcome.PASS)


def test_prompts_are_paired_and_those_of_one_side_left_out() -> None:
    """Tokens per step are compared over prompts that every start answered."""
    plan = replace(PLAN, gates=(PairedGateSpec(BY_PROMPT, 0.02, 0.10),))
    head = header(plan, arms=2)
    gates = gates_of(head.base.arms[1:], (8,), plan)
    head = replace(head, gates=gates)
    order = order_of(head, "ngram", Stage.SEARCH)
    held = [("a", 1.5), ("b", 2.0)]
    taken = [
        Pair(
            "ngram",
            Stage.SEARCH,
            slot,
            0,
            order[slot],
            "here",
            start(Role.BASE, {}, [*held, ("only-base", 9.0)]),
            start(Role.CANDIDATE, {}, [(name, value - 0.001 * slot) for name, value in held]),
        )
        for slot in range(8)
    ]

    (result,) = judge(head, taken).gates

    assert result.outcome is Outcome.PASS
    assert result.base_value == pytest.approx(1.75)


def test_no_common_prompt_is_invalid() -> None:
    """Sides that answered other prompts can't be compared by prompt."""
    plan = replace(PLAN, gates=(PairedGateSpec(BY_PROMPT, 0.02, 0.10),))
    head = header(plan, arms=2)
    head = replace(head, gates=gates_of(head.base.arms[1:], (8,), plan))
    taken = [
        Pair(
            "ngram",
            Stage.SEARCH,
            slot,
            0,
            slot % 2 == 0,
            "here",
            start(Role.BASE, {}, [("a", 1.0)]),
            start(Role.CANDIDATE, {}, [("b", 1.0)]),
        )
        for slot in range(8)
    ]

    (result,) = judge(head, taken).gates

    assert result.outcome is Outcome.INVALID_RUN
    assert "no prompt has a whole answer" in result.reason


def test_more_gates_ask_more_of_each_suspect() -> None:
    """The same fresh pairs confirm a lone gate and not one of a thousand."""

    def worse(slot: int) -> Values:
        """Return a candidate that loses 2 % on average and differs a lot."""
        return {SPEED.metric: (0.98 + 0.02 * math.sin(2.3 * slot)) * speed(slot)[SPEED.metric]}

    def much_worse(slot: int) -> Values:
        """Return a candidate that is suspect at the first look."""
        return {SPEED.metric: 0.9 * speed(slot)[SPEED.metric]}

    head = header()
    taken = pairs(head, speed, much_worse) + pairs(
        head, speed, worse, number=24, stage=Stage.CONFIRM
    )
    many = replace(head, gates=head.gates + tuple(replace(g, arm="x") for g in head.gates * 999))

    lone, crowded = judge(head, taken).gates[0], judge(many, taken).gates[0]

    assert lone.outcome is Outcome.REGRESSION
    assert crowded.outcome is not Outcome.REGRESSION
    assert lone.adjusted_p is not None
    assert crowded.adjusted_p is not None
    assert crowded.adjusted_p > 100 * lone.adjusted_p


def test_other_looks_are_bounded_by_boole() -> None:
    """The simulated level holds for the default looks alone; others pay half a percent a look."""
    assert stage_one_level(CompareSpec()) == STAGE_ONE_LEVEL
    assert stage_one_level(CompareSpec(looks=(4,))) == pytest.approx(0.005)
    assert stage_one_level(CompareSpec(looks=(4, 6, 8))) == pytest.approx(0.015)


@pytest.mark.parametrize(
    ("gate", "told"),
    [
        (PairedGateSpec("no_such_metric", 0.01, 0.05), "no_such_metric"),
        (PairedGateSpec("acceptance_pos_0_ratio", 0.01, 1.5), "below 1"),
    ],
)
def test_gate_that_can_never_be_judged_is_refused(gate: PairedGateSpec, told: str) -> None:
    """Unknown metrics and limits beyond everything are mistakes in the profile."""
    with pytest.raises(SpecError, match=told):
        gates_of(header().base.arms, (1,), CompareSpec(gates=(gate,)))


def test_acceptance_is_asked_of_arms_that_draft_only() -> None:
    """An arm without speculation has no gate on tokens per step by prompt."""
    gates = gates_of(header(arms=3).base.arms, (1, 8), CompareSpec())

    asked = {gate.arm for gate in gates if gate.metric == BY_PROMPT}
    assert asked == {"ngram", "draft_model"}
    assert len(gates) == 2 * (5 + 6 + 6)
