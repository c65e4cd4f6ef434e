"""Part 3 of RESULTS.md from planted.json.

.venv/bin/python -m benchmarks.gate.plantedtables     # rewrites the part between its markers
"""

from pathlib import Path

from benchmarks.gate.page import Section
from benchmarks.gate.tables import Row, table

HEADING = """
## 3. Faults planted into live servers of the real engine

`python -m benchmarks.gate.planted` makes `planted.json`, `python -m benchmarks.gate.plantedtables`
the tables below. Per kind one unchanged server and one with the fault were started and loaded in
turn at one stream; a pair is a round of load. The verdicts are those of `draftgate compare` on live
servers, with all gates of the default profile and both stages.

"""

SECTION = Section("planted", HEADING)
START, END = SECTION.start, SECTION.end

SPEED = "output_tokens_per_s"


def verdicts(rows: list[Row]) -> str:
    """Return one line per kind: what was planted, what was said, and why."""
    lines = []
    for row in rows:
        speed = next(gate for gate in row["gates"] if gate["metric"] == SPEED)
        red = [gate for gate in row["gates"] if gate["outcome"] == "regression"]
        named = sorted({name for gate in red for name in gate["named"]})
        lines.append(
            (
                row["kind"],
                row["told"],
                row["outcome"],
                ", ".join(named) or "-",
                f"{100 * speed['loss']['loss']:+.1f}",
                f"{row['pairs']} + {row['fresh_pairs']}",
                str(len(row.get("unused", ()))),
                f"{row['minutes']:g}",
            )
        )
    heads = (
        "kind",
        "planted",
        "verdict",
        "causes named",
        "loss of tokens/s %",
        "pairs",
        "unused",
        "minutes",
    )
    return table(heads, lines)


def gates(rows: list[Row]) -> str:
    """Return one line per kind and gate that is no PASS, with its cause in full."""
    lines = [
        (row["kind"], gate["metric"], gate["outcome"], gate["cause"] or gate["reason"])
        for row in rows
        for gate in row["gates"]
        if gate["outcome"] not in ("pass", "improvement")
    ]
    return table(("kind", "gate", "verdict", "cause, else reason"), lines)


def render(rows: list[Row]) -> str:
    """Return both tables and where they come from."""
    places: dict[str, list[str]] = {}
    for row in rows:
        place = f"{row['engine']} on {row['hardware']}, seed {row['seed']}"
        places.setdefault(place, []).append(f"{row['kind']} ({row['min_requests']})")
    about = "\n".join(f"{place}: {', '.join(kinds)}." for place, kinds in places.items())
    about += "\nIn brackets the requests of a window; unused are pairs that were INVALID.\n"
    return "\n".join((about, verdicts(rows), gates(rows)))


def placed(page: str, tables: str) -> str:
    """Return the page with the tables between its markers, which are added at its end if absent."""
    return SECTION.placed(page, tables)


def rewrite(folder: Path) -> None:
    """Rewrite RESULTS.md of a folder from its planted.json."""
    SECTION.rewrite(folder, render)


if __name__ == "__main__":
    rewrite(Path(__file__).parent)
