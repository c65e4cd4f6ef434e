"""Rows of the simulation: outcomes of the gate and of its peers in one cell."""

from collections import Counter
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from benchmarks.gate.cells import CHECKED, FLIPS, GATES, Cell, Row, measured, rate
from benchmarks.gate.gates import (
    INCONCLUSIVE,
    PASS,
    SUSPECT,
    agree,
    agree_single,
    draw_signs,
    first_stage,
    second_stage,
    single_stage,
)
from benchmarks.gate.peers import (
    Flags,
    benchstat,
    otava,
    otava_or_none,
    pooled_welch,
    pytest_benchmark,
    welch_starts,
)
from benchmarks.gate.scenarios import (
    INTERACTION_SD,
    LATENCY_SD_LOG,
    SPEED_SD_LOG,
    TOKENS,
    Floats,
    Metric,
    Scenario,
    sequential_levels,
)
from draftgate.stats.confirm import CONFIRM_LEVEL, STAGE_TWO_PAIRS
from draftgate.stats.family import judge_family
from draftgate.stats.sequential import LOOKS
from draftgate.stats.sign_process import CAP_PAIRS, DECIDE_EVERY

VARIANTS = (
    ("gate", 0.05, True),
    ("gate, limit 10 %", 0.10, True),
    ("gate, order left in", 0.05, False),
)


def gate_rows(cell: Cell) -> Iterator[Row]:
    """Yield the outcomes of the gate of two stages, in its variants."""
    rng = cell.rng(1)
    signs = draw_signs(rng, FLIPS)
    counts = {name: Counter[str]() for name, _, _ in VARIANTS}
    for number, size in enumerate(cell.chunks()):
        losses, first = measured(rng, cell, (size, LOOKS[-1]))
        fresh, fresh_first = measured(rng, cell, (size, STAGE_TWO_PAIRS))
        if number == 0:
            log_limit = cell.metric.log(VARIANTS[0][1])
            both = np.hstack([losses, fresh])[:CHECKED], np.hstack([first, fresh_first])[:CHECKED]
            agree(*both, cell.metric.log(cell.metric.margin), log_limit)
        for name, limit, adjust in VARIANTS:
            orders = (first, fresh_first) if adjust else (None, None)
            counts[name] += _outcomes(cell.metric, limit, (losses, fresh), orders, signs)
    for name, _, _ in VARIANTS:
        n = counts[name]
        yield {
            **cell.place(),
            "method": name,
            **{key: rate(n[key], cell.trials) for key in _KEYS},
            "mean_pairs_stage_one": n["pairs"] / cell.trials,
            "mean_pairs": (n["pairs"] + STAGE_TWO_PAIRS * n["suspect"]) / cell.trials,
        }


_KEYS = ("regression", "regression_in_family", "suspect", "pass", "inconclusive")


def _outcomes(
    metric: Metric,
    limit: float,
    losses: tuple[Floats, Floats],
    orders: tuple[NDArray[np.bool_] | None, NDArray[np.bool_] | None],
    signs: Floats,
) -> Counter[str]:
    margin = metric.log(metric.margin)
    found = first_stage(losses[0], margin, metric.log(limit), orders[0])
    suspect = found.standing == SUSPECT
    order = None if orders[1] is None else orders[1][suspect]
    p_two = second_stage(losses[1][suspect], margin, signs, order)
    level = judge_family([0.0], gates=GATES).levels[0]
    return Counter(
        {
            "suspect": int(suspect.sum()),
            "regression": int((p_two < CONFIRM_LEVEL).sum()),
            "regression_in_family": int((p_two <= level).sum()),
            "pass": int((found.standing == PASS).sum()),
            "inconclusive": int((found.standing == INCONCLUSIVE).sum()),
            "pairs": int(found.pairs.sum()),
        }
    )


def sign_row(cell: Cell) -> Row:
    """Return the outcomes of the single-stage alternative, in blocks of two pairs."""
    rng = cell.rng(2)
    margin, limit = cell.metric.log(cell.metric.margin), cell.metric.log(0.05)
    standing: Counter[int] = Counter()
    pairs = 0
    for number, size in enumerate(cell.chunks()):
        losses, _ = measured(rng, cell, (size, CAP_PAIRS), DECIDE_EVERY)
        if number == 0:
            agree_single(losses[:CHECKED], margin, limit)
        found = single_stage(losses, margin, limit)
        standing += Counter(found.standing.tolist())
        pairs += int(found.pairs.sum())
    return {
        **cell.place(),
        "method": "sign process",
        "regression": rate(standing[SUSPECT], cell.trials),
        "pass": rate(standing[PASS], cell.trials),
        "inconclusive": rate(standing[INCONCLUSIVE], cell.trials),
        "mean_pairs": pairs / cell.trials,
    }


