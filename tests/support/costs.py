"""Stored runs, load summaries and price files to work out costs from."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from draftgate.clock import ManualClock
from draftgate.codec import encode, to_lines
from draftgate.loadtest.summary import (
    Asked,
    Client,
    Distribution,
    Latencies,
    LoadSummary,
    Records,
    Requests,
    Throughput,
    WindowSummary,
)
from draftgate.records import Environment, RunSamples
from draftgate.runstore import RunDirectory
from draftgate.specs import Profile
from tests.support.samples import make_environment, make_profile, make_runs

MACHINE = """
[[machine]]
provider = "Example"
hardware = "H200"
devices = ["NVIDIA H200"]
unit = "GPU-hour"
usd = 3.60
date = "2026-01"
source = "https://example.org/prices"
"""

API = """
[[api]]
provider = "Example"
model = "Example 1"
unit = "1M tokens"
input_usd = 2.0
output_usd = 10.0
date = "2026-01-31"
source = "https://example.org/models"
"""

CPU_MACHINE = """
[[machine]]
provider = "Ours"
hardware = "two cores"
devices = ["cpu-example-2c"]
unit = "machine-hour"
usd = 0.09
date = "2026-01-31"
source = "bill of January"
"""


def gpu_environment(gpus: int = 1) -> Environment:
    """Return the fingerprint of an invented machine with H200 GPUs."""
    return make_environment(hardware=f"{gpus}x-nvidia-h200", gpus=("NVIDIA H200",) * gpus)


def store_run(
    root: Path,
    samples: Sequence[RunSamples] | None = None,
    *,
    environment: Environment | None = None,
    profile: Profile | None = None,
) -> Path:
    """Write a run folder and return it; runs of all arms on one H200 by default."""
    profile = profile or make_profile()
    run = RunDirectory.create(root, profile, ("draftgate", "perf"), ManualClock())
    run.write_environment(environment or gpu_environment())
    for one in make_runs(profile) if samples is None else samples:
        run.add(one)
    return run.path


def distribution(p99: float) -> Distribution:
    """Return an invented distribution with this p99."""
    return Distribution(400, p99 / 2, p99 / 2, p99 * 0.8, p99 * 0.9, p99, p99 * 1.1)


def make_summary(
    *,
    output_tokens_per_s: float = 1000.0,
    ttft_p99_s: float = 0.2,
    per_token_p99_s: float = 0.01,
    tokens_per_step: float | None = 1.0,
    input_tokens: int | None = 30_000,
    steady: bool = True,
    invalid: tuple[str, ...] = (),
    failed: int = 0,
    **asked: Any,
) -> LoadSummary:
    """Return the summary of an invented load test: 100 requests of 300 and 100 tokens."""
    rates = Throughput(
        10_000,
        output_tokens_per_s,
        100,
        output_tokens_per_s / 100,
        input_tokens,
        tokens_per_step,
        (),
    )
    times = Latencies(
        distribution(ttft_p99_s),
        None,
        distribution(0.01),
        distribution(per_token_p99_s),
        distribution(1.0),
        None,
    )
    return LoadSummary(
        schema_version=1,
        definitions_version=1,
        draftgate="0.1.0",
        started_at="2026-01-01T00:00:00+00:00",
        wall_s=10.0,
        valid=not invalid,
        invalid=invalid,
        notes=(),
        asked=_asked(**asked),
        window=WindowSummary(1.0, 9.0, 8.0, steady, 0.5, "MSER-5"),
        latency=times,
        throughput=rates,
        requests=Requests(200, 200 - failed, failed, failed / 200, ()),
        client=Client(
            processes=1,
            cpu_s=0.1,
            cpu_share=0.01,
            output_tokens=10_000,
            cpu_per_token_s=1e-5,
            parse_cpu_per_token_s=1e-6,
            lag_p99_s=0.0,
            lag_max_s=0.0,
            kernel_stamps=True,
            read_delay_p50_s=0.0,
            read_delay_p99_s=0.0,
            reads=9,
            coalesced_reads_share=0.0,
            scheduling_error_s=None,
        ),
        records=Records(None, 1, 1000, 0.1),
    )


def store_summary(path: Path, summary: LoadSummary) -> Path:
    """Write a summary as `draftgate load --json` does, and return the file."""
    path.write_text(to_lines(encode(summary)), encoding="utf-8")
    return path


def _asked(**changes: Any) -> Asked:
    fields: dict[str, Any] = {
        "url": "http://127.0.0.1:8000",
        "model": "m",
        "api": "chat",
        "arrivals": "closed loop, 32 streams",
        "open_loop": False,
        "prompts": "chat; max_tokens: 100",
        "max_requests": None,
        "duration_s": 10.0,
        "temperature": 0.0,
        "top_p": 1.0,
        "top_k": 0,
        "sampling_seed": None,
        "ignore_eos": True,
        "prefix_cache": "defeated",
        "seed": 1,
        "stall_timeout_s": 60.0,
        "run_timeout_s": 180.0,
    }
    return Asked(**{**fields, **changes})
