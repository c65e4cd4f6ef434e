"""Engine + load -> `RunSamples`: one run of one arm at one concurrency.

Binds the load generator's window to the engine's counters and the machine's
meters. Decides only whether the run can be used, never what it means.
"""

import itertools
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from draftgate.clock import SYSTEM_CLOCK, Clock
from draftgate.datasets import Prompt
from draftgate.engines.counters import difference
from draftgate.engines.running import RunningEngine
from draftgate.errors import EngineError, MeasurementError
from draftgate.load.generator import ClosedLoopPlan, LoadHooks, LoadResult
from draftgate.load.generator import run as run_load
from draftgate.load.requests import Endpoint, PreparedRequest, prepare_chat
from draftgate.records import EngineCounters, ResourceUse, RunSamples
from draftgate.resources import ResourceSampler
from draftgate.specs import NO_SPECULATION, PrefixCache, SamplingParams, WorkloadSpec

PROMPT_STRIDE = 37
"""Prompts by which the runs of a cell are shifted, so that repeats see different ones."""

MAX_CLIENT_CPU_RATIO = 0.5
"""Share of one core above which the client counts as part of what was measured."""

Progress = Callable[[float, int, int], None]


@dataclass(frozen=True, slots=True)
class Cell:
    """Where one run belongs: concurrency and running number."""

    concurrency: int
    repeat: int


def measure_run(
    engine: RunningEngine,
    workload: WorkloadSpec,
    cell: Cell,
    prompts: Sequence[Prompt],
    *,
    clock: Clock = SYSTEM_CLOCK,
    progress: Progress | None = None,
) -> RunSamples:
    """Load a ready server once and return everything that was seen.

    A run that went wrong is returned too, with the reasons in `invalid`: its
    records are worth keeping and its numbers are not worth judging.

    Args:
        engine: The server, ready.
        workload: What to send; the cell's concurrency is taken from `cell`.
        cell: Concurrency and running number.
        prompts: Prompts in the order of the workload's seed.
        clock: Source of every stamp.
        progress: Called about once a second with elapsed seconds, requests
            ended and bytes received.

    Raises:
        SpecError: If an API key variable is unset.
    """
    started_at = clock.wall().isoformat()
    meters = _Meters(engine, ResourceSampler(engine.pid, clock))
    endpoint = Endpoint(engine.base_url, engine.model, engine.api_key_env)
    requests = request_source(endpoint.model, workload, prompts, cell.repeat * PROMPT_STRIDE)
    hooks = LoadHooks(meters.open, meters.close, progress)
    plan = _plan(workload, cell.concurrency)
    loaded = run_load(endpoint, requests, plan, clock=clock, hooks=hooks)
    counters, resources, problems = meters.read()
    speculative = engine.spec.speculative
    run = RunSamples(
        arm=engine.arm.name,
        method=speculative.method if speculative else NO_SPECULATION,
        num_speculative_tokens=speculative.num_speculative_tokens if speculative else 0,
        concurrency=cell.concurrency,
        repeat=cell.repeat,
        started_at=started_at,
        records=loaded.records,
        window=loaded.window,
        counters=counters,
        resources=resources,
        client=loaded.client,
    )
    # A dead server explains every other trouble of its run.
    reasons = _dead(engine) or (*loaded.notes, *problems, *_unusable(loaded, workload))
    return replace(run, invalid=tuple(dict.fromkeys(reasons)))


def prime(engine: RunningEngine, workload: WorkloadSpec, prompts: Sequence[Prompt]) -> None:
    """Send every prompt once, one token each, so that the prefix cache holds it.

    Does nothing where the workload defeats the prefix cache.

    Raises:
        EngineError: If the server refuses one.
    """
    if workload.prefix_cache is not PrefixCache.PRIMED:
        return
    for prompt in prompts:
        messages = [{"role": role, "content": content} for role, content in prompt.messages]
        body = {"model": engine.model, "messages": messages, "max_tokens": 1, "temperature": 0}
        engine.post("/v1/chat/completions", body)


