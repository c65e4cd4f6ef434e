"""A comparison from its first pair to its verdict, within a budget, kept on disk.

Takes the pair that `schedule` asks for, stores it, and judges what is there;
can be killed at any time and taken up again. What a verdict is stands in
`judge`.
"""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from draftgate.clock import SYSTEM_CLOCK, Clock
from draftgate.compare.judge import judge
from draftgate.compare.records import (
    COMPARISON_SCHEMA_VERSION,
    ComparisonHeader,
    Gate,
    Pair,
    Role,
    SideSpec,
    Stage,
    StoredComparison,
)
from draftgate.compare.restored import with_secrets
from draftgate.compare.schedule import Stages, next_place
from draftgate.compare.store import ComparisonFolder, ComparisonState
from draftgate.compare.take import Bench, Place, Say, take_pair
from draftgate.datasets import load_prompts, prompts_digest, with_prompts_digest
from draftgate.environment import describe
from draftgate.errors import BaselineError, MeasurementError
from draftgate.hidden import hide
from draftgate.metrics import DEFINITIONS_VERSION
from draftgate.records import Environment
from draftgate.runstore import new_id
from draftgate.specs import CompareSpec, Profile

Take = Callable[[Bench, Place], Pair]
"""Takes one pair; `take_pair`, or a test's own."""


@dataclass(frozen=True, slots=True)
class Sides:
    """What is compared: two sides, and what both are sent.

    Attributes:
        profile: The workload and settings, the same for both.
        base: One side.
        candidate: The other.
    """

    profile: Profile
    base: SideSpec
    candidate: SideSpec


def open_comparison(
    root: Path,
    sides: Sides,
    gates: tuple[Gate, ...],
    plan: CompareSpec,
    *,
    argv: Sequence[str],
    clock: Clock = SYSTEM_CLOCK,
) -> ComparisonFolder:
    """Make the folder of a new comparison.

    Args:
        root: Where comparisons' folders go.
        sides: What is compared.
        gates: Every question; their number is the size of the family.
        plan: Looks, levels and budget.
        argv: Command line, for the record.
        clock: Source of the time of day.

    Raises:
        MeasurementError: If it cannot be written.
        SpecError: If the prompts cannot be read.
    """
    engine = f"{sides.base.arms[0].engine.engine} (not started)"
    now = clock.wall()
    header = ComparisonHeader(
        schema=COMPARISON_SCHEMA_VERSION,
        definitions=DEFINITIONS_VERSION,
        id=new_id(f"compare-{sides.profile.name}", now),
        started_at=now.isoformat(),
        argv=tuple(argv),
        profile=replace(sides.profile, workload=with_prompts_digest(sides.profile.workload)),
        base=sides.base,
        candidate=sides.candidate,
        gates=gates,
        plan=plan,
        environment=describe(engine),
    )
    return ComparisonFolder.create(root, header)


def open_confirmation(
    root: Path, first: ComparisonFolder, *, argv: Sequence[str], clock: Clock = SYSTEM_CLOCK
) -> ComparisonFolder:
    """Make the folder of a stage two that is taken here for a stage one taken elsewhere.

    The pairs of stage one are copied, so that the new folder says all by itself.
    Its own pairs are taken on this machine, which must be of the same kind.

    Raises:
        BaselineError: If the first folder is damaged, or from other hardware.
        MeasurementError: If it cannot be written.
        SpecError: If a secret that its servers need is not set here.
    """
    asked = _startable(first)
    here = describe(asked.environment.engine)
    check_hardware(asked.environment, here)
    now = clock.wall()
    header = replace(
        asked,
        id=new_id(f"compare-{asked.profile.name}", now),
        started_at=now.isoformat(),
        argv=tuple(argv),
        confirms=asked.id,
    )
    folder = ComparisonFolder.create(root, header)
    for pair in first.pairs():
        if pair.stage is Stage.SEARCH:
            folder.add(pair)
    return folder


