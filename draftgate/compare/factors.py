"""Which factors a speed or a waiting time has, what each did per pair, and how much of a change.

Effects are signed: positive slows. Those of a speed are logarithms and add up to
the logarithm of its whole change; those of a waiting time are seconds. Knows no
words but labels; the sentence is made in `cause`.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from draftgate.compare.gates import higher_is_better
from draftgate.compare.losses import UnusableError
from draftgate.compare.records import FactorLoss, Gate, Pair
from draftgate.metrics import definition
from draftgate.stats.compare import FloatArray
from draftgate.stats.losses import estimate
from draftgate.verdict import NAMED_SHARE

CONFIDENCE = 0.95
"""Two-sided, of every interval in a cause."""

LEAST_PAIRS = 4
"""Fewest pairs for a cause: with the order taken out, two degrees of freedom."""

STEP_TIME = "step time"
TAIL = "tail of step time"
WAITING = "prefill or queueing"
OUTSIDE = "outside the engine's queue and prefill"

WAITS = ("queue_time_mean_s", "prefill_time_mean_s")

_NOISE_FLOOR = 1e-9
"""Smallest change, relative or in seconds, that is not rounding."""


@dataclass(frozen=True, slots=True)
class Cells:
    """Metrics of both sides of all pairs at one number of streams, in the order taken."""

    base: tuple[Mapping[str, float], ...]
    candidate: tuple[Mapping[str, float], ...]
    first: tuple[bool, ...]
    concurrency: int

    def has(self, *names: str) -> bool:
        """Whether every start of both sides has all these metrics as finite numbers."""
        sides = (self._column(side, name) for side in (self.base, self.candidate) for name in names)
        return all(None not in column and np.isfinite(_array(column)).all() for column in sides)

    def values(self, name: str) -> tuple[FloatArray, FloatArray]:
        """Return a metric of the base's and the candidate's starts; shape (n,) each.

        Raises:
            UnusableError: If a start lacks it or holds no finite number.
        """
        if not self.has(name):
            raise UnusableError(f"{name} was not measured in every start")
        return _array(self._column(self.base, name)), _array(self._column(self.candidate, name))

    def log_change(self, name: str) -> FloatArray:
        """Return log(candidate / base) of a metric per pair.

        Raises:
            UnusableError: As from `values`, or if a value is not above 0.
        """
        base, candidate = self.values(name)
        if min(base.min(), candidate.min()) <= 0.0:
            raise UnusableError(f"{name} is not above 0 in every start")
        change: FloatArray = np.log(candidate) - np.log(base)
        return change

    @staticmethod
    def _column(side: Sequence[Mapping[str, float]], name: str) -> list[float | None]:
        return [values.get(name) for values in side]


@dataclass(frozen=True, slots=True)
class Part:
    """One factor over all pairs.

    Attributes:
        label: What it stands for.
        metric: The metric that shows its change.
        changes: log(candidate / base), or candidate - base in `unit`; shape (n,).
        effects: What it did to the explained quantity, positive where slower; shape (n,).
        unit: "" where `changes` are logarithms.
    """

    label: str
    metric: str
    changes: FloatArray
    effects: FloatArray
    unit: str = ""


@dataclass(frozen=True, slots=True)
class Change:
    """A mean paired change with its interval, on the scale of what was given."""

    change: float
    low: float
    high: float


def moved(found: Change | FactorLoss) -> bool:
    """Return whether an interval excludes "unchanged", by more than rounding."""
    return not found.low <= 0.0 <= found.high and abs(found.change) > _NOISE_FLOOR


def cells_of(pairs: Sequence[Pair], gate: Gate) -> Cells:
    """Return the runs of a gate's arm and streams in all valid pairs.

    Raises:
        UnusableError: If there are fewer than `LEAST_PAIRS`, or a start lacks the run.
    """
    valid = [pair for pair in pairs if pair.arm == gate.arm and not pair.invalid]
    if len(valid) < LEAST_PAIRS:
        raise UnusableError(f"got {len(valid)} valid pairs, expected {LEAST_PAIRS} or more")
    sides = [
        [cell for cell in start.cells if cell.concurrency == gate.concurrency]
        for pair in valid
        for start in (pair.base, pair.candidate)
    ]
    if not all(sides):
        raise UnusableError(f"a start holds no run at {gate.concurrency} streams")
    cells = tuple(dict(side[0].values) for side in sides)
    first = tuple(pair.candidate_first for pair in valid)
    return Cells(cells[::2], cells[1::2], first, gate.concurrency)


def change_of(values: FloatArray, first: Sequence[bool]) -> Change:
    """Return the mean over pairs with its interval by t, the order's effect taken out.

    Where only one order was taken its effect cannot be told and stays in.
    """
    found = estimate(values, first if len(set(first)) > 1 else None)
    side = (1.0 - CONFIDENCE) / 2
    return Change(found.mean, found.bound(side), found.bound(1.0 - side))


def product_parts(cells: Cells, names: Sequence[str]) -> tuple[Part, ...]:
    """Return factors whose changes multiply to the explained one, each with its own effect.

    Raises:
        UnusableError: If one was not measured, or is not above 0, in every start.
    """
    return tuple(own_part(cells, name, str(definition(name).cause)) for name in names)


def own_part(cells: Cells, metric: str, label: str) -> Part:
    """Return a metric as the only factor of itself.

    Raises:
        UnusableError: As from `Cells.log_change`.
    """
    changes = cells.log_change(metric)
    return Part(label, metric, changes, -changes if higher_is_better(metric) else changes)


def wait_parts(cells: Cells, names: Sequence[str] = WAITS) -> tuple[Part, ...]:
    """Return queueing and prefill as seconds per request, by the engine's means.

    Raises:
        UnusableError: If one was not measured in every start.
    """
    found = []
    for name in names:
        base, candidate = cells.values(name)
        change = candidate - base
        found.append(Part(str(definition(name).cause), name, change, change, "s"))
    return tuple(found)


def first_token_parts(cells: Cells) -> tuple[Part, ...]:
    """Return what a first token waits for, in seconds, against the median TTFT.

    The engine's means are held against the client's median, so what is left
    outside holds the difference of the two as well.

    Raises:
        UnusableError: If one of them was not measured in every start.
    """
    waits = wait_parts(cells)
    base, candidate = cells.values("ttft_p50_s")
    rest = candidate - base - sum(part.changes for part in waits)
    return (*waits, Part(OUTSIDE, "ttft_p50_s", rest, rest, "s"))


def speed_parts(cells: Cells, names: Sequence[str]) -> tuple[Part, ...]:
    """Return the factors of tokens/s per stream: acceptance, step time and waiting.

    Where both sides have the engine's mean queue and prefill time, waiting is
    split by them, else it is the decode share, which holds both.

    Args:
        cells: Both sides.
        names: tokens per step, step time and decode share, as `decomposition.FACTORS`.

    Raises:
        UnusableError: If a factor was not measured, or is not above 0, in every start.
    """
    plain = product_parts(cells, names)
    if not cells.has(*WAITS, *_RATES) or min(_least(cells, name) for name in _RATES) <= 0.0:
        return plain
    return _split(cells, [part for part in plain if part.label != WAITING])


_RATES = ("tokens_per_s_per_stream", "requests_per_s")


def _split(cells: Cells, decoding: Sequence[Part]) -> tuple[Part, ...]:
    """Return effects on log(time per token) of decoding and of each way of waiting.

    Time per token of a stream = step time / tokens per step + waiting per token.
    A sum of parts becomes a sum of logarithms if each part's difference is divided
    by the logarithmic mean of the whole: nothing is left over, and steps that get
    faster do not make an unchanged queue look longer, as a share of time would.

    Source:
        Logarithmic mean Divisia index: B. W. Ang and F. L. Liu, Energy 26 (2001)
        537-548.
    """
    whole = [1.0 / side for side in cells.values("tokens_per_s_per_stream")]
    steps = zip(cells.values("step_time_s"), cells.values("tokens_per_step"), strict=True)
    decode = [step_s / tokens for step_s, tokens in steps]
    scale = _log_mean(*whole)
    weight = _log_mean(*decode) / scale
    slower = [replace(part, effects=part.effects * weight) for part in decoding]
    tokens = _tokens_per_request(cells)
    waits = [replace(part, effects=part.changes / tokens / scale) for part in wait_parts(cells)]
    total = np.log(whole[1]) - np.log(whole[0])
    rest = total - sum(part.effects for part in (*slower, *waits))
    outside = Part(OUTSIDE, "decode_share_ratio", rest * scale * tokens, rest, "s")
    return (*slower, *waits, outside)


def _tokens_per_request(cells: Cells) -> FloatArray:
    """Return output tokens per request, one value for both sides of each pair.

    Each side's own would let a window's edge count as waiting.
    """
    speed, rate = cells.values("tokens_per_s_per_stream"), cells.values("requests_per_s")
    both = np.log(speed[0] / rate[0]) + np.log(speed[1] / rate[1])
    found: FloatArray = np.exp(both / 2) * cells.concurrency
    return found


def _log_mean(one: FloatArray, other: FloatArray) -> FloatArray:
    """Return (a - b) / (log a - log b), which is a where both are equal; both > 0."""
    logs = np.log(one) - np.log(other)
    near = np.abs(logs) < _NOISE_FLOOR
    found: FloatArray = np.where(near, (one + other) / 2, (one - other) / np.where(near, 1.0, logs))
    return found


def weigh(
    parts: Sequence[Part], first: Sequence[bool], *, whole: float, of: float = 0.0
) -> tuple[FactorLoss, ...]:
    """Return every factor with interval and share, those that are named first.

    Shares are of the effects that go the way of the whole change: where queueing
    takes more than faster steps give back, queueing carries all of the loss.

    Args:
        parts: Factors.
        first: Whether the candidate went first, per pair.
        whole: Mean loss of what is explained; its sign says which way to look, and
            0 that nothing is to be named.
        of: Size of the loss on the scale of the effects, if it may exceed what the
            factors explain.
    """
    way = math.copysign(1.0, whole) if whole else 0.0
    effects = [way * change_of(part.effects, first).change for part in parts]
    total = max(sum(effect for effect in effects if effect > 0.0), abs(of))
    found = [
        _factor(part, change_of(part.changes, first), effect / total if effect > 0.0 else 0.0)
        for part, effect in zip(parts, effects, strict=True)
    ]
    return tuple(sorted(found, key=lambda factor: (not factor.named, -factor.share * factor.named)))


def _factor(part: Part, change: Change, share: float) -> FactorLoss:
    ends = (change.change, change.low, change.high)
    mean, low, high = ends if part.unit else map(ratio_change, ends)
    named = moved(change) and share >= NAMED_SHARE
    return FactorLoss(part.label, part.metric, mean, low, high, part.unit, share, named)


def ratio_change(log: float) -> float:
    """Return exp(log) - 1; infinite where that is no float."""
    return math.expm1(log) if log < 700.0 else math.inf


def _least(cells: Cells, name: str) -> float:
    return float(min(side.min() for side in cells.values(name)))


def _array(column: Sequence[float | None]) -> FloatArray:
    return np.array(column, dtype=np.float64)