def request_source(
    model: str, workload: WorkloadSpec, prompts: Sequence[Prompt], first: int
) -> Callable[[int], PreparedRequest]:
    """Return a function that gives the next request, prompts in turn from number `first`.

    All streams draw from one sequence, so every arm sees the same prompts in
    the same order, whatever its speed.
    """
    numbers = itertools.count()
    run_id = uuid.uuid4().hex
    defeated = workload.prefix_cache is PrefixCache.DEFEATED

    def next_request(_stream: int) -> PreparedRequest:
        number = next(numbers)
        prompt = prompts[(first + number) % len(prompts)]
        salt = f"{run_id}-{number}" if defeated else None
        return prepare_chat(prompt, model, _seeded(workload.sampling, number), cache_salt=salt)

    return next_request


def _seeded(sampling: SamplingParams, number: int) -> SamplingParams:
    """Give each request a seed of its own where the workload sets one."""
    if sampling.seed is None:
        return sampling
    return replace(sampling, seed=sampling.seed + number)


def _plan(workload: WorkloadSpec, concurrency: int) -> ClosedLoopPlan:
    return ClosedLoopPlan(
        concurrency=concurrency,
        warmup_requests=workload.warmup_requests,
        window_s=workload.window_s,
        min_requests=workload.min_requests,
        stagger_s=workload.stagger_s,
        stall_timeout_s=workload.stall_timeout_s,
        run_timeout_s=workload.run_timeout_s,
        keep_text=False,
    )


class _Meters:
    """Reads the server's counters and the machine's meters at the window's two ends.

    A server that does not answer makes the run unusable, not the program: what
    it said is kept as a problem.
    """

    def __init__(self, engine: RunningEngine, sampler: ResourceSampler) -> None:
        self._engine = engine
        self._sampler = sampler
        self._pages: list[str] = []
        self._resources = ResourceUse()
        self._problems: list[str] = []

    def open(self) -> None:
        """Take the first reading."""
        self._scrape()
        self._sampler.start()

    def close(self) -> None:
        """Take the second reading."""
        self._resources = self._sampler.stop()
        self._scrape()

    def read(self) -> tuple[EngineCounters | None, ResourceUse, tuple[str, ...]]:
        """Return what was counted and what went wrong; parses only now, after the run."""
        counters = None
        if len(self._pages) == 2:
            try:
                before, after = (self._engine.parse_counters(page) for page in self._pages)
                counters = difference(before, after)
            except (EngineError, MeasurementError) as error:
                self._problems.append(str(error))
        return counters, self._resources, tuple(self._problems)

    def _scrape(self) -> None:
        try:
            page = self._engine.scrape()
        except EngineError as error:
            self._problems.append(str(error))
        else:
            self._pages += [page] if page is not None else []


def _unusable(loaded: LoadResult, workload: WorkloadSpec) -> tuple[str, ...]:
    reasons = []
    failures = [record.failure for record in loaded.records if record.failure]
    share = len(failures) / max(1, len(loaded.records))
    if share > workload.max_failure_share:
        kinds = ", ".join(sorted({failure.kind.value for failure in failures}))
        reasons.append(
            f"{len(failures)} of {len(loaded.records)} requests failed ({kinds}); at most "
            f"{workload.max_failure_share:.1%} may. First: {failures[0].message}"
        )
    client = loaded.client
    if client.wall_s > 0 and client.cpu_s / client.wall_s > MAX_CLIENT_CPU_RATIO:
        reasons.append(
            f"the client used {client.cpu_s / client.wall_s:.0%} of a core; above "
            f"{MAX_CLIENT_CPU_RATIO:.0%} it is part of what is measured"
        )
    return tuple(reasons)


def _dead(engine: RunningEngine) -> tuple[str, ...]:
    code = engine.child.exit_code() if engine.child else None
    if engine.child is None or code is None:
        return ()
    told = f"{engine.arm.name}: the server process ended with exit code {code} during the run."
    return (f"{told}\nLast lines of {engine.child.log_path}:\n{engine.child.log_tail()}",)
