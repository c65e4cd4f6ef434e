"""Which pair to take next: pure, from the header and what is there.

Arms take turns, so that a budget that ends early leaves none behind. Knows no
clock and no server.
"""

from collections.abc import Sequence
from enum import Enum

from draftgate.compare.judge import given_up, search, suspected
from draftgate.compare.losses import usable_pairs
from draftgate.compare.records import ComparisonHeader, Gate, Pair, Stage
from draftgate.compare.take import Place
from draftgate.specs import CompareSpec
from draftgate.stats.losses import BLOCK_PAIRS, candidate_first
from draftgate.stats.sequential import Standing
from draftgate.stats.sign_process import CAP_PAIRS, DECIDE_EVERY


class Stages(Enum):
    """Which stages a sitting takes pairs for."""

    SEARCH = "search"
    """Stage one only: suspects are left for another runner or a later job."""
    BOTH = "both"
    CONFIRM = "confirm"
    """Stage two only: the pairs of stage one come from an earlier run."""


def next_place(header: ComparisonHeader, pairs: Sequence[Pair], stages: Stages) -> Place | None:
    """Return the next pair to take; None if every gate is decided or can't be.

    Stage two begins when stage one has ended for all arms. The arm with the
    fewest pairs so far is next.

    Args:
        header: What was asked for.
        pairs: All pairs taken, in order.
        stages: What this sitting may take.
    """
    found = search(header, pairs)
    if stages is not Stages.CONFIRM:
        going_on = [held.gate for held in found if held.standing is Standing.GO_ON]
        if place := _next_of(header, pairs, going_on, Stage.SEARCH):
            return place
    if stages is Stages.SEARCH:
        return None
    fresh = suspected(header, pairs, found)
    waiting = [gate for gate, held in fresh.items() if held.pairs_needed]
    return _next_of(header, pairs, waiting, Stage.CONFIRM)


def suspects(header: ComparisonHeader, pairs: Sequence[Pair]) -> int:
    """Return how many suspect gates still wait for fresh pairs."""
    fresh = suspected(header, pairs, search(header, pairs))
    return sum(held.found is None for held in fresh.values())


def order_of(header: ComparisonHeader, arm: str, stage: Stage) -> tuple[bool, ...]:
    """Return for each slot of an arm's stage whether the candidate goes first."""
    plan = header.plan
    number = [entry.name for entry in header.base.arms].index(arm)
    seed = (plan.seed * 1000 + number) * 2 + (stage is Stage.CONFIRM)
    block = DECIDE_EVERY if plan.single_stage else BLOCK_PAIRS
    return candidate_first(most_pairs(plan, stage), seed=seed, block_pairs=block)


def most_pairs(plan: CompareSpec, stage: Stage) -> int:
    """Return the most pairs that a stage may take of one arm."""
    if stage is Stage.CONFIRM:
        return plan.confirm_pairs
    return CAP_PAIRS if plan.single_stage else plan.looks[-1]


def _next_of(
    header: ComparisonHeader, pairs: Sequence[Pair], gates: Sequence[Gate], stage: Stage
) -> Place | None:
    """Return the next place of a stage for the arms of these gates; None if none can be taken."""
    arms = [arm for arm in dict.fromkeys(gate.arm for gate in gates) if not given_up(pairs, arm)]
    if not arms:
        return None
    return _place(header, pairs, min(arms, key=lambda arm: _taken(pairs, arm)), stage)


def _place(header: ComparisonHeader, pairs: Sequence[Pair], arm: str, stage: Stage) -> Place:
    slot = len(usable_pairs(pairs, arm, stage))
    tried = sum((p.arm, p.stage, p.slot) == (arm, stage, slot) for p in pairs)
    return Place(arm, stage, slot, tried, order_of(header, arm, stage)[slot])


def _taken(pairs: Sequence[Pair], arm: str) -> int:
    return sum(pair.arm == arm for pair in pairs)
