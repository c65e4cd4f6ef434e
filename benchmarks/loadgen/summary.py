"""Figures out of the raw results: values over rounds, their median and range.

Knows the shape of results.json; writes no text but numbers with their units.
"""

import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

Run = dict[str, Any]
Pick = Callable[[Run], float | None]
"""From the result of one run to one value; None where it has none."""

FIGURES = (
    "ttft_p50_s",
    "ttft_p99_s",
    "step_gap_p50_s",
    "step_gap_p99_s",
    "per_token_p50_s",
    "per_token_p99_s",
    "tokens_per_step",
)


@dataclass(frozen=True, slots=True)
class Values:
    """One quantity over the rounds; empty if nothing ran or nobody gives it."""

    rounds: tuple[float, ...]

    @property
    def median(self) -> float | None:
        """Return the median; None of nothing."""
        return statistics.median(self.rounds) if self.rounds else None

    def text(self, scale: float = 1.0, digits: int = 2) -> str:
        """Return "median [lowest, highest]", or the value alone, or a dash."""
        median = self.median
        if median is None:
            return "-"
        shown = f"{median * scale:,.{digits}f}"
        if len(self.rounds) == 1:
            return shown
        low, high = min(self.rounds) * scale, max(self.rounds) * scale
        return f"{shown} [{low:,.{digits}f}, {high:,.{digits}f}]"


class Results:
    """The runs of one results.json."""

    def __init__(self, document: Run) -> None:
        self.document = document
        self.runs: list[Run] = document["runs"]

    def of(self, cell: str, case: str | None = None, tool: str | None = None) -> list[Run]:
        """Return the runs of a cell, of one case, of one tool."""
        return [
            run
            for run in self.runs
            if run["cell"] == cell
            and (case is None or run["case"] == case)
            and (tool is None or run["tool"] == tool)
        ]

    def cases(self, cell: str) -> list[str]:
        """Return the titles of a cell's cases, in order."""
        return list(dict.fromkeys(run["case"] for run in self.of(cell)))

    def tools(self, cell: str, case: str) -> list[str]:
        """Return the tools that ran a case, in order."""
        return list(dict.fromkeys(run["tool"] for run in self.of(cell, case)))


def values(runs: Iterable[Run], pick: Pick) -> Values:
    """Return what `pick` finds in each run."""
    found = (pick(run["result"]) for run in runs)
    return Values(tuple(value for value in found if value is not None))


def path(*keys: str) -> Pick:
    """Return a pick that follows keys into a result; None where one leads nowhere."""

    def pick(result: Run) -> float | None:
        at: Any = result
        for key in keys:
            if at is None:
                return None
            at = at[key]
        return None if at is None else float(at)

    return pick


def cpu_per_token_s(result: Run) -> float:
    """Return the CPU seconds per token while requests are open, of whichever tool."""
    if "client" in result:
        return float(result["client"]["cpu_s"]) / int(result["client"]["output_tokens"])
    return float(result["cpu_s"]) / int(result["sent_tokens"])


def parse_per_token_s(result: Run) -> float:
    """Return the CPU seconds per token of draftgate's parsing."""
    return float(result["parse_cpu_s"]) / int(result["client"]["output_tokens"])


def whole_per_token_s(result: Run) -> float:
    """Return the CPU seconds per token with all that comes afterwards."""
    if "client" in result:
        return cpu_per_token_s(result) + parse_per_token_s(result)
    return float(result["cpu_to_end_s"]) / int(result["sent_tokens"])


def seen_and_true(result: Run) -> tuple[Run | None, Run | None]:
    """Return what the tool says and what the log says, by the names in `FIGURES`."""
    if "client" in result:
        errors = result["errors"]
        return (None, None) if errors is None else (errors["seen"], errors["true"])
    reported = result["reported"]
    return (None if reported is None else reported["figures"]), result["true"]


def off(figure: str) -> Pick:
    """Return a pick of reported - true of a figure."""

    def pick(result: Run) -> float | None:
        seen, true = seen_and_true(result)
        if seen is None or true is None or seen[figure] is None or true[figure] is None:
            return None
        return float(seen[figure]) - float(true[figure])

    return pick


def off_ratio(figure: str) -> Pick:
    """Return a pick of reported / true - 1 of a figure."""

    def pick(result: Run) -> float | None:
        difference, (_, true) = off(figure)(result), seen_and_true(result)
        if difference is None or true is None or not true[figure]:
            return None
        return difference / float(true[figure])

    return pick


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table, numbers to the right."""
    lines = [" | ".join(head), " | ".join(["---"] + ["---:"] * (len(head) - 1))]
    lines += [" | ".join(row) for row in rows]
    return "\n".join(f"| {line} |" for line in lines) + "\n"
