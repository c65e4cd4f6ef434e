"""Which pair to take next: pure, from the header and what is there.

Arms take turns, so that a budget that ends early leaves none behind. Knows no
clock and no server.
"""

from collections.abc import Iterable, Sequence
from enum import Enum

from draftgate.compare.judge import given_up, search
from draftgate.compare.losses import usable_pairs
from draftgate.compare.records import ComparisonHeader, Pair, Stage
from draftgate.compare.stages import confirm_gate
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
    for stage, arms in (
        (Stage.SEARCH, _searching(header, pairs)),
        (Stage.CONFIRM, _confirming(header, pairs)),
    ):
        allowed = stages is Stages.BOTH or stages.name == stage.name
        waiting = [arm for arm in arms if not given_up(pairs, arm)] if allowed else []
        if waiting:
            return _place(header, pairs, min(waiting, key=lambda arm: _taken(pairs, arm)), stage)
    return None


def suspects(header: ComparisonHeader, pairs: Sequence[Pair]) -> int:
    """Return how many suspect gates still wait for fresh pairs."""
    return sum(
        1
        for found in search(header, pairs)
        if found.standing is Standing.SUSPECT
        and not header.plan.single_stage
        and confirm_gate(found.gate, pairs, header.plan).found is None
    )


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


def _searching(header: ComparisonHeader, pairs: Sequence[Pair]) -> list[str]:
    found = search(header, pairs)
    return _once(held.gate.arm for held in found if held.standing is Standing.GO_ON)


def _confirming(header: ComparisonHeader, pairs: Sequence[Pair]) -> list[str]:
    if header.plan.single_stage:
        return []
    suspect = [held.gate for held in search(header, pairs) if held.standing is Standing.SUSPECT]
    waiting = [gate for gate in suspect if confirm_gate(gate, pairs, header.plan).pairs_needed]
    return _once(gate.arm for gate in waiting)


def _place(header: ComparisonHeader, pairs: Sequence[Pair], arm: str, stage: Stage) -> Place:
    slot = len(usable_pairs(pairs, arm, stage))
    tried = sum((p.arm, p.stage, p.slot) == (arm, stage, slot) for p in pairs)
    return Place(arm, stage, slot, tried, order_of(header, arm, stage)[slot])


def _taken(pairs: Sequence[Pair], arm: str) -> int:
    return sum(pair.arm == arm for pair in pairs)


def _once(names: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(names))
