"""What the fake server says and when: tokens, step lengths and pace, no I/O.

Every token is a known function of prompt or seed, so that a test can state the
exact answer. Used by `draftgate.engines.fake_server`.
"""

import hashlib
import math
import random
from dataclasses import dataclass, fields
from typing import Any, get_args

from draftgate.engines.fake_law import FAULTS, Model, Step
from draftgate.errors import SpecError

LAWS = ("independent", "context")
"""Where the scripted server's sampled tokens come from."""


@dataclass(frozen=True, slots=True)
class FakeConfig:
    """How the fake server behaves; each `_every` fault hits every nth request, 0 none.

    Attributes:
        model: Name it serves.
        step_s: Time of one decode step, seconds.
        ttft_s: Time to the first token, queueing not counted, seconds.
        step_s_per_stream: Further step time per running request, so that
            concurrency matters.
        tokens_per_step: Mean tokens of a decode step after the first token;
            2.5 gives 2, 3, 2, 3.
        vocab_size: Token ids are in [0, vocab_size).
        method: Draft method it claims; None for no speculation.
        k: Draft tokens per step, with a method.
        max_num_seqs: Requests that run at once; more wait.
        jitter: Each wait is scaled by a factor drawn from [1 - jitter, 1 + jitter].
        seed: Seed of jitter, and of sampling where a request brings none.
        api_key: Key that generation asks for; None for none.
        error_every: HTTP status 500.
        in_band_error_every: Error object inside the stream.
        early_close_every: Connection closed halfway.
        stall_every: Silence after the first token.
        missing_usage_every: No usage.
        wrong_length_every: One token too few, while usage says all came.
        garbage_every: An event that is not JSON.
        die_after_requests: The request after this many kills the server
            halfway; None never.
        law: `independent`: each sampled token is drawn alike, see `token_law`, and
            comes `tokens_per_step` at a time. `context`: by the small known model
            of `draftgate.engines.fake_law`, which speculates with `method` and `k`.
        law_fault: What is wrong with the tokens of `context`, one of FAULTS there.
        law_fault_share: Share of the tokens that it hits.
        deaf_to: Field of a request that `context` drops in silence; it refuses the others that
            it does not know.
        hard_word: A prompt that holds it gets an answer of which no draft is accepted, with the
            law `independent`; None for no such word.
        tell_accepted: Whether answers tell what was accepted for them, as vLLM does with
            `--per-request-spec-decode-metrics`.
    """

    model: str = "fake"
    step_s: float = 0.005
    ttft_s: float = 0.01
    step_s_per_stream: float = 0.0
    tokens_per_step: float = 1.0
    vocab_size: int = 1000
    method: str | None = None
    k: int = 0
    max_num_seqs: int = 256
    jitter: float = 0.0
    seed: int = 0
    api_key: str | None = None
    error_every: int = 0
    in_band_error_every: int = 0
    early_close_every: int = 0
    stall_every: int = 0
    missing_usage_every: int = 0
    wrong_length_every: int = 0
    garbage_every: int = 0
    die_after_requests: int | None = None
    law: str = "independent"
    law_fault: str | None = None
    law_fault_share: float = 1.0
    deaf_to: str | None = None
    hard_word: str | None = None
    tell_accepted: bool = False

    def __post_init__(self) -> None:
        """Check what would make the server contradict itself.

        Raises:
            SpecError: If a value is out of range; the message names it.
        """
        if not self.tokens_per_step >= 1:
            raise SpecError(
                f"fake server: tokens_per_step must be >= 1, got {self.tokens_per_step}."
            )
        if self.method is not None and not self.tokens_per_step <= self.k + 1:
            raise SpecError(
                f"fake server: tokens_per_step must be <= k + 1 = {self.k + 1} with method "
                f"{self.method!r}, got {self.tokens_per_step}. Raise k."
            )
        if not 0 <= self.jitter < 1:
            raise SpecError(f"fake server: jitter must be in [0, 1), got {self.jitter}.")
        if self.vocab_size < 1 or self.max_num_seqs < 1:
            raise SpecError("fake server: vocab_size and max_num_seqs must be >= 1.")
        self._check_law()

    def _check_law(self) -> None:
        if self.law not in LAWS:
            raise SpecError(f"fake server: law must be {' or '.join(LAWS)}, got {self.law!r}.")
        if self.law_fault is not None and (self.law_fault not in FAULTS or self.law != "context"):
            raise SpecError(
                f"fake server: law_fault must be one of {', '.join(FAULTS)} with the law "
                f"'context', got {self.law_fault!r} with {self.law!r}."
            )
        if not 0 <= self.law_fault_share <= 1:
            raise SpecError(
                f"fake server: law_fault_share must be in [0, 1], got {self.law_fault_share}."
            )

    @property
    def model_of_context(self) -> Model | None:
        """Return the known model if tokens come from it."""
        if self.law != "context":
            return None
        drafts = self.k if self.method is not None else 0
        return Model(
            vocab_size=self.vocab_size,
            k=drafts,
            fault=self.law_fault,
            fault_share=self.law_fault_share,
        )


