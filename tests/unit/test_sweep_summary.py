"""The table of a sweep: means, ratios, GPUs and what was not run, from rows that are known."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from draftgate.records import GpuReading, GpuUse
from draftgate.report.format import TIMES, TO
from draftgate.sweep import Cell, Group, SweepPlan, SweepState, summary_document, summary_markdown
from draftgate.sweep.state import Row
from tests.support.samples import make_environment, make_profile

PROFILE = replace(make_profile(concurrencies=(1, 8), repeats=2), gates=())
NAMES = tuple(arm.name for arm in PROFILE.arms)
CELLS = tuple(Cell(c, repeat) for repeat in range(2) for c in (1, 8))
GROUP = Group("g", PROFILE, tuple((name, CELLS) for name in NAMES))
SECOND = NAMES[1]
HOT = GpuUse(
    0, GpuReading(0, "H200"), GpuReading(0, "H200"), 1_500, 71, 655.0, ("power cap",), (), 4
)


def row(arm: str, streams: int, repeat: int, speed: float, *invalid: str) -> Row:
    """Return one run with its speed alone."""
    values = {} if invalid else {"output_tokens_per_s": speed}
    return Row("g", arm, streams, repeat, "2026-01-01T00:00:00+00:00", values, invalid)


def state(*rows: Row, stopped: str | None = None) -> SweepState:
    """Return the state of a sweep with these rows."""
    plan = SweepPlan("my_list", "list.toml", (GROUP,))
    held = SweepState(Path("out"), plan, rows=list(rows), stopped=stopped)
    held.environments["g"] = make_environment()
    return held


def test_cells_have_mean_extremes_and_ratio() -> None:
    """Runs of a cell are averaged; the ratio is of means at the same number of streams."""
    document = summary_document(
        state(
            row("none", 1, 0, 100.0),
            row("none", 1, 1, 110.0),
            row(SECOND, 1, 0, 200.0),
            row(SECOND, 1, 1, 220.0),
            row(SECOND, 8, 0, 50.0),
        )
    )
    (group,) = document["groups"]
    rows = {(r["arm"], r["streams"]): r for r in group["rows"]}

    assert rows["none", 1]["metrics"]["output_tokens_per_s"] == {
        "mean": 105.0,
        "low": 100.0,
        "high": 110.0,
    }
    assert rows[SECOND, 1]["over_none"] == pytest.approx(2.0)
    assert rows[SECOND, 8]["over_none"] is None
    assert (rows[SECOND, 8]["runs"], rows[SECOND, 8]["planned"]) == (1, 2)
    assert json.loads(json.dumps(document)) == document


def test_invalid_runs_enter_no_number_and_are_told() -> None:
    """A cell whose every try was invalid has no speed, is not done, and says why."""
    document = summary_document(
        state(row("none", 1, 0, 0.0, "too hot\nmore"), row("none", 1, 1, 9.0))
    )
    (group,) = document["groups"]
    first = group["rows"][0]
    not_run = group["not_run"][0]

    assert (first["runs"], first["invalid"]) == (1, ["too hot"])
    assert first["metrics"]["output_tokens_per_s"]["mean"] == 9.0
    assert {"concurrency": 1, "repeat": 0} in not_run["cells"]
    assert "every try was invalid: too hot" in not_run["reason"]


def test_a_run_taken_again_counts_once() -> None:
    """An invalid run that was replaced leaves its reason and one usable run."""
    held = state(row("none", 1, 0, 0.0, "busy"), row("none", 1, 0, 7.0))
    (group,) = summary_document(held)["groups"]

    assert (group["rows"][0]["runs"], group["rows"][0]["invalid"]) == (1, ["busy"])
    assert held.left(GROUP, "none") == (Cell(8, 0), Cell(1, 1), Cell(8, 1))


def test_what_was_not_run_has_its_reason() -> None:
    """A time limit, a failure and what simply was not begun are told apart."""
    limited = state(row("none", 1, 0, 1.0), stopped="time limit: x")
    limited.failed["g", SECOND] = "it died\nlog"
    reasons = {n["arm"]: n["reason"] for n in summary_document(limited)["groups"][0]["not_run"]}
    fresh = {n["reason"] for n in summary_document(state())["groups"][0]["not_run"]}

    assert (reasons["none"], reasons[SECOND]) == ("time limit: x", "it died\nlog")
    assert fresh == {"not begun"}


def test_markdown_shows_the_table_and_what_is_missing() -> None:
    """One row a cell with speed, range, ratio and GPU; then what was not run."""
    rows = [row("none", 1, 0, 100.0), row("none", 1, 1, 110.0), row(SECOND, 1, 0, 210.0)]
    held = state(*(replace(r, gpus=(HOT,)) for r in rows), stopped="time limit: it took too long")
    text = summary_markdown(summary_document(held))

    assert "# Sweep my\\_list" in text
    assert f"| none | — | 1 | 2 of 2 | 105 (100{TO}110) | — | 1,500 MHz at least, 71.0 °C, " in text
    assert "power cap |" in text
    assert f"| 2.00{TIMES} |" in text
    assert "Stopped before its end: time limit: it took too long." in text
    assert f"- {SECOND} at 1, 8 streams: time limit: it took too long" in text
