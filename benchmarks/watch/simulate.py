"""Run length and delay of the monitor's detectors on windows of recorded prompts.

    python -m benchmarks.watch.simulate [--streams N] [--windows N] [--out FILE]

Each stream learns from its own reference. Windows are 100 requests drawn with
replacement from the prompts of one draft on one kind of traffic.
"""

import argparse
import json
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.watch import pools, streams
from benchmarks.watch.pools import Floats, Pool
from draftgate.stats import level as levels
from draftgate.stats.shifts import Shift, Wanted, moved

HERE = Path(__file__).parent

REFERENCE = 50
"""Windows that each stream learns from: the default of `draftgate watch`."""

BEFORE = 20
"""Unchanged windows before each change, so that a stream has a past."""

AFTER = 150
"""Windows after a change in which it may be found."""

CHANGES = (-0.2, -0.1, -0.05, 0.05, 0.1, 0.2)
"""Lasting changes of accepted tokens per step."""

SLIDES = (0.0005, 0.001, 0.002, 0.005)
"""Relative loss of accepted tokens per step with each window, down to `DEEPEST`."""

DEEPEST = 0.25

DELAY_STREAMS = 1_000

WANTED = Wanted()


def main() -> None:
    """Simulate every pool and write one JSON file."""
    parser = argparse.ArgumentParser(description="Simulate the monitor's detectors.")
    parser.add_argument("--streams", type=int, default=2_000)
    parser.add_argument("--windows", type=int, default=2_500)
    parser.add_argument("--only", default="", help="pools whose name holds this")
    parser.add_argument("--out", type=Path, default=HERE / "results.json")
    options = parser.parse_args()
    rows = []
    for pool in pools.pools():
        if options.only in pool.name:
            rows.append(measure(pool, options.streams, options.windows))
            print(json.dumps(rows[-1]), flush=True)
    document = {
        "requests": pools.REQUESTS,
        "reference": REFERENCE,
        "streams": options.streams,
        "windows": options.windows,
        "delay_streams": DELAY_STREAMS,
        "confidence": levels.CONFIDENCE,
        "pools": rows,
    }
    options.out.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


def measure(pool: Pool, count: int, windows: int) -> dict[str, Any]:
    """Return everything about one pool; its random numbers depend on its name alone."""
    rng = np.random.default_rng(zlib.crc32(pool.name.encode()))
    source = Source(pool, rng)
    streams.check(*source.draw(20, REFERENCE + 150), REFERENCE, WANTED)
    values = source.values
    spread = float(values.std())
    mean = float(values.mean())
    return {
        "pool": pool.name,
        "prompts": int(pool.steps.size),
        "length": float(np.exp(mean)),
        "spread": spread,
        "skew": float(((values - mean) ** 3).mean() / spread**3),
        "tenth_in_spreads": (mean - moved(mean, -0.1)) / spread,
        "tenth_of_length_in_spreads": -float(np.log(0.9)) / spread,
        **run_length(source, count, windows),
        "delays": {f"{change:+g}": delays(source, change) for change in CHANGES},
        "delay_length_-0.1": length_delay(source),
        "slides": {f"{slide:g}": slides(source, slide) for slide in SLIDES},
        "cusum": cusum(source, count, windows),
    }


class Source:
    """Windows of one pool.

    Args:
        pool: Whose.
        rng: Source of all random numbers.

    Attributes:
        values: Log lengths; shape (pools.WINDOWS,).
        sizes: Verify steps; shape (pools.WINDOWS,).
    """

    def __init__(self, pool: Pool, rng: np.random.Generator) -> None:
        self.sizes, accepted = pool.windows(rng)
        self.values = np.log1p(accepted / self.sizes)
        self._rng = rng

    def draw(self, count: int, windows: int) -> tuple[Floats, Floats]:
        """Return log lengths and sizes; shape (count, windows) each."""
        at = self._rng.integers(0, self.values.size, (count, windows))
        return self.values[at], self.sizes[at]


def run_length(source: Source, count: int, windows: int) -> dict[str, Any]:
    """Return windows per false alarm, all detectors together and each, and the worst streams.

    A stream ends at its first alarm or after `windows`; windows seen / alarms estimates
    the mean run length of what is nearly geometric.
    """
    values, sizes = source.draw(count, REFERENCE)
    bank = streams.learn(values, sizes, WANTED)
    first = bank.run(*source.draw(count, windows))
    any_first = np.where(first > 0, first, windows + 1).min(axis=1)
    alarms = int((any_first <= windows).sum())
    seen = int(np.minimum(any_first, windows).sum())
    return {
        "false_alarms": alarms,
        "windows_seen": seen,
        "run_length": seen / max(1, alarms),
        "alarms_by": {shift.value: int((first[:, i] > 0).sum()) for i, shift in enumerate(Shift)},
    }


def changed(values: Floats, sizes: Floats, change: Floats) -> tuple[Floats, Floats]:
    """Return windows whose accepted tokens per step changed; their text stays as long."""
    per_step = np.expm1(values)
    after = per_step * (1 + change)
    return np.log1p(after), sizes * (1 + per_step) / (1 + after)


