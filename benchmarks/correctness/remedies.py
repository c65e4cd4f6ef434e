"""Where the evidence's tokens go, and what other ways of mixing its parts would take.

    .venv/bin/python -m benchmarks.correctness.remedies

writes remedies.json: for FAULTS, on the contexts of even number, where choosing is allowed,
the tokens of the oracle, of the best part alone as if it cost nothing, of the mixture, and
of other mixtures of the same parts. All are e-processes, so that the bound is 1 / alpha for each.
"""

import json
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.correctness.bank import SPECIAL
from benchmarks.correctness.contexts import KINDS
from benchmarks.correctness.machine import machine
from benchmarks.correctness.streams import NEVER, Judge, Streams
from benchmarks.correctness.study import ALPHA, Case, cases, oracle_alarms, quantile
from draftgate.stats.directions import directions

HERE = Path(__file__).parent

FAULTS = (
    "accept if argmax",
    "accept if p > .9 q",
    "always accept",
    "5 % of rows read a stale cache slot",
    "coin shared in the chain",
    "one quantile for ends of steps",
    "one quantile per request",
    "seed shared in the batch",
)
"""The one that is not found, and those near the median: what they take decides it."""

LONGEST = 6.0
"""Streams are looked at for this many times the limit."""

BOUND = -np.log(ALPHA)

Floats = NDArray[np.floating[Any]]
Bools = NDArray[np.bool_]
Row = dict[str, Any]

SWITCHED: Mapping[str, float] = {"switching .003": 0.003, "switching .03": 0.03}
"""Shares of a part's weight that go back to the prior at each token, so that the part which
leads may change (fixed share, Herbster and Warmuth 1998)."""

LEARNED: Mapping[str, float] = {"blend at rate .5": 0.5, "blend at rate .2": 0.2}
"""Rates at which weight follows the ratios, 1 being Bayes' rule: below it, what is learned is
the best fixed blend of the laws (soft-Bayes, Orseau, Lattimore and Legg 2017)."""


WAYS = ("mixture", "equal weights", *SWITCHED, *LEARNED)
"""What is compared beside the oracle and the best part."""


class Blend:
    """A law blended anew before each token from those of all directions, one in each scope."""

    def __init__(self, weights: Floats, streams: int, *, rate: float, share: float) -> None:
        """Begin with prior weights; shape (directions, scopes)."""
        self.scopes = weights.sum(axis=0)
        self.prior = (weights / self.scopes).T
        self.held = np.tile(self.prior, (streams, 1, 1))
        self.log = np.zeros((streams, len(self.scopes)))
        self.rate, self.share = rate, share

    def grow(self, ratio: Floats, holds: Bools) -> Floats:
        """Take one token of each stream; return the log e-values."""
        won = self.held * ratio[:, None, :]
        mean = won.sum(axis=2)
        self.log += np.where(holds, np.log(mean), 0.0)
        learned = (1 - self.rate) * self.held + self.rate * won / mean[:, :, None]
        moved = (1 - self.share) * learned + self.share * self.prior
        self.held = np.where(holds[:, :, None], moved, self.held)
        return np.asarray(np.logaddexp.reduce(self.log + np.log(self.scopes), axis=1))


class Fixed:
    """The mixture of all parts with weights that stay: log wealth of each part."""

    def __init__(self, streams: int, shape: tuple[int, int]) -> None:
        """Begin with nothing; `shape` is (directions, scopes)."""
        self.log = np.zeros((streams, *shape))

    def grow(self, ratio: Floats, holds: Bools) -> None:
        """Take one token of each stream."""
        self.log += np.log(ratio)[:, :, None] * holds[:, None, :]

    def value(self, weights: Floats) -> Floats:
        """Return the log e-values under some weights."""
        return np.asarray(np.logaddexp.reduce((self.log + np.log(weights)), axis=(1, 2)))


class Times:
    """When each of several processes first reached the bound, in each stream."""

    def __init__(self) -> None:
        """Begin with none."""
        self.first: dict[str, NDArray[np.int64]] = {}

    def see(self, name: str, values: Floats, token: int) -> None:
        """Note who reached the bound with a token; shape (streams, ...)."""
        first = self.first.setdefault(name, np.full(values.shape, NEVER))
        first[(values >= BOUND) & (first == NEVER)] = token + 1


def compared(case: Case) -> Row:
    """Return the tokens that each way takes on one fault; None for more than LONGEST limits.

    Beside them the share of the divergence that the part which sees most of it sees.
    """
    streams, limit = case.streams, BOUND / case.kl
    judge = Judge(streams.rows, directions(case.world.vocabulary, SPECIAL))
    times, fixed = Times(), Fixed(len(streams.row), judge.weights.shape)
    equal = np.full(judge.weights.shape, 1 / judge.weights.size)
    blends = {
        **{n: Blend(judge.weights, len(streams.row), rate=1, share=s) for n, s in SWITCHED.items()},
        **{n: Blend(judge.weights, len(streams.row), rate=r, share=0) for n, r in LEARNED.items()},
    }
    tokens = min(int(LONGEST * limit) + 1, streams.row.shape[1])
    for token, (ratio, holds) in enumerate(tokens_of(judge, streams, tokens)):
        fixed.grow(ratio, holds)
        times.see("mixture", fixed.value(judge.weights), token)
        times.see("equal weights", fixed.value(equal), token)
        times.see("parts", fixed.log, token)
        for name, blend in blends.items():
            times.see(name, blend.grow(ratio, holds), token)
    parts = np.sort(times.first.pop("parts"), axis=0)[int(np.ceil(0.9 * len(streams.row))) - 1]
    return {
        "fault": case.name,
        "limit": limit,
        "seen": float(fixed.log.mean(axis=0).max()) / tokens / case.kl,
        "oracle": quantile(oracle_alarms(streams)),
        "best part": None if parts.min() == NEVER else int(parts.min()),
        **{name: quantile(first) for name, first in times.first.items()},
    }


def tokens_of(judge: Judge, streams: Streams, tokens: int) -> Iterator[tuple[Floats, Bools]]:
    """Yield each token's ratios (streams, directions) and scopes (streams, scopes)."""
    along = judge.along_ratios(streams)
    for token in range(tokens):
        row = streams.row[:, token]
        ratio = np.concatenate([judge.ratios[row], along[:, token]], axis=1)
        yield np.clip(ratio, 1e-30, 1e30), judge.scopes[row]


def main() -> None:
    """Compare on both kinds of drafts and write the numbers."""
    begun = time.perf_counter()
    rows: dict[str, list[Row]] = {}
    for kind in KINDS:
        rows[kind] = []
        for case in cases(kind, slice(0, None, 2), other=False):
            if case.name in FAULTS:
                rows[kind].append(compared(case))
                print(json.dumps(rows[kind][-1]), flush=True)
    result = {
        "machine": machine(),
        "minutes": (time.perf_counter() - begun) / 60,
        "longest": LONGEST,
        "ways": WAYS,
        "rows": rows,
    }
    (HERE / "remedies.json").write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
