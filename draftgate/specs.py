"""Vocabulary: what to run.

Frozen records that a profile (TOML) is turned into by `draftgate.specfile`.
They know no engine, open no file and check only what one record can check by
itself. Units are in the names. Read this first, then `draftgate.records`.
"""

from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

from draftgate.errors import SpecError

NO_SPECULATION = "none"
"""Name of the arm, and of the method, that is the non-speculative reference."""


@dataclass(frozen=True, slots=True)
class SpeculativeConfig:
    """How drafts are made; an engine without one is the reference.

    Attributes:
        method: vLLM's spelling: `ngram`, `draft_model`, `eagle3`, `peagle`, ...
        num_speculative_tokens: Draft tokens per verify step, K >= 1.
        model: Draft model or head as a path or hub name; None where the
            method needs none; "target" for the target itself.
        options: Method-specific settings by their profile key, sorted.
    """

    method: str
    num_speculative_tokens: int
    model: str | None = None
    options: tuple[tuple[str, Any], ...] = ()

    def __post_init__(self) -> None:
        """Check K.

        Raises:
            SpecError: If K is below 1.
        """
        if self.num_speculative_tokens < 1:
            raise SpecError(
                f"method {self.method!r}: num_speculative_tokens must be >= 1, got "
                f"{self.num_speculative_tokens}. Use method 'none' to run without speculation."
            )


@dataclass(frozen=True, slots=True)
class ProcessLaunch:
    """Start the engine as a child process.

    Attributes:
        python: Interpreter of the environment that holds the engine; None for
            the one that runs draftgate.
    """

    python: str | None = None


@dataclass(frozen=True, slots=True)
class UrlLaunch:
    """Use a server that already runs, and never stop it.

    Attributes:
        url: Base address without `/v1`, for example `http://127.0.0.1:8000`.
        model: Model name to ask for; None takes the first of `/v1/models`.
        api_key_env: Environment variable that holds the key; the key itself
            never enters a record.
    """

    url: str
    model: str | None = None
    api_key_env: str | None = None


@dataclass(frozen=True, slots=True)
class DockerLaunch:
    """Start the engine in a container of this machine's Docker daemon.

    Attributes:
        image: Image to run. It must be there already: a pull is no part of a
            start.
        python: Interpreter inside the image.
        entrypoint: Program of the image that is given the whole command; None
            runs the command itself, whatever entry point the image has.
        gpus: `("all",)`, or indices or UUIDs of GPUs; empty for none.
        network: Docker network; "host" is the machine's own.
        volumes: `SOURCE:TARGET` or `SOURCE:TARGET:ro`; SOURCE is an absolute
            path or the name of a volume. Model folders need none.
        ipc: IPC namespace, for example "host"; None for Docker's choice.
        shm_size: Size of /dev/shm as Docker spells it; None for Docker's choice.
        args: Further arguments of `docker run`.
    """

    image: str
    python: str = "python3"
    entrypoint: str | None = None
    gpus: tuple[str, ...] = ()
    network: str = "host"
    volumes: tuple[str, ...] = ()
    ipc: str | None = None
    shm_size: str | None = None
    args: tuple[str, ...] = ()


Launch = ProcessLaunch | UrlLaunch | DockerLaunch


@dataclass(frozen=True, slots=True)
class EngineSpec:
    """What to start: one server.

    Attributes:
        engine: Registered engine name, for example `vllm`.
        target: Target model: a name known to `draftgate.targets`, a folder or
            a hub name.
        launch: How the server comes to life.
        dtype: Weights and activations in the engine's spelling.
        quantization: Engine's spelling; None for as stored.
        speculative: Draft settings; None is the reference.
        max_model_len: Longest prompt plus output, tokens.
        max_num_seqs: Requests that run at once.
        args: Further engine arguments, appended as they are.
        env: Further environment variables of the server, sorted by name.
        plugins: Our engine plugins that are switched on, by name.
        startup_timeout_s: Time the server may take to become ready.
    """

    engine: str
    target: str
    launch: Launch = ProcessLaunch()
    dtype: str = "auto"
    quantization: str | None = None
    speculative: SpeculativeConfig | None = None
    max_model_len: int = 1024
    max_num_seqs: int = 32
    args: tuple[str, ...] = ()
    env: tuple[tuple[str, str], ...] = ()
    plugins: tuple[str, ...] = ()
    startup_timeout_s: float = 300.0


@dataclass(frozen=True, slots=True)
class Arm:
    """One column of a comparison: a name and the server behind it."""

    name: str
    engine: EngineSpec


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How tokens are drawn; 0 temperature is greedy.

    Attributes:
        max_tokens: Output length in tokens; exact when `ignore_eos`.
        temperature: Softmax temperature, >= 0.
        top_p: Nucleus mass in (0, 1].
        top_k: Largest number of candidates; 0 for all.
        seed: Seed of the request; None leaves it to the server.
        ignore_eos: Go on to `max_tokens` whatever is sampled.
    """

    max_tokens: int
    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    seed: int | None = None
    ignore_eos: bool = True


class PrefixCache(Enum):
    """What the measured requests find in the server's prefix cache."""

    DEFEATED = "defeated"
    """Nothing: each request carries a salt of its own."""
    PRIMED = "primed"
    """Every prompt: each is sent once, in every arm, before the window."""


