"""Vocabulary: what was observed.

Raw, frozen, never summarised in place: one `RunSamples` holds everything one
run left behind, and every number in a report is computed from it. Times are
integer nanoseconds of one monotonic clock. Read after `draftgate.specs`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any


@dataclass(frozen=True, slots=True)
class StreamChunk:
    """One server event that carried tokens; with speculation often several.

    Attributes:
        t_ns: Monotonic time at which its last byte arrived: the kernel's
            receive stamp where there is one, else the time of the read.
        token_ids: The tokens; empty where the server sends counts alone.
        counted: Number of tokens by the server's running usage, for servers
            that send no ids; None where the ids tell it.
    """

    t_ns: int
    token_ids: tuple[int, ...]
    counted: int | None = None

    @property
    def num_tokens(self) -> int:
        """Number of tokens it carried."""
        return len(self.token_ids) if self.counted is None else self.counted


class FailureKind(Enum):
    """Why a request does not count as served."""

    CONNECT = "connect"
    HTTP_ERROR = "http_error"
    IN_BAND_ERROR = "in_band_error"
    EARLY_END = "early_end"
    MISSING_USAGE = "missing_usage"
    WRONG_LENGTH = "wrong_length"
    MALFORMED = "malformed"
    STALLED = "stalled"
    DEADLINE = "deadline"


@dataclass(frozen=True, slots=True)
class Failure:
    """A classified failure with what the server or socket said."""

    kind: FailureKind
    message: str


@dataclass(frozen=True, slots=True)
class RequestRecord:
    """One request, sent once and never again.

    Attributes:
        index: Running number inside the run, in order of sending.
        stream: Which of the c closed-loop streams sent it, from 0.
        prompt_id: The prompt's id in its dataset.
        scheduled_ns: When it was due; in closed loop when its stream was free.
        sent_ns: When its last byte was handed to the socket.
        ended_ns: When its last byte arrived, or its failure was noticed.
        chunks: Token-bearing events in order of arrival.
        prompt_tokens: Prompt length by the server's usage; None if absent.
        completion_tokens: Output length by the server's usage; None if absent.
        finish_reason: As sent by the server; None if absent.
        failure: None if it was served in full.
        text: The output text, if it was asked for.
    """

    index: int
    stream: int
    prompt_id: str
    scheduled_ns: int
    sent_ns: int
    ended_ns: int
    chunks: tuple[StreamChunk, ...] = ()
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    finish_reason: str | None = None
    failure: Failure | None = None
    text: str | None = None


@dataclass(frozen=True, slots=True)
class Window:
    """The part of a run in which all c streams run; [start_ns, end_ns)."""

    start_ns: int
    end_ns: int

    @property
    def length_s(self) -> float:
        """Length in seconds."""
        return (self.end_ns - self.start_ns) / 1e9


@dataclass(frozen=True, slots=True)
class SpeculationCounters:
    """Verification totals over some span, by vLLM's names.

    Only steps that carried drafts count, so ngram steps without a match are
    absent. Mean acceptance length is 1 + accepted / drafts: the bonus token is
    included.

    Attributes:
        num_drafts: Verify steps with drafts.
        num_draft_tokens: Tokens proposed.
        num_accepted_tokens: Tokens accepted, bonus tokens not counted.
        num_accepted_tokens_per_pos: Accepted at draft position 0, 1, ...
    """

    num_drafts: int
    num_draft_tokens: int
    num_accepted_tokens: int
    num_accepted_tokens_per_pos: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class EngineCounters:
    """What the engine counted over one run (differences of two scrapes).

    Attributes:
        generation_tokens: Output tokens by the engine's count.
        prompt_tokens: Prompt tokens by the engine's count.
        queue_time_sum_s: Summed time requests waited to be scheduled, seconds.
        queue_time_count: Requests behind that sum.
        kv_use_max_ratio: Largest share of KV blocks in use that a scrape saw.
        speculation: None where speculation is off.
        prefill_time_sum_s: Summed time from being scheduled to the first token,
            seconds; None where the engine does not tell it.
        prefill_time_count: Requests behind that sum; None likewise.
    """

    generation_tokens: int
    prompt_tokens: int
    queue_time_sum_s: float
    queue_time_count: int
    kv_use_max_ratio: float | None
    speculation: SpeculationCounters | None
    prefill_time_sum_s: float | None = None
    prefill_time_count: int | None = None


@dataclass(frozen=True, slots=True)
class GpuReading:
    """One look at one GPU through NVML; None for what the card does not tell.

    Attributes:
        index: NVML's number of it.
        name: As the card reports it.
        use_ratio: Share of the last sampling period in which a kernel ran.
        memory_used_bytes: By all processes.
        memory_total_bytes: Installed.
        power_w: Now.
        power_limit_w: Enforced limit.
        temperature_c: Of the chip.
        sm_clock_mhz: Of the processors, now.
        memory_clock_mhz: Of the memory, now.
        reasons: Why clocks are below their maximum, `draftgate.gpus.REASONS`.
        pids: Processes that compute on it, ascending.
    """

    index: int
    name: str
    use_ratio: float | None = None
    memory_used_bytes: int | None = None
    memory_total_bytes: int | None = None
    power_w: float | None = None
    power_limit_w: float | None = None
    temperature_c: int | None = None
    sm_clock_mhz: int | None = None
    memory_clock_mhz: int | None = None
    reasons: tuple[str, ...] | None = None
    pids: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class GpuUse:
    """One GPU over the window of a run.

    Attributes:
        index: NVML's number of it.
        first: Reading when the window opened.
        last: Reading when it had closed.
        sm_clock_min_mhz: Lowest clock of the processors that a reading saw.
        temperature_max_c: Highest temperature.
        power_max_w: Highest power.
        reasons: Every reason for lower clocks that a reading saw.
        tenants: Processes on it that are neither draftgate's nor its servers';
            one that this process cannot see (another container's) is not counted.
        readings: Number of readings.
    """

    index: int
    first: GpuReading
    last: GpuReading
    sm_clock_min_mhz: int | None
    temperature_max_c: int | None
    power_max_w: float | None
    reasons: tuple[str, ...]
    tenants: tuple[int, ...]
    readings: int


@dataclass(frozen=True, slots=True)
class ResourceUse:
    """What the server's processes used during the window.

    Attributes:
        cpu_cores: CPU seconds per second over the whole process tree; None
            where the server is not on this machine.
        rss_bytes: Largest resident memory of the tree seen; None likewise.
        gpu_use_ratio: Mean GPU use by NVML; None without a GPU.
        gpu_power_w: Mean GPU power by NVML; None without a GPU.
        gpu_memory_bytes: Largest GPU memory by NVML; None without a GPU.
        gpus: What each GPU did; empty without one.
    """

    cpu_cores: float | None = None
    rss_bytes: int | None = None
    gpu_use_ratio: float | None = None
    gpu_power_w: float | None = None
    gpu_memory_bytes: int | None = None
    gpus: tuple[GpuUse, ...] = ()


@dataclass(frozen=True, slots=True)
class ClientHealth:
    """What the load generator knows about itself.

    The delays tell how far its own slowness can have moved a number. They are
    of the whole run, except for the lag, which is of the window.

    Attributes:
        cpu_s: CPU seconds the client process used during the run.
        wall_s: Length of the run, seconds.
        lag_p99_s: 99th percentile of event-loop lag: how much later than asked
            a periodic timer fired.
        lag_max_s: Largest event-loop lag.
        kernel_stamps: Whether arrival times are the kernel's; else they are
            those of the reads, which come later by the read delay.
        read_delay_p50_s: Median time from the kernel's stamp to the read; None
            without kernel stamps.
        read_delay_p99_s: Its 99th percentile; None likewise.
        send_delay_p50_s: Median time from when a request was due to when its
            last byte was handed over; None of no request.
        send_delay_p99_s: Its 99th percentile; None likewise.
        reads: Reads of response bytes.
        coalesced_reads: Reads in which two or more chunks ended, so that the
            earlier ones carry the stamp of the last.
        output_tokens: Tokens received over the whole run.
    """

    cpu_s: float
    wall_s: float
    lag_p99_s: float
    lag_max_s: float
    kernel_stamps: bool = False
    read_delay_p50_s: float | None = None
    read_delay_p99_s: float | None = None
    send_delay_p50_s: float | None = None
    send_delay_p99_s: float | None = None
    reads: int = 0
    coalesced_reads: int = 0
    output_tokens: int = 0

    @property
    def cpu_per_token_s(self) -> float | None:
        """CPU seconds per output token; None where none came."""
        return self.cpu_s / self.output_tokens if self.output_tokens else None


@dataclass(frozen=True, slots=True)
class Environment:
    """The fingerprint that baselines are keyed by.

    Attributes:
        hardware: Slug of what the numbers depend on, for example
            `cpu-amd-epyc-9b14-2c` or `1x-nvidia-h200`; names a folder.
        cpu_model: As the machine reports it.
        cpu_count: Cores this process may use.
        memory_bytes: Installed memory.
        gpus: Names of GPUs, empty without.
        gpu_driver: Driver version; None without a GPU.
        platform: Kernel and architecture.
        python: Version of the interpreter that runs draftgate.
        draftgate: Version and, in a checkout, commit.
        engine: Engine name and version as the server reports it.
        packages: (name, version) of the packages that decide speed.
        host: Host name, a label only.
    """

    hardware: str
    cpu_model: str
    cpu_count: int
    memory_bytes: int
    gpus: tuple[str, ...]
    gpu_driver: str | None
    platform: str
    python: str
    draftgate: str
    engine: str
    packages: tuple[tuple[str, str], ...]
    host: str


@dataclass(frozen=True, slots=True)
class RunSamples:
    """One run of one arm at one concurrency: the unit of replication.

    Requests inside one run share a server state and are not independent.

    Attributes:
        arm: Name of the arm.
        method: Its draft method, "none" for the reference.
        num_speculative_tokens: Its K; 0 for the reference.
        concurrency: Closed-loop streams c.
        repeat: Running number of the run within its cell, from 0.
        started_at: Time of day, ISO 8601, UTC.
        records: Every request of the run, warm-up and drain included.
        window: None if the run ended before all streams ran.
        counters: None where the server has none.
        resources: Server side use.
        client: Client side use and lag.
        invalid: Why the run cannot be used; empty if it can.
        unresolved: (metric, why) of gated metrics that are too small for the client's stamps;
            the others of the run hold.
    """

    arm: str
    method: str
    num_speculative_tokens: int
    concurrency: int
    repeat: int
    started_at: str
    records: tuple[RequestRecord, ...]
    window: Window | None
    counters: EngineCounters | None
    resources: ResourceUse
    client: ClientHealth
    invalid: tuple[str, ...] = ()
    unresolved: tuple[tuple[str, str], ...] = ()

    @property
    def place(self) -> tuple[str, int, int]:
        """What it is a run of: arm, concurrency, repeat."""
        return self.arm, self.concurrency, self.repeat


def without_replacement(runs: Sequence[RunSamples]) -> tuple[RunSamples, ...]:
    """Return the invalid runs whose repeat was not measured again with success."""
    usable = {run.place for run in runs if not run.invalid}
    return tuple(run for run in runs if run.invalid and run.place not in usable)


@dataclass(frozen=True, slots=True)
class TrafficSetting:
    """What decides whether two measurements of acceptance can be compared.

    Not in it: the draft model, the engine's version and how the server is
    started, because a comparison is about them.

    Attributes:
        target: The target model as the profile names it.
        dtype: Weights and activations in the engine's spelling.
        quantization: Engine's spelling; None for as stored.
        options: Method-specific settings by their profile key, sorted.
        max_tokens: Output length of every request, tokens.
        temperature: 0 is greedy; above it every prompt has a seed of its own.
        concurrency: Closed-loop streams c.
        prompts: Hash of ids and content of all prompts.
    """

    target: str
    dtype: str
    quantization: str | None
    options: tuple[tuple[str, Any], ...]
    max_tokens: int
    temperature: float
    concurrency: int
    prompts: str


@dataclass(frozen=True, slots=True)
class TrafficAcceptance:
    """How well one arm's drafts were accepted on one kind of traffic.

    The prompt is the unit: each was sent once, so values of two measurements
    are paired by prompt.

    Attributes:
        arm: Name of the arm.
        method: Its draft method, "none" for the reference.
        num_speculative_tokens: Its K; 0 for the reference.
        kind: Kind of traffic, for example `chat`.
        setting: What else decides comparability.
        tokens_per_step: (prompt id, tokens after the first chunk / chunks
            after the first), in order of the prompts.
        counters: The engine's count over the same requests; None where it has
            none or speculation is off.
        invalid: Why the measurement cannot be used; empty if it can.
        step_yields: Of each prompt, in the order of `tokens_per_step`, how many
            steps gave 1, 2, ..., K + 1 tokens, of those that began with room for
            K + 1; empty without speculation, and in older baselines.
    """

    arm: str
    method: str
    num_speculative_tokens: int
    kind: str
    setting: TrafficSetting
    tokens_per_step: tuple[tuple[str, float], ...]
    counters: SpeculationCounters | None
    invalid: tuple[str, ...] = ()
    step_yields: tuple[tuple[int, ...], ...] = ()