def parse_config(document: Any) -> FakeConfig:
    """Return the configuration a JSON object describes.

    Raises:
        SpecError: If it is no object, or holds an unknown key or a value of
            the wrong type; the message lists the known keys.
    """
    if not isinstance(document, dict):
        raise SpecError(f"fake server: configuration must be a JSON object, got {document!r}.")
    known = {field.name: field.type for field in fields(FakeConfig)}
    unknown = sorted(set(document) - set(known))
    if unknown:
        listed = ", ".join(known)
        raise SpecError(f"fake server: unknown key {unknown[0]!r}. Known: {listed}.")
    for name, value in document.items():
        allowed = get_args(known[name]) or (known[name],)
        if type(value) not in allowed and not (float in allowed and type(value) is int):
            raise SpecError(f"fake server: {name} has the wrong type, got {value!r}.")
    return FakeConfig(**document)


def step_tokens(mean: float, step: int) -> int:
    """Return how many tokens decode step `step` (from 0) yields.

    The running total after n steps is floor(n * mean), so the pattern has no
    randomness and its mean is exact.
    """
    return math.floor((step + 1) * mean) - math.floor(step * mean)


def split_steps(tokens: tuple[int, ...], mean: float) -> list[tuple[int, ...]]:
    """Cut an output into chunks: one token from the prompt's own pass, then step by step."""
    chunks, at, step = [tokens[:1]], 1, 0
    while at < len(tokens):
        count = step_tokens(mean, step)
        chunks.append(tokens[at : at + count])
        at, step = at + count, step + 1
    return chunks


def scripted_steps(tokens: tuple[int, ...], mean: float) -> tuple[Step, ...]:
    """Return an output cut by `split_steps`; a step counts as accepted what it should yield."""
    chunks = split_steps(tokens, mean)
    accepted = [0] + [step_tokens(mean, step) - 1 for step in range(len(chunks) - 1)]
    return tuple(Step(chunk, count) for chunk, count in zip(chunks, accepted, strict=True))


def greedy_tokens(prompt: str, count: int, vocab_size: int) -> tuple[int, ...]:
    """Return the greedy output: a function of the prompt only, never of speculation."""
    digest = hashlib.blake2b(prompt.encode(), digest_size=8).digest()
    rng = random.Random(int.from_bytes(digest, "big"))
    return tuple(rng.randrange(vocab_size) for _ in range(count))


def token_law(
    vocab_size: int, temperature: float, *, top_k: int = 0, top_p: float = 1.0
) -> tuple[float, ...]:
    """Return the law that each sampled token is drawn from, whatever came before.

    p(v) is proportional to (v + 1) ** (-1 / temperature): a softmax with
    logits -log(v + 1). Token 0 is the likeliest, so top-k and top-p keep a
    prefix: the first k tokens, then the fewest that together reach mass p.

    Args:
        vocab_size: Number of tokens.
        temperature: Softmax temperature, > 0.
        top_k: Candidates kept; 0 keeps all.
        top_p: Mass kept, in (0, 1].

    Returns:
        Probabilities, shape (vocab_size,), summing to 1.
    """
    kept = min(top_k, vocab_size) if top_k > 0 else vocab_size
    weights = [(token + 1.0) ** (-1.0 / temperature) for token in range(kept)]
    if top_p < 1.0:
        target, mass, kept = top_p * sum(weights), 0.0, 0
        while mass < target and kept < len(weights):
            mass += weights[kept]
            kept += 1
    total = sum(weights[:kept])
    law = [weight / total for weight in weights[:kept]]
    return (*law, *(0.0,) * (vocab_size - kept))


