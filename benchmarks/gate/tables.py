"""Part 1 of RESULTS.md from simulation.json.

    .venv/bin/python -m benchmarks.gate.tables     # rewrites the part between its markers

A test checks that the committed page says what the committed numbers say.
"""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from benchmarks.gate.page import Section

HERE = Path(__file__).parent
SECTION = Section("simulation")

TOKENS = "tokens/s"

Row = dict[str, Any]

SHORT = {
    "pytest-benchmark, mean:5%": "pytest-benchmark mean:5%",
    "pytest-benchmark, min:5%": "min:5%",
    "benchstat, U at .05": "benchstat",
    "benchstat, and delta over 5 %": "and delta > 5 %",
    "Otava 0.8.0, defaults": "Otava",
    "Welch over starts at .05": "Welch, starts",
    "pooled Welch at .05": "Welch, requests",
}


def percent(found: Row) -> str:
    """Return a rate with its interval, "98.93 [98.78, 99.07]", in percent."""
    digits = 4 if found["high"] < 0.001 else 2
    low, high = (f"{100 * found[key]:.{digits}f}" for key in ("low", "high"))
    return f"{100 * found['rate']:.{digits}f} [{low}, {high}]"


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """Return a Markdown table; numbers to the right."""
    names = list(head)
    lines = ["| " + " | ".join(names) + " |", "| --- |" + " ---: |" * (len(names) - 1)]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)]) + "\n"


def pick(rows: Iterable[Row], **wanted: object) -> list[Row]:
    """Return the rows that have all of these values."""
    return [row for row in rows if all(row[key] == value for key, value in wanted.items())]


def unchanged(result: Row) -> str:
    """Return the table of unchanged builds under the gate."""
    rows = [
        (
            f"{row['scenario']}, {row['metric']}",
            percent(row["regression"]),
            percent(sign["regression"]),
            f"{100 * row['pass']['rate']:.1f}",
            f"{100 * wide['pass']['rate']:.1f}",
            f"{row['mean_pairs']:.1f}",
            f"{wide['mean_pairs']:.1f}",
        )
        for row, wide, sign in _variants(result, 0.0)
    ]
    head = (
        "unchanged builds",
        "false REGRESSION %",
        "sign process %",
        "PASS %, limit 5 %",
        "limit 10 %",
        "mean pairs, limit 5 %",
        "limit 10 %",
    )
    return table(head, rows)


def _variants(result: Row, *losses: float) -> Iterable[tuple[Row, Row, Row]]:
    rows = [row for row in result["gate"] if row["loss"] in losses]
    names = ("gate", "gate, limit 10 %", "sign process")
    return zip(*(pick(rows, method=name) for name in names), strict=True)


def changed(result: Row) -> str:
    """Return the table of power: 5 % in tokens/s, 10 % in tails."""
    rows = [
        (
            f"{row['scenario']}, {row['metric']}",
            f"{100 * row['loss']:.0f} %",
            percent(row["regression"]),
            percent(row["regression_in_family"]),
            percent(sign["regression"]),
            f"{row['mean_pairs_stage_one']:.1f}",
        )
        for row, _, sign in _variants(result, 0.05, 0.10)
    ]
    head = (
        "changed builds",
        "loss",
        "REGRESSION %",
        "among 48 gates %",
        "sign process %",
        "pairs of stage one",
    )
    return table(head, rows)


def peers(result: Row, metric: str, loss: float) -> str:
    """Return the table of all rules on one metric, unchanged or changed."""
    rows = []
    for gate in pick(result["gate"], metric=metric, loss=loss, method="gate"):
        others = pick(result["peers"], metric=metric, loss=loss, scenario=gate["scenario"])
        found = {row["method"]: f"{100 * row['regression']['rate']:.1f}" for row in others}
        ours = f"{100 * gate['regression']['rate']:.{3 if loss == 0 else 1}f}"
        rows.append((gate["scenario"], ours, *(found.get(name, "-") for name in SHORT)))
    return table((f"{metric}, loss {100 * loss:.0f} %", "gate", *SHORT.values()), rows)


def family(result: Row) -> str:
    """Return the table of any false REGRESSION among all gates."""
    rows = [
        (
            f"{row['truth']}, shared {row['rho']:.1f}",
            percent(row["any_false_regression_uncorrected"]),
            percent(row["any_false_regression"]),
        )
        for row in result["family"]
    ]
    return table(("any false REGRESSION among 48 gates", "uncorrected %", "Holm %"), rows)


def remedies(result: Row) -> str:
    """Return the table of what was tried against many pairs in the noisy scenario."""
    rows = []
    for row, loss in zip(
        pick(result["remedies"], loss=0.0), pick(result["remedies"], loss=0.05), strict=True
    ):
        rows.append(
            (
                row["method"],
                f"{row['mean_pairs_stage_one']:.2f}",
                f"{100 * row['pass']['rate']:.1f}",
                f"{100 * loss['suspect']['rate']:.1f}",
                f"{100 * loss['pass']['rate']:.1f}",
            )
        )
    head = ("noisy, tokens/s", "mean pairs", "PASS %", "5 % loss suspect %", "5 % loss PASS %")
    return table(head, rows)


