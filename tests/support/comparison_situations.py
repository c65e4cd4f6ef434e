"""Comparisons for tests of their page, one for each situation it must survive."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from draftgate.compare.records import (
    CellValues,
    Gate,
    Pair,
    Role,
    Scale,
    ServerStart,
    Stage,
    StageNumbers,
    StoredComparison,
)
from draftgate.verdict import Outcome
from tests.support.comparison_pairs import BY_PROMPT
from tests.support.comparisons import (
    gate_of,
    not_started,
    only,
    stored_comparison,
    with_gates,
)
from tests.support.samples import START

ARMS = ("none", "ngram", "draft_model")
STREAMS = (1, 8, 32)
METRICS = ("output_tokens_per_s", "per_token_p50_s", "ttft_p50_s", "step_gap_p99_s", "ttft_p99_s")
SEARCH_PAIRS, CONFIRM_PAIRS = 20, 24


def no_pairs() -> StoredComparison:
    """Return a comparison that was interrupted before its first pair."""
    return not_started(stored_comparison())


def invalid_only() -> StoredComparison:
    """Return a comparison whose candidate never started."""
    reasons = ("did not start: exit code 1",)
    pairs = tuple(
        replace(pair, candidate=replace(pair.candidate, cells=(), invalid=reasons))
        for pair in stored_comparison().pairs[:5]
    )
    return replace(no_pairs(), pairs=pairs)


def green() -> StoredComparison:
    """Return a comparison of which every gate passed or improved."""
    return only(stored_comparison(), Outcome.PASS, Outcome.IMPROVEMENT)


def no_gates() -> StoredComparison:
    """Return a comparison that asks nothing."""
    return with_gates(stored_comparison(), ())


def large() -> StoredComparison:
    """Return 54 gates that all regressed, over 44 pairs of each of three arms."""
    rng = np.random.default_rng(3)
    made = stored_comparison()
    like = gate_of(made, Outcome.REGRESSION)
    pairs = tuple(_pair(rng, arm, at) for arm in ARMS for at in range(SEARCH_PAIRS + CONFIRM_PAIRS))
    gates = [
        replace(
            like,
            gate=_gate(arm, streams, metric),
            search=_numbers(rng, SEARCH_PAIRS),
            confirm=_numbers(rng, CONFIRM_PAIRS),
        )
        for arm in ARMS
        for streams in STREAMS
        for metric in (*METRICS, BY_PROMPT)
    ]
    return with_gates(replace(made, pairs=pairs), gates)


SITUATIONS: dict[str, Callable[[], StoredComparison]] = {
    "complete": stored_comparison,
    "no_pairs": no_pairs,
    "invalid_only": invalid_only,
    "green": green,
    "no_gates": no_gates,
}
"""Situations that are quick to draw."""


def _gate(arm: str, streams: int, metric: str) -> Gate:
    scale = Scale.ABSOLUTE if metric == BY_PROMPT else Scale.RATIO
    return Gate(arm, streams, metric, scale, 0.02, 0.10)


def _numbers(rng: np.random.Generator, pairs: int) -> StageNumbers:
    return StageNumbers(pairs, 0.07, 0.05, 0.09, 1e-4, tuple(rng.normal(0.07, 0.02, pairs)))


def _pair(rng: np.random.Generator, arm: str, at: int) -> Pair:
    search = at < SEARCH_PAIRS
    stage, slot = (Stage.SEARCH, at) if search else (Stage.CONFIRM, at - SEARCH_PAIRS)
    base, candidate = _start(rng, Role.BASE), _start(rng, Role.CANDIDATE)
    return Pair(arm, stage, slot, 0, bool(rng.integers(2)), "example", base, candidate)


def _start(rng: np.random.Generator, role: Role) -> ServerStart:
    def value(mean: float) -> float:
        return round(mean * float(np.exp(rng.normal(0.0, 0.02))), 6)

    cells = tuple(
        CellValues(
            streams,
            tuple((metric, value(10.0 * streams)) for metric in METRICS),
            requests=200,
            prompts=tuple((f"chat-{n:03d}", value(2.0)) for n in range(9)),
        )
        for streams in STREAMS
    )
    return ServerStart(role, START.isoformat(), 18.0, "vllm 0.32.0", cells)
