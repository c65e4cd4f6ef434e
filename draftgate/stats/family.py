"""Error over all gates of a comparison together.

p-values in, decisions and bounds out; knows nothing of what the gates are. A
gate counts whether it became suspect or not: what is corrected is the whole
procedure of both stages.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from draftgate.stats.confirm import CONFIRM_LEVEL

FAMILY_LEVEL = 0.002
"""Most false REGRESSION per comparison of unchanged builds."""

STAGE_ONE_LEVEL = 0.014
"""Bound on the chance that a gate whose loss is at most its margin becomes suspect: the upper
end of the rate of t tests, 1.374 % in 2,000,000 simulated (`benchmarks/gate/simulation.json`;
normal theory, `sequential.overall_level()`, gives 1.289 %). Without normal losses 4 * 0.005 =
0.02 holds by Boole's inequality and can be given instead."""


@dataclass(frozen=True, slots=True)
class FamilyResult:
    """Which suspects are regressions.

    Attributes:
        rejected: Per suspect, in the order given, whether it is a REGRESSION.
        adjusted: Holm-adjusted p-values of both stages; at most 1.
        levels: What `p_value` of stage two had to stay at or under.
    """

    rejected: tuple[bool, ...]
    adjusted: tuple[float, ...]
    levels: tuple[float, ...]


def judge_family(
    suspects: Sequence[float],
    *,
    gates: int,
    family_level: float = FAMILY_LEVEL,
    stage_one_level: float = STAGE_ONE_LEVEL,
    confirm_level: float = CONFIRM_LEVEL,
) -> FamilyResult:
    """Return which suspects are regressions, with the error of all gates held together.

    For one gate, P = stage_one_level * p2 where it is suspect and 1 elsewhere
    is a p-value of both stages, because stage two sees fresh pairs: P <= u
    needs a false suspicion (at most stage_one_level) and then, independently,
    p2 <= u / stage_one_level. Holm's step-down over all gates, suspect or not,
    bounds the chance of any false REGRESSION by `family_level`, however gates
    depend on each other and however many true losses there are. p2 must also
    stay under `confirm_level`.

    Args:
        suspects: `p_value` of stage two of each suspect, in [0, 1]; may be empty.
        gates: All gates of the comparison, suspect or not; >= len(suspects).
        family_level: Largest chance of any false REGRESSION, in (0, 1).
        stage_one_level: Bound on the chance of a false suspicion per gate, in (0, 1].
        confirm_level: Level of stage two on its own, in (0, 1).

    Raises:
        ValueError: If a p-value or a setting is out of range, or there are more
            suspects than gates.

    Source:
        S. Holm, Scand. J. Stat. 6 (1979) 65-70; the product of two stages
        with selection by the first: P. Bauer and K. Köhne, Biometrics 50 (1994)
        1029-1041, in its simplest form.
    """
    _check_levels(
        {
            "family_level": family_level,
            "stage_one_level": stage_one_level,
            "confirm_level": confirm_level,
        }
    )
    if gates < max(1, len(suspects)):
        raise ValueError(f"gates must be >= 1 and >= {len(suspects)} suspects, got {gates}")
    values = np.asarray(suspects, dtype=np.float64)
    if not ((values >= 0.0) & (values <= 1.0)).all():
        raise ValueError(f"p-values must be in [0, 1], got {values.tolist()}")
    order = np.argsort(values, kind="stable")
    left = gates - np.arange(values.size)
    adjusted, levels = np.empty_like(values), np.empty_like(values)
    adjusted[order] = np.minimum(1.0, np.maximum.accumulate(values[order] * left * stage_one_level))
    levels[order] = np.minimum(confirm_level, family_level / (left * stage_one_level))
    rejected = (adjusted <= family_level) & (values < confirm_level)
    return FamilyResult(tuple(rejected.tolist()), tuple(adjusted.tolist()), tuple(levels.tolist()))


def false_alarm_bound(
    gates: int,
    *,
    stage_one_level: float = STAGE_ONE_LEVEL,
    confirm_level: float = CONFIRM_LEVEL,
) -> float:
    """Return the bound on any false REGRESSION if gates were not corrected, at most 1.

    gates * stage_one_level * confirm_level, by Boole's inequality: what
    `judge_family` is there for once it exceeds its `family_level`.

    Args:
        gates: Gates of the comparison, >= 1.
        stage_one_level: Bound on a false suspicion per gate.
        confirm_level: Level of stage two.

    Raises:
        ValueError: If an argument is out of range.
    """
    _check_levels({"stage_one_level": stage_one_level, "confirm_level": confirm_level})
    if gates < 1:
        raise ValueError(f"gates must be >= 1, got {gates}")
    return min(1.0, gates * stage_one_level * confirm_level)


def evidence_needed(gates: int, *, family_level: float = FAMILY_LEVEL) -> float:
    """Return the e-value at which one of `gates` sign processes may stop as a regression.

    1000 for the issue's single gate is family_level 0.001 with one gate.

    Args:
        gates: Gates of the comparison, >= 1.
        family_level: Largest chance of any false REGRESSION, in (0, 1).

    Raises:
        ValueError: If an argument is out of range.

    Source:
        Markov's (Ville's) inequality per gate and Boole's over gates: V. Vovk
        and R. Wang, Ann. Stat. 49 (2021) 1736-1754.
    """
    _check_levels({"family_level": family_level})
    if gates < 1:
        raise ValueError(f"gates must be >= 1, got {gates}")
    return gates / family_level


def _check_levels(levels: Mapping[str, float]) -> None:
    for name, level in levels.items():
        if not (math.isfinite(level) and 0.0 < level <= 1.0):
            raise ValueError(f"{name} must be in (0, 1], got {level}")
