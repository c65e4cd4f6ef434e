"""Public series with known changes, read from a folder that is not part of the repository.

The folder has the sub-folders `tcpd` (series and annotations of the Turing
Change Point Dataset), `tcpdbench_peer_scores`, `treeherder_graphs`, `otava` and
`nab`, each with the files of its project under their own names.
"""

import csv
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

ALERTS = {
    "runs1": (1365019665,),
    "runs2": (1357704596, 1358971894, 1365014104),
    "runs3": (1335293827, 1338839958),
    "runs4": (1364922838,),
    "runs5": (),
    "a11y": (1366197637, 1367799757),
    "tp5rss": (1372846906, 1373413365, 1373424974),
}
"""Push times that treeherder's own test asserts as alerts (tests/perfalert/test_analyze.py)."""


@dataclass(frozen=True, slots=True)
class Annotated:
    """One series of TCPD.

    Attributes:
        name: As in TCPD.
        values: Without the missing ones.
        places: Position in the full series of each value.
        count: Length of the full series.
        annotations: Per annotator, the first position of each new segment.
    """

    name: str
    values: Floats
    places: tuple[int, ...]
    count: int
    annotations: tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class Browser:
    """One Firefox performance series with the positions of its asserted alerts."""

    name: str
    values: Floats
    alerts: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Windowed:
    """One server metric of NAB with its anomaly windows, positions inclusive."""

    name: str
    values: Floats
    windows: tuple[tuple[int, int], ...]


def read_json(path: Path) -> Any:
    """Return the content of a JSON file."""
    return json.loads(path.read_text(encoding="utf-8"))


def tcpd(folder: Path) -> list[Annotated]:
    """Return the univariate series that the folder holds, by name."""
    found = []
    for name, by_annotator in sorted(read_json(folder / "tcpd" / "annotations.json").items()):
        path = folder / "tcpd" / f"{name}.json"
        if not path.exists() or (content := read_json(path))["n_dim"] != 1:
            continue
        raw = content["series"][0]["raw"]
        places = tuple(place for place, value in enumerate(raw) if value is not None)
        values = np.array([raw[place] for place in places], dtype=np.float64)
        annotations = tuple(tuple(cuts) for cuts in by_annotator.values())
        found.append(Annotated(name, values, places, len(raw), annotations))
    return found


def browser(folder: Path) -> list[Browser]:
    """Return the seven Firefox series, in time order."""
    found = []
    for name, alerts in ALERTS.items():
        runs = read_json(folder / "treeherder_graphs" / f"{name}.json")["test_runs"]
        runs = sorted(runs, key=lambda run: int(run[2]))
        times = [int(run[2]) for run in runs]
        values = np.array([run[3] for run in runs], dtype=np.float64)
        found.append(Browser(name, values, tuple(times.index(alert) for alert in alerts)))
    return found


def nab(folder: Path) -> list[Windowed]:
    """Return the server metrics of NAB, by name."""
    labels = read_json(folder / "nab" / "labels" / "combined_windows.json")
    found = []
    for path in sorted((folder / "nab" / "data").glob("*/*.csv")):
        with path.open(encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file))
        times = [row["timestamp"] for row in rows]
        windows = tuple(
            (times.index(start[:19]), times.index(end[:19]))
            for start, end in labels[f"{path.parent.name}/{path.name}"]
        )
        values = np.array([float(row["value"]) for row in rows])
        found.append(Windowed(path.stem, values, windows))
    return found
