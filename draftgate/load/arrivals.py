"""When the next request goes out: open-loop arrival processes and the closed loop.

Pure: seeds in, times out. Knows neither requests nor clocks nor sockets;
`draftgate.load.generator` sends at the times given here. In the open loop an
arrival does not wait for earlier answers, and its latency counts from its
scheduled time, so that a client that is late adds to the latency it reports
and hides nothing.
"""

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from draftgate.errors import SpecError

Floats = NDArray[np.float64]

_BLOCK = 4096
"""Arrivals drawn at once. Results do not depend on it."""

_ARRIVALS, _THINKING = 1, 2
"""What a seed is used for; each purpose has numbers of its own."""


@dataclass(frozen=True, slots=True)
class Constant:
    """An arrival every 1 / rate seconds, the first at 0; never ends.

    Attributes:
        rate_per_s: Requests per second, > 0.
    """

    rate_per_s: float

    def __post_init__(self) -> None:
        """Check the rate.

        Raises:
            SpecError: If it is not a finite number above 0.
        """
        _check_positive("rate_per_s", self.rate_per_s)

    def describe(self) -> str:
        """Return one line for reports."""
        return f"constant arrivals at {self.rate_per_s:g}/s"

    def offsets_ns(self, seed: int, *, block: int = _BLOCK) -> Iterator[int]:
        """Yield scheduled times from the start of the run; the seed changes nothing."""
        del seed
        return _nanoseconds(counted / self.rate_per_s for counted in _evenly(block))


@dataclass(frozen=True, slots=True)
class Poisson:
    """Independent arrivals: gaps are exponential with mean 1 / rate; never ends.

    Attributes:
        rate_per_s: Mean requests per second, > 0.
    """

    rate_per_s: float

    def __post_init__(self) -> None:
        """Check the rate.

        Raises:
            SpecError: If it is not a finite number above 0.
        """
        _check_positive("rate_per_s", self.rate_per_s)

    def describe(self) -> str:
        """Return one line for reports."""
        return f"Poisson arrivals at {self.rate_per_s:g}/s"

    def offsets_ns(self, seed: int, *, block: int = _BLOCK) -> Iterator[int]:
        """Yield scheduled times from the start of the run, the first after one gap."""
        return _nanoseconds(passed / self.rate_per_s for passed in _randomly(seed, block))


@dataclass(frozen=True, slots=True)
class Gamma:
    """Arrivals with gamma gaps of mean 1 / rate: in bursts where shape < 1; never ends.

    The coefficient of variation of the gaps is 1 / sqrt(shape): shape 1 is
    Poisson, 0.25 twice as uneven, and a large shape nears constant arrivals.
    `vllm bench serve` calls the shape burstiness, though a smaller one makes
    for more of it. The run starts as if an arrival had just come before it.

    Attributes:
        rate_per_s: Mean requests per second, > 0.
        shape: Shape k of the gamma law, > 0.
    """

    rate_per_s: float
    shape: float

    def __post_init__(self) -> None:
        """Check both numbers.

        Raises:
            SpecError: If one is not a finite number above 0.
        """
        _check_positive("rate_per_s", self.rate_per_s)
        _check_positive("shape", self.shape)

    def describe(self) -> str:
        """Return one line for reports."""
        variation = 1.0 / math.sqrt(self.shape)
        return (
            f"gamma arrivals at {self.rate_per_s:g}/s, shape {self.shape:g} "
            f"(gaps vary by {variation:.3g} times their mean)"
        )

    def offsets_ns(self, seed: int, *, block: int = _BLOCK) -> Iterator[int]:
        """Yield scheduled times from the start of the run, the first after one gap."""
        scale = self.rate_per_s * self.shape
        passed = _randomly(seed, block, shape=self.shape)
        return _nanoseconds(shapes / scale for shapes in passed)


