"""Compare the product's change points with its peers' on public series.

    python -m benchmarks.changepoints.run DATA [--out FILE]

DATA is the folder of `series.py`; DRAFTGATE_CHANGEPOINT_DATA names it too. The
peers get their own environment in build/ on first use.
"""

import argparse
import itertools
import json
import os
import subprocess
import sys
import time
import venv
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.changepoints import series
from benchmarks.changepoints.scoring import MARGIN, cover_score, f1_score, hits
from draftgate.stats.changepoint import change_points

HERE = Path(__file__).parent

PEERS = HERE.parents[1] / "build" / "changepoint-peers"

Cuts = Mapping[str, Sequence[int]]

GRID = tuple(itertools.product((4.0, 6.0, 8.0, 10.0, 12.0), (3.0, 4.0, 5.0, 6.0)))
"""Penalties and clips of the sensitivity table; the other settings stay at their defaults."""

VARIED: tuple[dict[str, float], ...] = (
    *({"alpha": alpha} for alpha in (1.0, 1e-2, 3e-3, 3e-4, 1e-4)),
    *({"window": window} for window in (15, 20, 30, 40, 50)),
    *({"min_segment": least} for least in (2, 3, 7)),
)


def main() -> None:
    """Score the product and the peers, and write one JSON file."""
    parser = argparse.ArgumentParser(description="Score change points on public series.")
    parser.add_argument("data", nargs="?", default=os.environ.get("DRAFTGATE_CHANGEPOINT_DATA"))
    parser.add_argument("--out", type=Path, default=HERE / "results.json")
    arguments = parser.parse_args()
    if arguments.data is None:
        parser.error("expected the data folder, or its name in DRAFTGATE_CHANGEPOINT_DATA")
    folder = Path(arguments.data)
    check_scoring(folder)
    results = {
        "margin": MARGIN,
        "tcpd_series": [one.name for one in series.tcpd(folder)],
        "methods": {"draftgate": product_row(folder, {})},
        "published": published(folder),
        "sensitivity": sensitivity(folder),
    }
    results["chosen_elsewhere"] = chosen_elsewhere(folder)
    found = peer_cuts(folder)
    results["versions"] = found["versions"]
    for name, peer in found["methods"].items():
        results["methods"][name] = scored(folder, peer["cuts"]) | {"seconds": peer["seconds"]}
    arguments.out.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    for name, row in results["methods"].items():
        print(name, {key: value for key, value in row.items() if key != "per_series"})


def check_scoring(folder: Path) -> None:
    """Fail unless "no change anywhere" scores as published, on every series."""
    scores = folder / "tcpdbench_peer_scores"
    f1 = series.read_json(scores / "default_f1_uni_full.json")
    cover = series.read_json(scores / "default_cover_uni_full.json")
    for one in series.tcpd(folder):
        ours = (f1_score(one.annotations, ()), cover_score(one.annotations, (), one.count))
        theirs = (f1[one.name]["zero"], cover[one.name]["zero"])
        if max(abs(a - b) for a, b in zip(ours, theirs, strict=True)) > 1e-9:
            raise SystemExit(f"{one.name}: got {ours} for no change, published are {theirs}")


def published(folder: Path) -> dict[str, list[float]]:
    """Return F1 and cover of TCPDBench's detectors at their defaults; a failure scores 0."""
    names = [one.name for one in series.tcpd(folder)]
    rows = []
    for metric in ("f1", "cover"):
        path = folder / "tcpdbench_peer_scores" / f"default_{metric}_uni_full.json"
        full = series.read_json(path)
        rows.append(
            {
                method: sum(full[name][method] or 0.0 for name in names) / len(names)
                for method in full[names[0]]
            }
        )
    return {method: [rows[0][method], rows[1][method]] for method in rows[0]}


def product(values: series.Floats, settings: Mapping[str, Any]) -> list[int]:
    """Return the product's change points."""
    return [change.index for change in change_points(values, **settings)]


