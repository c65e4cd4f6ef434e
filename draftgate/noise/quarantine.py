"""Whether a runner's verdicts can be believed, from pairs of unchanged builds.

Four checks, each with what it can and cannot see:

1. Symmetry: is a side worse although both are the same build? Sees a steady bias
   of the candidate's port, cores, folder or environment. Not a spread that is
   large, and not a bias that only another build would meet.
2. Neighbours: do losses keep their sign over pairs? Sees a bias of a side that
   comes and goes and cancels over the study; a comparison is shorter.
   Not dependence over more than a neighbour, unless it shows in neighbours too.
3. Redrawn comparisons: does stage one keep its level with this noise? Sees tails,
   and patterns in time that the random order and t do not cope with, above all
   with looks other than the default. Not a bias: redrawing makes the sides alike.
   With the default looks it seldom fails, since the order is random; its interval
   is that of the draws, from these pairs, not that of the runner.
4. Invalid pairs: can this runner be measured at all?

Large noise alone is no reason for quarantine: it costs power, not belief.
"""

import math
from collections.abc import Sequence

from draftgate.compare.judge import stage_one_level
from draftgate.compare.records import Gate
from draftgate.noise.records import GateNoise
from draftgate.specs import CompareSpec
from draftgate.stats.paired import Interval

QUARANTINE_LEVEL = 0.01
"""Chance per check that a sound runner is quarantined, over all gates together (Holm)."""

SUSPECT_FACTOR = 3.0
"""By how much the rate of false suspects may exceed what stage one promises (1.4 %). Boole's
bound without normal losses is 1.4 times it already; and at the first look of eight pairs the order,
two blocks of four, has 36 outcomes, so that the rate of a study moves in steps of 1 / 36. Of 1,000
simulated gates, 20 or 24 pairs of normal noise so large that none ever passes, the largest lower
end was 3.7 %: a factor of 2 would quarantine 10 of them, one of 3 none."""

MOST_INVALID_SHARE = 0.2
"""Share of invalid pairs above which nothing is to be believed: one in five."""


def reasons_against(
    gates: Sequence[GateNoise], invalid: Interval, plan: CompareSpec
) -> tuple[str, ...]:
    """Return why the runner's verdicts cannot be believed; empty if they can.

    Args:
        gates: With p-values that are corrected over all of them.
        invalid: Share of pairs that could not be used.
        plan: Looks, which decide what stage one promises.
    """
    most = SUSPECT_FACTOR * stage_one_level(plan)
    found = [reason for held in gates for reason in _of_gate(held, most)]
    if invalid.estimate > MOST_INVALID_SHARE:
        found.append(
            f"{invalid.estimate:.0%} of pairs could not be used; at most "
            f"{MOST_INVALID_SHARE:.0%} may be"
        )
    return tuple(found)


def _of_gate(held: GateNoise, most: float) -> list[str]:
    where = name_of(held.gate)
    found = []
    if held.symmetry_p < QUARANTINE_LEVEL:
        found.append(
            f"{where}: unchanged builds differ by {held.loss.estimate:+.4g} "
            f"[{held.loss.low:+.4g}, {held.loss.high:+.4g}] (sign flips, p {held.symmetry_p:.2g} "
            "over all gates): one side is treated differently"
        )
    elif held.serial_p < QUARANTINE_LEVEL:
        found.append(
            f"{where}: neighbouring pairs lose alike (p {held.serial_p:.2g} over all gates): one "
            "side is at times treated differently"
        )
    if held.suspects is not None and held.suspects.low > most:
        found.append(
            f"{where}: {held.suspects.estimate:.1%} of redrawn comparisons become suspect, at "
            f"least {held.suspects.low:.1%}; at most {most:.1%} may"
        )
    return found


def blind_spots(gates: Sequence[GateNoise]) -> tuple[str, ...]:
    """Return which checks could not have failed, with the pairs that they need.

    The smallest p-value of n sign flips is 2^(1 - n), times the number of gates.
    """
    found = []
    needed = 1 + math.floor(math.log2(len(gates) / QUARANTINE_LEVEL)) + 1
    fewest = min(held.pairs for held in gates)
    if fewest < needed:
        found.append(
            f"with {fewest} pairs no bias can be shown at {QUARANTINE_LEVEL:.0%} over {len(gates)} "
            f"gates; {needed} pairs can"
        )
    if any(held.suspects is None for held in gates):
        found.append("fewer pairs than the last look: comparisons were not redrawn")
    return tuple(found)


def name_of(gate: Gate) -> str:
    """Return what a sentence calls a gate."""
    return f"{gate.metric} of {gate.arm} at {gate.concurrency} streams"