def _tail_name(row: Row) -> str:
    loss, between = f"{100 * row['loss']:.0f}", f"{100 * row['between_sd']:g}"
    return f"p{100 * row['share']:.0f}, loss {loss} %, {between} % between starts"


def power(result: Row) -> str:
    """Return the table of requests and pairs that tails need."""
    rows = [
        (
            _tail_name(row),
            str(row["pairs_at_1000"]),
            "none suffices" if row["requests"] is None else str(row["requests"]),
            "-" if row["requests"] is None else percent(row["simulated"]),
        )
        for row in result["power"]
    ]
    head = (
        "80 % power by `stats.power`",
        "pairs at 1,000 requests",
        "requests at 20 + 24 pairs",
        "simulated power with them %",
    )
    return table(head, rows)


def levels(result: Row) -> str:
    """Return the table of the chance of a false suspicion."""
    rows = [
        (row["what"], percent(row) if "trials" in row else f"{100 * row['rate']:.2f}")
        for row in result["stage_one_level"]
    ]
    return table(("suspect at the margin, four looks at .005", "%"), rows)


def interaction(result: Row) -> str:
    """Return the table of the bias that no pairing removes."""
    rows = [
        (row["method"], percent(row["regression"]))
        for row in pick(result["gate"], scenario="interaction 1 %")
    ]
    return table(("a build's bias on a host, sd 1 %", "false REGRESSION %"), rows)


def goals(result: Row) -> str:
    """Return the table of what was asked for and what was found."""
    none = [row for row in result["gate"] if row["loss"] == 0.0 and "pass" in row]
    plain = pick(none, method="gate", metric=TOKENS)
    noisy = pick(plain, scenario="noisy")[0]["mean_pairs"]
    calm = [row["mean_pairs"] for row in plain if row["scenario"] != "noisy"]
    tails = [
        sorted(row["mean_pairs"] for row in pick(none, method=name) if row["metric"] != TOKENS)
        for name in ("gate", "gate, limit 10 %")
    ]
    worst = max(row["regression"]["rate"] for row in none)
    family_rate = max(row["any_false_regression"]["rate"] for row in result["family"])
    rows = [
        ("false REGRESSION in each scenario, %", "at most 0.1", f"at most {100 * worst:.4f}"),
        *(_power_goal(result, *goal) for goal in POWER_GOALS),
        ("mean pairs, unchanged, tokens/s, but noisy", "at most 9", f"at most {max(calm):.1f}"),
        ("the same, noisy", "at most 9", f"{noisy:.1f}: missed"),
        ("the same, tails, limit 5 %", "at most 9", _missed(tails[0])),
        ("the same, tails, limit 10 %", "at most 9", _missed(tails[1])),
        (
            "any false REGRESSION among 48 gates, %",
            "at most 0.2",
            f"at most {100 * family_rate:.2f}",
        ),
    ]
    return table(("goal", "asked for", "found"), rows)


def _missed(pairs: list[float]) -> str:
    over = sum(number > 9 for number in pairs)
    return f"{pairs[0]:.1f} to {pairs[-1]:.1f}: missed in {over} of {len(pairs)} cells"


POWER_GOALS = (
    ("typical", "tokens/s", 95),
    ("quiet", "tokens/s", 99),
    ("typical", "p99, 200 requests", 70),
    ("typical", "p99, 1000 requests", 95),
)


def _power_goal(result: Row, scenario: str, metric: str, least: int) -> tuple[str, str, str]:
    rows = pick(result["gate"], scenario=scenario, metric=metric, method="gate")
    (row,) = [row for row in rows if row["loss"]]
    alone, corrected = (100 * row[key]["rate"] for key in ("regression", "regression_in_family"))
    name = f"{100 * row['loss']:.0f} % in {metric}, {scenario}, %"
    return name, f"at least {least}", f"{alone:.1f}, among 48 gates {corrected:.1f}"


PARTS: tuple[Callable[[Row], str], ...] = (
    goals,
    unchanged,
    changed,
    lambda result: peers(result, "tokens/s", 0.0),
    lambda result: peers(result, "tokens/s", 0.05),
    lambda result: peers(result, "p99, 200 requests", 0.0),
    lambda result: peers(result, "p99, 200 requests", 0.10),
    levels,
    family,
    interaction,
    remedies,
    power,
)


def render(result: Row) -> str:
    """Return all tables."""
    return "\n".join(part(result) for part in PARTS)


def placed(page: str, tables: str) -> str:
    """Return the page with the tables between its markers.

    Raises:
        ValueError: If the page lacks a marker.
    """
    return SECTION.placed(page, tables)


def main() -> None:
    """Rewrite RESULTS.md."""
    SECTION.rewrite(HERE, render)


if __name__ == "__main__":
    main()