def interaction_row(trials: int, *, other_host: bool) -> Row:
    """Return the rate of false REGRESSION where a build suits a host by chance."""
    cell = Cell(Scenario("interaction 1 %", 0.02), TOKENS, 0.0, trials)
    rng = cell.rng(3 + other_host)
    signs = draw_signs(rng, FLIPS)
    margin, limit = TOKENS.log(TOKENS.margin), TOKENS.log(0.05)
    hits = 0
    for size in cell.chunks():
        bias = rng.normal(0, INTERACTION_SD, (2, size, 1))
        losses, first = measured(rng, cell, (size, LOOKS[-1]))
        suspect = first_stage(losses + bias[0], margin, limit, first).standing == SUSPECT
        losses, first = measured(rng, cell, (size, STAGE_TWO_PAIRS))
        losses += bias[int(other_host)]
        hits += int(
            (second_stage(losses[suspect], margin, signs, first[suspect]) < CONFIRM_LEVEL).sum()
        )
    where = "another host" if other_host else "the same host"
    return {
        **cell.place(),
        "method": f"gate, stage two on {where}",
        "regression": rate(hits, trials),
    }


def peer_rows(cell: Cell) -> Iterator[Row]:
    """Yield how often each peer reports a loss."""
    rng = cell.rng(5)
    hits: Counter[str] = Counter()
    for size in cell.chunks():
        for name, flags in (*_stored(rng, cell, size), *_ten_a_side(rng, cell, size)):
            hits[name] += int(flags.sum())
    for name, count in hits.items():
        yield {**cell.place(), "method": name, "regression": rate(count, cell.trials)}


def _stored(rng: np.random.Generator, cell: Cell, size: int) -> Iterator[tuple[str, Flags]]:
    sides = sequential_levels(rng, cell.scenario, size, (5, 100, 5))
    base, candidate = (cell.metric.measure(rng, side) for side in sides)
    candidate += cell.metric.log(cell.loss)
    for name, use_min in (("mean", False), ("min", True)):
        flags = pytest_benchmark(base, candidate, threshold=0.05, use_min=use_min)
        yield f"pytest-benchmark, {name}:5%", flags
    single = pytest_benchmark(base[:, :1], candidate[:, :1], threshold=0.05, use_min=False)
    yield "5 % against one stored start", single


def _ten_a_side(rng: np.random.Generator, cell: Cell, size: int) -> Iterator[tuple[str, Flags]]:
    levels = sequential_levels(rng, cell.scenario, size, (10, 0, 10))
    base, candidate = (cell.metric.measure(rng, side) for side in levels)
    candidate += cell.metric.log(cell.loss)
    yield "benchstat, U at .05", benchstat(base, candidate)
    yield "benchstat, and delta over 5 %", benchstat(base, candidate, least_delta=0.05)
    yield "Welch over starts at .05", welch_starts(base, candidate)
    is_speed = cell.metric.share is None
    flags = pooled_welch(
        rng,
        levels[0],
        levels[1] + cell.metric.log(cell.loss),
        requests=cell.metric.requests,
        request_sd=SPEED_SD_LOG if is_speed else LATENCY_SD_LOG,
    )
    yield f"pooled Welch at .05{'' if is_speed else ' (mean latency)'}", flags


def otava_rows(cell: Cell) -> Iterator[Row]:
    """Yield Otava's rate, or nothing where it is not installed."""
    detect = otava_or_none()
    if detect is None:
        return
    rng = cell.rng(6)
    sides = sequential_levels(rng, cell.scenario, cell.trials, (30, 0, 10))
    base, candidate = (cell.metric.measure(rng, side) for side in sides)
    alarms = otava(detect, base, candidate + cell.metric.log(cell.loss))
    yield {
        **cell.place(),
        "method": "Otava 0.8.0, defaults",
        "regression": rate(int(alarms.sum()), cell.trials),
    }
