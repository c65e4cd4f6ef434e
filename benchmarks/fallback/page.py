"""Write the tables of RESULTS.md from results.json.

    python -m benchmarks.fallback.page

Text around the tables is written by hand and kept: what lies between the two marks of a
table is replaced.
"""

import json
from pathlib import Path
from typing import Any

from benchmarks import marked

HERE = Path(__file__).parent

NAMES = {
    "none": "no drafts",
    "eagle3": "head alone",
    "fallback": "head with fallback",
}


def main() -> None:
    """Replace every table."""
    path = HERE / "RESULTS.md"
    path.write_text(filled(path.read_text(encoding="utf-8"), load()), encoding="utf-8")


def load() -> dict[str, Any]:
    """Return the stored results."""
    return dict(json.loads((HERE / "results.json").read_text(encoding="utf-8")))


def filled(text: str, results: dict[str, Any]) -> str:
    """Return the page with every table of these results.

    Raises:
        SystemExit: If the page has no place for one.
    """
    return marked.filled(text, {name: make(results) for name, make in TABLES.items()})


def setting(results: dict[str, Any]) -> str:
    """Return what was run, as a sentence."""
    known, env = results["settings"], results["environment"]
    phases = ", ".join(f"{one['seconds']:g} s {one['kind']}" for one in known["phases"])
    return (
        f"{env['cpu_model']}, {env['cpu_count']} cores, draftgate {env['draftgate']}; "
        f"{known['streams']} streams; {phases}; {known['rounds']} round(s); windows of "
        f"{known['window_steps']} steps, dwell {known['dwell_s']:g} s, probe share "
        f"{known['probe_share']:g}.\n"
    )


def gain(results: dict[str, Any]) -> str:
    """Return speed, latency and failures by phase and server; the mean over rounds."""
    head = (
        "| phase | server | tokens/s | of no drafts | p50 s | p99 s | requests | failed |\n"
        "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |\n"
    )
    rows = []
    for at, phase in enumerate(results["settings"]["phases"]):
        plain = _mean(results, "none", at, "tokens_per_s")
        for server, name in NAMES.items():
            speed = _mean(results, server, at, "tokens_per_s")
            rows.append(
                f"| {at + 1}, {phase['kind']} | {name} | {speed:.1f} | {speed / plain:.2f} "
                f"| {_mean(results, server, at, 'latency_p50_s'):.2f} "
                f"| {_mean(results, server, at, 'latency_p99_s'):.2f} "
                f"| {_sum(results, server, at, 'requests')} "
                f"| {_sum(results, server, at, 'failed')} |\n"
            )
    return head + "".join(rows)


def texts(results: dict[str, Any]) -> str:
    """Return how many answers were compared with those without drafts."""
    head = "| server | answers compared | other text |\n| --- | ---: | ---: |\n"
    found = results["texts"]
    return head + "".join(
        f"| {name} | {found[server]['compared']} | {found[server]['other']} |\n"
        for server, name in NAMES.items()
    )


def switches(results: dict[str, Any]) -> str:
    """Return the lines of every switch, round by round."""
    lines = [
        line for run in results["runs"] if run["server"] == "fallback" for line in run["lines"]
    ]
    return "```\n" + "".join(f"{line}\n" for line in lines) + "```\n"


def _values(results: dict[str, Any], server: str, at: int, name: str) -> list[float]:
    return [run["phases"][at][name] for run in results["runs"] if run["server"] == server]


def _mean(results: dict[str, Any], server: str, at: int, name: str) -> float:
    values = _values(results, server, at, name)
    return sum(values) / len(values)


def _sum(results: dict[str, Any], server: str, at: int, name: str) -> int:
    return int(sum(_values(results, server, at, name)))


TABLES = {"setting": setting, "gain": gain, "texts": texts, "switches": switches}

if __name__ == "__main__":
    main()
