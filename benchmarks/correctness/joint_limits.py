"""What the best joint test could do, given flags, tokens and proposals.

    .venv/bin/python -m benchmarks.correctness.joint_limits

writes joint_limits.json: per fault the divergence per token of (accepted or not, token)
given the proposal. Where a fault emits what the rule excludes, that is infinite, and
how often it happens takes its place.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.correctness.contexts import KINDS, K, Setting
from benchmarks.correctness.places import CONDITIONS, Place, World
from benchmarks.correctness.rules import RULES, Masses, honest

HERE = Path(__file__).parent

IMPOSSIBLE = 1e-9
"""Probability, as a share of the fault's own, below which the rule excludes an event."""

Floats = NDArray[np.floating[Any]]


def divergence(place: Place, fault: Masses, right: Masses) -> tuple[float, float]:
    """Return (divergence of possible events, nats; probability of impossible ones) of one place.

    Events are an accepted proposal, and a rejection with its token; the recovered
    token's law does not depend on which proposal was rejected.
    """
    pairs = [(fault[0], right[0])]
    if place.number < K:
        pairs.append((place.draft - fault[0], place.draft - right[0]))
    refused, due = fault[1].sum(), right[1].sum()
    if refused > 0 and due > 0:
        pairs.append((fault[1], right[1] * refused / due))
    total = impossible = 0.0
    for seen, expected in pairs:
        some = seen > 1e-15
        never = some & (expected <= IMPOSSIBLE * seen)
        fine = some & ~never
        impossible += float(seen[never].sum())
        total += float((seen[fine] * np.log(seen[fine] / expected[fine])).sum())
    return total, impossible


def limits(kind: str) -> dict[str, dict[str, float]]:
    """Return both numbers per emitted token, for all faults of one place."""
    found: dict[str, Floats] = {}
    for condition in CONDITIONS:
        world = World(Setting(), kind, condition, slice(1, None, 2))
        rules = [rule for rule in RULES if rule.condition == condition and kind in rule.kinds]
        for context in range(len(world)):
            reach = {rule.name: 1.0 for rule in rules}
            for place in world.chain(context):
                right = honest(place)
                for rule in rules:
                    masses = rule.masses(place)
                    seen = np.array([*divergence(place, masses, right), 1.0])
                    before = found.get(rule.name, np.zeros(3))
                    found[rule.name] = before + reach[rule.name] * seen
                    reach[rule.name] *= float(masses[0].sum())
    return {
        name: {"kl": total / tokens, "impossible": never / tokens}
        for name, (total, never, tokens) in found.items()
    }


if __name__ == "__main__":
    numbers = {kind: limits(kind) for kind in KINDS}
    (HERE / "joint_limits.json").write_text(json.dumps(numbers, indent=1) + "\n", encoding="utf-8")
