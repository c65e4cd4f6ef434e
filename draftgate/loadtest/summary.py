"""What a load test says in the end, as records that become its JSON file.

All times are in seconds, relative to the start of the run where they are points
in time. What each number means is in `docs/glossary.md`. Computes nothing;
`draftgate.loadtest.summarise` fills it in.
"""

from dataclasses import dataclass

SCHEMA_VERSION = 1
"""Version of the JSON file's form: raised when a key changes its name or meaning."""


@dataclass(frozen=True, slots=True)
class Distribution:
    """Order statistics of one kind of value, none interpolated.

    Attributes:
        count: Values behind them; with fewer than 100 the p99 is the largest.
        mean: Arithmetic mean.
        p50: Smallest value that at least 50 % of the values do not exceed.
        p90: Likewise for 90 %.
        p95: Likewise for 95 %.
        p99: Likewise for 99 %.
        max: Largest value.
    """

    count: int
    mean: float
    p50: float
    p90: float
    p95: float
    p99: float
    max: float


@dataclass(frozen=True, slots=True)
class Asked:
    """What was asked for. Holds the name of the key's variable at most, never the key.

    Attributes:
        url: Address of the server.
        model: Name that requests asked for.
        api: Dialect.
        arrivals: How requests were timed, in words.
        open_loop: Whether they went out however many were open.
        prompts: What was sent, in words.
        max_requests: Requests after which none was sent; None for no limit.
        duration_s: Time after which none was sent; None for no limit.
        temperature: Softmax temperature.
        top_p: Nucleus mass.
        top_k: Largest number of candidates; 0 for all.
        sampling_seed: Seed of each request; None left it to the server.
        ignore_eos: Whether outputs had to have their full length.
        prefix_cache: "defeated" where each request or session had a salt of
            its own, else "shared".
        seed: Decided arrivals, prompts and lengths.
        stall_timeout_s: Silence after which a request was given up.
        run_timeout_s: Time after which whatever was open failed.
    """

    url: str
    model: str
    api: str
    arrivals: str
    open_loop: bool
    prompts: str
    max_requests: int | None
    duration_s: float | None
    temperature: float
    top_p: float
    top_k: int
    sampling_seed: int | None
    ignore_eos: bool
    prefix_cache: str
    seed: int
    stall_timeout_s: float
    run_timeout_s: float


@dataclass(frozen=True, slots=True)
class WindowSummary:
    """The part of the run that counts, [start, end), in seconds since the run's start.

    Attributes:
        start_s: Where it begins.
        end_s: Where it ends.
        length_s: End - start.
        steady: Whether it is a steady window; otherwise it is what there was.
        truncated_s: How much was left out as start-up.
        reason: How it was found, or why no steady window was.
    """

    start_s: float
    end_s: float
    length_s: float
    steady: bool
    truncated_s: float
    reason: str


@dataclass(frozen=True, slots=True)
class Latencies:
    """Times of served requests in the window, seconds; None where there was no value.

    Attributes:
        ttft_s: First chunk - sent; requests sent in the window.
        ttft_from_scheduled_s: First chunk - scheduled, of the same requests;
            None in closed loop.
        step_gap_s: Between two chunks in a row of a request, both in the window.
        per_token_s: (Last chunk - first) / tokens after the first; requests
            ended in the window.
        e2e_s: Last byte - sent; requests ended in the window.
        e2e_from_scheduled_s: Last byte - scheduled, of the same requests; None
            in closed loop.
    """

    ttft_s: Distribution | None
    ttft_from_scheduled_s: Distribution | None
    step_gap_s: Distribution | None
    per_token_s: Distribution | None
    e2e_s: Distribution | None
    e2e_from_scheduled_s: Distribution | None


@dataclass(frozen=True, slots=True)
class StepSize:
    """How many steps had one size.

    Attributes:
        tokens: Tokens of the chunk that closes the gap.
        share: Share of the gaps in the window.
    """

    tokens: int
    share: float


