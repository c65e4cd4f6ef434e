"""Invented recordings of server starts: what `benchmarks.gate.record` leaves behind."""

import numpy as np

from benchmarks.gate.starts import Recorded, Recording, Setting
from draftgate.compare.records import CellValues, Role, ServerStart
from draftgate.metrics import DEFINITIONS_VERSION

SETTING = Setting(
    definitions=DEFINITIONS_VERSION,
    hardware="cpu-example-2c",
    profile="example",
    profile_sha256="0" * 64,
    concurrencies=(8,),
    min_requests=8,
    seed=1,
    quick=False,
)


def start(
    rng: np.random.Generator, *, slower: float = 0.0, sd: float = 0.01, invalid: str = ""
) -> ServerStart:
    """Return a start whose steps are slower by a log share, with noise of its own."""
    step_s = 0.01 * float(np.exp(slower + rng.normal(0.0, sd)))
    cell = CellValues(
        concurrency=8,
        values=(
            ("output_tokens_per_s", 8 / step_s),
            ("per_token_p50_s", step_s),
            ("ttft_p50_s", 3 * step_s),
            ("ttft_p99_s", 4 * step_s),
            ("step_gap_p50_s", step_s),
            ("step_gap_p99_s", 2 * step_s),
            ("tokens_per_step", 1.0),
            ("step_time_s", step_s),
            ("decode_share_ratio", 1.0),
        ),
        requests=64,
        prompts=(("p0", 1.0), ("p1", 1.0)),
        spreads=(("ttft_p99_s", 0.1),),
        invalid=(invalid,) if invalid else (),
    )
    return ServerStart(Role.BASE, "2026-01-01T00:00:00+00:00", 12.5, "vllm 0.32.0", (cell,))


def recording(seed: int = 1, rounds: int = 48, **slower: float) -> Recording:
    """Return rounds of a base, its twin and the kinds that are given with their log loss."""
    rng = np.random.default_rng(seed)
    kinds = {"base": 0.0, "twin": 0.0, **slower}
    starts = []
    for number in range(rounds):
        drift = float(rng.normal(0.0, 0.05))
        for place, kind in enumerate(rng.permutation(list(kinds))):
            held = start(rng, slower=kinds[kind] + drift)
            starts.append(Recorded(str(kind), number, place, held))
    return Recording(SETTING, tuple(starts))
