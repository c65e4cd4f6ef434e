"""When the steps of an answer are due and how many tokens each holds.

Pure arithmetic in integer nanoseconds from a script and a request's running
number. Knows no bytes and reads no clock. Due times are absolute and exact:
an engine that is late once is not late afterwards.
"""

import random
from bisect import bisect_left
from collections.abc import Iterator
from itertools import accumulate, islice

from draftgate.null_engine.script import GAP_CYCLE, Alignment, Script, TokenCycle

_TOKEN_CYCLE = 4_096
"""Drawn counts after which they repeat: long beside any answer, and quick to draw."""
_GAP_STRIDE = 6_181
_TOKEN_STRIDE = 2_531
"""How far apart in a cycle requests in a row begin: near the cycle times the golden ratio, and
coprime to the cycle, so that requests in a row do not have their slow gaps at the same place."""

Step = tuple[int, int, int]
"""Due time in ns, tokens before the step, tokens in it."""


class Pace:
    """The schedule of one engine.

    Args:
        script: What was asked for.
        origin_ns: Where the common grid of `Alignment.STEPS` begins, monotonic clock.
    """

    def __init__(self, script: Script, origin_ns: int) -> None:
        self._script = script
        self._origin_ns = origin_ns
        self._ttft_ns = round(script.ttft_s * 1e9)
        self._gaps_ns = _gap_cycle(script)
        self._grid_ns = (0, *accumulate(self._gaps_ns))
        self._tokens = _token_cycle(script)
        self._drawn = not isinstance(script.tokens_per_step, TokenCycle)

    def steps(self, number: int, arrived_ns: int, max_tokens: int) -> Iterator[Step]:
        """Return the steps of one answer, in order.

        Args:
            number: Running number of the request, from 1.
            arrived_ns: When its last byte arrived, monotonic clock.
            max_tokens: Tokens of the answer, >= 1; the last step is cut to them.
        """
        steps = self._steps(number, arrived_ns, max_tokens)
        held = self._script.burst_steps
        return steps if held == 1 else _bursts(steps, held)

    def _steps(self, number: int, arrived_ns: int, max_tokens: int) -> Iterator[Step]:
        due_ns, gap = self._first_step(number, arrived_ns)
        place = number * _TOKEN_STRIDE % len(self._tokens) if self._drawn else 0
        gaps_ns, tokens = self._gaps_ns, self._tokens
        given, count = 0, self._script.first_tokens
        while count < max_tokens - given:
            yield due_ns, given, count
            given += count
            due_ns += gaps_ns[gap]
            gap += 1
            if gap == GAP_CYCLE:
                gap = 0
            count = tokens[place]
            place += 1
            if place == len(tokens):
                place = 0
        yield due_ns, given, max_tokens - given

    def _first_step(self, number: int, arrived_ns: int) -> tuple[int, int]:
        """Return when the first step is due, and the place in the cycle of the gap after it."""
        earliest_ns = arrived_ns + self._ttft_ns
        if self._script.align is Alignment.INDEPENDENT:
            return earliest_ns, number * _GAP_STRIDE % GAP_CYCLE
        cycles, rest_ns = divmod(earliest_ns - self._origin_ns, self._grid_ns[-1])
        step = bisect_left(self._grid_ns, rest_ns)
        due_ns = self._origin_ns + cycles * self._grid_ns[-1] + self._grid_ns[step]
        return due_ns, step % GAP_CYCLE


def _bursts(steps: Iterator[Step], size: int) -> Iterator[Step]:
    """Yield the first step, then groups of `size` with the due time of their last."""
    yield from islice(steps, 1)
    while group := tuple(islice(steps, size)):
        due_ns = group[-1][0]
        yield from ((due_ns, given, count) for _, given, count in group)


def _gap_cycle(script: Script) -> tuple[int, ...]:
    """Return one cycle of gaps in ns; the n-th prefix holds floor(n x share) slow ones."""
    plain_ns, slow_ns = round(script.gap_s * 1e9), round(script.slow_gap_s * 1e9)
    per_cycle = round(script.slow_gap_share * GAP_CYCLE)
    return tuple(
        slow_ns if (n + 1) * per_cycle // GAP_CYCLE > n * per_cycle // GAP_CYCLE else plain_ns
        for n in range(GAP_CYCLE)
    )


def _token_cycle(script: Script) -> tuple[int, ...]:
    pattern = script.tokens_per_step
    if isinstance(pattern, TokenCycle):
        return pattern.counts
    draw = random.Random(script.seed)
    return tuple(draw.randint(pattern.low, pattern.high) for _ in range(_TOKEN_CYCLE))
