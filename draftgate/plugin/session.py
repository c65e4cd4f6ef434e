"""One pytest session's state: servers, run folder, runs, verdicts.

Everything is made when first asked for, so a session that measures nothing
starts no server and leaves no folder. Knows of pytest only its stash key.
"""

import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from draftgate.baselines import Baseline, baseline_path, load_baseline
from draftgate.clock import SYSTEM_CLOCK, Clock
from draftgate.datasets import Prompt, load_prompts
from draftgate.drift.baseline import AcceptanceBaseline, acceptance_path, load_acceptance
from draftgate.drift.family import Family
from draftgate.drift.judge import judge_traffic, result_line
from draftgate.engines.pool import EnginePool
from draftgate.engines.running import RunningEngine
from draftgate.environment import describe
from draftgate.errors import BaselineError, DraftgateError, EngineError
from draftgate.load.state import LoadProgress
from draftgate.measure import Cell, check_client, measure_run, measure_traffic, prime
from draftgate.metrics import compute_all
from draftgate.plugin.asked import Options, PlannedRun, traffic_of
from draftgate.plugin.paired import PairedSession
from draftgate.records import (
    Environment,
    RunSamples,
    TrafficAcceptance,
    without_replacement,
)
from draftgate.runstore import RunDirectory, StoredRun
from draftgate.specs import Profile
from draftgate.verdict import Verdict, judge_cell

SESSION = pytest.StashKey["GateSession"]()
"""Where the session's state hangs on `pytest.Config`."""

PAIRED = pytest.StashKey[PairedSession | None]()
"""Where the comparison that `--against` asks for hangs; None without it."""

SAY_EVERY_S = 5.0
"""Pace of progress lines while one run goes on."""

MOST_TRIES = 3
"""Times that one repeat is measured while the client is disturbed: something else was busy on
the machine, which says nothing of the server."""

Say = Callable[[str], None]


class FailedEarlierError(EngineError):
    """What is asked for failed before in this session and was told in full then."""


