"""Write the tables of RESULTS.md from results.json.

    python -m benchmarks.watch.page

Text around the tables is written by hand and kept: what lies between the two marks of a
table is replaced.
"""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks import marked

HERE = Path(__file__).parent

Rows = Sequence[dict[str, Any]]

NEVER = 1_000.0
"""Delays above this stand for "not within the simulated windows"."""


def main() -> None:
    """Replace every table."""
    path = HERE / "RESULTS.md"
    path.write_text(filled(path.read_text(encoding="utf-8"), load()), encoding="utf-8")


def load() -> dict[str, Any]:
    """Return the stored results."""
    return dict(json.loads((HERE / "results.json").read_text(encoding="utf-8")))


def filled(text: str, results: dict[str, Any]) -> str:
    """Return the page with every table of these results."""
    return marked.filled(text, {name: make(results["pools"]) for name, make in TABLES.items()})


def rates(pools: Rows) -> str:
    """Return spreads and run lengths."""
    head = (
        "| windows of | length | spread | 10 % in spreads | false alarms | windows a false alarm "
        "| CUSUM by formula |\n| --- | ---: | ---: | ---: | ---: | ---: | ---: |\n"
    )
    return head + "".join(
        f"| {p['pool']} | {p['length']:.2f} | {p['spread']:.2%} | {p['tenth_in_spreads']:.1f} "
        f"| {p['false_alarms']} | {_many(p)} | {p['cusum']['run_length']:,.0f} |\n"
        for p in pools
    )


def delays(pools: Rows) -> str:
    """Return median and 90 % delays."""
    head = (
        "| windows of | -5 % | -10 % | -20 % | +10 % | +20 % | length -10 % |\n"
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: |\n"
    )
    keys = ("-0.05", "-0.1", "-0.2", "+0.1", "+0.2")
    return head + "".join(
        f"| {p['pool']} | "
        + " | ".join(_delay(p["delays"][key]) for key in keys)
        + f" | {_delay(p['delay_length_-0.1'])} |\n"
        for p in pools
    )


def slides(pools: Rows) -> str:
    """Return when slides alarm."""
    keys = ("0.0005", "0.001", "0.002", "0.005")
    head = (
        "| windows of | "
        + " | ".join(f"{float(key):.2%} a window" for key in keys)
        + " |\n| --- | ---: | ---: | ---: | ---: |\n"
    )
    return head + "".join(
        f"| {p['pool']} | "
        + " | ".join(
            f"{p['slides'][key]['median']:.0f} (-{p['slides'][key]['lost_at_median']:.0%})"
            for key in keys
        )
        + " |\n"
        for p in pools
    )


def _many(pool: dict[str, Any]) -> str:
    sign = "" if pool["false_alarms"] else "> "
    return f"{sign}{pool['run_length']:,.0f}"


def _delay(found: dict[str, float]) -> str:
    median, p90 = (f"{found[key]:.0f}" if found[key] < NEVER else "-" for key in ("median", "p90"))
    return f"{median} / {p90}"


TABLES: dict[str, Callable[[Rows], str]] = {"rates": rates, "delays": delays, "slides": slides}


if __name__ == "__main__":
    main()
