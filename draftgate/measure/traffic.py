"""Acceptance by kind of traffic: every prompt once, and how many tokens a step gave for it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from draftgate.clock import SYSTEM_CLOCK, Clock
from draftgate.datasets import Prompt, prompts_digest
from draftgate.engines.running import RunningEngine
from draftgate.load.generator import run as run_load
from draftgate.load.requests import Endpoint
from draftgate.load.state import LoadHooks
from draftgate.measure.load import plan_of, request_source
from draftgate.measure.meters import Meters, dead, failed
from draftgate.measure.run import Progress
from draftgate.records import (
    RequestRecord,
    SpeculationCounters,
    TrafficAcceptance,
    TrafficSetting,
)
from draftgate.resources import ResourceSampler
from draftgate.specs import (
    NO_SPECULATION,
    EngineSpec,
    PrefixCache,
    SamplingParams,
    WorkloadSpec,
)
from draftgate.stats.positions import room_counts

SAMPLING_SEED = 1
"""Above temperature 0 prompt i is sampled with seed 1 + i, so that an unchanged server draws
what it drew before, as far as it honours seeds."""

MAX_MERGED_SHARE = 0.02
"""Share by which verify steps may outnumber chunks. A busy server can put two
steps into one chunk, which makes tokens per step too large by that share; this
is well below the 5 % that verdicts on acceptance let through."""

TRAFFIC_TIMEOUT_S = 600.0
"""Longest that the prompts of one kind may take: on two cores that others used
as well, 16 at 24 tokens took 4 to 27 s, and 72 at 48 are nine times that."""


@dataclass(frozen=True, slots=True)
class Traffic:
    """One kind of traffic: prompts that are each sent once.

    Attributes:
        kind: Its name.
        prompts: What to send, at least one.
        max_tokens: Output length of every request, at least 2.
        concurrency: Closed-loop streams; no more are used than there are prompts.
        temperature: 0 is greedy.
    """

    kind: str
    prompts: tuple[Prompt, ...]
    max_tokens: int
    concurrency: int
    temperature: float = 0.0


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
    plan = replace(
        plan_of(workload, workload.concurrencies[0]),
        has_window=False,
        max_requests=len(traffic.prompts),
    )
    hooks = LoadHooks(on_progress=progress)
    meters = Meters(engine, ResourceSampler(engine.pid, clock))
    meters.open()
    try:
        loaded = run_load(endpoint, requests, plan, clock=clock, hooks=hooks)
    finally:
        meters.close()
    counters, _, problems = meters.read()
    speculation = counters.speculation if counters else None
    steps = _answered(loaded.records, traffic.prompts)
    unanswered = _unanswered(steps, len(traffic.prompts))
    unusable = (*failed(loaded, workload.max_failure_share), *unanswered)
    merged = _merged(loaded.records, speculation)
    reasons = dead(engine, loaded.records) or (*loaded.notes, *problems, *unusable, *merged)
    speculative = engine.spec.speculative
    k = speculative.num_speculative_tokens if speculative else 0
    return TrafficAcceptance(
        arm=engine.arm.name,
        method=speculative.method if speculative else NO_SPECULATION,
        num_speculative_tokens=k,
        kind=traffic.kind,
        setting=_setting(engine.spec, traffic, workload),
        tokens_per_step=tuple((p, sum(counts) / len(counts)) for p, counts in steps if counts),
        counters=speculation,
        invalid=tuple(dict.fromkeys(reasons)),
        step_yields=tuple(room_counts(c, sum(c), k) for _, c in steps if c) if k else (),
    )


def _once_each(traffic: Traffic) -> WorkloadSpec:
    """Return the workload whose source gives each prompt once before it begins again."""
    streams = min(traffic.concurrency, len(traffic.prompts))
    return WorkloadSpec(
        dataset=traffic.kind,
        concurrencies=(streams,),
        sampling=SamplingParams(
            max_tokens=traffic.max_tokens,
            temperature=traffic.temperature,
            seed=SAMPLING_SEED if traffic.temperature > 0 else None,
        ),
        prefix_cache=PrefixCache.DEFEATED,
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


def _answered(
    records: Sequence[RequestRecord], prompts: Sequence[Prompt]
) -> tuple[tuple[str, list[int]], ...]:
    """Return the tokens of the steps of each prompt's answer; none where it has none."""
    answered = {record.prompt_id: record for record in records}
    return tuple((p.prompt_id, _steps(answered.get(p.prompt_id))) for p in prompts)


def _unanswered(steps: Sequence[tuple[str, list[int]]], prompts: int) -> tuple[str, ...]:
    """Return a reason if any prompt has no whole answer with steps."""
    unanswered = [prompt_id for prompt_id, counts in steps if not counts]
    if not unanswered:
        return ()
    told = f"{len(unanswered)} of {prompts} prompts have no whole answer of two chunks or more"
    return (f"{told}; the first: {unanswered[0]}",)


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
