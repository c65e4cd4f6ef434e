"""What the paired gate can show: loss, pairs and requests against each other.

Numbers in, numbers out, by normal theory. The noise comes from a study of
unchanged builds; how it is measured is no business of this module.
"""

import math
from dataclasses import dataclass

from draftgate.stats.confirm import CONFIRM_LEVEL, STAGE_TWO_PAIRS
from draftgate.stats.sequential import LOOKS, MOST_PAIRS, SUSPECT_LEVEL, smallest

POWER = 0.8
"""Power below which a gate on a metric is refused and the next lower percentile advised."""

MOST_REQUESTS = 100_000_000
"""Where the search for requests stops."""

LARGEST_LOG_LOSS = 10.0
"""Where the search for a loss stops: a factor of 22,000."""


@dataclass(frozen=True, slots=True)
class Noise:
    """Spread of one server start's log value.

    Attributes:
        between_sd_log: Between starts, once requests are infinitely many.
        within_sd_log: Of the value of one start at `requests` requests, beside
            the above; `tail.quantile_sd_log` for a percentile.
        requests: At which `within_sd_log` was found; it falls with the square root.

    Raises:
        ValueError: If a spread is negative or not finite, both are 0, or requests < 1.
    """

    between_sd_log: float
    within_sd_log: float = 0.0
    requests: int = 1

    def __post_init__(self) -> None:
        """Check the ranges."""
        for name in ("between_sd_log", "within_sd_log"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= 0.0):
                raise ValueError(f"{name} must be finite and >= 0, got {value}")
        if self.between_sd_log == self.within_sd_log == 0.0:
            raise ValueError("both spreads are 0; without noise every loss shows at once")
        if self.requests < 1:
            raise ValueError(f"requests must be >= 1, got {self.requests}")

    def pair_sd_log(self, requests: int) -> float:
        """Return the spread of a pair's loss: of the difference of two starts.

        Args:
            requests: Per start, >= 1.

        Raises:
            ValueError: If `requests` is below 1.
        """
        if requests < 1:
            raise ValueError(f"requests must be >= 1, got {requests}")
        within = self.within_sd_log * math.sqrt(self.requests / requests)
        return math.sqrt(2) * math.hypot(self.between_sd_log, within)


@dataclass(frozen=True, slots=True)
class Design:
    """Sizes and levels of both stages.

    Attributes:
        stage_one_pairs: Pairs at the last look, >= 2.
        stage_two_pairs: Fresh pairs of a suspect, >= 2.
        suspect_level: One-sided level of a look, in (0, 0.5).
        confirm_level: One-sided level of stage two; `family` may lower it.

    Raises:
        ValueError: If a setting is out of range.
    """

    stage_one_pairs: int = LOOKS[-1]
    stage_two_pairs: int = STAGE_TWO_PAIRS
    suspect_level: float = SUSPECT_LEVEL
    confirm_level: float = CONFIRM_LEVEL

    def __post_init__(self) -> None:
        """Check the ranges."""
        if min(self.stage_one_pairs, self.stage_two_pairs) < 2:
            raise ValueError(
                "both stages need at least 2 pairs, "
                f"got {self.stage_one_pairs} and {self.stage_two_pairs}"
            )
        for name in ("suspect_level", "confirm_level"):
            if not 0.0 < getattr(self, name) < 0.5:
                raise ValueError(f"{name} must be in (0, 0.5), got {getattr(self, name)}")


DEFAULT_DESIGN = Design()


def t_power(excess: float, sd: float, pairs: int, level: float) -> float:
    """Return the chance that Student's one-sided test over pairs rejects.

    Args:
        excess: True mean loss minus the margin.
        sd: Standard deviation of a pair's loss, > 0; same unit.
        pairs: >= 2.
        level: One-sided, in (0, 0.5).

    Source:
        Noncentral t: N. L. Johnson and B. L. Welch, Biometrika 31 (1940) 362-389.
    """
    from scipy import special  # noqa: PLC0415 - its import is slow, and pytest loads us everywhere

    shift = excess / sd * math.sqrt(pairs)
    if shift > 30.0:  # beyond, the noncentral law loses digits and the power is 1
        return 1.0
    bound = special.stdtrit(pairs - 1, 1 - level)
    return 1.0 - float(special.nctdtr(pairs - 1, shift, bound))