@dataclass(frozen=True, slots=True)
class WorkloadSpec:
    """What to send, in closed loop: each of c streams sends its next request
    as soon as the one before it has ended.

    Attributes:
        dataset: Registered name, path of a JSONL file, or a published set's name,
            alone or as `name:path`.
        concurrencies: Numbers of streams c, each >= 1.
        sampling: Sampling of every request.
        prefix_cache: State of the server's prefix cache, equal for all arms.
        warmup_requests: Requests each stream ends before the window may open.
        repeats: Runs per arm and concurrency; the run is the unit.
        window_s: Shortest length of the window in which all c streams run.
        min_requests: Requests that must end inside the window; it stays open
            longer than `window_s` if need be.
        stagger_s: Time over which the streams are started.
        stall_timeout_s: Silence after which a stream counts as stalled.
        run_timeout_s: Time after which a run ends whatever is open.
        max_failure_share: Share of failed requests above which a run is INVALID.
        seed: Seed of prompt order and of the order of arms.
        client_processes: Processes that send the load; None for as many as the
            concurrency needs.
        api: How prompts are sent: "chat", or "completions", which sends one user message
            as raw text, without the server's chat template.
        prompts_digest: `draftgate.datasets.prompts_digest` of what the dataset held
            when the load was sent; None before. No key of a profile.
    """

    dataset: str
    concurrencies: tuple[int, ...]
    sampling: SamplingParams
    prefix_cache: PrefixCache = PrefixCache.DEFEATED
    warmup_requests: int = 1
    repeats: int = 3
    window_s: float = 8.0
    min_requests: int = 4
    stagger_s: float = 0.5
    stall_timeout_s: float = 60.0
    run_timeout_s: float = 180.0
    max_failure_share: float = 0.0
    seed: int = 1
    client_processes: int | None = None
    api: str = "chat"
    prompts_digest: str | None = None


@dataclass(frozen=True, slots=True)
class SLO:
    """Limits a request must keep to count as good; None is no limit.

    Attributes:
        ttft_s: Longest time to first token, seconds.
        per_token_s: Longest mean time per output token after the first, seconds.
        e2e_s: Longest time from sending to the last byte, seconds.
    """

    ttft_s: float | None = None
    per_token_s: float | None = None
    e2e_s: float | None = None


@dataclass(frozen=True, slots=True)
class GateSpec:
    """What loss of one metric to tolerate.

    Attributes:
        metric: Registered metric name.
        margin_ratio: Largest relative loss that is let through, for example
            0.05; a loss is a fall where higher is better and a rise where
            lower is better.
        confidence: Two-sided coverage of the interval, in (0, 1).
        min_runs: Fewest runs on each side for a verdict.
    """

    metric: str
    margin_ratio: float
    confidence: float = 0.99
    min_runs: int = 3


@dataclass(frozen=True, slots=True)
class PairedGateSpec:
    """What loss of one metric a paired comparison tolerates, and what it must rule out.

    Attributes:
        metric: Registered metric name, or `tokens_per_step_by_prompt`.
        margin: Tolerated loss: a share, or tokens for `tokens_per_step_by_prompt`.
        limit: Relevance limit: a loss that must be ruled out to pass; > margin.
    """

    metric: str
    margin: float
    limit: float


DEFAULT_PAIRED_GATES = (
    PairedGateSpec("output_tokens_per_s", 0.01, 0.05),
    PairedGateSpec("per_token_p50_s", 0.01, 0.05),
    PairedGateSpec("ttft_p50_s", 0.01, 0.05),
    PairedGateSpec("step_gap_p99_s", 0.02, 0.10),
    PairedGateSpec("ttft_p99_s", 0.02, 0.10),
    PairedGateSpec("tokens_per_step_by_prompt", 0.02, 0.10),
)
"""Margins of 1 % (rates and medians) and 2 % (tails); tails against a limit of 10 %, because a
limit of 5 % leaves four in ten unchanged builds open (docs/decisions/0009)."""


@dataclass(frozen=True, slots=True)
class CompareSpec:
    """How two builds are compared in pairs of starts; defaults as in docs/decisions/0009.

    Attributes:
        gates: What to ask of every arm and concurrency.
        looks: Pairs at which stage one looks.
        confirm_pairs: Fresh pairs for a suspect.
        family_level: Most false REGRESSION per comparison of unchanged builds,
            over all gates together.
        seed: Seed of the order of sides.
        max_minutes: Time budget; None for as long as it takes.
        single_stage: Judge by the sign process alone, for one runner without a
            second job; `looks` and `confirm_pairs` then mean nothing.
    """

    gates: tuple[PairedGateSpec, ...] = DEFAULT_PAIRED_GATES
    looks: tuple[int, ...] = (8, 12, 16, 20)
    confirm_pairs: int = 24
    family_level: float = 0.002
    seed: int = 1
    max_minutes: float | None = None
    single_stage: bool = False


@dataclass(frozen=True, slots=True)
class Profile:
    """One TOML file: what to start, what to send, what to tolerate.

    Attributes:
        name: The file's own name for itself, used in paths.
        description: One sentence for the report.
        arms: Servers to compare; the first named "none" is the reference.
        keep_alive: Keep all servers up and alternate the load between them;
            False starts one at a time.
        workload: What to send.
        slo: Limits of a good request.
        gates: One per gated metric.
        source: File it came from.
        text: The file's text, stored with every run.
        compare: How two builds of its servers are compared.
    """

    name: str
    description: str
    arms: tuple[Arm, ...]
    keep_alive: bool
    workload: WorkloadSpec
    slo: SLO
    gates: tuple[GateSpec, ...]
    source: Path
    text: str = field(repr=False)
    compare: CompareSpec = CompareSpec()

    def arm(self, name: str) -> Arm:
        """Return the arm called `name`.

        Raises:
            SpecError: If there is none; the message lists the arms.
        """
        for arm in self.arms:
            if arm.name == name:
                return arm
        known = ", ".join(arm.name for arm in self.arms)
        raise SpecError(f"profile {self.name!r} has no arm {name!r}. It has: {known}.")
