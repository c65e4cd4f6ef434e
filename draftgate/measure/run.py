"""One timed run of one arm: load a ready server and keep all that was seen."""

import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from draftgate.clock import SYSTEM_CLOCK, Clock
from draftgate.datasets import Prompt
from draftgate.engines.running import RunningEngine
from draftgate.gpus import faults as gpu_faults
from draftgate.load.apis.dialect import LoadPrompt, raw_prompt
from draftgate.load.requests import Endpoint
from draftgate.load.state import LoadHooks, LoadProgress
from draftgate.measure.load import Load
from draftgate.measure.meters import Meters, busy, dead, failed
from draftgate.metrics.client_error import client_faults, unresolved
from draftgate.records import RunSamples
from draftgate.resources import ResourceSampler
from draftgate.specs import NO_SPECULATION, PrefixCache, WorkloadSpec

Progress = Callable[[LoadProgress], None]


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
        progress: Called about once a second.

    Raises:
        SpecError: If an API key variable is unset.
    """
    started_at = clock.wall().isoformat()
    meters = Meters(engine, ResourceSampler(engine.pid, clock))
    endpoint = Endpoint(engine.base_url, engine.model, engine.api_key_env)
    hooks = LoadHooks(meters.open, meters.close, progress)
    load = Load(endpoint, workload, cell.concurrency, tuple(prompts), uuid.uuid4().hex)
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
    unusable = (
        *failed(loaded, workload.max_failure_share),
        *busy(loaded),
        *gpu_faults(resources.gpus),
    )
    # A dead server explains every other trouble of its run.
    reasons = dead(engine, loaded.records) or (*loaded.notes, *problems, *unusable)
    return replace(run, invalid=tuple(dict.fromkeys(reasons)))


def check_client(run: RunSamples, margins: Mapping[str, float]) -> RunSamples:
    """Return the run, INVALID if a disturbed client could explain what is judged.

    A metric too small for the client's stamps is named in `unresolved`, which leaves the
    others valid. Acceptance is left out by `client_error`: it does not depend on speed.

    Args:
        run: As measured.
        margins: Relative loss that is let through, by metric name.
    """
    if run.invalid:
        return run
    return replace(run, invalid=client_faults(run, margins), unresolved=unresolved(run, margins))


def prime(engine: RunningEngine, workload: WorkloadSpec, prompts: Sequence[Prompt]) -> None:
    """Send every prompt once, one token each, so that the prefix cache holds it.

    Does nothing where the workload defeats the prefix cache.

    Raises:
        EngineError: If the server refuses one.
    """
    if workload.prefix_cache is not PrefixCache.PRIMED:
        return
    for prompt in prompts:
        body = {"model": engine.model, "max_tokens": 1, "temperature": 0}
        if workload.api == "completions":
            asked = LoadPrompt(prompt.prompt_id, messages=prompt.messages)
            engine.post("/v1/completions", {**body, "prompt": raw_prompt(workload.api, asked)})
            continue
        messages = [{"role": role, "content": content} for role, content in prompt.messages]
        engine.post("/v1/chat/completions", {**body, "messages": messages})
