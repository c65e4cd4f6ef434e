"""Other tools' rules on recorded starts.

Each comparison draws a stretch of rounds: the base's starts come from its first
rounds and the candidate's from later ones, as these tools are used. Of unchanged
couples a coin says which start of a round stands for its side. Welch's test over
requests is left out: a recording holds one value a start.
"""

from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np

from benchmarks.gate.cells import Row, rate
from benchmarks.gate.couples import Couple
from benchmarks.gate.peers import (
    Floats,
    benchstat,
    otava,
    otava_or_none,
    pytest_benchmark,
    welch_starts,
)
from draftgate.compare.gates import higher_is_better

METRICS = ("output_tokens_per_s", "step_gap_p99_s")
SIDE = 10
STORED = 5
OTAVA_BASE = 30
OTAVA_TRIALS = 400


def peer_rows(couples: Sequence[Couple], kind: str, *, trials: int, seed: int) -> Iterator[Row]:
    """Yield how often each peer reports a loss, by metric and number of streams.

    Nothing is yielded for a rule that needs more rounds than there are.
    """
    usable = [couple for couple in couples if couple.valid]
    cells = [cell.concurrency for cell in usable[0].base.start.cells] if usable else []
    for metric in METRICS:
        for streams in cells:
            levels = np.array([_levels(couple, metric, streams) for couple in usable])
            place = {"kind": kind, "metric": metric, "concurrency": streams}
            rng = np.random.default_rng([seed, 3, streams, *metric.encode(), *kind.encode()])
            for method, hits, drawn in _rules(rng, levels, trials, coin=kind.endswith("twin")):
                yield {**place, "method": method, "regression": rate(hits, drawn)}


def _levels(couple: Couple, metric: str, streams: int) -> tuple[float, float]:
    """Return the log values of both starts, positive = worse."""
    sign = -1.0 if higher_is_better(metric) else 1.0
    found = []
    for recorded in (couple.base, couple.other):
        (cell,) = [cell for cell in recorded.start.cells if cell.concurrency == streams]
        found.append(sign * float(np.log(dict(cell.values)[metric])))
    return found[0], found[1]


def _rules(
    rng: np.random.Generator,
    levels: Floats,
    trials: int,
    *,
    coin: bool,
) -> Iterator[tuple[str, int, int]]:
    if len(levels) >= 2 * SIDE:
        base, other = _sides(rng, levels, (SIDE, SIDE), trials, coin=coin)
        hits = Counter(
            {
                "pytest-benchmark, mean:5%": _stored(base, other, use_min=False),
                "pytest-benchmark, min:5%": _stored(base, other, use_min=True),
                "benchstat, U at .05": int(benchstat(base, other).sum()),
                "benchstat, and delta over 5 %": int(
                    benchstat(base, other, least_delta=0.05).sum()
                ),
                "Welch over starts at .05": int(welch_starts(base, other).sum()),
            }
        )
        for method in hits:
            yield method, hits[method], trials
    detect = otava_or_none()
    if detect is not None and len(levels) >= OTAVA_BASE + SIDE:
        drawn = min(trials, OTAVA_TRIALS)
        base, other = _sides(rng, levels, (OTAVA_BASE, SIDE), drawn, coin=coin)
        yield "Otava 0.8.0, defaults", int(otava(detect, base, other).sum()), drawn


def _stored(base: Floats, other: Floats, *, use_min: bool) -> int:
    flags = pytest_benchmark(base[:, :STORED], other[:, :STORED], threshold=0.05, use_min=use_min)
    return int(flags.sum())


def _sides(
    rng: np.random.Generator,
    levels: Floats,
    sizes: tuple[int, int],
    trials: int,
    *,
    coin: bool,
) -> tuple[Floats, Floats]:
    """Return values of the base's rounds and of the later ones of the candidate, by trial."""
    begin = rng.integers(0, len(levels) - sum(sizes) + 1, (trials, 1))
    flips = (
        rng.integers(0, 2, (trials, sum(sizes))) if coin else np.zeros((trials, sum(sizes)), int)
    )
    column = np.concatenate([np.zeros(sizes[0], int), np.ones(sizes[1], int)])
    values = levels[begin + np.arange(sum(sizes)), (column + flips) % 2]
    return values[:, : sizes[0]], values[:, sizes[0] :]