@dataclass(frozen=True, slots=True)
class Replay:
    """The arrivals of a recorded trace, stretched in time; ends with the trace.

    Attributes:
        offsets_s: Times since the first arrival, non-decreasing, from
            `draftgate.load.trace.read_trace`.
        scale: What they are multiplied by, > 0; 0.5 sends twice as fast.
    """

    offsets_s: tuple[float, ...]
    scale: float = 1.0

    def __post_init__(self) -> None:
        """Check times and scale.

        Raises:
            SpecError: If there are no times, they fall or are negative, or
                the scale is not a finite number above 0.
        """
        _check_positive("scale", self.scale)
        times = np.asarray(self.offsets_s, dtype=np.float64)
        if times.size == 0:
            raise SpecError("arrivals 'replay': got no arrivals, expected at least one.")
        if not (np.isfinite(times).all() and times[0] >= 0.0 and (np.diff(times) >= 0.0).all()):
            raise SpecError(
                "arrivals 'replay': offsets_s must be finite, >= 0 and never fall. Sort the trace "
                "and count from its first arrival."
            )

    def describe(self) -> str:
        """Return one line for reports."""
        span_s = self.offsets_s[-1] * self.scale
        return (
            f"replay of {len(self.offsets_s)} arrivals over {span_s:g} s "
            f"(recorded times x {self.scale:g})"
        )

    def offsets_ns(self, seed: int, *, block: int = _BLOCK) -> Iterator[int]:
        """Yield scheduled times from the start of the run; the seed changes nothing."""
        del seed
        times = np.asarray(self.offsets_s, dtype=np.float64) * self.scale
        return _nanoseconds(times[at : at + block] for at in range(0, times.size, block))


@dataclass(frozen=True, slots=True)
class Ramp:
    """A rate that rises or falls in a straight line, then stays where it ends.

    Never ends, unless the rate falls to 0.

    Attributes:
        from_per_s: Rate at the start, >= 0.
        to_per_s: Rate from `over_s` on, >= 0; not both rates 0.
        over_s: How long the change takes, > 0.
        poisson: Whether arrivals are independent (a Poisson process whose
            rate changes) rather than evenly spaced by the rate's integral.
    """

    from_per_s: float
    to_per_s: float
    over_s: float
    poisson: bool

    def __post_init__(self) -> None:
        """Check the numbers.

        Raises:
            SpecError: If one is out of range, or both rates are 0.
        """
        _check_not_negative("from_per_s", self.from_per_s)
        _check_not_negative("to_per_s", self.to_per_s)
        _check_positive("over_s", self.over_s)
        if self.from_per_s == 0.0 and self.to_per_s == 0.0:
            raise SpecError("arrivals 'ramp': both rates are 0, expected one above. Raise one.")

    def describe(self) -> str:
        """Return one line for reports."""
        return (
            f"{_spacing(poisson=self.poisson)} arrivals from {self.from_per_s:g}/s to "
            f"{self.to_per_s:g}/s over {self.over_s:g} s"
        )

    def offsets_ns(self, seed: int, *, block: int = _BLOCK) -> Iterator[int]:
        """Yield scheduled times from the start of the run.

        The k-th arrival is where the rate's integral reaches k (evenly spaced)
        or the k-th arrival of a Poisson process of rate 1.
        """
        total = math.inf if self.to_per_s > 0.0 else self._expected()
        passed = _randomly(seed, block) if self.poisson else _evenly(block)
        return _nanoseconds(self._times_s(counted) for counted in _below(passed, total))

    def _expected(self) -> float:
        """Return the arrivals expected while the rate changes."""
        return _tidy(self.over_s * (self.from_per_s + self.to_per_s) / 2.0)

    def _times_s(self, passed: Floats) -> Floats:
        """Return when the rate's integral reaches `passed`: the root of a quadratic."""
        slope = (self.to_per_s - self.from_per_s) / self.over_s
        expected = self._expected()
        early = np.minimum(passed, expected)
        root = np.sqrt(np.maximum(self.from_per_s**2 + 2.0 * slope * early, 0.0))
        # This form of the root loses no digits where the rate hardly changes.
        sum_of_rates = np.where(early > 0.0, self.from_per_s + root, 1.0)
        times: Floats = np.minimum(2.0 * early / sum_of_rates, self.over_s)
        if self.to_per_s > 0.0:
            times = times + np.maximum(passed - expected, 0.0) / self.to_per_s
        return times


