"""Noise of server starts, as the simulation draws it. Every number here is an assumption.

One log level per start, positive = slower. Vectorised over comparisons; knows
nothing of gates or of what is done with the levels.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import special

Floats = NDArray[np.float64]

SPEED_SD_LOG = 0.05
"""Between requests of one start, log of a stream's speed (docs/decisions/0001)."""

LATENCY_SD_LOG = 0.25
"""Between requests of one start, log of a latency; lognormal."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """How starts of one build differ, log units.

    Attributes:
        name: As in the results.
        between_sd: Between starts, independent.
        walk_sd: Step of a random walk of the machine per start: slow drift.
        jump_chance: Chance per start that the machine's level jumps for good.
        jump_sd: Size of a jump.
        slot_sd: Size, drawn once per session, by which the second slot (port, cores,
            place in the pair) is slower than the first.
    """

    name: str
    between_sd: float
    walk_sd: float = 0.0
    jump_chance: float = 0.0
    jump_sd: float = 0.0
    slot_sd: float = 0.0


SCENARIOS = (
    Scenario("quiet", 0.005),
    Scenario("typical", 0.02),
    Scenario("noisy", 0.04),
    Scenario("drift", 0.02, walk_sd=0.01),
    Scenario("steps", 0.02, jump_chance=0.05, jump_sd=0.10),
    Scenario("host x build", 0.02, slot_sd=0.03),
)

INTERACTION_SD = 0.01
"""Bias of one build on one host, which no pairing or order removes: not one of the six
scenarios, but the limit of the method."""


def _machine(rng: np.random.Generator, scenario: Scenario, trials: int, starts: int) -> Floats:
    """Return the machine's own level at each start; shape (trials, starts)."""
    level = np.zeros((trials, starts))
    if scenario.walk_sd:
        level += np.cumsum(rng.normal(0, scenario.walk_sd, level.shape), axis=1)
    if scenario.jump_chance:
        jumps = rng.random(level.shape) < scenario.jump_chance
        level += np.cumsum(jumps * rng.normal(0, scenario.jump_sd, level.shape), axis=1)
    return level


@dataclass(frozen=True, slots=True)
class Pairs:
    """Levels of paired starts and who went first; arrays of shape (trials, pairs)."""

    base: Floats
    candidate: Floats
    first: NDArray[np.bool_]


def paired_levels(
    rng: np.random.Generator, scenario: Scenario, shape: tuple[int, int], block: int
) -> Pairs:
    """Return paired starts in random balanced order.

    In each block of pairs the candidate is first in half, at random; who is second starts
    later and sits in the second slot.

    Args:
        rng: Source of randomness.
        scenario: The noise.
        shape: Trials and pairs.
        block: Pairs per block, even.
    """
    trials, pairs = shape
    both = _machine(rng, scenario, trials, 2 * pairs).reshape(trials, pairs, 2)
    both += rng.normal(0, scenario.between_sd, both.shape)
    if scenario.slot_sd:
        both[:, :, 1] += rng.normal(0, scenario.slot_sd, (trials, 1))
    halves = np.arange(block) % 2 == 0
    blocks = rng.permuted(np.tile(halves, (trials, -(-pairs // block), 1)), axis=2)
    first = blocks.reshape(trials, -1)[:, :pairs]
    return Pairs(
        base=np.where(first, both[:, :, 1], both[:, :, 0]),
        candidate=np.where(first, both[:, :, 0], both[:, :, 1]),
        first=first,
    )


def sequential_levels(
    rng: np.random.Generator, scenario: Scenario, trials: int, sizes: tuple[int, int, int]
) -> tuple[Floats, Floats]:
    """Return levels in the peers' order: all of the base first, each build in its own slot.

    Args:
        rng: Source of randomness.
        scenario: The noise.
        trials: Comparisons.
        sizes: Base starts, starts in between that belong to nobody, candidate starts.
    """
    before, between, after = sizes
    level = _machine(rng, scenario, trials, before + between + after)
    level += rng.normal(0, scenario.between_sd, level.shape)
    bias = rng.normal(0, scenario.slot_sd, (trials, 1))
    return level[:, :before], level[:, before + between :] + bias


@dataclass(frozen=True, slots=True)
class Metric:
    """One number per start, made from its level and its requests.

    Attributes:
        name: As in the results.
        share: Quantile of the latencies; None for the mean speed.
        requests: Per start.
        margin: Tolerated relative loss.
        higher: Whether higher is better: a loss of 5 % is then a ratio of 0.95.
    """

    name: str
    share: float | None
    requests: int
    margin: float
    higher: bool

    def log(self, loss: float) -> float:
        """Return a relative loss on the log scale."""
        return -math.log1p(-loss) if self.higher else math.log1p(loss)

    def measure(self, rng: np.random.Generator, levels: Floats) -> Floats:
        """Return the measured log value per start, positive = worse.

        The mean of n normal logs, or the k-th smallest of n: its uniform is
        Beta(k, n + 1 - k) exactly, so no request has to be drawn.
        """
        n = self.requests
        if self.share is None:
            return levels + rng.normal(0, SPEED_SD_LOG / math.sqrt(n), levels.shape)
        rank = math.ceil(self.share * n)
        uniform = rng.beta(rank, n + 1 - rank, levels.shape)
        return levels + LATENCY_SD_LOG * np.asarray(special.ndtri(uniform))


TOKENS = Metric("tokens/s", None, 200, 0.01, higher=True)
P95_200 = Metric("p95, 200 requests", 0.95, 200, 0.02, higher=False)
P99_200 = Metric("p99, 200 requests", 0.99, 200, 0.02, higher=False)
P99_1000 = Metric("p99, 1000 requests", 0.99, 1000, 0.02, higher=False)
METRICS = (TOKENS, P95_200, P99_200, P99_1000)
