"""RESULTS.md's tables from the JSON files.

.venv/bin/python -m benchmarks.correctness.tables     # rewrites what is between markers
"""

import json
from collections.abc import Sequence
from math import inf
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.correctness.contexts import KINDS
from benchmarks.correctness.goals import (
    Study,
    asked_jointly,
    factors,
    goals,
    joint_limit,
    within_reach,
)
from benchmarks.correctness.peers import TESTS
from benchmarks.gate.page import Section
from benchmarks.gate.tables import table

HERE = Path(__file__).parent
REMEDIES = HERE / "remedies.json"

Row = dict[str, Any]

FACTORS = ("oracle", "ours", "draft unknown")
"""Columns that are given as multiples of the limit as well."""


def count(row: Row, name: str) -> str:
    """Return a number of tokens, and by what it exceeds the limit."""
    at = row[name]
    if at is None:
        return f"> {row['tokens']}"
    return f"{at} ({at / row['limit']:.1f})" if name in FACTORS else f"{at}"


def best_joint(study: Study, row: Row) -> str:
    """Return what the best joint test needs; with a star where impossible events decide it."""
    limit, shown = joint_limit(study, row)
    return "-" if limit == inf else f"{limit:.0f}{'*' * shown}"


def joint(row: Row) -> str:
    """Return the joint verdict's tokens and the evidence's in multiples of them."""
    if row["joint"] is None:
        return "-"
    ratio = f" ({row['ours'] / row['joint']:.1f})" if row["ours"] else ""
    return f"{row['joint']}{ratio}"


def study_of(result: Row) -> Study:
    """Return the rows of one kind of drafts with the limits of the joint test."""
    limits = json.loads((HERE / "joint_limits.json").read_text(encoding="utf-8"))
    return Study(result["kind"], result["rows"], limits[result["kind"]])


def power(result: Row) -> str:
    """Return the table of one kind of drafts, with its summary."""
    rows = result["rows"]
    study = study_of(result)
    lines = [
        (
            row["fault"],
            f"{row['kl']:.4f}",
            f"{row['limit']:.0f}",
            *(count(row, name) for name in FACTORS),
            best_joint(study, row),
            joint(row),
            *(count(row, name) for name in TESTS),
        )
        for row in rows
    ]
    head = ("fault", "nats a token", "limit", *FACTORS, "joint limit", "joint", *TESTS)
    found = factors(rows)
    summary = (
        f"{len(rows)} faults, {result['kind']} drafts, {result['contexts']} contexts, "
        f"{result['streams']} streams each on {result['machine']['hardware']} in "
        f"{result['minutes']:.0f} minutes. Tokens over the limit: median {median(found):.2f}, "
        f"largest {max(found):.1f}; over 8 in {sum(x > 8 for x in found)}."
    )
    return f"{summary}\n\n{table(head, lines)}"


def goals_part(studies: Sequence[Study], remedies: Row) -> str:
    """Return what is asked and was found, and what stands behind the goals that are missed."""
    rows = [
        (goal.what, goal.asked, goal.found, "met" if goal.met else "**MISSED**")
        for study in studies
        for goal in goals(study)
    ]
    head = table(("what", "goal", "found", ""), rows)
    return "\n".join(
        [head, fitted_on(), *(missed_joint(study) for study in studies), tried(remedies)]
    )


def fitted_on() -> str:
    """Return the medians on the contexts that the weights were fitted on, if there are any."""
    files = {kind: HERE / f"power-{kind}-even.json" for kind in KINDS}
    rows = {
        kind: json.loads(file.read_text(encoding="utf-8"))["rows"]
        for kind, file in files.items()
        if file.exists()
    }
    found = ", ".join(f"{median(factors(one)):.2f} ({kind} drafts)" for kind, one in rows.items())
    return (
        f"Median on the even contexts, on which the weights were fitted: {found or 'not taken'}.\n"
    )


def missed_joint(study: Study) -> str:
    """Return how many faults the best joint test could find in a tenth of the tokens."""
    near = within_reach(study)
    names = ", ".join(row["fault"] for row in near) or "none"
    limits = [
        row["ours"] / joint_limit(study, row)[0] for row in asked_jointly(study) if row["ours"]
    ]
    return (
        f"Joint verdict, {study.kind} drafts: for {len(near)} of {len(limits)} faults that were "
        f"found and have a joint limit ({names}) that limit is at most a tenth of the "
        f"evidence's tokens; in the median it is {median(limits):.1f} times fewer.\n"
    )


def tried(remedies: Row) -> str:
    """Return the medians over the limit of each way of mixing, and who is not found by any."""
    lines, never = [], []
    ways = ("oracle", "best part", *remedies["ways"])
    for kind, rows in remedies["rows"].items():
        medians = [f"{median(factors(rows, way)):.2f}" for way in ways]
        lines.append((f"{kind} drafts, {len(rows)} faults", *medians))
        never += [
            f"{row['fault']} ({kind} drafts; the best part sees {row['seen']:.0%} of its nats)"
            for row in rows
            if all(row[way] is None for way in ways[1:])
        ]
    said = f"Found by none within {remedies['longest']:g} limits: {', '.join(never) or 'no fault'}."
    return f"{table(('median over the limit, even contexts', *ways), lines)}\n{said}\n"


def false_alarms(result: Row) -> str:
    """Return the table of false alarms."""
    rows = [
        (f"{alpha:g}", f"{result['streams']}", f"{short}", f"{long}")
        for alpha, (short, long) in zip(result["alphas"], result["alarms"], strict=True)
    ]
    head = (
        "alpha",
        "streams",
        f"alarms within {result['short']} tokens",
        f"within {result['tokens']}",
    )
    return f"{result['minutes']:.0f} minutes of one process.\n\n{table(head, rows)}"


def main() -> None:
    """Rewrite the parts whose numbers there are."""
    for kind in KINDS:
        Section(f"power-{kind}").rewrite(HERE, power)
        Section(f"power-{kind}-other").rewrite(HERE, power)
    if (HERE / "false_alarms.json").exists():
        Section("false_alarms").rewrite(HERE, false_alarms)
    whole = [json.loads((HERE / f"power-{kind}.json").read_text()) for kind in KINDS]
    page = HERE / "RESULTS.md"
    part = goals_part([study_of(one) for one in whole], json.loads(REMEDIES.read_text()))
    page.write_text(Section("goals").placed(page.read_text(encoding="utf-8"), part), "utf-8")
    found = factors([row for one in whole for row in one["rows"]])
    print(f"all: median {median(found):.2f}, largest {max(found):.1f}")


if __name__ == "__main__":
    main()
