"""Rows beside the cells: the family of gates, the level of stage one, remedies and power."""

import itertools
import math
from collections import Counter
from collections.abc import Iterator

import numpy as np
from scipy import optimize, special

from benchmarks.gate.cells import FLIPS, GATES, SEED, Cell, Row, measured, rate
from benchmarks.gate.gates import PASS, SUSPECT, Rule, draw_signs, first_stage, second_stage
from benchmarks.gate.rates import gate_rows
from benchmarks.gate.scenarios import (
    LATENCY_SD_LOG,
    SCENARIOS,
    TOKENS,
    Floats,
    Metric,
    Scenario,
)
from draftgate.stats.confirm import CONFIRM_LEVEL, STAGE_TWO_PAIRS
from draftgate.stats.family import STAGE_ONE_LEVEL, judge_family
from draftgate.stats.power import Noise, pairs_needed, requests_needed
from draftgate.stats.sequential import LOOKS, SUSPECT_LEVEL, overall_level

ARMS = 4

KNOWN_SD = 2**0.5 * 0.0402
"""Spread of a pair in "noisy", as a noise study would find it."""


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
        noise: Floats = np.sqrt(rho) * arm + np.sqrt(1 - rho) * own
        return noise * sd[:, None] + excess[:, None]

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


def remedy_rules() -> dict[str, Rule]:
    """Return the changes of stage one that were tried to need fewer pairs.

    All keep the chances over all looks: 1.29 % to be suspect at the margin and 5 % to pass
    at the limit, by `overall_level`.
    """

    def level(looks: tuple[int, ...], overall: float) -> float:
        return float(
            optimize.brentq(
                lambda x: overall_level(looks, x) - overall, overall / 20, overall, xtol=1e-6
            )
        )

    def rule(looks: tuple[int, ...], degrees: int = 0) -> Rule:
        suspect = level(looks, overall_level())
        return Rule(looks, suspect, 1 - level(looks, 0.05), KNOWN_SD, degrees)

    return {
        "as it is": Rule(),
        "upper bound by Pocock, not Bonferroni": rule(LOOKS),
        "and looks every 2 pairs from 6": rule(tuple(range(6, 21, 2))),
        "and the spread known from 60 pairs": rule(tuple(range(6, 21, 2)), 60),
    }


def remedy_rows(trials: int) -> Iterator[Row]:
    """Yield stage one of tokens/s in "noisy" under each remedy, the order left in."""
    noisy = next(scenario for scenario in SCENARIOS if scenario.name == "noisy")
    for name, rule in remedy_rules().items():
        for loss in (0.0, 0.05):
            cell = Cell(noisy, TOKENS, loss, trials)
            rng = cell.rng(9)
            standing: Counter[int] = Counter()
            pairs = 0
            for size in cell.chunks():
                losses, _ = measured(rng, cell, (size, LOOKS[-1]))
                margin, limit = TOKENS.log(TOKENS.margin), TOKENS.log(0.05)
                found = first_stage(losses, margin, limit, rule=rule)
                standing += Counter(found.standing.tolist())
                pairs += int(found.pairs.sum())
            yield {
                **cell.place(),
                "method": name,
                "suspect": rate(standing[SUSPECT], trials),
                "pass": rate(standing[PASS], trials),
                "mean_pairs_stage_one": pairs / trials,
            }


def power_rows(trials: int) -> Iterator[Row]:
    """Yield the requests per start for 80 % power, and the power simulated with them."""
    rng = np.random.default_rng([SEED, 10])
    for share, loss, between in itertools.product((0.95, 0.99), (0.05, 0.10), (0.005, 0.02, 0.04)):
        rank = math.ceil(share * 1000)
        drawn = special.ndtri(rng.beta(rank, 1001 - rank, 400_000))
        noise = Noise(between, LATENCY_SD_LOG * float(drawn.std()), 1000)
        margin = math.log1p(0.02)
        row: Row = {"share": share, "loss": loss, "between_sd": between}
        needed = requests_needed(noise, loss_log=math.log1p(loss), margin_log=margin)
        row["requests"] = needed
        row["pairs_at_1000"] = pairs_needed(
            noise, loss_log=math.log1p(loss), margin_log=margin, requests=1000
        )
        if needed is not None:
            metric = Metric("tail", share, needed, 0.02, higher=False)
            cell = Cell(Scenario("power", between), metric, loss, trials)
            row["simulated"] = next(gate_rows(cell))["regression"]
        yield row


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