def product_row(folder: Path, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the product's scores, with its seconds per set."""
    cuts: dict[str, Cuts] = {}
    seconds = {}
    for kind, members in values_of(folder).items():
        start = time.perf_counter()
        cuts[kind] = {name: product(values, settings) for name, values in members.items()}
        seconds[kind] = time.perf_counter() - start
    return scored(folder, cuts) | {"seconds": seconds}


def values_of(folder: Path) -> dict[str, dict[str, series.Floats]]:
    """Return the values of all series, by set and name."""
    readers: dict[str, Callable[[Path], list[Any]]] = {
        "tcpd": series.tcpd,
        "browser": series.browser,
        "nab": series.nab,
    }
    return {kind: {one.name: one.values for one in read(folder)} for kind, read in readers.items()}


def scored(folder: Path, cuts: Mapping[str, Cuts]) -> dict[str, Any]:
    """Return the scores of one method on the sets that it ran on."""
    row = score_tcpd(folder, cuts["tcpd"])
    if "browser" in cuts:
        row |= score_browser(folder, cuts["browser"])
    if "nab" in cuts:
        row |= score_nab(folder, cuts["nab"])
    return row


def score_tcpd(folder: Path, cuts: Cuts) -> dict[str, Any]:
    """Return mean F1 and cover, and those of every series."""
    per_series = {}
    for one in series.tcpd(folder):
        found = [one.places[cut] for cut in cuts[one.name]]
        scores = f1_score(one.annotations, found), cover_score(one.annotations, found, one.count)
        per_series[one.name] = {"f1": scores[0], "cover": scores[1], "found": found}
    count = len(per_series)
    return {
        "f1": sum(entry["f1"] for entry in per_series.values()) / count,
        "cover": sum(entry["cover"] for entry in per_series.values()) / count,
        "per_series": per_series,
    }


def score_browser(folder: Path, cuts: Cuts) -> dict[str, int]:
    """Return the asserted alerts with a change point within the margin, and further ones."""
    alerts = extra = 0
    for one in series.browser(folder):
        hit = hits(one.alerts, cuts[one.name])
        alerts += hit
        extra += len(cuts[one.name]) - hit
    return {"alerts": alerts, "extra": extra}


def score_nab(folder: Path, cuts: Cuts) -> dict[str, int]:
    """Return the change points inside and outside of the anomaly windows, and windows hit."""
    inside = outside = windows_hit = 0
    for one in series.nab(folder):
        found = cuts[one.name]
        held = [any(low <= cut <= high for low, high in one.windows) for cut in found]
        inside += sum(held)
        outside += len(held) - sum(held)
        windows_hit += sum(any(low <= cut <= high for cut in found) for low, high in one.windows)
    return {"nab_inside": inside, "nab_outside": outside, "nab_windows_hit": windows_hit}


def sensitivity(folder: Path) -> list[dict[str, Any]]:
    """Return the scores for settings around the defaults."""
    grid: list[dict[str, float]] = [{"penalty": c, "clip_sd": clip} for c, clip in GRID]
    sets = values_of(folder)
    rows = []
    for settings in (*grid, *VARIED):
        cuts = {
            kind: {name: product(values, settings) for name, values in sets[kind].items()}
            for kind in ("tcpd", "browser")
        }
        row = scored(folder, cuts)
        rows.append({"settings": settings} | {k: v for k, v in row.items() if k != "per_series"})
    return rows


def chosen_elsewhere(folder: Path) -> dict[str, dict[str, float]]:
    """Return mean scores on series that had no say in penalty and clip, both from `GRID`.

    The settings are those with the best mean of F1 and cover on the other
    series: all but one, or a random half, 200 times. "whole grid" chooses
    nothing: it is the mean over all settings.
    """
    members = values_of(folder)["tcpd"]
    tables = []
    for penalty, clip in GRID:
        settings = {"penalty": penalty, "clip_sd": clip}
        cuts = {name: product(values, settings) for name, values in members.items()}
        rows = score_tcpd(folder, cuts)["per_series"]
        tables.append([[rows[name]["f1"], rows[name]["cover"]] for name in members])
    scores = np.array(tables)  # settings, series, two metrics
    count = len(members)
    rng = np.random.default_rng(1)
    halves = [np.sort(rng.permutation(count)[: count // 2]) for _ in range(200)]
    return {
        "leave one out": _chosen(scores, [np.array([place]) for place in range(count)]),
        "random halves": _chosen(scores, halves),
        "whole grid": _named(scores.mean(axis=(0, 1))),
    }


def _chosen(scores: series.Floats, tested: Sequence[NDArray[np.intp]]) -> dict[str, float]:
    found = []
    for test in tested:
        others = np.delete(scores, test, axis=1).mean(axis=(1, 2))
        found.append(scores[int(np.argmax(others)), test].mean(axis=0))
    return _named(np.mean(found, axis=0))


def _named(pair: series.Floats) -> dict[str, float]:
    return {"f1": float(pair[0]), "cover": float(pair[1])}


def peer_cuts(folder: Path) -> Any:
    """Return what `peer_cuts.py` writes; makes the peers' environment if there is none."""
    python = PEERS / "bin" / "python"
    if not (PEERS / "complete").exists():
        venv.create(PEERS, with_pip=True, clear=True)
        pins = str(HERE / "requirements-peers.txt")
        subprocess.run([python, "-m", "pip", "install", "--quiet", "-r", pins], check=True)
        (PEERS / "complete").touch()
    given = {
        kind: {name: values.tolist() for name, values in members.items()}
        for kind, members in values_of(folder).items()
    }
    done = subprocess.run(
        [python, HERE / "peer_cuts.py"],
        input=json.dumps(given),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return json.loads(done.stdout)


if __name__ == "__main__":
    sys.exit(main())
