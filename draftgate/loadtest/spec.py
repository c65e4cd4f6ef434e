"""What a load test sends, how and until when: one frozen record, cut into shares.

Any process can run a share of it. Opens nothing and reads no clock;
`draftgate.loadtest.run` runs it.
"""

import math
import secrets
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from draftgate.errors import SpecError
from draftgate.load.apis import APIS, LoadPrompt
from draftgate.load.arrivals import (
    Arrivals,
    ClosedLoop,
    Constant,
    Gamma,
    Poisson,
    Ramp,
    Replay,
    Steps,
    shared,
)
from draftgate.load.closed import ClosedLoopPlan, NextRequest
from draftgate.load.generator import LoadPlan
from draftgate.load.open import OpenLoopPlan
from draftgate.load.prompts import PromptList
from draftgate.load.requests import Endpoint, PreparedRequest, prepare
from draftgate.load.workload import PlannedRequest, RequestPlan
from draftgate.loadtest.sources import Conversations, Numbered
from draftgate.specs import SamplingParams

if TYPE_CHECKING:  # it brings Parquet along, which nothing needs before records are written
    from draftgate.load.spool import Share

STREAMS_PER_CORE = 1_000
"""Streams that one process is given at most."""

TOKENS_PER_CORE_PER_S = 50_000
"""Tokens per second that one process is given at most: half of what a core carries,
because the lag of a process grows as it nears its limit (benchmarks/loadgen/RESULTS.md)."""

_DRAIN_S = 300.0
"""Time that open requests get after the last one was sent."""

_LONGEST_RUN_S = 86_400.0
"""Time after which a run of a given number of requests ends: a day."""

_SAMPLED = 256
"""Output lengths drawn to estimate their mean."""


@dataclass(frozen=True, slots=True)
class LoadTest:
    """One load on one server.

    Attributes:
        endpoint: The server.
        arrivals: When requests go out: a closed loop, or an open loop's process.
        workload: What is asked, and how long outputs may be.
        sampling: How tokens are drawn; its `max_tokens` gives way to the workload's.
        api: Name of the dialect, one of `draftgate.load.apis.APIS`.
        max_requests: Requests after which no more are sent; None for no limit.
        duration_s: Time after which no more are sent; None for no limit.
        salt: What cache salts begin with, so that no request finds its prefix in
            the server's cache; None shares the cache. See `with_fresh_salts`.
        seed: Decides arrival and think times.
        stall_timeout_s: Silence after which a request is given up.
        run_timeout_s: Time after which whatever is open fails; None for the
            duration, or the end of the trace, and five minutes more, or for a day.
        keep_text: Whether records hold the output text.
    """

    endpoint: Endpoint
    arrivals: ClosedLoop | Arrivals
    workload: RequestPlan
    sampling: SamplingParams
    api: str = "chat"
    max_requests: int | None = None
    duration_s: float | None = None
    salt: str | None = None
    seed: int = 1
    stall_timeout_s: float = 60.0
    run_timeout_s: float | None = None
    keep_text: bool = False

    def __post_init__(self) -> None:
        """Check what one record can check by itself.

        Raises:
            SpecError: If nothing ends the run, a limit is out of range, or
                sessions are to be sent in an open loop.
        """
        for name in ("max_requests", "duration_s", "stall_timeout_s", "run_timeout_s"):
            value = getattr(self, name)
            if value is not None and not (math.isfinite(value) and value > 0):
                raise SpecError(f"load test: {name} must be a finite number > 0, got {value}.")
        if self.max_requests is None and self.duration_s is None and _span_s(self.arrivals) is None:
            raise SpecError(
                f"load test: nothing ends it: {self.arrivals.describe()} go on. Give a number of "
                "requests or a duration."
            )
        if self.workload.turns > 1 and not isinstance(self.arrivals, ClosedLoop):
            raise SpecError(
                f"load test: got sessions of {self.workload.turns} turns in an open loop, where no "
                "request waits for an answer. Use a closed loop (concurrency), or one turn."
            )

    @property
    def is_open_loop(self) -> bool:
        """Whether requests go out when they are due, whatever became of earlier ones."""
        return not isinstance(self.arrivals, ClosedLoop)

    def check(self) -> None:
        """Check that the API can express every prompt and setting, before any is sent.

        Raises:
            SpecError: If it is unknown or cannot; the message names prompt or setting.
        """
        dialect = APIS.get(self.api)
        for number in range(_distinct(self.workload)):
            self.prepared(self.workload.request(number * self.workload.turns))
        if self.workload.turns > 1:
            if not dialect.gives_text:
                raise SpecError(
                    f"API {self.api!r}: its answers hold no text, which the next turn of a session "
                    "needs. Use one turn, or another API."
                )
            turns = (("user", "a"), ("assistant", "b"), ("user", "c"))
            self.prepared(PlannedRequest(0, LoadPrompt("session", turns), 1, 0, 1))

    def plan(self, share: "Share") -> LoadPlan:
        """Return how one share goes: every `of`-th stream, arrival and request is its own."""
        limit = None if self.max_requests is None else share.size(self.max_requests)
        if not isinstance(self.arrivals, ClosedLoop):
            return OpenLoopPlan(
                offsets_ns=shared(self.arrivals.offsets_ns(self.seed), share.index, share.of),
                stall_timeout_s=self.stall_timeout_s,
                run_timeout_s=self.longest_s,
                keep_text=self.keep_text,
                max_requests=limit,
                duration_s=self.duration_s,
            )
        think_time = self.arrivals.think_time

        def think_times(stream: int) -> Iterator[float]:
            return think_time.think_times_s(share.number(stream), self.seed)

        return ClosedLoopPlan(
            concurrency=share.size(self.arrivals.concurrency),
            stagger_s=self.arrivals.stagger_s,
            stall_timeout_s=self.stall_timeout_s,
            run_timeout_s=self.longest_s,
            keep_text=self.keep_text,
            has_window=False,
            max_requests=limit,
            duration_s=self.duration_s,
            think_times=think_times if think_time.mean_s else None,
        )

    def requests(self, share: "Share") -> NextRequest:
        """Return the source of one share's requests."""
        if self.workload.turns > 1:
            return Conversations(self.workload, self.prepared, share.number)
        return Numbered(self.workload, self.prepared, share.number)

    def prepared(self, planned: PlannedRequest) -> PreparedRequest:
        """Return a planned request in the API's form.

        Raises:
            SpecError: If the API cannot express it.
        """
        apart = planned.number if planned.session is None else planned.session
        return prepare(
            self.api,
            planned.prompt,
            self.endpoint.model,
            replace(self.sampling, max_tokens=planned.max_tokens),
            cache_salt=None if self.salt is None else f"{self.salt}-{apart}",
        )

    @property
    def longest_s(self) -> float:
        """Time after which the run ends whatever is open, seconds."""
        if self.run_timeout_s is not None:
            return self.run_timeout_s
        ends_s = self.sends_for_s
        return _LONGEST_RUN_S if ends_s is None else ends_s + _DRAIN_S

    @property
    def sends_for_s(self) -> float | None:
        """Time for which requests are sent, seconds; None where their number decides."""
        known = [s for s in (self.duration_s, _span_s(self.arrivals)) if s is not None]
        return min(known, default=None)

    def workers(self, cores: int) -> int:
        """Return the processes that sending is spread over.

        One as long as a core can carry the load. A closed loop counts by its
        streams, 1,000 to a process, since its speed is the server's to decide;
        an open loop by the tokens per second that it asks for at its highest
        rate, 50,000 to a process. More than that are shared evenly, and at
        least one core is left to everything else, parsing among it.

        Args:
            cores: Cores that this machine lends.
        """
        if isinstance(self.arrivals, ClosedLoop):
            wanted = self.arrivals.concurrency / STREAMS_PER_CORE
        else:
            tokens_per_s = peak_rate_per_s(self.arrivals) * mean_tokens(self.workload)
            wanted = tokens_per_s / TOKENS_PER_CORE_PER_S
        most = [m for m in (cores - 1, self.most_workers) if m is not None]
        return max(1, min(math.ceil(wanted), *most))

    @property
    def most_workers(self) -> int | None:
        """Largest number of shares of which none is empty; None for no limit."""
        streams = self.arrivals.concurrency if isinstance(self.arrivals, ClosedLoop) else None
        return min((n for n in (streams, self.max_requests) if n is not None), default=None)


