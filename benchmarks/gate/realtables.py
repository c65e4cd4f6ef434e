"""Part 2 of RESULTS.md from real.json.

.venv/bin/python -m benchmarks.gate.realtables     # rewrites the part between its markers
"""

from pathlib import Path

from benchmarks.gate.page import Section
from benchmarks.gate.tables import Row, percent, pick, table

HEADING = """
## 2. The real engine

`python -m benchmarks.gate.record` makes `starts.parquet`, `python -m benchmarks.gate.replay` the
numbers and tables below; what is planted stands in `faults.py`, how comparisons are drawn in the
docstrings of `replay.py` and `realpeers.py`.

"""

SECTION = Section("real", HEADING)
START, END = SECTION.start, SECTION.end

PEERS = (
    "pytest-benchmark, mean:5%",
    "pytest-benchmark, min:5%",
    "benchstat, U at .05",
    "benchstat, and delta over 5 %",
    "Otava 0.8.0, defaults",
    "Welch over starts at .05",
)


def setting(result: Row) -> str:
    """Return one line on where the starts come from."""
    how = "forked (`--quick-starts`)" if result["quick_starts"] else "started as usual"
    return (
        f"{result['starts']} starts of {result['engine']} with profile `{result['profile']}` on "
        f"{result['hardware']}, servers {how}; seed {result['seed']}.\n"
    )


def unchanged(result: Row) -> str:
    """Return the table of unchanged builds, all gates together and one by one."""
    rows = []
    for row in result["unchanged"]:
        shares = [f"{100 * row[key]:.1f}" for key in ("pass", "improvement", "inconclusive")]
        rows.append(
            (
                f"{row['kind']}, any of {len(row['gates'])} gates",
                str(row["regression"]["trials"]),
                percent(row["regression"]),
                *shares,
                f"{row['mean_pairs']:.1f}",
            )
        )
        for name, gate in row["gates"].items():
            shares = [f"{100 * gate['pass']:.1f}", "-", f"{100 * gate['inconclusive']:.1f}"]
            rows.append(
                (
                    f"{row['kind']}, {name}",
                    str(gate["regression"]["trials"]),
                    percent(gate["regression"]),
                    *shares,
                    "-",
                )
            )
    head = (
        "unchanged builds",
        "comparisons",
        "false REGRESSION %",
        "PASS %",
        "IMPROVEMENT %",
        "INCONCLUSIVE %",
        "mean pairs",
    )
    return table(head, rows)


def planted(result: Row) -> str:
    """Return the table of planted faults: verdict, and power over orders."""
    rows = [
        (
            f"{row['kind']}: {row['told']}",
            row["outcome"].upper(),
            str(row["pairs"]),
            percent(row["orders"]["regression"]),
            f"{row['orders']['mean_pairs']:.1f}",
        )
        for row in result["planted"]
    ]
    rows += [
        (
            "one bad start among unchanged ones",
            "-",
            "-",
            percent(row["regression"]),
            f"{row['mean_pairs']:.1f}",
        )
        for row in result["bad_start"]
    ]
    for row in result["hiccup"]:
        told = f"{row['outcome'].upper()}: {row['invalid']} of {row['couples']} pairs"
        rows.append((f"hiccup: {row['told']}", told, "-", "-", "-"))
    head = (
        "planted",
        "verdict in the order taken",
        "pairs",
        "REGRESSION % of orders",
        "mean pairs",
    )
    return table(head, rows)


def causes(result: Row) -> str:
    """Return the table of verdicts by gate with what is named as the cause."""
    rows = [
        (
            f"{row['kind']}, {gate['gate']}",
            gate["outcome"].upper(),
            "-" if gate["loss"] is None else _loss(gate),
            gate["cause"] or "-",
        )
        for row in result["planted"]
        for gate in row["gates"]
        if gate["outcome"] != "pass"
    ]
    return table(("planted, gate (those that do not pass)", "verdict", "loss", "cause"), rows)


def _loss(gate: Row) -> str:
    absolute = gate["gate"].startswith("tokens_per_step_by_prompt")
    scale, unit = (1, " tokens") if absolute else (100, " %")
    numbers = [scale * gate[key] for key in ("loss", "low", "high")]
    places = 2 if absolute else 1
    loss, low, high = (f"{number:.{places}f}" for number in numbers)
    return f"{loss}{unit} [{low}, {high}]"


def peers(result: Row, metric: str, streams: int) -> str:
    """Return the table of all rules on one metric at one number of streams."""
    rows = []
    ours = {row["kind"]: row for row in result["unchanged"]}
    ours |= {row["kind"]: row["orders"] for row in result["planted"]}
    for kind, tally in ours.items():
        held = pick(result["peers"], metric=metric, concurrency=streams, kind=kind)
        found = {row["method"]: f"{100 * row['regression']['rate']:.1f}" for row in held}
        gate = tally["gates"].get(f"{metric} x{streams}")
        own = "-" if gate is None else f"{100 * gate['regression']['rate']:.1f}"
        rows.append((kind, own, *(found.get(name, "-") for name in PEERS)))
    return table((f"REGRESSION %, {metric} x{streams}", "gate", *PEERS), rows)


def render(result: Row) -> str:
    """Return all tables."""
    cells = sorted({(row["metric"], row["concurrency"]) for row in result["peers"]})
    parts = [setting(result), unchanged(result), planted(result), causes(result)]
    return "\n".join([*parts, *(peers(result, *cell) for cell in cells)])


def placed(page: str, tables: str) -> str:
    """Return the page with the tables between its markers, which are added at its end if absent."""
    return SECTION.placed(page, tables)


def rewrite(folder: Path) -> None:
    """Rewrite RESULTS.md of a folder from its real.json."""
    SECTION.rewrite(folder, render)


if __name__ == "__main__":
    rewrite(Path(__file__).parent)