@dataclass(frozen=True, slots=True)
class Steps:
    """Rates held one after the other, each for a while; ends with the last.

    Attributes:
        steps: (rate per second >= 0, seconds > 0) in order; a rate of 0 is a
            pause.
        poisson: Whether arrivals are independent rather than evenly spaced
            within the steps.
    """

    steps: tuple[tuple[float, float], ...]
    poisson: bool

    def __post_init__(self) -> None:
        """Check the steps.

        Raises:
            SpecError: If a number is out of range, or no step sends anything.
        """
        for rate_per_s, seconds in self.steps:
            _check_not_negative("rate of a step", rate_per_s)
            _check_positive("seconds of a step", seconds)
        if not any(rate_per_s > 0.0 for rate_per_s, _ in self.steps):
            raise SpecError(
                "arrivals 'steps': got no step with a rate above 0, expected at least one."
            )

    def describe(self) -> str:
        """Return one line for reports."""
        parts = ", ".join(f"{rate:g}/s for {seconds:g} s" for rate, seconds in self.steps)
        return f"{_spacing(poisson=self.poisson)} arrivals at {parts}"

    def offsets_ns(self, seed: int, *, block: int = _BLOCK) -> Iterator[int]:
        """Yield scheduled times from the start of the run; see `Ramp.offsets_ns`."""
        rates, seconds = np.array(self.steps, dtype=np.float64).T
        starts_s = np.concatenate([[0.0], np.cumsum(seconds)])
        expected = np.concatenate([[0.0], [_tidy(sum_) for sum_ in np.cumsum(rates * seconds)]])

        def times_s(passed: Floats) -> Floats:
            # What falls on an edge belongs to the step that begins there (side
            # "right"), so a pause never holds an arrival.
            step = np.searchsorted(expected, passed, side="right") - 1
            times: Floats = starts_s[step] + (passed - expected[step]) / rates[step]
            return times

        passed = _randomly(seed, block) if self.poisson else _evenly(block)
        return _nanoseconds(times_s(units) for units in _below(passed, float(expected[-1])))


Arrivals = Constant | Poisson | Gamma | Replay | Ramp | Steps
"""Every open-loop process: `offsets_ns(seed)`, non-decreasing, and `describe()`."""


def shared(offsets: Iterator[int], index: int, of: int) -> Iterator[int]:
    """Yield the arrivals of worker `index` out of `of`: every `of`-th of `offsets`.

    Each worker draws the whole sequence and keeps its share, so the workers
    together send exactly what one would. The i-th time yielded belongs to
    request number index + i * of.

    Raises:
        ValueError: If `index` is not in [0, of).
    """
    if not 0 <= index < of:
        raise ValueError(f"expected 0 <= index < of, got index {index} of {of}")
    return itertools.islice(offsets, index, None, of)


@dataclass(frozen=True, slots=True)
class ThinkTime:
    """The pause between an answer's end and the next request of its stream.

    It is no part of any latency.

    Attributes:
        mean_s: Mean pause, >= 0; 0 sends at once.
        exponential: Whether pauses are drawn from an exponential law rather
            than all alike.
    """

    mean_s: float = 0.0
    exponential: bool = False

    def __post_init__(self) -> None:
        """Check the mean.

        Raises:
            SpecError: If it is negative or not finite.
        """
        _check_not_negative("mean think time in seconds", self.mean_s)

    def think_times_s(self, stream: int, seed: int) -> Iterator[float]:
        """Yield the pauses of one stream without end, seconds; each stream has its own."""
        if not self.exponential:
            return itertools.repeat(self.mean_s)
        return _exponential(self.mean_s, _generator(seed, _THINKING, stream))


