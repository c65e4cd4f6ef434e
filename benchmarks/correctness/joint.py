"""The joint verdict on flags and tokens, where the proposals are known.

A number of verify steps is drawn from a rule's bank and scored by `draftgate.stats`;
streams are these steps in random order, drawn with replacement. That is enough for
faults found in some hundred steps, and too few to tell how long faint ones take.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.correctness.bank import Bank
from benchmarks.correctness.contexts import K
from benchmarks.correctness.places import World
from benchmarks.correctness.serial import Drawn
from benchmarks.correctness.streams import NEVER
from draftgate.stats.conformity import conformity
from draftgate.stats.conformity_family import family
from draftgate.stats.conformity_rows import Places, Steps, joined_places, places

Ints = NDArray[np.integer[Any]]
Bools = NDArray[np.bool_]

STEPS = 800
"""Distinct steps that are scored."""

LONGEST = 400
"""Tokens of a stream: fewer than half of what is scored, so that chance in it counts little."""


@dataclass(frozen=True, slots=True)
class Run:
    """Steps that a rule went through.

    Attributes:
        context: Shape (steps,).
        token: Emitted token of each place; shape (steps, K + 1).
        reached: Whether the step came that far; same shape.
        proposal: Same shape; -1 where none was drawn.
    """

    context: Ints
    token: Ints
    reached: Bools
    proposal: Ints


def of_bank(bank: Bank, seed: int) -> Run:
    """Return steps with contexts and draws picked at random."""
    rng = np.random.default_rng(seed)
    contexts, _, draws = bank.draws.shape
    context = rng.integers(contexts, size=STEPS)
    pick = (context[:, None], np.arange(K + 1), rng.integers(draws, size=(STEPS, K + 1)))
    reached = np.ones((STEPS, K + 1), dtype=bool)
    reached[:, 1:] = np.cumprod(bank.accepted[pick][:, :K], axis=1)
    return Run(context, bank.rows.token[bank.draws[pick]], reached, bank.proposals[pick])


def of_drawn(drawn: Drawn) -> Run:
    """Return the first steps of streams that were drawn one by one."""
    row, reached, proposal = (
        part.reshape(-1, K + 1)[:STEPS] for part in (drawn.row, drawn.reached, drawn.proposal)
    )
    return Run(drawn.place[row[:, 0]] // (K + 1), drawn.rows.token[row], reached, proposal)


def joint_alarms(world: World, run: Run, streams: int, alpha: float, seed: int) -> Ints:
    """Return after how many tokens each stream alarms, NEVER if it does not."""
    rows = _scored(world, run)
    begins = np.flatnonzero(np.diff(rows.step, prepend=-1))
    sizes = np.diff(begins, append=len(rows))
    departures = family(world.vocabulary)
    rng = np.random.default_rng(seed)
    found = np.full(streams, NEVER)
    for stream in range(streams):
        order = rng.integers(len(begins), size=int(LONGEST / sizes.mean()))
        index = np.concatenate([begins[step] + np.arange(sizes[step]) for step in order])
        numbered = np.repeat(np.arange(len(order)), sizes[order])
        at = conformity(replace(rows.take(index), step=numbered), departures).alarm_at(alpha)
        found[stream] = NEVER if at is None else at
    return found


def _scored(world: World, run: Run) -> Places:
    """Return the rows of all steps, one context after the other."""
    parts: list[Places] = []
    for context in np.unique(run.context):
        chain = list(world.chain(int(context)))
        mine = np.flatnonzero(run.context == context).tolist()
        parts += [places(_steps(world, chain, run, number)) for number in mine]
    return joined_places(parts)


def _steps(world: World, chain: list[Any], run: Run, number: int) -> Steps:
    drafts = np.stack([place.draft for place in chain[:K]])
    proposals = run.proposal[number, :K]
    return Steps(
        proposals=np.where(proposals >= 0, proposals, drafts.argmax(axis=1))[None],
        emitted=np.where(run.reached[number], run.token[number], -1)[None],
        target=np.stack([place.target for place in chain])[None],
        ahead=False,
        draft=None if world.kind == "greedy" else drafts[None],
        cut=np.zeros(1, dtype=bool),
        request=np.zeros(1, dtype=int),
        twin=np.full(1, -1),
    )
