"""The paired comparison of one session: `pytest -m perf --against SIDE`.

The sides are read when tests are collected, pairs are taken when the first
gate asks for its verdict. Knows of pytest nothing.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from draftgate.clock import SYSTEM_CLOCK, Clock
from draftgate.compare.gates import gates_of
from draftgate.compare.records import Gate, GateResult, StoredComparison
from draftgate.compare.run import Sides, load_comparison, open_comparison, run_comparison
from draftgate.compare.sides import check_sides, resolve_side
from draftgate.compare.store import ComparisonFolder
from draftgate.compare.take import Say
from draftgate.errors import DraftgateError
from draftgate.noise.gating import gates_for_runner
from draftgate.specs import CompareSpec


@dataclass(frozen=True, slots=True)
class PairedOptions:
    """What the command line asked for.

    Attributes:
        against: The base, as `draftgate compare` takes it.
        candidate: The side that is judged.
        profile: Name or path.
        overrides: For both sides.
        max_minutes: Budget; None for the profile's.
        runs: Where the comparison's folder goes.
        baselines: Where noise studies are read from.
        argv: Command line, for the record.
    """

    against: str
    candidate: str
    profile: str
    overrides: tuple[str, ...]
    max_minutes: float | None
    runs: Path
    baselines: Path
    argv: tuple[str, ...]


class PairedSession:
    """Takes the pairs of a session once, and hands out its verdicts.

    Attributes:
        stored: The comparison once it was taken, also in part; None before.
        folder: Its folder; None before.
    """

    def __init__(self, options: PairedOptions, say: Say, clock: Clock = SYSTEM_CLOCK) -> None:
        self._options = options
        self._say = say
        self._clock = clock
        self._error: DraftgateError | None = None
        self.stored: StoredComparison | None = None
        self.folder: ComparisonFolder | None = None

    @cached_property
    def sides(self) -> Sides:
        """What is compared.

        Raises:
            SpecError: If a side is wrong, or both do not fit together.
        """
        asked = self._options
        base, profile = resolve_side(asked.against, asked.profile, overrides=asked.overrides)
        candidate, other = resolve_side(asked.candidate, asked.profile, overrides=asked.overrides)
        check_sides(profile, other, base, candidate)
        return Sides(profile, base, candidate)

    @cached_property
    def gates(self) -> tuple[Gate, ...]:
        """Every question, fixed before the first pair.

        Raises:
            SpecError: If a side or a gate is wrong.
            MeasurementError: If this runner is quarantined.
            BaselineError: If its noise study is damaged.
        """
        concurrencies = self.sides.profile.workload.concurrencies
        asked = gates_of(self.sides.base.arms, concurrencies, self._plan)
        return gates_for_runner(
            asked, self.sides.profile, self._plan, self._options.baselines, tell=self._say
        )

    @property
    def _plan(self) -> CompareSpec:
        plan = self.sides.profile.compare
        return replace(plan, max_minutes=self._options.max_minutes or plan.max_minutes)

    def verdict(self, gate: Gate) -> GateResult:
        """Return the verdict on a gate; takes all pairs when first asked.

        Raises:
            DraftgateError: As from `run_comparison`; the same one again for the next gate.
        """
        if self._error is not None:
            raise self._error
        if self.stored is None:
            try:
                self._run()
            except DraftgateError as error:
                self._error = error
                raise
        assert self.stored is not None, "taken above"
        return next(held for held in self.stored.result.gates if held.gate == gate)

    def _run(self) -> None:
        folder = open_comparison(
            self._options.runs,
            self.sides,
            self.gates,
            self._plan,
            argv=self._options.argv,
            clock=self._clock,
        )
        self.folder = folder
        self._say(f"comparison {folder.path}")
        try:
            run_comparison(folder, self._say, clock=self._clock)
        finally:
            self.stored = load_comparison(folder.path)