def sampled_tokens(law: tuple[float, ...], count: int, seed: int) -> tuple[int, ...]:
    """Return `count` independent draws from `law`."""
    return tuple(random.Random(seed).choices(range(len(law)), weights=law, k=count))


@dataclass(slots=True)
class FakeCounters:
    """What the server has counted since it started, by vLLM's meaning.

    A verify step counts in full even where the output's end cuts it short.
    """

    prompt_tokens: int = 0
    generation_tokens: int = 0
    queue_time_sum_s: float = 0.0
    queue_time_count: int = 0
    prefill_time_sum_s: float = 0.0
    prefill_time_count: int = 0
    running: int = 0
    waiting: int = 0
    num_drafts: int = 0
    num_accepted_tokens: int = 0
    accepted_by_position: tuple[int, ...] = ()

    def verified(self, accepted: int, k: int) -> None:
        """Count one verify step of `k` drafts of which the first `accepted` held."""
        before = self.accepted_by_position or (0,) * k
        self.num_drafts += 1
        self.num_accepted_tokens += accepted
        self.accepted_by_position = tuple(n + (i < accepted) for i, n in enumerate(before))

    def exposition(self, config: FakeConfig) -> str:
        """Return the counters as Prometheus text with vLLM's names and labels."""
        labels = f'model_name="{config.model}",engine="0"'
        kv_use = min(1.0, self.running / config.max_num_seqs)
        lines = [
            *_sample("vllm:num_requests_running", "gauge", labels, self.running),
            *_sample("vllm:num_requests_waiting", "gauge", labels, self.waiting),
            *_sample("vllm:kv_cache_usage_perc", "gauge", labels, kv_use),
            *_sample("vllm:prompt_tokens", "counter", labels, self.prompt_tokens),
            *_sample("vllm:generation_tokens", "counter", labels, self.generation_tokens),
            *_histogram("queue", labels, self.queue_time_sum_s, self.queue_time_count),
            *_histogram("prefill", labels, self.prefill_time_sum_s, self.prefill_time_count),
        ]
        if config.method is not None:
            lines += self._speculation(labels, config.k)
        return "\n".join(lines) + "\n"

    def _speculation(self, labels: str, k: int) -> list[str]:
        stem = "vllm:spec_decode_num"
        name = f"{stem}_accepted_tokens_per_pos"
        per_position = self.accepted_by_position or (0,) * k
        return [
            *_sample(f"{stem}_drafts", "counter", labels, self.num_drafts),
            *_sample(f"{stem}_draft_tokens", "counter", labels, self.num_drafts * k),
            *_sample(f"{stem}_accepted_tokens", "counter", labels, self.num_accepted_tokens),
            f"# TYPE {name}_total counter",
            *(
                f'{name}_total{{{labels},position="{position}"}} {count}'
                for position, count in enumerate(per_position)
            ),
        ]


def _sample(name: str, kind: str, labels: str, value: float) -> list[str]:
    suffix = "_total" if kind == "counter" else ""
    return [f"# TYPE {name}{suffix} {kind}", f"{name}{suffix}{{{labels}}} {value}"]


def _histogram(part: str, labels: str, sum_s: float, count: int) -> list[str]:
    name = f"vllm:request_{part}_time_seconds"
    return [
        f"# TYPE {name} histogram",
        f'{name}_bucket{{le="+Inf",{labels}}} {count}',
        f"{name}_sum{{{labels}}} {sum_s}",
        f"{name}_count{{{labels}}} {count}",
    ]