def gate_power(
    noise: Noise,
    *,
    loss_log: float,
    margin_log: float,
    requests: int,
    design: Design = DEFAULT_DESIGN,
) -> float:
    """Return the chance of a REGRESSION at a true loss.

    The chance to be suspect at the last look times the chance to be confirmed.
    Earlier looks can add to it and early passes take from it; the simulation in
    `benchmarks/gate` shows the sum of both.

    Args:
        noise: Of one start.
        loss_log: True loss, log units.
        margin_log: Tolerated loss.
        requests: Per start, >= 1; without meaning where `within_sd_log` is 0.
        design: Sizes and levels.

    Raises:
        ValueError: If a number is not finite or requests < 1.
    """
    _check_losses(loss_log, margin_log)
    sd, excess = noise.pair_sd_log(requests), loss_log - margin_log
    suspect = t_power(excess, sd, design.stage_one_pairs, design.suspect_level)
    return suspect * t_power(excess, sd, design.stage_two_pairs, design.confirm_level)


def pairs_needed(
    noise: Noise,
    *,
    loss_log: float,
    margin_log: float,
    requests: int,
    power: float = POWER,
    design: Design = DEFAULT_DESIGN,
) -> int | None:
    """Return the pairs of stage one from which on the power is reached; None if never.

    Stage two grows in proportion and never shrinks below the design's.

    Args:
        noise: Of one start.
        loss_log: True loss to be found, log units.
        margin_log: Tolerated loss.
        requests: Per start, >= 1.
        power: Wanted chance of a REGRESSION, in (0, 1).
        design: Levels, and the proportion of both stages.

    Raises:
        ValueError: If a number is out of range.
    """
    _check_losses(loss_log, margin_log)
    _check_power(power)
    ratio = design.stage_two_pairs / design.stage_one_pairs

    def reached(pairs: int) -> bool:
        second = max(design.stage_two_pairs, math.ceil(ratio * pairs))
        sized = Design(pairs, second, design.suspect_level, design.confirm_level)
        found = gate_power(
            noise, loss_log=loss_log, margin_log=margin_log, requests=requests, design=sized
        )
        return found >= power

    return smallest(reached, 2, MOST_PAIRS) if loss_log > margin_log else None


def requests_needed(
    noise: Noise,
    *,
    loss_log: float,
    margin_log: float,
    power: float = POWER,
    design: Design = DEFAULT_DESIGN,
) -> int | None:
    """Return the requests per start from which on the power is reached; None if never.

    None where the spread between starts alone is too large: then only more
    pairs help, see `pairs_needed`. An order statistic of few requests has a
    longer tail than the normal theory here knows, so take the number as a
    start and let the simulation confirm it.

    Args:
        noise: Of one start.
        loss_log: True loss to be found, log units.
        margin_log: Tolerated loss.
        power: Wanted chance of a REGRESSION, in (0, 1).
        design: Sizes and levels.

    Raises:
        ValueError: If a number is out of range.
    """
    _check_losses(loss_log, margin_log)
    _check_power(power)

    def reached(requests: int) -> bool:
        found = gate_power(
            noise, loss_log=loss_log, margin_log=margin_log, requests=requests, design=design
        )
        return found >= power

    return smallest(reached, 1, MOST_REQUESTS) if loss_log > margin_log else None


def smallest_loss(
    noise: Noise,
    *,
    margin_log: float,
    requests: int,
    power: float = POWER,
    design: Design = DEFAULT_DESIGN,
) -> float | None:
    """Return the smallest true loss, log units, that is found with the power; None if none.

    Args:
        noise: Of one start.
        margin_log: Tolerated loss.
        requests: Per start, >= 1.
        power: Wanted chance of a REGRESSION, in (0, 1).
        design: Sizes and levels.

    Returns:
        Log units, exact to 1e-6 and rounded up; `losses.loss_ratio` turns it into a share.

    Raises:
        ValueError: If a number is out of range.
    """
    _check_losses(margin_log, margin_log)
    _check_power(power)

    def reached(steps: int) -> bool:
        loss = margin_log + steps * 1e-6
        found = gate_power(
            noise, loss_log=loss, margin_log=margin_log, requests=requests, design=design
        )
        return found >= power

    steps = smallest(reached, 1, round(LARGEST_LOG_LOSS / 1e-6))
    return None if steps is None else margin_log + steps * 1e-6


def _check_losses(loss_log: float, margin_log: float) -> None:
    if not (math.isfinite(loss_log) and math.isfinite(margin_log)):
        raise ValueError(f"losses must be finite, got loss {loss_log} and margin {margin_log}")


def _check_power(power: float) -> None:
    if not 0.0 < power < 1.0:
        raise ValueError(f"power must be in (0, 1), got {power}")
