"""Change points of the peers: runs under the peers' own interpreter, JSON in and out.

Standard input: {"tcpd": {name: [values]}, "browser": ..., "nab": ...}. Output:
per method its settings, seconds per set, failures, and cuts per set and series.
"""

import json
import math
import sys
import time
from collections.abc import Callable, Sequence
from importlib.metadata import version

import numpy as np
import ruptures
from otava.analysis import compute_change_points

Cuts = list[int]


def otava(max_pvalue: float) -> Callable[[Sequence[float]], Cuts]:
    """Return Otava with its defaults but for the p-value."""

    def find(values: Sequence[float]) -> Cuts:
        found, _ = compute_change_points(
            list(values), window_len=50, max_pvalue=max_pvalue, min_magnitude=0.0
        )
        return [int(change.index) for change in found]

    return find


def pelt_rbf(factor: float, min_size: int, jump: int) -> Callable[[Sequence[float]], Cuts]:
    """Return PELT with the rbf cost on standardised values, penalty factor * log(n)."""

    def find(values: Sequence[float]) -> Cuts:
        array = np.asarray(values)
        spread = array.std()
        array = (array - array.mean()) / spread if spread > 0.0 else array - array.mean()
        model = ruptures.Pelt(model="rbf", min_size=min_size, jump=jump).fit(array)
        return [int(cut) for cut in model.predict(pen=factor * math.log(array.size))[:-1]]

    return find


METHODS = {
    "otava, default (p 0.001)": (otava(1e-3), ("tcpd", "browser", "nab")),
    "otava, p 0.00001": (otava(1e-5), ("tcpd", "browser", "nab")),
    "ruptures PELT-rbf, log n, min 3, jump 1": (pelt_rbf(1.0, 3, 1), ("tcpd",)),
    "ruptures PELT-rbf, 2 log n, min 2, jump 5": (pelt_rbf(2.0, 2, 5), ("tcpd", "browser")),
}


def main() -> None:
    """Read the series, run every method on its sets, write the cuts."""
    sets = json.load(sys.stdin)
    methods: dict[str, object] = {}
    for name, (find, wanted) in METHODS.items():
        cuts: dict[str, dict[str, Cuts]] = {}
        seconds: dict[str, float] = {}
        for kind in wanted:
            start = time.perf_counter()
            cuts[kind] = {series: find(values) for series, values in sets[kind].items()}
            seconds[kind] = time.perf_counter() - start
        methods[name] = {"cuts": cuts, "seconds": seconds}
    versions = {package: version(package) for package in ("apache-otava", "ruptures", "numpy")}
    json.dump({"versions": versions, "methods": methods}, sys.stdout)


main()
