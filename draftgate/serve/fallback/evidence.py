"""Windows of one arm held against its break-even: evidence that it loses, or pays again.

The detector is that of `draftgate watch` (`draftgate.stats.edetector`): evidence restarted
at every window, with a stated number of windows between false alarms. What it looks for is
not a change from a learned level but a mean beyond break-even, which moves with the batch
size; the learned level gives the spread of windows alone. Pure: frozen state in, frozen
state out.
"""

import math
from dataclasses import dataclass, field, replace
from functools import lru_cache

import numpy as np

from draftgate.errors import SpecError
from draftgate.stats.edetector import EDetector
from draftgate.stats.level import FEWEST_VALUES, Level, learn_level

MULTIPLES, WEIGHTS = (1.0, 2.0, 4.0), (0.5, 0.25, 0.25)
"""Sizes that are looked for, as multiples of `Rule.change`, and their shares, as the fast
detectors of `draftgate watch` have them."""

_LEAST_SD = 1e-3
"""Floor of a window's spread in the log where break-even is 1 token per step or less."""


@dataclass(frozen=True, slots=True)
class Rule:
    """When windows are evidence.

    Attributes:
        window_steps: Decode steps of a window of the arm in force, >= 1.
        probe_steps: Decode steps of a window of probes, >= 1.
        learn_windows: Windows that an arm's spread is learned from, >= FEWEST_VALUES.
        band: Relative distance from break-even that is none, in [0, change): an arm in force
            may give that much less, and one that is to return must give that much more.
        change: Relative distance that must be found fast, in (0, 1).
        run_length: Windows between false alarms, on average, > 1, while the mean is on the
            other side of the band.

    Raises:
        SpecError: If a number is out of its range.
    """

    window_steps: int = 500
    probe_steps: int = 125
    learn_windows: int = FEWEST_VALUES
    band: float = 0.02
    change: float = 0.10
    run_length: float = 10_000.0

    def __post_init__(self) -> None:
        """Check the numbers."""
        for name, steps in (("window", self.window_steps), ("probe window", self.probe_steps)):
            if steps < 1:
                raise SpecError(f"fallback: a {name} needs 1 or more decode steps, got {steps}.")
        if self.learn_windows < FEWEST_VALUES:
            raise SpecError(
                f"fallback: a spread needs {FEWEST_VALUES} or more windows, got "
                f"{self.learn_windows}."
            )
        if not 0 <= self.band < self.change < 1:
            raise SpecError(
                f"fallback: expected 0 <= band < change < 1, got {self.band:g} and {self.change:g}."
            )
        if not 1 < self.run_length < math.inf:
            raise SpecError(f"fallback: run length must be above 1, got {self.run_length:g}.")


@dataclass(frozen=True, slots=True)
class Reading:
    """What some decode steps of one arm gave; readings add up.

    Attributes:
        tokens: Output tokens, each request's first left out.
        accepted: Accepted draft tokens among them.
        weighed_log: Log of the break-even tokens per step at the time, times steps.
        weighed_streams: Requests that ran, times steps.
    """

    tokens: float = 0.0
    accepted: float = 0.0
    weighed_log: float = 0.0
    weighed_streams: float = 0.0

    @property
    def steps(self) -> float:
        """Decode steps: each gives one token and those that it accepts."""
        return self.tokens - self.accepted

    @property
    def tokens_per_step(self) -> float:
        """Tokens of a step, bonus token and steps without drafts included."""
        return self.tokens / self.steps

    @property
    def break_even(self) -> float:
        """Break-even tokens per step, geometric mean over the steps."""
        return math.exp(self.weighed_log / self.steps)

    @property
    def streams(self) -> float:
        """Requests that ran, mean over the steps."""
        return self.weighed_streams / self.steps

    def __add__(self, other: "Reading") -> "Reading":
        """Return both together."""
        return Reading(
            self.tokens + other.tokens,
            self.accepted + other.accepted,
            self.weighed_log + other.weighed_log,
            self.weighed_streams + other.weighed_streams,
        )


def reading(
    tokens: float, firsts: float, accepted: float, break_even: float, streams: float
) -> Reading:
    """Return what was counted, with the break-even that it is held against.

    Args:
        tokens: Output tokens, >= 0.
        firsts: Requests whose first token is among them; the prompt's own pass gives it.
        accepted: Accepted draft tokens, >= 0.
        break_even: Tokens per step at which the arm pays, > 0.
        streams: Requests that ran, >= 0.
    """
    steps = tokens - firsts - accepted
    return Reading(tokens - firsts, accepted, steps * math.log(break_even), steps * streams)


