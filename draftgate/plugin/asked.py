"""What a pytest session is asked for: options, runs of the plan, and the traffic of acceptance.

Plain records and functions; starts nothing and keeps no state.
"""

from dataclasses import dataclass
from pathlib import Path

from draftgate.datasets import dataset_label, load_prompts
from draftgate.measure import Traffic


def traffic_of(kind: str, seed: int, *, short: bool = False, temperature: float = 0.0) -> Traffic:
    """Return what is sent to measure acceptance on one kind of traffic.

    All prompts and 48 tokens; with `short` 16 prompts and 24 tokens, which is
    other traffic and never compared with the first. Eight streams, so that
    drafts of several requests are verified together. Sampled traffic is a kind
    of its own, `chat at T=0.7`.

    Raises:
        SpecError: If the kind is no dataset.
    """
    prompts = load_prompts(kind, seed)
    name = dataset_label(kind)
    name = f"{name} at T={temperature:g}" if temperature > 0 else name
    if short:
        return Traffic(name, prompts[:16], 24, concurrency=8, temperature=temperature)
    return Traffic(name, prompts, 48, concurrency=8, temperature=temperature)


def short_overrides() -> tuple[str, ...]:
    """Return what `--short` sets: three repeats at 1 and 8 streams, short windows and outputs.

    Such runs show that everything works; they send other requests than the
    full ones, so they are never judged against a full run's baseline.
    """
    return (
        "workload.repeats=3",
        "workload.concurrencies=[1, 8]",
        "workload.window_s=2.0",
        "workload.sampling.max_tokens=24",
    )


@dataclass(frozen=True, slots=True)
class Options:
    """What the command line asked for."""

    runs: Path
    baselines: Path
    require_baseline: bool
    require_verdict: bool
    argv: tuple[str, ...]
    short: bool = False
    history: Path | None = None


@dataclass(frozen=True, slots=True)
class PlannedRun:
    """One run of the plan."""

    arm: str
    concurrency: int
    repeat: int