def delays(source: Source, change: float) -> dict[str, float]:
    """Return how many windows a lasting change takes to the first alarm its way."""
    path = np.where(np.arange(BEFORE + AFTER) >= BEFORE, change, 0.0)
    found = first_alarm(source, path, downward=change < 0)
    return summary(found[found > -BEFORE])


def length_delay(source: Source) -> dict[str, float]:
    """Return the delay for a fall of mean acceptance length, not of what exceeds 1, by 10 %."""
    values, sizes = source.draw(DELAY_STREAMS, REFERENCE + BEFORE + AFTER)
    bank = streams.learn(values[:, :REFERENCE], sizes[:, :REFERENCE], WANTED)
    live = values[:, REFERENCE:].copy()
    live[:, BEFORE:] = np.maximum(live[:, BEFORE:] + np.log(0.9), 1e-6)
    return summary(earliest(bank.run(live, sizes[:, REFERENCE:]), downward=True) - BEFORE)


def slides(source: Source, slide: float) -> dict[str, float]:
    """Return when a slide alarms, and what had been lost by then."""
    count = BEFORE + round(DEEPEST / slide) + AFTER
    path = -np.minimum(np.maximum(np.arange(count) - BEFORE, 0) * slide, DEEPEST)
    found = first_alarm(source, path, downward=True)
    told = summary(found)
    return {**told, "lost_at_median": float(min(told["median"] * slide, DEEPEST))}


def first_alarm(source: Source, path: Floats, *, downward: bool) -> Floats:
    """Return windows from the change to the first alarm its way; large where there is none."""
    values, sizes = source.draw(DELAY_STREAMS, REFERENCE + path.size)
    bank = streams.learn(values[:, :REFERENCE], sizes[:, :REFERENCE], WANTED)
    live, made_of = changed(values[:, REFERENCE:], sizes[:, REFERENCE:], path)
    return earliest(bank.run(live, made_of), downward=downward) - BEFORE


def earliest(first: streams.NDArrayInt, *, downward: bool) -> Floats:
    """Return the first alarm of either detector of one way; 1e6 for none."""
    mine = first[:, [i for i, shift in enumerate(Shift) if shift.downward is downward]]
    return np.asarray(np.where(mine > 0, mine, 1_000_000).min(axis=1), dtype=float)


def summary(found: Floats) -> dict[str, float]:
    """Return quantiles of delays; alarms before the change are none."""
    after = found[found > 0]
    share = float((after < 100_000).mean())
    return {
        "median": float(np.quantile(after, 0.5, method="inverted_cdf")),
        "p90": float(np.quantile(after, 0.9, method="inverted_cdf")),
        "found": share,
    }


def cusum(source: Source, count: int, windows: int) -> dict[str, float]:
    """Return run length and delay of Page's CUSUM, set by formula for the same run length.

    Two-sided, allowance half of a 10 % change, on (value - mean) / sd as learned; its bound h
    by Siegmund's formula for normal values, for 20,000 windows a side.
    """
    values, _ = source.draw(count, REFERENCE)
    mean, sd = values.mean(axis=1), values.std(axis=1, ddof=1)
    shift = (mean - np.log1p(np.expm1(mean) * 0.9)) / sd
    k = shift / 2
    h = np.array([siegmund_bound(one, 2 * WANTED.run_length) for one in k])
    first = page(source.draw(count, windows)[0], mean, sd, k, h)
    alarms = int((first > 0).sum())
    seen = int(np.where(first > 0, first, windows).sum())
    live, made_of = source.draw(count, BEFORE + AFTER)
    path = np.where(np.arange(BEFORE + AFTER) >= BEFORE, -0.1, 0.0)
    found = page(changed(live, made_of, path)[0], mean, sd, k, h)
    delay = np.where(found > 0, found, 1_000_000) - BEFORE
    return {
        "run_length": seen / max(1, alarms),
        "median_delay_-0.1": float(np.median(delay[delay > 0])),
    }


def page(values: Floats, mean: Floats, sd: Floats, k: Floats, h: Floats) -> streams.NDArrayInt:
    """Return the first window at which either side is above its bound; 0 for never."""
    up, down = np.zeros(mean.size), np.zeros(mean.size)
    first = np.zeros(mean.size, dtype=int)
    for t in range(values.shape[1]):
        z = (values[:, t] - mean) / sd
        up, down = np.maximum(0, up + z - k), np.maximum(0, down - z - k)
        first[(first == 0) & ((up >= h) | (down >= h))] = t + 1
    return first


def siegmund_bound(k: float, run_length: float) -> float:
    """Return h of a one-sided CUSUM with a run length.

    Source:
        D. Siegmund, Sequential Analysis (1985), 2.58: (exp(2 k b) - 2 k b - 1) / (2 k^2)
        with b = h + 1.166.
    """
    low, high = 0.0, 1_000.0
    for _ in range(100):
        middle = (low + high) / 2
        x = 2 * k * (middle + 1.166)
        reached = x > 700 or (np.exp(x) - x - 1) / (2 * k * k) >= run_length
        low, high = (low, middle) if reached else (middle, high)
    return high


if __name__ == "__main__":
    main()