@dataclass(frozen=True, slots=True)
class Evidence:
    """One arm as it stands.

    Attributes:
        gathered: What makes no window yet.
        learning: (log tokens per step, steps) of windows to learn the spread from.
        level: Gives the spread; None until learned.
        below: State of the detector that looks for less than break-even.
        above: State of the one that looks for more.
        windows: Windows judged since evidence began.
        last: The latest window, judged or not; None before.
        problem: Why the latest attempt to learn failed; None if it did not.
    """

    gathered: Reading = field(default_factory=Reading)
    learning: tuple[tuple[float, float], ...] = ()
    level: Level | None = None
    below: tuple[float, ...] = ()
    above: tuple[float, ...] = ()
    windows: int = 0
    last: Reading | None = None
    problem: str | None = None

    def shares(self, rule: Rule) -> tuple[float, float]:
        """Return how much of what alarms there is that it is below, and above; 1 alarms."""
        if self.level is None or not self.below:
            return 0.0, 0.0
        found = detector(self.level, rule)
        below, above = (float(found.share(np.array(one))) for one in (self.below, self.above))
        return max(0.0, below), max(0.0, above)


@lru_cache(maxsize=256)
def detector(level: Level, rule: Rule) -> EDetector:
    """Return the detector of means beyond break-even, in units of `level.sd_bound`.

    While the mean log of tokens per step is no further than `band` beyond break-even, it
    takes `run_length` windows or more on average until it alarms, whatever traffic does on
    the right side of it.
    """
    sd = level.sd_bound
    margin = math.log1p(rule.band) / sd
    sizes = tuple(math.log1p(rule.change * one) / sd for one in MULTIPLES)
    return EDetector(tuple(max(one, 2 * margin) for one in sizes), WEIGHTS, margin, rule.run_length)


def independent_sd(break_even: float, steps: float) -> float:
    """Return the spread of a window's log tokens per step if its steps were independent.

    Accepted tokens of a step taken as geometric with mean m = break-even - 1, variance
    m (1 + m): the log of the mean of n steps has variance m / (n (1 + m)) to first order.
    The floor of what is learned: a calm stretch must not make later windows look certain.

    Args:
        break_even: Tokens per step, > 0.
        steps: Steps of the window, > 0.

    Source:
        Own derivation (delta method).
    """
    mean = break_even - 1
    return _LEAST_SD if mean <= 0 else max(_LEAST_SD, math.sqrt(mean / (steps * (1 + mean))))


def take(evidence: Evidence, more: Reading, steps: int, rule: Rule) -> Evidence:
    """Return the evidence after some more decode steps of the arm.

    Args:
        evidence: So far.
        more: What was read since; readings of one window are added up.
        steps: Decode steps that make a window: `rule.window_steps` or `rule.probe_steps`.
        rule: When windows are evidence.
    """
    together = evidence.gathered + more
    if together.steps < steps or together.tokens <= 0:
        return replace(evidence, gathered=together)
    found = replace(evidence, gathered=Reading(), last=together)
    return (
        _learned(found, together, rule) if found.level is None else _judged(found, together, rule)
    )


def forgotten(evidence: Evidence) -> Evidence:
    """Return the arm with its spread and no evidence, to begin anew after a switch."""
    return replace(evidence, gathered=Reading(), below=(), above=(), windows=0)


def _learned(evidence: Evidence, window: Reading, rule: Rule) -> Evidence:
    learning = (*evidence.learning, (math.log(window.tokens_per_step), window.steps))
    if len(learning) < rule.learn_windows:
        return replace(evidence, learning=learning)
    values, sizes = np.array(learning).T
    floor = independent_sd(window.break_even, float(sizes.mean()))
    try:
        level = learn_level(values, sizes, floor)
    except ValueError as error:
        return replace(evidence, learning=(), problem=str(error))
    return replace(evidence, learning=(), level=level, problem=None)


def _judged(evidence: Evidence, window: Reading, rule: Rule) -> Evidence:
    level = evidence.level
    assert level is not None, "judged without a spread"
    found = detector(level, rule)
    away = math.log(window.tokens_per_step / window.break_even) / level.sd_at(window.steps)
    states = [
        found.advance(np.array(state) if state else found.start, np.array(value))
        for state, value in ((evidence.below, -away), (evidence.above, away))
    ]
    below, above = (tuple(state.tolist()) for state in states)
    return replace(evidence, below=below, above=above, windows=evidence.windows + 1)