def with_fresh_salts(test: LoadTest) -> LoadTest:
    """Return the test with salts that no run had before, where its API has salts.

    A request, or a session of several turns, then finds nothing of its prompt in
    the server's prefix cache. An API without salts shares the cache: there the
    server must be started without one, or prompts must differ.

    Raises:
        SpecError: If the API is unknown or cannot express the first prompt.
    """
    test.prepared(test.workload.request(0))
    salted = replace(test, salt=secrets.token_hex(8))
    try:
        salted.prepared(salted.workload.request(0))
    except SpecError:  # without a salt it was expressed, so this API has none
        return test
    return salted


def peak_rate_per_s(arrivals: Arrivals) -> float:
    """Return the highest mean rate of an open loop, requests per second."""
    match arrivals:
        case Constant() | Poisson() | Gamma():
            return arrivals.rate_per_s
        case Ramp():
            return max(arrivals.from_per_s, arrivals.to_per_s)
        case Steps():
            return max(rate for rate, _ in arrivals.steps)
        case Replay():
            return len(arrivals.offsets_s) / max(1.0, arrivals.offsets_s[-1] * arrivals.scale)


def mean_tokens(workload: RequestPlan) -> float:
    """Return the mean output length of the first requests, tokens."""
    numbers = range(0, _SAMPLED * workload.turns, workload.turns)
    return sum(workload.request(number).max_tokens for number in numbers) / _SAMPLED


def _span_s(arrivals: ClosedLoop | Arrivals) -> float | None:
    """Return how long arrivals go on by themselves; None if without end."""
    match arrivals:
        case Replay():
            return arrivals.offsets_s[-1] * arrivals.scale
        case Steps():
            return math.fsum(seconds for _, seconds in arrivals.steps)
        case Ramp() if arrivals.to_per_s == 0.0:
            return arrivals.over_s
    return None


def _distinct(workload: RequestPlan) -> int:
    """Return how many first turns to look at to have seen each kind of prompt."""
    source = workload.prompts
    return len(source.entries) if isinstance(source, PromptList) else 1
