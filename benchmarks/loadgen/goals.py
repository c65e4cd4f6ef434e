"""The goals of the load generator, and which of them the results meet.

Each is a limit on the median over rounds. What was not run is not met.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from benchmarks.loadgen.cases import EXPECTED_FAILURES, ONE_GRID, OWN_CLOCKS
from benchmarks.loadgen.summary import (
    Results,
    Values,
    cpu_per_token_s,
    off_ratio,
    parse_per_token_s,
    path,
    values,
)

OURS = "draftgate"
_MEMORY_GROWTH = 1.05


@dataclass(frozen=True, slots=True)
class Goal:
    """One goal and what was found.

    Attributes:
        title: What is asked for.
        limit: Its limit, with unit.
        found: What was measured, as text.
        met: Whether the limit is kept; None if it was not run.
    """

    title: str
    limit: str
    found: str
    met: bool | None


def goals(results: Results) -> tuple[Goal, ...]:
    """Return all goals in the order of the cells."""
    parts = (_cpu, _rate, _stall, _steps, _failures, _others, _import)
    return tuple(goal for part in parts for goal in part(results))


def memory_growth(rss: list[list[float]]) -> float:
    """Return resident memory of the last quarter of a run over that of the second, medians."""
    sizes = [size for _, size in rss]
    quarter = max(1, len(sizes) // 4)
    early, late = sorted(sizes[quarter : 2 * quarter] or sizes), sorted(sizes[-quarter:])
    return late[len(late) // 2] / early[len(early) // 2]


def _most(title: str, found: Values, limit: float, unit: str, scale: float) -> Goal:
    """Return the goal that a median is at most `limit`, both shown in `unit`."""
    median = found.median
    met = None if median is None else median * scale <= limit
    digits = 3 if limit < 1 else 2
    return Goal(title, f"at most {limit:g} {unit}", found.text(scale, digits), met)


def _cpu(results: Results) -> Iterator[Goal]:
    for streams, limit_us in ((32, 10.0), (256, 8.0)):
        for align in (ONE_GRID, OWN_CLOCKS):
            title = f"{streams} streams, {align}"
            runs = results.of("cpu", title, OURS)
            cpu = values(runs, cpu_per_token_s)
            yield _most(f"CPU per token, {title}", cpu, limit_us, "µs", 1e6)
            if streams == 32:
                parse = values(runs, parse_per_token_s)
                yield _most(f"parsing per token, {title}", parse, 5.0, "µs", 1e6)


def _rate(results: Results) -> Iterator[Goal]:
    for title in results.cases("rate") or ["(not run)"]:
        runs = results.of("rate", title, OURS)
        rate = values(runs, path("tokens_per_s"))
        met = None if rate.median is None else rate.median >= 100_000
        yield Goal(f"tokens/s, {title}", "at least 100,000", rate.text(1, 0), met)
        for name, part, key, limit_ms in (
            ("TTFT error p50", "ttft", "p50_s", 0.2),
            ("TTFT error p99", "ttft", "p99_s", 0.5),
            ("of it the first chunk's arrival p99", "first_arrival", "p99_s", 0.5),
            ("step-gap error p99", "step_gap", "p99_s", 0.1),
        ):
            found = values(runs, path("errors", part, key))
            yield _most(f"{name}, {title}", found, limit_ms, "ms", 1e3)


def _stall(results: Results) -> Iterator[Goal]:
    found = values(results.of("stall", tool=OURS), path("errors", "step_gap", "p99_s"))
    yield _most("step-gap error p99, stalled for 8 ms every 100 ms", found, 0.05, "ms", 1e3)


def _steps(results: Results) -> Iterator[Goal]:
    wanted = (
        ("1 to 4 tokens per step", "per_token_p50_s", "per-token time p50"),
        ("1 to 4 tokens per step", "per_token_p99_s", "per-token time p99"),
        ("1 to 4 tokens per step", "step_gap_p50_s", "step gap p50"),
        ("1 to 4 tokens per step", "step_gap_p99_s", "step gap p99"),
        ("1 to 4 tokens per step", "tokens_per_step", "tokens per step"),
        ("4 % of gaps at 100 ms", "step_gap_p99_s", "step gap p99"),
    )
    for title, figure, name in wanted:
        found = values(results.of("steps", title, OURS), off_ratio(figure))
        worst = max(map(abs, found.rounds), default=None)
        met = None if worst is None else worst <= 0.01
        yield Goal(f"{name}, {title}", "right to 1 %", f"{found.text(100, 3)} %", met)


def _failures(results: Results) -> Iterator[Goal]:
    runs = results.of("failures", tool=OURS)
    for run in runs:
        result, wanted = run["result"], dict(EXPECTED_FAILURES)
        if "stall" not in run["case"]:
            wanted.pop("stalled")
        found = dict(result["failures"])
        met = found == wanted and result["served"] == 64 - sum(wanted.values())
        said = ", ".join(f"{count} {kind}" for kind, count in found.items())
        limit = ", ".join(f"{count} {kind}" for kind, count in wanted.items())
        wall_s = result["client"]["wall_s"]
        yield Goal(run["case"], limit, f"{said}; ended by itself after {wall_s:.1f} s", met)


def _others(results: Results) -> Iterator[Goal]:
    late = values(results.of("arrivals", tool=OURS), lambda result: result["send_delay_s"][1])
    yield _most("scheduled to sent p99, Poisson 200/s", late, 1.0, "ms", 1e3)
    for run in results.of("streams", tool=OURS):
        served = run["result"]["served"]
        failed = sum(count for _, count in run["result"]["failures"])
        found = f"{served:,} served, {failed} failed"
        yield Goal("2,000 streams at once", "all served", found, failed == 0)
    for run in results.of("memory", tool=OURS):
        memory = run["result"]["memory"]
        growth, lost = memory_growth(memory["rss"]), memory["lost_tokens"]
        yield Goal(
            "memory of a long run, last quarter / second quarter; tokens lost",
            f"at most {_MEMORY_GROWTH:g}; none",
            f"{growth:.3f}; {lost}",
            growth <= _MEMORY_GROWTH and lost == 0,
        )


def _import(results: Results) -> Iterator[Goal]:
    runs = results.of("import")
    for key, name in (("help_s", "`draftgate load --help`"), ("generator_s", "the generator")):
        found = values(runs, path(key))
        yield _most(f"import time, {name}", found, 0.4, "s", 1.0)
    for run in runs:
        heavy = run["result"]["heavy"]
        found_text = ", ".join(heavy) or "none"
        yield Goal("torch, vllm, pandas imported", "none", found_text, not heavy)