@dataclass(frozen=True, slots=True)
class ClosedLoop:
    """Streams that each send their next request once the one before has ended.

    Sending waits for answers: a slow server is asked less often, and no
    latency counts time before a request was sent.

    Attributes:
        concurrency: Number of streams, >= 1.
        stagger_s: Time over which the streams start, >= 0.
        think_time: Pause between an answer and the next request.
    """

    concurrency: int
    stagger_s: float = 0.0
    think_time: ThinkTime = field(default_factory=ThinkTime)

    def __post_init__(self) -> None:
        """Check the numbers.

        Raises:
            SpecError: If there is no stream, or the stagger is negative or not finite.
        """
        if self.concurrency < 1:
            raise SpecError(f"concurrency must be >= 1, got {self.concurrency}.")
        _check_not_negative("stagger_s", self.stagger_s)

    def describe(self) -> str:
        """Return one line for reports."""
        text = f"closed loop of {self.concurrency} streams"
        if self.stagger_s:
            text += f", started over {self.stagger_s:g} s"
        if self.think_time.mean_s:
            kind = "exponential" if self.think_time.exponential else "constant"
            text += f", think time {self.think_time.mean_s:g} s ({kind})"
        return text

    def start_offsets_ns(self) -> tuple[int, ...]:
        """Return when each stream sends its first request: stream i at i / c of the stagger."""
        return tuple(
            round(stream * self.stagger_s * 1e9 / self.concurrency)
            for stream in range(self.concurrency)
        )


def _exponential(mean_s: float, rng: np.random.Generator) -> Iterator[float]:
    while True:
        yield from (rng.standard_exponential(_BLOCK) * mean_s).tolist()


def _tidy(expected: float) -> float:
    """Return the number of arrivals without rounding noise: 2.2/s for 25 s is 55, not more."""
    return round(expected, 9)


def _spacing(*, poisson: bool) -> str:
    return "Poisson" if poisson else "evenly spaced"


def _generator(seed: int, purpose: int, stream: int = 0) -> np.random.Generator:
    entropy = (seed % 2**64, purpose, stream)  # seeds may be negative, numpy's may not
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(entropy)))


def _evenly(block: int) -> Iterator[Floats]:
    """Yield 0, 1, 2, ... in blocks."""
    return (
        np.arange(first, first + block, dtype=np.float64) for first in itertools.count(0, block)
    )


def _randomly(seed: int, block: int, *, shape: float = 1.0) -> Iterator[Floats]:
    """Yield in blocks the running sum of gamma numbers of `shape` and scale 1."""
    rng = _generator(seed, _ARRIVALS)
    reached = 0.0
    while True:
        gaps = rng.standard_exponential(block) if shape == 1.0 else rng.standard_gamma(shape, block)
        gaps[0] += reached
        passed = np.cumsum(gaps)  # adds one after the other, so blocks leave no trace
        reached = float(passed[-1])
        yield passed


def _below(blocks: Iterator[Floats], total: float) -> Iterator[Floats]:
    """Yield the numbers of non-decreasing `blocks` that are below `total`."""
    for block in blocks:
        if block[-1] >= total:
            yield block[: np.searchsorted(block, total)]
            return
        yield block


def _nanoseconds(blocks: Iterator[Floats]) -> Iterator[int]:
    for times_s in blocks:
        yield from np.rint(times_s * 1e9).astype(np.int64).tolist()


def _check_positive(name: str, value: float) -> None:
    if not (math.isfinite(value) and value > 0.0):
        raise SpecError(f"arrivals: {name} must be a finite number above 0, got {value}.")


def _check_not_negative(name: str, value: float) -> None:
    if not (math.isfinite(value) and value >= 0.0):
        raise SpecError(f"arrivals: {name} must be a finite number >= 0, got {value}.")