def run_comparison(
    folder: ComparisonFolder,
    say: Say,
    *,
    stages: Stages = Stages.BOTH,
    max_minutes: float | None = None,
    clock: Clock = SYSTEM_CLOCK,
    take: Take = take_pair,
) -> None:
    """Take pairs until every gate is decided or the budget would be exceeded.

    What they say is read back by `load_comparison`, also after an error.

    Args:
        folder: New, or left by an earlier sitting.
        say: Takes lines of progress.
        stages: Which stages may be taken here.
        max_minutes: Budget over all sittings; None for the header's.
        clock: Source of every stamp.
        take: Takes one pair.

    Raises:
        BaselineError: If the folder is damaged, from other hardware or of other prompts.
        MeasurementError: If a pair cannot be stored, or an engine changed in the middle.
        SpecError: If the engine cannot run what a side asks for, or a secret of a
            comparison from another process is not set here.
    """
    header = _startable(folder)
    check_hardware(header.environment, describe(header.environment.engine))
    say = _without_secrets(say)
    state = _resume(folder, say)
    pairs = list(folder.pairs())
    bench = _bench(folder, header, say, clock)
    budget = header.plan.max_minutes if max_minutes is None else max_minutes
    sitting = Sitting(header, stages, budget, take, Stopwatch(folder, state, clock))
    ended = "interrupted"
    try:
        ended = _take_all(folder, bench, pairs, sitting)
    finally:
        sitting.watch.stop(ended)


class Stopwatch:
    """Minutes spent, over all sittings, kept on disk after every pair.

    Args:
        folder: Where they are kept.
        state: As the sitting found it.
        clock: Source of time.
    """

    def __init__(self, folder: ComparisonFolder, state: ComparisonState, clock: Clock) -> None:
        self._folder = folder
        self._state = state
        self._clock = clock
        self._before = state.minutes
        self._start_ns = clock.now_ns()
        self._lap = state.minutes

    def minutes(self) -> float:
        """Return the minutes spent so far, earlier sittings included."""
        return self._before + (self._clock.now_ns() - self._start_ns) / 60e9

    def has_room(self, budget: float | None) -> bool:
        """Whether a pair as long as the longest so far ends within the budget."""
        self._lap = self.minutes()
        return budget is None or self._lap + self._state.longest_minutes <= budget

    def pair_done(self) -> None:
        """Record that the pair begun at the last `has_room` has been stored."""
        longest = max(self._state.longest_minutes, self.minutes() - self._lap)
        self._state = replace(self._state, longest_minutes=longest)
        self.stop("running")

    def stop(self, ended: str) -> None:
        """Record the minutes and how it ended."""
        self._folder.write_state(replace(self._state, minutes=self.minutes(), ended=ended))


@dataclass(frozen=True, slots=True)
class Sitting:
    """What one sitting goes by.

    Attributes:
        header: What was asked for.
        stages: Which stages may be taken.
        budget: Minutes over all sittings; None for no limit.
        take: Takes one pair.
        watch: Minutes spent.
    """

    header: ComparisonHeader
    stages: Stages
    budget: float | None
    take: Take
    watch: Stopwatch


def load_comparison(path: Path) -> StoredComparison:
    """Read a comparison's folder back and judge it.

    Raises:
        BaselineError: If it is missing or damaged; the message names the file.
    """
    folder = ComparisonFolder(path)
    header, pairs, state = folder.header(), folder.pairs(), folder.state()
    result = judge(header, pairs, minutes=state.minutes, ended=state.ended, notes=state.notes)
    return StoredComparison(header, pairs, result)


def check_hardware(held: Environment, here: Environment) -> None:
    """Do nothing if pairs from both machines may stand in one comparison.

    Raises:
        BaselineError: If the hardware is of another kind.
    """
    if held.hardware != here.hardware:
        raise BaselineError(
            f"the comparison was begun on {held.hardware}, this machine is {here.hardware}: pairs "
            "from unlike hardware don't mix. Go on there, or compare anew here."
        )


