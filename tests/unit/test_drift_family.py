"""The error of all drift verdicts together, on the committed measurements."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from draftgate.drift.baseline import load_acceptance
from draftgate.drift.family import DRIFT_FAMILY_LEVEL, Family
from draftgate.drift.judge import BOOTSTRAP_SEED, TRAFFIC_GATE, judge_traffic
from draftgate.records import TrafficAcceptance
from draftgate.stats.beyond import pairs_beyond
from draftgate.stats.compare import FloatArray
from draftgate.verdict import Outcome
from tests.support.traffic import make_traffic

ROOT = Path(__file__).parents[2]
HELD = tuple(
    found
    for path in sorted((ROOT / "baselines").glob("**/*.acceptance.json"))
    for found in load_acceptance(path).traffic
)
FAMILY = Family(len(HELD))
FAMILIES = 20_000


def _values(found: TrafficAcceptance) -> FloatArray:
    return np.array([value for _, value in found.tokens_per_step])


MOVING = tuple(_values(found) for found in HELD if np.ptp(_values(found)) > 0.0)
"""Cells whose prompts differ; of the others every unchanged sample is equal and none can alarm."""


def _side(
    values: FloatArray,
    prompts: np.ndarray[tuple[int], np.dtype[np.intp]],
    noise: float,
    rng: np.random.Generator,
) -> FloatArray:
    """Return one measurement: answers that part ways have the value of any prompt of the cell."""
    other = values[rng.integers(0, values.size, prompts.size)]
    return np.where(rng.random(prompts.size) < noise, other, values[prompts])


def _unchanged(values: FloatArray, noise: float, rng: np.random.Generator) -> Iterator[FloatArray]:
    """Yield both sides of an unchanged cell: the same prompts, noise on each side alike."""
    prompts = rng.integers(0, values.size, values.size)
    for _ in range(2):
        yield _side(values, prompts, noise, rng)


def _alarms(margin: float, noise: float) -> int:
    """Return how many of the families show any change beyond the margin."""
    rng = np.random.default_rng(17)
    alarms = 0
    for _ in range(FAMILIES):
        alarms += any(
            found.worse or found.better
            for values in MOVING
            for found in [
                pairs_beyond(
                    *_unchanged(values, noise, rng),
                    margin_ratio=margin,
                    level=FAMILY.each,
                    seed=BOOTSTRAP_SEED,
                )
            ]
        )
    return alarms


def test_family_is_what_the_committed_baseline_holds() -> None:
    """Two arms on three kinds; only the n-gram arm's prompts differ."""
    assert len(HELD) == 6
    assert len(MOVING) == 3
    assert FAMILY.each == pytest.approx(DRIFT_FAMILY_LEVEL / 6)


def test_unchanged_families_do_not_alarm() -> None:
    """In 20,000 families without a change, half of the answers replaced, none alarms: under 0.1 %.

    No alarm in 20,000 bounds the rate by 0.015 % (3 / 20,000, at 95 %).
    """
    assert _alarms(TRAFFIC_GATE.margin_ratio, noise=0.5) == 0


def test_level_holds_where_the_margin_gives_no_help() -> None:
    """Without a margin and without pairing, at most 0.1 % of 20,000 families alarm.

    The bound adds three standard errors to the 20 that the level allows. Half
    of them is expected, since three of six cells cannot alarm.
    """
    alarms = _alarms(0.0, noise=1.0)

    assert 0 < alarms <= 20 + 3 * np.sqrt(20)


@pytest.mark.parametrize(
    ("kind", "accepted_lost", "least"),
    [("arithmetic", 0.5, 0.95), ("code", 0.6, 0.9), ("chat", 0.8, 0.4)],
)
def test_planted_loss_is_found_with_the_stated_power(
    kind: str, accepted_lost: float, least: float
) -> None:
    """Of 20 measurements that lose this share of accepted tokens, so many are REGRESSION.

    The rest is INCONCLUSIVE and none is PASS. Prompts are drawn anew each time.
    """
    (cell,) = (found for found in HELD if (found.arm, found.kind) == ("ngram", kind))
    values, rng = _values(cell), np.random.default_rng(18)
    outcomes = []
    for _ in range(20):
        drawn = values[rng.integers(0, values.size, values.size)]
        base = make_traffic(tokens_per_step=_named(drawn))
        weak = replace(base, tokens_per_step=_named(1.0 + (drawn - 1.0) * (1.0 - accepted_lost)))
        outcomes.append(judge_traffic(base, weak, family=FAMILY).outcome)

    assert outcomes.count(Outcome.REGRESSION) >= 20 * least
    assert Outcome.PASS not in outcomes


def _named(values: FloatArray) -> tuple[tuple[str, float], ...]:
    return tuple((f"p{i:03d}", float(value)) for i, value in enumerate(values))


def test_more_questions_need_stronger_evidence() -> None:
    """A loss shown alone is INCONCLUSIVE in a family of a million, which says so."""
    base, weak = make_traffic(prompts=20), make_traffic(prompts=20, factor=0.85, noise=0.06)

    alone, among = (judge_traffic(base, weak, family=Family(n)) for n in (1, 1_000_000))

    assert alone.outcome is Outcome.REGRESSION
    assert among.outcome is Outcome.INCONCLUSIVE
    assert "false alarms at most 0.1 %)" in alone.reason
    assert "over 1000000 verdicts by arm and kind, so p <= 1e-09 each (Bonferroni)" in among.reason


def test_a_rise_is_an_improvement_only_if_shown() -> None:
    """A rise beyond the margin is IMPROVEMENT; in a family too large to show it, PASS."""
    base, better = make_traffic(prompts=20), make_traffic(prompts=20, factor=1.15, noise=0.06)

    outcomes = [judge_traffic(base, better, family=Family(n)).outcome for n in (1, 1_000_000)]

    assert outcomes == [Outcome.IMPROVEMENT, Outcome.PASS]
