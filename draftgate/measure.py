"""Engine + load -> `RunSamples` or `TrafficAcceptance`: one measurement of one arm.

Binds the load generator to the engine's counters and the machine's meters.
Decides only whether a measurement can be used, never what it means.
"""

import hashlib
import itertools
import json
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from draftgate.clock import SYSTEM_CLOCK, Clock
from draftgate.datasets import Prompt
from draftgate.engines.counters import difference
from draftgate.engines.running import RunningEngine
from draftgate.errors import EngineError, MeasurementError
from draftgate.load.closed import ClosedLoopPlan, NextRequest
from draftgate.load.generator import LoadResult
from draftgate.load.generator import run as run_load
from draftgate.load.requests import Endpoint, PreparedRequest, prepare_chat
from draftgate.load.spool import WHOLE, Share
from draftgate.load.spread import processes_for, run_spread
from draftgate.load.state import LoadHooks, LoadProgress
from draftgate.metrics.client_error import client_faults
from draftgate.records import (
    EngineCounters,
    FailureKind,
    RequestRecord,
    ResourceUse,
    RunSamples,
    SpeculationCounters,
    TrafficAcceptance,
    TrafficSetting,
)
from draftgate.resources import ResourceSampler
from draftgate.specs import (
    NO_SPECULATION,
    EngineSpec,
    GateSpec,
    PrefixCache,
    SamplingParams,
    WorkloadSpec,
)

MAX_CLIENT_CPU_RATIO = 0.5
"""Share of one core above which the client counts as part of what was measured."""

MAX_MERGED_SHARE = 0.02
"""Share by which verify steps may outnumber chunks. A busy server can put two
steps into one chunk, which makes tokens per step too large by that share; this
is well below the 5 % that verdicts on acceptance let through."""

TRAFFIC_TIMEOUT_S = 600.0
"""Longest that the prompts of one kind may take: on two cores that others used
as well, 16 at 24 tokens took 4 to 27 s, and 72 at 48 are nine times that."""

DYING_S = 1.0
"""Time a server that cut requests off gets to end, so that its death is told as the cause."""

_CUT_OFF = (FailureKind.CONNECT, FailureKind.HTTP_ERROR, FailureKind.EARLY_END)

Progress = Callable[[LoadProgress], None]


@dataclass(frozen=True, slots=True)
class Cell:
    """Where one run belongs: concurrency and running number."""

    concurrency: int
    repeat: int


