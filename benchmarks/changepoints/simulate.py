"""How often noise alone gives a change point, and which planted changes are found.

    python -m benchmarks.changepoints.simulate [--trials 1000] [--out FILE]

All noise has standard deviation 1 but for its outliers. Writes one JSON file.
"""

import argparse
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from draftgate.stats.changepoint import change_points

Floats = NDArray[np.float64]

PENALTIES = (4.0, 6.0, 8.0, 10.0)

LENGTHS = (60, 120, 365)

STEPS = ((1, 60), (1, 180), (2, 10), (2, 20), (2, 30), (3, 7), (3, 10), (3, 15), (5, 5), (5, 7))
"""Size in standard deviations and how many of the 365 values come after it."""

SHORT = ((60, 10, 5), (60, 10, 8), (60, 30, 3), (60, 30, 5), (120, 60, 3), (120, 60, 4))
"""Values, how many of them come after the change, and its size: plain steps of young histories."""

POWER_NOISES = ("normal", "3 % outliers", "rho 0.3", "rho 0.6")


def autoregressive(rho: float) -> Callable[[int, np.random.Generator], Floats]:
    """Return a maker of stationary first-order autoregressions with variance 1."""

    def make(count: int, rng: np.random.Generator) -> Floats:
        steps = rng.normal(size=count)
        values = np.empty(count)
        values[0] = steps[0]
        for place in range(1, count):
            values[place] = rho * values[place - 1] + np.sqrt(1.0 - rho**2) * steps[place]
        return values

    return make


def normal(count: int, rng: np.random.Generator) -> Floats:
    """Return independent standard normal values."""
    return rng.normal(size=count)


def student(count: int, rng: np.random.Generator) -> Floats:
    """Return Student's t with 3 degrees of freedom, scaled to variance 1."""
    return np.asarray(rng.standard_t(3, count) / np.sqrt(3.0))


def outliers(count: int, rng: np.random.Generator) -> Floats:
    """Return normal values of which 3 % are 5 to 20 off, to either side."""
    values = rng.normal(size=count)
    off = rng.random(count) < 0.03
    values[off] += rng.choice([-1.0, 1.0], off.sum()) * rng.uniform(5.0, 20.0, off.sum())
    return values


def lognormal(count: int, rng: np.random.Generator) -> Floats:
    """Return exp(z / 2), scaled to variance 1: skewed like latencies."""
    spread = np.sqrt((np.exp(0.25) - 1.0) * np.exp(0.25))
    return np.asarray(np.exp(0.5 * rng.normal(size=count)) / spread)


def two_modes(count: int, rng: np.random.Generator) -> Floats:
    """Return normal values of which 30 % lie 4 higher, scaled to variance 1."""
    values = rng.normal(size=count) + np.where(rng.random(count) < 0.3, 4.0, 0.0)
    return np.asarray(values / np.sqrt(1.0 + 16.0 * 0.3 * 0.7))


def uneven(count: int, rng: np.random.Generator) -> Floats:
    """Return normal values whose spread swings between 0.3 and 1.7, two periods long."""
    return np.asarray(
        rng.normal(size=count) * (1.0 + 0.7 * np.sin(4.0 * np.pi * np.arange(count) / count))
    )


NOISES: dict[str, Callable[[int, np.random.Generator], Floats]] = {
    "normal": normal,
    "Student t, 3 df": student,
    "3 % outliers": outliers,
    "lognormal": lognormal,
    "two modes": two_modes,
    "uneven spread": uneven,
    "rho 0.3": autoregressive(0.3),
    "rho 0.6": autoregressive(0.6),
    "rho 0.8": autoregressive(0.8),
}


def false_alarms(trials: int) -> list[dict[str, object]]:
    """Return how many series of noise give at least one change point."""
    rows: list[dict[str, object]] = []
    for name, make in NOISES.items():
        for count in LENGTHS:
            rng = np.random.default_rng(1)
            series = [make(count, rng) for _ in range(trials)]
            alarms = {
                penalty: sum(bool(change_points(one, penalty=penalty)) for one in series)
                for penalty in PENALTIES
            }
            rows.append({"noise": name, "values": count, "trials": trials, "alarms": alarms})
    return rows


def power(trials: int) -> list[dict[str, object]]:
    """Return how many planted changes are found within 5 values of their place."""
    rows: list[dict[str, object]] = []
    for name in POWER_NOISES:
        for size, after in STEPS:
            rng = np.random.default_rng(2)
            place = 365 - after
            found = 0
            for _ in range(trials):
                values = NOISES[name](365, rng)
                values[place:] += size
                found += any(abs(one.index - place) <= 5 for one in change_points(values))
            rows.append(
                {"noise": name, "size_sd": size, "after": after, "trials": trials, "found": found}
            )
    return rows


def short(trials: int) -> list[dict[str, object]]:
    """Return how many plain steps of short series of normal noise are found within 2 values."""
    rows: list[dict[str, object]] = []
    for count, after, size in SHORT:
        rng = np.random.default_rng(3)
        place = count - after
        found = 0
        for _ in range(trials):
            values = normal(count, rng)
            values[place:] += size
            found += any(abs(one.index - place) <= 2 for one in change_points(values))
        rows.append(
            {"values": count, "size_sd": size, "after": after, "trials": trials, "found": found}
        )
    return rows


def main() -> None:
    """Run all and write the results."""
    parser = argparse.ArgumentParser(description="Simulate false alarms and power.")
    parser.add_argument("--trials", type=int, default=1000)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "simulation.json")
    arguments = parser.parse_args()
    results = {
        "false_alarms": false_alarms(arguments.trials),
        "power": power(arguments.trials // 2),
        "short": short(arguments.trials),
    }
    arguments.out.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    for row in (*results["false_alarms"], *results["power"], *results["short"]):
        print(row)


if __name__ == "__main__":
    main()
