"""One load on one null engine, and what a run of draftgate's generator under it left behind.

The vocabulary between the command, which decides, and the processes that
measure. Frozen records; opens nothing.
"""

from dataclasses import dataclass

from draftgate.calibration.compare import ClientErrors
from draftgate.records import ClientHealth


@dataclass(frozen=True, slots=True)
class Cores:
    """Where both sides run.

    Attributes:
        client: Core of the load generator under test, with all its processes.
        engine: Core of the null engine.
    """

    client: int
    engine: int


@dataclass(frozen=True, slots=True)
class Job:
    """One load.

    Attributes:
        streams: Closed-loop streams; in open loop not used.
        tokens: Length of each answer.
        engine: Options of the null engine besides core and log.
        answer_s: How long an answer takes by these options, about.
        requests: Requests to send; None for as many as fit into `seconds`.
        seconds: Time in which requests are sent; None for a number of them.
        rate_per_s: Rate of Poisson arrivals; None for a closed loop.
        stagger_s: Time over which streams are started.
        stall_timeout_s: Silence after which a request is given up.
        blocked_s: Time for which the client's process is stalled on purpose,
            every 100 ms.
        spooled: Whether exchanges go to disk and are parsed meanwhile.
    """

    streams: int
    tokens: int
    engine: tuple[str, ...]
    answer_s: float
    requests: int | None = None
    seconds: float | None = None
    rate_per_s: float | None = None
    stagger_s: float = 0.0
    stall_timeout_s: float = 10.0
    blocked_s: float = 0.0
    spooled: bool = False


@dataclass(frozen=True, slots=True)
class MemoryUse:
    """What a spooled run needed.

    Attributes:
        rss: (seconds from the start, resident bytes of sender and parser),
            about one pair per second.
        parquet_bytes: Size of all records.
        lost_tokens: Tokens that the engine sent and the records lack.
    """

    rss: tuple[tuple[float, int], ...]
    parquet_bytes: int
    lost_tokens: int


@dataclass(frozen=True, slots=True)
class OurRun:
    """What one run of draftgate's generator left.

    Attributes:
        tokens_per_s: Tokens received per second while all streams ran; over the
            whole run where a number of requests ends it.
        parse_cpu_s: CPU seconds of making records out of what was received.
        rss_peak_bytes: Largest resident memory of the process, parsing included.
        client: What the generator says about itself; its `cpu_s` is what
            receiving took, user and system, from first to last socket.
        served: Requests without a failure.
        failures: (class, requests) of the others.
        notes: Why it did not go as planned; empty if it did.
        send_delay_s: p50, p99 and maximum of due to sent.
        engine_late_p99_s: How late the engine itself sent, p99.
        errors: Against the log; None where failed requests lack chunks.
        errors_by_read: The same by the stamps of the reads instead of the
            kernel's; None unless the process was stalled on purpose.
        memory: None unless spooled.
    """

    tokens_per_s: float
    parse_cpu_s: float
    rss_peak_bytes: int
    client: ClientHealth
    served: int
    failures: tuple[tuple[str, int], ...]
    notes: tuple[str, ...]
    send_delay_s: tuple[float, float, float]
    engine_late_p99_s: float
    errors: ClientErrors | None
    errors_by_read: ClientErrors | None = None
    memory: MemoryUse | None = None