def _take_all(folder: ComparisonFolder, bench: Bench, pairs: list[Pair], sitting: Sitting) -> str:
    """Take pairs into `pairs` and the folder; return how it ended."""
    while (place := next_place(sitting.header, pairs, sitting.stages)) is not None:
        if not sitting.watch.has_room(sitting.budget):
            bench.say(f"the budget of {sitting.budget:g} minutes has no room for another pair")
            return "budget"
        folder.begin_pair(place.name)
        bench.say(_announce(sitting.header, place))
        pair = sitting.take(bench, place)
        check_engines(pairs, pair)
        folder.add(pair)
        pairs.append(pair)
        sitting.watch.pair_done()
        for reason in pair.invalid:
            bench.say(f"  not used: {reason}")
    return "decided"


def _announce(header: ComparisonHeader, place: Place) -> str:
    stage = "pair" if place.stage is Stage.SEARCH else "fresh pair"
    again = " again" if place.attempt else ""
    order = "candidate first" if place.candidate_first else "base first"
    most = header.plan.looks[-1] if place.stage is Stage.SEARCH else header.plan.confirm_pairs
    return f"{place.arm}: {stage} {place.slot + 1} of at most {most}{again}, {order}"


def check_engines(pairs: Sequence[Pair], new: Pair) -> None:
    """Do nothing if both servers of a new pair are the builds of the pairs before it.

    Raises:
        MeasurementError: If a side's engine has another version now.
    """
    for role in Role:
        got = _engine(new, role)
        known = {_engine(pair, role) for pair in pairs if pair.arm == new.arm} - {"unknown"}
        if known and got != "unknown" and got not in known:
            raise MeasurementError(
                f"{role.value} {new.arm}: got engine {got}, earlier pairs had "
                f"{', '.join(sorted(known))}: it changed in the middle of a comparison. The pair "
                "is not kept. Restore the earlier build and --resume, or compare anew."
            )


def _engine(pair: Pair, role: Role) -> str:
    return (pair.base if role is Role.BASE else pair.candidate).engine


def _resume(folder: ComparisonFolder, say: Say) -> ComparisonState:
    """Enter another sitting, and name the pair that the last one left unfinished."""
    state = folder.state()
    broken = folder.interrupted_pair()
    notes = state.notes
    if broken is not None:
        notes = (*notes, f"pair {broken} was interrupted and taken again")
        say(notes[-1])
    state = replace(state, ended="running", sittings=state.sittings + 1, notes=notes)
    folder.write_state(state)
    return state


def _startable(folder: ComparisonFolder) -> ComparisonHeader:
    """Return what was asked for, as stored, with the real values that the servers need."""
    stored, asked = folder.header(), folder.asked
    if asked is None:
        return with_secrets(stored, os.environ)
    return replace(stored, base=asked.base, candidate=asked.candidate)


def _without_secrets(say: Say) -> Say:
    """Return `say` for lines that may quote a server's command or log."""
    return lambda line: say(hide(line))


def _bench(folder: ComparisonFolder, header: ComparisonHeader, say: Say, clock: Clock) -> Bench:
    workload = header.profile.workload
    prompts = load_prompts(workload.dataset, workload.seed)
    if workload.prompts_digest not in (None, prompts_digest(prompts)):
        raise BaselineError(
            f"dataset {workload.dataset!r}: its prompts are not those that the comparison was "
            "begun with: pairs that were sent other prompts don't mix. Restore it and --resume, or "
            "compare anew."
        )
    return Bench(
        profile=header.profile,
        base=header.base,
        candidate=header.candidate,
        gates=header.gates,
        prompts=prompts,
        logs=folder.logs,
        keep=folder.keep_sample,
        say=say,
        clock=clock,
    )


__all__ = [
    "Sides",
    "check_engines",
    "check_hardware",
    "load_comparison",
    "open_comparison",
    "open_confirmation",
    "run_comparison",
]
