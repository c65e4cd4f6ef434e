"""Write the tables of RESULTS.md from results.json and made.json.

    python -m benchmarks.stale.page

Text around the tables is written by hand and kept: what lies between the two marks of a
table is replaced.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks import marked

HERE = Path(__file__).parent
HEADS = ("old", "re-trained")
TARGETS = ("old", "next")

Results = Mapping[str, Any]


def main() -> None:
    """Replace every table."""
    path = HERE / "RESULTS.md"
    path.write_text(filled(path.read_text(encoding="utf-8"), *load()), encoding="utf-8")


def load() -> tuple[Results, Results]:
    """Return what was measured, and what the making took."""
    return tuple(
        json.loads((HERE / name).read_text(encoding="utf-8"))
        for name in ("results.json", "made.json")
    )


def filled(text: str, results: Results, made: Results) -> str:
    """Return the page with every table of these results."""
    tables = {
        "acceptance": acceptance(results["rows"]),
        "positions": positions(results["rows"]),
        "verdicts": verdicts(results["verdicts"]),
        "cost": cost(made),
    }
    return marked.filled(text, tables)


def acceptance(rows: Sequence[Results]) -> str:
    """Return tokens per step by kind, what was lost, and what came back."""
    head = (
        "| kind | old head, old target | old head, next target | lost | re-trained, next target "
        "| against before | re-trained, old target |\n"
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: |\n"
    )
    return head + "".join(_line(rows, kind) for kind in _kinds(rows))


def _line(rows: Sequence[Results], kind: str) -> str:
    cells = {(one["head"], one["target"]): one for one in rows if one["kind"] == kind}
    before, stale = cells["old", "old"], cells["old", "next"]
    after = cells["re-trained", "next"]

    def change(now: Results) -> str:
        return f"{now['tokens_per_step'] / before['tokens_per_step'] - 1:+.0%}"

    return (
        f"| {kind} | {_shown(before)} | {_shown(stale)} | {change(stale)} | {_shown(after)} "
        f"| {change(after)} | {_shown(cells['re-trained', 'old'])} |\n"
    )


def positions(rows: Sequence[Results]) -> str:
    """Return the share of steps in which each draft was accepted."""
    head = "| kind | head | target | accepted by position |\n| --- | --- | --- | ---: |\n"
    lines = []
    for kind in _kinds(rows):
        for one in rows:
            if one["kind"] == kind:
                shares = "/".join(f"{share:.0%}" for share in one["accepted_by_position"])
                lines.append(f"| {kind} | {one['head']} | {one['target']} | {shares} |\n")
    return head + "".join(lines)


def verdicts(found: Sequence[Results]) -> str:
    """Return what `draftgate drafts check --target NEXT` says of the old head."""
    head = "| kind | verdict | reason |\n| --- | --- | --- |\n"
    return head + "".join(
        f"| {one['place']} | {one['outcome']} | {one['reason']} |\n" for one in found
    )


def cost(made: Results) -> str:
    """Return what each step of the making took."""
    head = "| step | what | seconds |\n| --- | --- | ---: |\n"
    return head + "".join(
        f"| {one['step']} | {one['what']} | {one['seconds']:.0f} |\n" for one in made["steps"]
    )


def _kinds(rows: Sequence[Results]) -> list[str]:
    return list(dict.fromkeys(one["kind"] for one in rows))


def _shown(one: Results) -> str:
    return f"{one['tokens_per_step']:.2f} [{one['low']:.2f}, {one['high']:.2f}]"


if __name__ == "__main__":
    main()