@dataclass(frozen=True, slots=True)
class Traffic:
    """One kind of traffic: prompts that are each sent once, greedily.

    Attributes:
        kind: Its name.
        prompts: What to send, at least one.
        max_tokens: Output length of every request, at least 2.
        concurrency: Closed-loop streams; no more are used than there are prompts.
    """

    kind: str
    prompts: tuple[Prompt, ...]
    max_tokens: int
    concurrency: int


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
        progress: Called about once a second.

    Raises:
        SpecError: If an API key variable is unset.
    """
    started_at = clock.wall().isoformat()
    meters = _Meters(engine, ResourceSampler(engine.pid, clock))
    endpoint = Endpoint(engine.base_url, engine.model, engine.api_key_env)
    hooks = LoadHooks(meters.open, meters.close, progress)
    load = _Load(endpoint, workload, cell.concurrency, tuple(prompts), uuid.uuid4().hex)
    loaded = load.run(clock, hooks)
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
    unusable = (*_failed(loaded, workload.max_failure_share), *_busy(loaded))
    # A dead server explains every other trouble of its run.
    reasons = _dead(engine, loaded.records) or (*loaded.notes, *problems, *unusable)
    return replace(run, invalid=tuple(dict.fromkeys(reasons)))


def check_client(run: RunSamples, gates: Sequence[GateSpec]) -> RunSamples:
    """Return the run, INVALID if the client's own error could explain what is judged.

    Acceptance is left out by `client_error`: it does not depend on speed.

    Args:
        run: As measured.
        gates: What it is to be judged by.
    """
    if run.invalid:
        return run
    margins = {gate.metric: gate.margin_ratio for gate in gates}
    return replace(run, invalid=client_faults(run, margins))


def measure_traffic(
    engine: RunningEngine,
    traffic: Traffic,
    *,
    clock: Clock = SYSTEM_CLOCK,
    progress: Progress | None = None,
) -> TrafficAcceptance:
    """Send each prompt once and return how many tokens a step yielded for it.

    The engine's counters are read before the first request and after the last
    answer, so they speak of the same steps as the chunks. As in `measure_run`,
    a measurement that went wrong is returned with its reasons. How busy the
    client was is none of them: acceptance does not depend on speed.

    Args:
        engine: The server, ready, and used by nobody else meanwhile.
        traffic: What to send.
        clock: Source of every stamp.
        progress: As for `measure_run`.

    Raises:
        SpecError: If an API key variable is unset.
    """
    workload = _once_each(traffic)
    endpoint = Endpoint(engine.base_url, engine.model, engine.api_key_env)
    requests = request_source(endpoint.model, workload, traffic.prompts)
    plan = replace(_plan(workload, workload.concurrencies[0]), whole_rounds=False)
    hooks = LoadHooks(on_progress=progress)
    meters = _Meters(engine, ResourceSampler(engine.pid, clock))
    meters.open()
    try:
        loaded = run_load(endpoint, requests, plan, clock=clock, hooks=hooks)
    finally:
        meters.close()
    counters, _, problems = meters.read()
    speculation = counters.speculation if counters else None
    values, unanswered = _tokens_per_step(loaded.records, traffic.prompts)
    unusable = (*_failed(loaded, workload.max_failure_share), *unanswered)
    merged = _merged(loaded.records, speculation)
    reasons = _dead(engine, loaded.records) or (*loaded.notes, *problems, *unusable, *merged)
    speculative = engine.spec.speculative
    return TrafficAcceptance(
        arm=engine.arm.name,
        method=speculative.method if speculative else NO_SPECULATION,
        num_speculative_tokens=speculative.num_speculative_tokens if speculative else 0,
        kind=traffic.kind,
        setting=_setting(engine.spec, traffic, workload),
        tokens_per_step=values,
        counters=speculation,
        invalid=tuple(dict.fromkeys(reasons)),
    )


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
    model: str,
    workload: WorkloadSpec,
    prompts: Sequence[Prompt],
    *,
    run_id: str | None = None,
    share: Share = WHOLE,
) -> Callable[[int], PreparedRequest]:
    """Return a function that gives the next request, prompts in turn.

    All streams draw from one sequence that begins anew in each run, so every
    arm and every repeat sends the same prompts in the same order: runs of a
    cell differ in timing, not in what was asked. A share of the load draws
    every so-manieth of it.
    """
    numbers = itertools.count()
    run_id = run_id or uuid.uuid4().hex
    defeated = workload.prefix_cache is PrefixCache.DEFEATED

    def next_request(_stream: int) -> PreparedRequest:
        number = share.number(next(numbers))
        prompt = prompts[number % len(prompts)]
        salt = f"{run_id}-{number}" if defeated else None
        return prepare_chat(prompt, model, _seeded(workload.sampling, number), cache_salt=salt)

    return next_request


@dataclass(frozen=True, slots=True)
class _Load:
    """The load of one run, which can be cut into shares for several processes."""

    endpoint: Endpoint
    workload: WorkloadSpec
    concurrency: int
    prompts: tuple[Prompt, ...]
    run_id: str

    def run(self, clock: Clock, hooks: LoadHooks) -> LoadResult:
        """Send it from as many processes as the workload says, or as it needs."""
        plan = _plan(self.workload, self.concurrency)
        processes = self.workload.client_processes or processes_for(self.concurrency)
        if processes > 1:
            return run_spread(self, plan, processes, hooks)
        return run_load(self.endpoint, self.requests(WHOLE), plan, clock=clock, hooks=hooks)

    def plan(self, share: Share) -> ClosedLoopPlan:
        """Return how one share goes: until it is stopped from outside."""
        whole = _plan(self.workload, self.concurrency)
        streams = share.size(self.concurrency)
        return replace(whole, concurrency=streams, has_window=False, duration_s=whole.run_timeout_s)

    def requests(self, share: Share) -> NextRequest:
        """Return the source of one share's requests."""
        return request_source(
            self.endpoint.model, self.workload, self.prompts, run_id=self.run_id, share=share
        )


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
        whole_rounds=True,
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