class GateSession:
    """State shared by all tests of a session.

    Attributes:
        options: What the command line asked for.
        say: Prints a line of progress.
        run_path: Folder of this session's runs; None while nothing was measured.
        report_error: Why the report could not be written, if so.
        stored: This session's run folder, read back when it ends.
    """

    def __init__(
        self,
        load: Callable[[], Profile],
        options: Options,
        say: Say,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._load = load
        self._profile: Profile | None = None
        self.options = options
        self.say = say
        self.run_path: Path | None = None
        self.report_error: str | None = None
        self.stored: StoredRun | None = None
        self._clock = clock
        self._directory: RunDirectory | None = None
        self._pool: EnginePool | None = None
        self._prompts: tuple[Prompt, ...] = ()
        self._runs: list[RunSamples] = []
        self._verdicts: list[Verdict] = []
        self._broken: dict[str, str] = {}
        self._told: set[str] = set()
        self._stopped: str | None = None
        self._baseline: Baseline | None = None
        self._traffic: dict[tuple[str, str], TrafficAcceptance] = {}
        self._acceptance_path: str | None = None
        self._environment: Environment | None = None

    @property
    def has_results(self) -> bool:
        """Whether there is anything to report: a run, a verdict or a failed server."""
        return bool(self._runs or self._verdicts or self._broken)

    @property
    def profile(self) -> Profile:
        """What to start and send; read at first use.

        Raises:
            SpecError: If it is wrong, or has a gate that can never be judged.
        """
        if self._profile is None:
            loaded = self._load()
            # With no runs this only checks the gates: better now than after measuring.
            judge_cell(loaded.arms[0].name, 1, base=(), candidate=(), gates=loaded.gates)
            self._profile = loaded
        return self._profile

    def plan(self) -> tuple[PlannedRun, ...]:
        """Return all runs in order of measuring.

        Where all servers live side by side, the arms alternate inside each
        repeat and concurrency in an order drawn by the workload's seed, so
        that slow changes of the machine fall on all arms alike. Where they
        cannot, one server is started per arm and repeat.
        """
        order = random.Random(self.profile.workload.seed)
        names = [arm.name for arm in self.profile.arms]
        runs = []
        for repeat in range(self.profile.workload.repeats):
            cells = [(c, name) for c in self.profile.workload.concurrencies for name in names]
            order.shuffle(names)
            if self.profile.keep_alive:
                cells.sort(key=lambda cell: (cell[0], names.index(cell[1])))
            else:
                cells.sort(key=lambda cell: (names.index(cell[1]), cell[0]))
            runs += [PlannedRun(name, c, repeat) for c, name in cells]
        return tuple(runs)

    @property
    def directory(self) -> RunDirectory:
        """The run folder, made at first use."""
        if self._directory is None:
            self._directory = RunDirectory.create(
                self.options.runs, self.profile, self.options.argv, self._clock
            )
            self.run_path = self._directory.path
            engine = self.profile.arms[0].engine.engine
            self._directory.write_environment(describe(f"{engine} (not started)"))
            self.say(f"run folder {self._directory.path}")
        return self._directory

    @property
    def pool(self) -> EnginePool:
        """The servers, none started before it is asked for."""
        if self._pool is None:
            directory = self.directory
            self._pool = EnginePool(
                directory.logs_path,
                self.say,
                on_command=directory.write_command,
                clock=self._clock,
            )
        return self._pool

    def engine(self, arm_name: str) -> RunningEngine:
        """Return the arm's live server; with `keep_alive` all arms' are started.

        Raises:
            EngineError: If its server cannot be started or died.
            FailedEarlierError: The same, the second time, in one line.
            BaselineError: If there is a baseline that cannot be read.
        """
        with self._remembering(arm_name):
            self._raise_if_broken(arm_name)
            wanted = self.profile.arm(arm_name)
            arms = self.profile.arms if self.profile.keep_alive else (wanted,)
            arms = tuple(arm for arm in arms if arm.name not in self._broken)
            self.pool.keep_only(arms)
            for arm, error in self.pool.start_all(arms).items():
                self._broken[arm.name] = str(error)
            self._raise_if_broken(arm_name)
            (engine,) = self.pool.require((wanted,))
            self._describe(engine)
            return engine

    def measure(self, planned: PlannedRun) -> RunSamples:
        """Take one run, store it and return it.

        One that the client disturbed is stored as INVALID and taken again, so that
        the last of at most `MOST_TRIES` is returned.

        Raises:
            DraftgateError: As for `engine`, or because it cannot be stored.
        """
        engine = self.engine(planned.arm)
        with self._remembering(planned.arm):
            return self._take(engine, planned)

    def _take(self, engine: RunningEngine, planned: PlannedRun) -> RunSamples:
        prime(engine, self.profile.workload, self.prompts)
        label = f"{planned.arm} x{planned.concurrency}, run {planned.repeat + 1}"
        label = f"{label} of {self.profile.workload.repeats}"
        margins = {gate.metric: gate.margin_ratio for gate in self.profile.gates}
        for number in range(MOST_TRIES):
            measured = measure_run(
                engine,
                self.profile.workload,
                Cell(planned.concurrency, planned.repeat),
                self.prompts,
                clock=self._clock,
                progress=self._progress(label),
            )
            run = check_client(measured, margins)
            self.directory.add(run)
            self._runs.append(run)
            self.say(f"{label}: {self._result_line(run)}")
            self._note_death(engine, run.invalid)
            if measured.invalid or not run.invalid:
                break
            self.say(f"{label}: the client was disturbed in try {number + 1} of {MOST_TRIES}")
        return run

    def _note_death(self, engine: RunningEngine, invalid: Sequence[str]) -> None:
        """Keep in mind that a server died while it was measured, which `invalid` tells."""
        if engine.child is not None and engine.child.exit_code() is not None:
            name = engine.arm.name
            self._broken[name] = invalid[0] if invalid else f"{name}: its server ended"
            self._told.add(name)

    @property
    def prompts(self) -> tuple[Prompt, ...]:
        """The workload's prompts in the order of its seed."""
        if not self._prompts:
            workload = self.profile.workload
            self._prompts = load_prompts(workload.dataset, workload.seed, tell=self.say)
        return self._prompts

    def judge(self, arm: str, concurrency: int) -> tuple[Verdict, ...]:
        """Return the verdicts of one cell against the stored baseline."""
        runs = [run for run in self._runs if (run.arm, run.concurrency) == (arm, concurrency)]
        usable = [compute_all(run, self.profile.slo) for run in runs if not run.invalid]
        verdicts = judge_cell(
            arm,
            concurrency,
            base=self._base(arm, concurrency),
            candidate=usable,
            gates=self.profile.gates,
            invalid=_first_lines(
                reason for run in without_replacement(runs) for reason in run.invalid
            ),
            unresolved=dict(named for run in runs if not run.invalid for named in run.unresolved),
        )
        self._verdicts += verdicts
        return verdicts

    def measured(self, arm: str, concurrency: int) -> bool:
        """Return whether this session took any run of the cell."""
        return any((run.arm, run.concurrency) == (arm, concurrency) for run in self._runs)

    def acceptance(self, arm: str, kind: str, temperature: float = 0.0) -> TrafficAcceptance:
        """Measure acceptance of one arm on one kind of traffic, store it and return it.

        Measured again, the newer one is stored.

        Raises:
            DraftgateError: As for `engine`, or because it cannot be stored.
        """
        engine = self.engine(arm)
        with self._remembering(arm):
            seed, short = self.profile.workload.seed, self.options.short
            traffic = traffic_of(kind, seed, short=short, temperature=temperature)
            tell = self._progress(f"{arm} on {traffic.kind}, {len(traffic.prompts)} prompts")
            found = measure_traffic(engine, traffic, clock=self._clock, progress=tell)
            self._traffic[arm, traffic.kind] = found
            self.directory.write_acceptance(tuple(self._traffic.values()))
            self.say(result_line(found))
            self._note_death(engine, found.invalid)
            return found

    def judge_acceptance(self, found: TrafficAcceptance) -> Verdict:
        """Return the verdict on a measurement of this session against the stored baseline.

        The family is every arm and kind that the baseline holds, measured or
        not: no other can alarm.

        Raises:
            BaselineError: If there is a baseline that cannot be read.
        """
        baseline = self._acceptance_baseline()
        base = baseline.held(found.arm, found.kind) if baseline else None
        family = Family(len(baseline.traffic)) if baseline and baseline.traffic else Family()
        verdict = judge_traffic(base, found, family=family)
        self._verdicts.append(verdict)
        return verdict

    def has_base(self, found: TrafficAcceptance) -> bool:
        """Return whether the stored baseline holds this arm and kind.

        Raises:
            BaselineError: If there is a baseline that cannot be read.
        """
        baseline = self._acceptance_baseline()
        return baseline is not None and baseline.held(found.arm, found.kind) is not None

    def _acceptance_baseline(self) -> AcceptanceBaseline | None:
        assert self._environment is not None, "measured before it is judged"
        path = acceptance_path(self.options.baselines, self._environment, self.profile)
        baseline = load_acceptance(path) if path.exists() else None
        if self._acceptance_path is None:
            self._acceptance_path = str(path)
            self.say(f"acceptance baseline {path}{'' if baseline else ' (not there)'}")
        return baseline

    def finish(self) -> None:
        """Stop all servers and store the verdicts.

        Raises:
            MeasurementError: If they cannot be stored.
        """
        try:
            if self._pool is not None:
                self._pool.stop_all()
        finally:
            if self._directory is not None and self._verdicts:
                self._directory.write_verdicts(self._verdicts, self._judged_against())

    def _judged_against(self) -> str | None:
        """Return the baseline files in use, as the report names them."""
        paths = [str(self._baseline.path)] if self._baseline else []
        if self._acceptance_path and Path(self._acceptance_path).exists():
            paths.append(self._acceptance_path)
        return ", ".join(_from_here(Path(path)) for path in paths) or None

    def _base(self, arm: str, concurrency: int) -> Sequence[Mapping[str, float]]:
        return self._baseline.cell(arm, concurrency) if self._baseline else ()

    def _describe(self, engine: RunningEngine) -> None:
        """Record where this takes place and find the baseline, once."""
        if self._environment is not None:
            return
        environment = self._environment = describe(engine.version())
        self.directory.write_environment(environment)
        self._find_baseline(environment)

    def _find_baseline(self, environment: Environment) -> None:
        """Load the baseline of this hardware, engine and profile if it fits.

        Raises:
            BaselineError: If there is one that cannot be read: a damaged file
                must not look like a missing one.
        """
        path = baseline_path(self.options.baselines, environment, self.profile)
        if not path.exists():
            self.say(f"no baseline at {path}")
            return
        baseline = load_baseline(path)
        try:
            self._baseline = baseline.comparable_with(environment, self.profile)
        except BaselineError as error:
            self.say(f"not judged against the stored baseline: {error}")
        else:
            self.say(f"baseline {path}")

    def _progress(self, label: str) -> Callable[[LoadProgress], None]:
        self.say(f"{label}: measuring")
        said = [0.0]

        def tell(at: LoadProgress) -> None:
            if at.elapsed_s - said[0] >= SAY_EVERY_S:
                said[0] = at.elapsed_s
                self.say(f"{label}: {_told(at)}")

        return tell

    def _result_line(self, run: RunSamples) -> str:
        if run.invalid:
            return f"INVALID, {run.invalid[0].splitlines()[0]}"
        values = compute_all(run, self.profile.slo)
        line = f"{values['output_tokens_per_s']:.1f} tokens/s"
        if "mean_acceptance_length" in values:
            line += f", acceptance length {values['mean_acceptance_length']:.2f}"
        return line

    def _raise_if_broken(self, arm_name: str) -> None:
        if self._stopped is not None:
            first = self._stopped.splitlines()[0]
            raise FailedEarlierError(f"nothing is measured any more, after: {first}")
        if arm_name in self._told:
            first = self._broken[arm_name].splitlines()[0]
            raise FailedEarlierError(f"{arm_name} is not measured any more, after: {first}")
        if arm_name in self._broken:
            raise EngineError(self._broken[arm_name])

    @contextmanager
    def _remembering(self, arm_name: str) -> Iterator[None]:
        """Keep an error, so that it is told in full once and in one line from then on.

        A server's fault ends its arm; any other (profile, disk, damaged
        baseline) would meet all arms and ends all measuring.
        """
        try:
            yield
        except FailedEarlierError:
            raise
        except EngineError as error:
            self._broken[arm_name] = str(error)
            self._told.add(arm_name)
            raise
        except DraftgateError as error:
            self._stopped = str(error)
            raise


def _first_lines(reasons: Iterable[str]) -> tuple[str, ...]:
    """Return the first line of each different reason."""
    return tuple(dict.fromkeys(reason.splitlines()[0] for reason in reasons))


def _from_here(path: Path) -> str:
    """Return `path` relative to the working folder if it lies below, for a report to show."""
    here = Path.cwd()
    return str(path.relative_to(here) if path.is_relative_to(here) else path)


def _told(at: LoadProgress) -> str:
    """Return one line of progress; tokens are an estimate while requests are open."""
    line = f"{at.elapsed_s:.0f} s, {at.ended} requests"
    if at.output_tokens is not None:
        line += f", about {at.output_tokens / at.elapsed_s:.0f} tokens/s"
    if at.failed:
        line += f", {at.failed} failed"
    return line
