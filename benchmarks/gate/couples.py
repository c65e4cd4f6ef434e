"""From recorded starts to the pairs and the header that the product judges.

A couple is two starts of one round: the same kind of server twice, or a planted
one beside its base. Randomness comes in as numpy generators.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from benchmarks.gate.faults import KINDS
from benchmarks.gate.starts import Recorded, Recording
from draftgate.compare.gates import gates_of, requests_per_start
from draftgate.compare.records import (
    COMPARISON_SCHEMA_VERSION,
    ComparisonHeader,
    Pair,
    Role,
    SideSpec,
    Stage,
)
from draftgate.environment import describe
from draftgate.noise.judgeable import judgeable
from draftgate.specs import Profile
from draftgate.stats.losses import candidate_first


@dataclass(frozen=True, slots=True)
class Couple:
    """Two starts of one round.

    Attributes:
        base: The start of the base's kind.
        other: The start of the kind that is compared with it.
    """

    base: Recorded
    other: Recorded

    @property
    def valid(self) -> bool:
        """Whether both starts can be used."""
        return not as_pair(self, Stage.SEARCH, 0).invalid

    @property
    def other_first(self) -> bool:
        """Whether the other start was measured before the base's."""
        return self.other.place < self.base.place


def couples_of(recording: Recording, kind: str) -> tuple[Couple, ...]:
    """Return the couples of a kind with its base, in the order in which they were taken."""
    against = KINDS[kind].against
    return tuple(
        Couple(held[against], held[kind])
        for _, held in sorted(recording.rounds().items())
        if kind in held and against in held
    )


def as_pair(
    couple: Couple, stage: Stage, slot: int, *, swap: bool = False, attempt: int = 0
) -> Pair:
    """Return a couple as a pair; swapped, the base's start is the candidate."""
    base, other = (couple.other, couple.base) if swap else (couple.base, couple.other)
    return Pair(
        arm=KINDS[couple.base.kind].arm,
        stage=stage,
        slot=slot,
        attempt=attempt,
        candidate_first=couple.other_first != swap,
        host="recorded",
        base=replace(base.start, role=Role.BASE),
        candidate=replace(other.start, role=Role.CANDIDATE),
    )


def shuffled(
    rng: np.random.Generator, couples: Sequence[Couple], sizes: tuple[int, int]
) -> list[Pair]:
    """Return a random comparison of unchanged builds: fresh couples for each stage.

    Couples in random order; which start of a couple counts as the candidate is
    drawn by the product's own balanced blocks, so places are balanced as they
    are in a real comparison.

    Args:
        rng: Source of randomness.
        couples: Valid ones, at least as many as both stages take.
        sizes: Pairs of stage one and of stage two.
    """
    order = rng.permutation(len(couples))
    pairs = []
    for stage, size, start in zip(Stage, sizes, (0, sizes[0]), strict=True):
        first = candidate_first(size, seed=int(rng.integers(2**32)))
        for slot, wanted in enumerate(first):
            couple = couples[order[start + slot]]
            pairs.append(as_pair(couple, stage, slot, swap=couple.other_first != wanted))
    return pairs


def in_order(couples: Sequence[Couple], sizes: tuple[int, int]) -> list[Pair]:
    """Return couples as a comparison's pairs, in the order given; the first ones are searched."""
    cut = [(Stage.SEARCH, couples[: sizes[0]]), (Stage.CONFIRM, couples[sizes[0] : sum(sizes)])]
    return [as_pair(c, stage, slot) for stage, part in cut for slot, c in enumerate(part)]


def header_of(recording: Recording, profile: Profile, arm: str) -> ComparisonHeader:
    """Return the header of a comparison of one arm by the profile's own gates.

    A p99 with too few requests is asked as a p95, as `draftgate compare` does without a study.
    """
    arms = (profile.arm(arm),)
    streams = recording.setting.concurrencies
    asked = gates_of(arms, streams, profile.compare)
    workload = replace(profile.workload, min_requests=recording.setting.min_requests)
    requests = {c: requests_per_start(workload, c) for c in streams}
    side = SideSpec("recorded", "profile", arms)
    return ComparisonHeader(
        schema=COMPARISON_SCHEMA_VERSION,
        definitions=recording.setting.definitions,
        id="recorded",
        started_at="",
        argv=(),
        profile=profile,
        base=side,
        candidate=side,
        gates=judgeable(None, asked, requests, profile.compare),
        plan=profile.compare,
        environment=describe("recorded"),
    )