def _once_each(traffic: Traffic) -> WorkloadSpec:
    """Return the closed loop that sends each prompt once.

    When the request that fills the window ends, each other stream has one more
    open, so the window is full at that many requests less than there are
    prompts. If a stream is so quick that it ends a request before the others
    have begun, some prompts are sent again; the first answer of each counts.
    """
    streams = min(traffic.concurrency, len(traffic.prompts))
    return WorkloadSpec(
        dataset=traffic.kind,
        concurrencies=(streams,),
        sampling=SamplingParams(max_tokens=traffic.max_tokens),
        prefix_cache=PrefixCache.DEFEATED,
        warmup_requests=0,
        window_s=0.0,
        min_requests=len(traffic.prompts) - streams + 1,
        stagger_s=0.0,
        run_timeout_s=TRAFFIC_TIMEOUT_S,
    )


def _setting(spec: EngineSpec, traffic: Traffic, workload: WorkloadSpec) -> TrafficSetting:
    return TrafficSetting(
        target=spec.target,
        dtype=spec.dtype,
        quantization=spec.quantization,
        options=spec.speculative.options if spec.speculative else (),
        max_tokens=traffic.max_tokens,
        temperature=workload.sampling.temperature,
        concurrency=workload.concurrencies[0],
        prompts=prompts_digest(traffic.prompts),
    )


def prompts_digest(prompts: Sequence[Prompt]) -> str:
    """Return a short hash of ids and content, whatever the order."""
    content = sorted([prompt.prompt_id, prompt.messages] for prompt in prompts)
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:16]


def _tokens_per_step(
    records: Sequence[RequestRecord], prompts: Sequence[Prompt]
) -> tuple[tuple[tuple[str, float], ...], tuple[str, ...]]:
    """Return the value of each prompt's first answer, and a reason if any has none."""
    first: dict[str, RequestRecord] = {}
    for record in records:
        first.setdefault(record.prompt_id, record)
    steps = {p.prompt_id: _steps(first.get(p.prompt_id)) for p in prompts}
    values = tuple(
        (prompt_id, sum(counts) / len(counts)) for prompt_id, counts in steps.items() if counts
    )
    unanswered = [prompt_id for prompt_id, counts in steps.items() if not counts]
    if not unanswered:
        return values, ()
    told = f"{len(unanswered)} of {len(prompts)} prompts have no whole answer of two chunks or more"
    return values, (f"{told}; the first: {unanswered[0]}",)


def _steps(record: RequestRecord | None) -> list[int]:
    """Return the tokens of each chunk after the first; empty if the request failed."""
    if record is None or record.failure is not None:
        return []
    return [chunk.num_tokens for chunk in record.chunks[1:]]


def _merged(
    records: Sequence[RequestRecord], speculation: SpeculationCounters | None
) -> tuple[str, ...]:
    """Return a reason if the chunks cannot be the steps that the engine counted."""
    chunks = sum(max(0, len(record.chunks) - 1) for record in records)
    if speculation is None or speculation.num_drafts <= chunks * (1 + MAX_MERGED_SHARE):
        return ()
    counted = f"the engine counted {speculation.num_drafts} verify steps"
    got = f"only {chunks} chunks came after the first ones"
    return (f"{counted} but {got}: chunks hold several steps, or others use the server",)


def _failed(loaded: LoadResult, max_failure_share: float) -> tuple[str, ...]:
    failures = [record.failure for record in loaded.records if record.failure]
    share = len(failures) / max(1, len(loaded.records))
    if share <= max_failure_share:
        return ()
    kinds = ", ".join(sorted({failure.kind.value for failure in failures}))
    told = f"{len(failures)} of {len(loaded.records)} requests failed ({kinds})"
    return (f"{told}; at most {max_failure_share:.1%} may. First: {failures[0].message}",)


def _busy(loaded: LoadResult) -> tuple[str, ...]:
    client = loaded.client
    if client.wall_s <= 0 or client.cpu_s / client.wall_s <= MAX_CLIENT_CPU_RATIO:
        return ()
    used, limit = f"{client.cpu_s / client.wall_s:.0%}", f"{MAX_CLIENT_CPU_RATIO:.0%}"
    return (f"the client used {used} of a core; above {limit} it is part of what is measured",)


def _dead(engine: RunningEngine, records: Sequence[RequestRecord]) -> tuple[str, ...]:
    """Return that our own server has ended, if so; waits a little for one that is about to."""
    if engine.child is None:
        return ()
    cut_off = any(record.failure and record.failure.kind in _CUT_OFF for record in records)
    code = engine.child.wait(DYING_S) if cut_off else engine.child.exit_code()
    if code is None:
        return ()
    told = f"{engine.arm.name}: the server process ended with exit code {code} during the run."
    return (f"{told}\nLast lines of {engine.child.log_path}:\n{engine.child.log_tail()}",)
