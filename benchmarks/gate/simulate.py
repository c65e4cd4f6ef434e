"""Error rates and power of the paired gate and of other tools' rules, by simulation.

    .venv/bin/python benchmarks/gate/simulate.py            # all, some minutes on one core
    .venv/bin/python benchmarks/gate/simulate.py --trials 4000 --out /tmp   # a quick look

Writes simulation.json; seeds are fixed, equal settings give equal numbers. Otava runs
where `apache-otava` can be imported (it pins numpy 2.2, so give it by PYTHONPATH).

Assumptions, all log units (`scenarios.py`), a start being one server start:

- quiet: 0.5 % between starts. typical: 2 %. noisy: 4 %.
- drift: 2 %, and the machine's level walks by 1 % per start.
- steps: 2 %, and with a chance of 5 % per start the level jumps for good, by 10 % (sd).
- host x build: 2 %, and the second slot (port, cores, place in the pair) is slower by an
  amount drawn once per session with an sd of 3 %. The gate gives slots at random in
  balanced blocks of four pairs; the peers keep a build in its slot.
- Not one of the six, to state the limit: a bias with an sd of 1 % of one build on one host
  that nothing randomises, with stage two on another host or on the same one.
- Requests of a start: 200, or 1,000; log speed varies by 5 %, log latency by 25 % (normal).
  tokens/s is a mean over requests, p95 and p99 are plain order statistics. Requests share
  nothing but their start.

The gate: looks at 8, 12, 16, 20 pairs, relevance limit 5 % (10 % where named), the order's
effect taken out except where named, stage two of 24 fresh pairs in a new session. Margins
1 % (tokens/s) and 2 % (tails). `regression` is for one gate alone, p < .05 in stage two;
`regression_in_family` at the level of the first of 48 gates in `stats.family`.

Peers, 10 starts a side, all of the base first; pytest-benchmark against a stored baseline
(100 starts ago, 5 starts a side), Otava with 30 base starts before the 10 new.
"""

