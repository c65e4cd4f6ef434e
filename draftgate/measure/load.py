"""What one measurement sends: prompts in turn, from one process or several."""

import itertools
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from draftgate.clock import Clock
from draftgate.datasets import Prompt
from draftgate.load.closed import ClosedLoopPlan, NextRequest
from draftgate.load.generator import LoadResult
from draftgate.load.generator import run as run_load
from draftgate.load.requests import Endpoint, LoadPrompt, PreparedRequest, prepare
from draftgate.load.spool import WHOLE, Share
from draftgate.load.spread import processes_for, run_spread
from draftgate.load.state import LoadHooks
from draftgate.specs import PrefixCache, SamplingParams, WorkloadSpec


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
        asked = LoadPrompt(prompt.prompt_id, messages=prompt.messages)
        sampling = _seeded(workload.sampling, number)
        return prepare(workload.api, asked, model, sampling, cache_salt=salt)

    return next_request


@dataclass(frozen=True, slots=True)
class Load:
    """The load of one run, which can be cut into shares for several processes."""

    endpoint: Endpoint
    workload: WorkloadSpec
    concurrency: int
    prompts: tuple[Prompt, ...]
    run_id: str

    def run(self, clock: Clock, hooks: LoadHooks) -> LoadResult:
        """Send it from as many processes as the workload says, or as it needs."""
        plan = plan_of(self.workload, self.concurrency)
        processes = self.workload.client_processes or processes_for(self.concurrency)
        if processes > 1:
            return run_spread(self, plan, processes, hooks)
        return run_load(self.endpoint, self.requests(WHOLE), plan, clock=clock, hooks=hooks)

    def plan(self, share: Share) -> ClosedLoopPlan:
        """Return how one share goes: until it is stopped from outside."""
        whole = plan_of(self.workload, self.concurrency)
        streams = share.size(self.concurrency)
        return replace(whole, concurrency=streams, has_window=False, duration_s=whole.run_timeout_s)

    def requests(self, share: Share) -> NextRequest:
        """Return the source of one share's requests."""
        return request_source(
            self.endpoint.model, self.workload, self.prompts, run_id=self.run_id, share=share
        )


def plan_of(workload: WorkloadSpec, concurrency: int) -> ClosedLoopPlan:
    """Return the closed loop that a workload asks for."""
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


def _seeded(sampling: SamplingParams, number: int) -> SamplingParams:
    """Give each request a seed of its own where the workload sets one."""
    if sampling.seed is None:
        return sampling
    return replace(sampling, seed=sampling.seed + number)
