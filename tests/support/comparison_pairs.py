"""Pairs of server starts of two invented builds, drawn from a seeded generator.

The candidate is slower, accepts less or is faster in some cells, as `CELLS`
says. Knows nothing of gates' outcomes.
"""

import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

import numpy as np

from draftgate.compare.records import CellValues, Gate, Pair, Role, Scale, ServerStart, Stage
from draftgate.stats.losses import candidate_first
from tests.support.samples import START

BY_PROMPT = "tokens_per_step_by_prompt"
ARMS = ("none", "ngram", "draft_model")
CONCURRENCIES = (1, 8)
REQUESTS = 40
"""Requests per start and number of streams."""


@dataclass(frozen=True, slots=True)
class Cell:
    """What one arm's cell is drawn from; the candidate's changes beside it.

    Attributes:
        step_s: Step time of the base.
        tokens: Tokens per step of the base.
        slower: Factor on the candidate's step time.
        fewer: Factor on the candidate's tokens per step.
        ttft_noise: Standard deviation of the log of a start's p90.
    """

    step_s: float
    tokens: float
    slower: float = 1.0
    fewer: float = 1.0
    ttft_noise: float = 0.015


CELLS: Mapping[tuple[str, int], Cell] = {
    ("none", 1): Cell(0.025, 1.0),
    ("none", 8): Cell(0.040, 1.0, slower=1.08),
    ("ngram", 1): Cell(0.030, 1.5),
    ("ngram", 8): Cell(0.048, 1.5, fewer=0.92),
    ("draft_model", 1): Cell(0.055, 2.6, slower=0.94),
    ("draft_model", 8): Cell(0.090, 2.6, ttft_noise=0.20),
}
"""Planted: step time at none x 8, acceptance at ngram x 8, a gain at draft_model x 1."""

_PAIRS = {
    ("none", Stage.SEARCH): 8,
    ("ngram", Stage.SEARCH): 8,
    ("draft_model", Stage.SEARCH): 20,
    ("none", Stage.CONFIRM): 24,
    ("ngram", Stage.CONFIRM): 24,
}

MISSING = ("ngram", 1, "ttft_p90_s")
"""Left out of three starts of the candidate, so that its gate is INVALID_RUN."""


def make_pairs(seed: int, engines: tuple[str, str]) -> Iterable[Pair]:
    """Yield the pairs of all arms, stage one first, in the order taken."""
    rng = np.random.default_rng(seed)
    taken = 0
    for (arm, stage), count in _PAIRS.items():
        order = candidate_first(count, seed=zlib.crc32(arm.encode()) + stage.value)
        for slot, first in enumerate(order):
            spoilt = (arm, stage, slot) == ("none", Stage.SEARCH, 3)
            for attempt in range(2 if spoilt else 1):
                invalid = spoilt and attempt == 0
                when = START + timedelta(minutes=2 * taken)
                starts = [
                    _start(rng, arm, role, engines, at=when + timedelta(minutes=place))
                    for role, place in ((Role.BASE, int(first)), (Role.CANDIDATE, int(not first)))
                ]
                pair = Pair(arm, stage, slot, attempt, first, "example", *starts)
                pair = _holed(pair) if (arm, stage) == ("ngram", Stage.SEARCH) else pair
                yield _spoilt(pair) if invalid else pair
                taken += 1


def _start(
    rng: np.random.Generator, arm: str, role: Role, engines: tuple[str, str], *, at: Any
) -> ServerStart:
    return ServerStart(
        role=role,
        started_at=at.isoformat(),
        ready_s=round(float(rng.normal(18.0, 0.5)), 3),
        engine=engines[role is Role.CANDIDATE],
        cells=tuple(_values(rng, arm, c, role) for c in CONCURRENCIES),
    )


def _values(rng: np.random.Generator, arm: str, concurrency: int, role: Role) -> CellValues:
    cell, candidate = CELLS[arm, concurrency], role is Role.CANDIDATE

    def noisy(spread: float) -> float:
        return float(np.exp(rng.normal(0.0, spread)))

    step = cell.step_s * (cell.slower if candidate else 1.0) * noisy(0.006)
    tokens = cell.tokens * (cell.fewer if candidate else 1.0)
    prompts = tuple(
        (f"chat-{n:03d}", round(max(1.0, tokens * (0.8 + 0.05 * n)) * noisy(0.004), 6))
        for n in range(9)
    )
    if arm == "none":
        prompts = tuple((name, 1.0) for name, _ in prompts)
    tokens = tokens * noisy(0.002) if arm != "none" else 1.0
    share = 0.93 * noisy(0.001)
    values = {
        "output_tokens_per_s": concurrency * tokens / step * share,
        "tokens_per_step": tokens,
        "step_time_s": step,
        "decode_share_ratio": share,
        "per_token_p50_s": step / tokens * noisy(0.002),
        "ttft_p90_s": 0.12 * (1 + concurrency / 8) * noisy(cell.ttft_noise),
    }
    return CellValues(
        concurrency=concurrency,
        values=tuple((name, round(value, 6)) for name, value in values.items()),
        requests=REQUESTS,
        prompts=prompts,
        spreads=(("ttft_p90_s", 0.02),),
        sample=f"samples/{arm}-{concurrency}-{role.value}-{rng.integers(10**6):06d}.parquet",
    )


def _spoilt(pair: Pair) -> Pair:
    cells = (
        replace(pair.candidate.cells[0], invalid=("event-loop lag of 80 ms",)),
        *pair.candidate.cells[1:],
    )
    return replace(pair, candidate=replace(pair.candidate, cells=cells))


def _holed(pair: Pair) -> Pair:
    """Return the pair without the metric of `MISSING` on the candidate's side of slots 0 to 2."""
    if pair.slot > 2:
        return pair
    cells = tuple(
        replace(cell, values=tuple(v for v in cell.values if v[0] != MISSING[2]))
        if cell.concurrency == MISSING[1]
        else cell
        for cell in pair.candidate.cells
    )
    return replace(pair, candidate=replace(pair.candidate, cells=cells))


def cell_of(start: ServerStart, concurrency: int) -> CellValues:
    """Return what a start showed at that number of streams."""
    return next(cell for cell in start.cells if cell.concurrency == concurrency)


def value_of(start: ServerStart, gate: Gate) -> float:
    """Return the gate's metric of one start."""
    cell = cell_of(start, gate.concurrency)
    if gate.scale is Scale.ABSOLUTE:
        return float(np.mean([value for _, value in cell.prompts]))
    return dict(cell.values)[gate.metric]