@dataclass(frozen=True, slots=True)
class Throughput:
    """Served requests in the window.

    Attributes:
        output_tokens: Tokens whose chunk arrived in the window.
        output_tokens_per_s: The same / length of the window.
        requests: Requests that ended in the window.
        requests_per_s: The same / length of the window.
        input_tokens: Prompt tokens of these requests; None if the server told
            none of them.
        tokens_per_step: Tokens of the chunks that close a gap / gaps; None
            without a gap.
        step_sizes: The same by size, in rising order.
    """

    output_tokens: int
    output_tokens_per_s: float
    requests: int
    requests_per_s: float
    input_tokens: int | None
    tokens_per_step: float | None
    step_sizes: tuple[StepSize, ...]


@dataclass(frozen=True, slots=True)
class FailureClass:
    """Requests of the whole run that failed in one way.

    Attributes:
        kind: As in `draftgate.records.FailureKind`.
        count: How many.
        example: What was said of one of them.
    """

    kind: str
    count: int
    example: str


@dataclass(frozen=True, slots=True)
class Requests:
    """How the requests of the whole run ended.

    Attributes:
        sent: All.
        served: In full.
        failed: The others.
        failed_share: Failed / sent; 0 of none.
        failures: The failed ones by class, most frequent first.
    """

    sent: int
    served: int
    failed: int
    failed_share: float
    failures: tuple[FailureClass, ...]


@dataclass(frozen=True, slots=True)
class Client:
    """What the load generator says about itself, over the whole run.

    Attributes:
        processes: Processes that sent.
        cpu_s: Their CPU seconds.
        cpu_share: The same / length of the run / processes; 1 is a full core each.
        output_tokens: Tokens received, those of failed requests included.
        cpu_per_token_s: CPU seconds per token; None without a token.
        parse_cpu_per_token_s: CPU seconds of parsing afterwards, or beside the
            run, per token; None likewise.
        lag_p99_s: p99 of how much later than asked a periodic timer fired.
        lag_max_s: The longest.
        kernel_stamps: Whether arrivals are stamped by the kernel.
        read_delay_p50_s: Median time from the kernel's stamp to the read; None
            without kernel stamps.
        read_delay_p99_s: Its p99; None likewise.
        reads: Reads of response bytes.
        coalesced_reads_share: Share of them in which several chunks ended.
        scheduling_error_s: Sent - scheduled of requests sent in the window,
            failed ones too; None in closed loop.
    """

    processes: int
    cpu_s: float
    cpu_share: float
    output_tokens: int
    cpu_per_token_s: float | None
    parse_cpu_per_token_s: float | None
    lag_p99_s: float
    lag_max_s: float
    kernel_stamps: bool
    read_delay_p50_s: float | None
    read_delay_p99_s: float | None
    reads: int
    coalesced_reads_share: float
    scheduling_error_s: Distribution | None


@dataclass(frozen=True, slots=True)
class Records:
    """Where every request is, with every stamp.

    Attributes:
        folder: Folder of the Parquet files; None if they were not to be kept.
        files: How many there are.
        bytes: Their size.
        bytes_per_token: The same / output tokens; None without a token.
    """

    folder: str | None
    files: int
    bytes: int
    bytes_per_token: float | None


@dataclass(frozen=True, slots=True)
class LoadSummary:
    """One load test.

    Attributes:
        schema_version: Version of this record's form.
        definitions_version: Version of what the metrics mean.
        draftgate: Version of the program.
        started_at: Time of day, ISO 8601, UTC.
        wall_s: Length of the run.
        valid: Whether the numbers can be used.
        invalid: Why not; empty if they can.
        notes: Why the run did not go as planned; empty if it did.
        asked: What was asked for.
        window: The part that counts.
        latency: Times.
        throughput: Rates and sizes.
        requests: How requests ended.
        client: What the load generator says about itself.
        records: Where the records are.
    """

    schema_version: int
    definitions_version: int
    draftgate: str
    started_at: str
    wall_s: float
    valid: bool
    invalid: tuple[str, ...]
    notes: tuple[str, ...]
    asked: Asked
    window: WindowSummary
    latency: Latencies
    throughput: Throughput
    requests: Requests
    client: Client
    records: Records