import argparse
import json
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy
from gates import (
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
from numpy.typing import NDArray
from peers import (
    Flags,
    benchstat,
    otava,
    otava_or_none,
    pooled_welch,
    pytest_benchmark,
    welch_starts,
)
from scenarios import (
    INTERACTION_SD,
    LATENCY_SD_LOG,
    METRICS,
    SCENARIOS,
    SPEED_SD_LOG,
    TOKENS,
    Floats,
    Metric,
    Scenario,
    paired_levels,
    sequential_levels,
)

from draftgate.stats.confirm import CONFIRM_LEVEL, STAGE_TWO_PAIRS
from draftgate.stats.family import STAGE_ONE_LEVEL, judge_family
from draftgate.stats.losses import BLOCK_PAIRS
from draftgate.stats.sequential import LOOKS, SUSPECT_LEVEL, overall_level
from draftgate.stats.sign_process import CAP_PAIRS, DECIDE_EVERY

SEED = 20_004
GATES = 48
ARMS = 4
FLIPS = 9_999
CHUNK = 20_000
CHECKED = 100
"""Cases per cell in which the product's own functions must say the same."""

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Cell:
    """One simulated question."""

    scenario: Scenario
    metric: Metric
    loss: float
    trials: int

    def place(self) -> Row:
        """Return how rows name the cell."""
        return {"scenario": self.scenario.name, "metric": self.metric.name, "loss": self.loss}

    def rng(self, purpose: int) -> np.random.Generator:
        """Return randomness that depends on the cell and the purpose alone."""
        text = f"{self.scenario.name}/{self.metric.name}/{self.loss}"
        return np.random.default_rng([SEED, purpose, *text.encode()])

    def chunks(self) -> Iterator[int]:
        """Yield sizes that add up to the trials."""
        yield from (min(CHUNK, self.trials - done) for done in range(0, self.trials, CHUNK))


def rate(hits: int, trials: int) -> Row:
    """Return a rate with its 95 % interval (Clopper and Pearson, Biometrika 26 (1934))."""
    beta = scipy.special.betaincinv
    return {
        "hits": int(hits),
        "trials": int(trials),
        "rate": hits / trials,
        "low": float(beta(hits, trials - hits + 1, 0.025)) if hits else 0.0,
        "high": float(beta(hits + 1, trials - hits, 0.975)) if hits < trials else 1.0,
    }


def measured(
    rng: np.random.Generator, cell: Cell, shape: tuple[int, int], block: int = BLOCK_PAIRS
) -> tuple[Floats, NDArray[np.bool_]]:
    """Return losses of pairs and whether the candidate went first; shape (trials, pairs)."""
    pairs = paired_levels(rng, cell.scenario, shape, block)
    change = cell.metric.measure(rng, pairs.candidate) - cell.metric.measure(rng, pairs.base)
    return change + cell.metric.log(cell.loss), pairs.first


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


def family_rows(trials: int) -> Iterator[Row]:
    """Yield the rate of any false REGRESSION among 48 gates.

    Normal losses; gates of one of four arms share a part rho of the variance. Half the
    gates have the spread and margin of tokens/s (typical), half those of a p99 with 1,000
    requests. "at the margin" is the worst case that the bound covers: every gate has just
    the loss that is tolerated.
    """
    sd = np.repeat([0.0287, 0.050], GATES // 2)
    margin = np.repeat([0.01, 0.02], GATES // 2)
    for truth, scale, share in (
        ("no loss", 1.0, 0.0),
        ("no loss, spread doubled", 2.0, 0.0),
        ("at the margin", 1.0, 1.0),
    ):
        for rho in (0.0, 0.5, 0.9):
            rng = np.random.default_rng([SEED, 7, round(10 * rho), *truth.encode()])
            excess = (share - 1.0) * margin
            signs = draw_signs(rng, FLIPS)
            plain = corrected = 0
            for done in range(0, trials, 1000):
                size = min(1000, trials - done)
                got = _family(rng, (size, rho), (sd * scale, excess, margin), signs)
                plain, corrected = plain + got[0], corrected + got[1]
            yield {
                "truth": truth,
                "rho": rho,
                "gates": GATES,
                "any_false_regression_uncorrected": rate(plain, trials),
                "any_false_regression": rate(corrected, trials),
            }


def _family(
    rng: np.random.Generator,
    case: tuple[int, float],
    gates: tuple[Floats, Floats, Floats],
    signs: Floats,
) -> tuple[int, int]:
    """Return comparisons with a false REGRESSION, uncorrected and corrected."""
    trials, rho = case
    sd, excess, margin = gates

    def draw(rows: int, pairs: int) -> Floats:
        arm = np.tile(rng.normal(0, 1, (rows, ARMS, pairs)), (1, GATES // ARMS, 1))
        own = rng.normal(0, 1, (rows, GATES, pairs))
        return (np.sqrt(rho) * arm + np.sqrt(1 - rho) * own) * sd[:, None] + excess[:, None]

    losses = draw(trials, LOOKS[-1])
    suspect = np.empty((trials, GATES), dtype=bool)
    for half in (slice(0, GATES // 2), slice(GATES // 2, GATES)):
        limit = np.log1p(0.05) - margin[half][0]
        suspect[:, half] = first_stage(losses[:, half], 0.0, limit).standing == SUSPECT
    rows = np.flatnonzero(suspect.any(axis=1))
    fresh = draw(rows.size, STAGE_TWO_PAIRS)
    p_two = np.ones((rows.size, GATES))
    p_two[suspect[rows]] = second_stage(fresh[suspect[rows]], 0.0, signs)
    likely = p_two[(p_two < CONFIRM_LEVEL).any(axis=1)]
    return likely.shape[0], sum(any(judge_family(p, gates=GATES).rejected) for p in likely)


def level_rows(trials: int) -> Iterator[Row]:
    """Yield the chance of a false suspicion at the margin, with no limit to pass at."""
    yield {"what": "used by stats.family", "rate": STAGE_ONE_LEVEL}
    yield {"what": "normal theory, Armitage, McPherson and Rowe", "rate": overall_level()}
    yield {"what": "Boole's bound over the looks", "rate": len(LOOKS) * SUSPECT_LEVEL}
    cell = Cell(Scenario("normal", 0.02), TOKENS, TOKENS.margin, trials)
    rng = cell.rng(8)
    hits = {"t tests, order taken out": 0, "t tests, order left in": 0}
    for size in cell.chunks():
        losses, first = measured(rng, cell, (size, LOOKS[-1]))
        for name, order in zip(hits, (first, None), strict=True):
            found = first_stage(losses, TOKENS.log(TOKENS.margin), -1e9, order)
            hits[name] += int((found.standing == SUSPECT).sum())
    for name, count in hits.items():
        yield {"what": f"{name}, simulated", **rate(count, trials)}


def cells(trials: int) -> Iterator[Cell]:
    """Yield all cells: unchanged builds, then a loss with a tenth of the trials."""
    for loss_of in ((0.0, 0.0), (0.05, 0.10)):
        for scenario in SCENARIOS:
            for metric in METRICS:
                loss = loss_of[metric is not TOKENS]
                yield Cell(scenario, metric, loss, trials // (10 if loss else 1))


def main() -> None:
    """Run everything and write simulation.json."""
    parser = argparse.ArgumentParser(description="Error rates and power of the paired gate.")
    parser.add_argument("--trials", type=int, default=200_000, help="unchanged comparisons a cell")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent)
    args = parser.parse_args()
    gate: list[Row] = []
    peer: list[Row] = []
    for cell in cells(args.trials):
        sys.stderr.write(f"{cell.place()}\n")
        gate += [*gate_rows(cell), sign_row(cell)]
        peer += peer_rows(Cell(cell.scenario, cell.metric, cell.loss, cell.trials // 4))
        few = Cell(cell.scenario, cell.metric, cell.loss, max(100, args.trials // 100))
        peer += otava_rows(few)
    gate += [interaction_row(args.trials, other_host=other) for other in (False, True)]
    result = {
        "seed": SEED,
        "numpy": np.__version__,
        "scipy": scipy.__version__,
        "level_of_first_in_family": judge_family([0.0], gates=GATES).levels[0],
        "stage_one_level": list(level_rows(10 * args.trials)),
        "gate": gate,
        "peers": peer,
        "family": list(family_rows(args.trials // 4)),
    }
    text = json.dumps(result, indent=1) + "\n"
    (args.out / "simulation.json").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
