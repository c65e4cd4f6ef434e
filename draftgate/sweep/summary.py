"""A sweep as one table, in JSON and Markdown, with what was not run.

Written anew after every run, so a killed sweep leaves one too. Means over runs
with their smallest and largest; a single run is no interval. Judges nothing.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from draftgate.codec import encode
from draftgate.files import write_text
from draftgate.hidden import hide
from draftgate.records import GpuUse
from draftgate.report.format import MISSING, TO, number, times
from draftgate.report.markdown import escaped
from draftgate.specs import NO_SPECULATION, Arm
from draftgate.sweep.plan import Cell, Group
from draftgate.sweep.state import Row, SweepState
from draftgate.twins import forced_words, twin_words

SUMMARY_SCHEMA = 1
# 1: groups with rows (mean, low, high by metric), not_run, stopped.

SPEED = "output_tokens_per_s"

_COLUMNS = (
    ("mean_acceptance_length", "acceptance length", 1.0),
    ("tokens_per_step", "tokens/step", 1.0),
    ("step_gap_p50_s", "step gap p50 (ms)", 1e3),
    ("per_token_p50_s", "per token p50 (ms)", 1e3),
    ("per_token_p99_s", "p99 (ms)", 1e3),
    ("ttft_p50_s", "TTFT p50 (ms)", 1e3),
    ("ttft_p99_s", "p99 (ms)", 1e3),
    ("gpu_memory_bytes", "GPU memory (GB)", 1e-9),
    ("gpu_power_w", "power (W)", 1.0),
)


def write_summary(state: SweepState) -> None:
    """Write `summary.json` and `summary.md` into the sweep's folder.

    Raises:
        OSError: As raised by the file system.
    """
    document = summary_document(state)
    text = json.dumps(hide(document), indent=1, allow_nan=False) + "\n"
    write_text(state.folder / "summary.json", text)
    write_text(state.folder / "summary.md", summary_markdown(document))


def summary_document(state: SweepState) -> dict[str, Any]:
    """Return the whole summary as plain values; seconds, bytes and ratios as in the records."""
    return {
        "schema": SUMMARY_SCHEMA,
        "name": state.plan.name,
        "list": state.plan.source,
        "stopped": state.stopped,
        "groups": [_group(state, group) for group in state.plan.groups],
    }


def _group(state: SweepState, group: Group) -> dict[str, Any]:
    environment = state.environments.get(group.name)
    directory = state.directories.get(group.name)
    rows = [
        _cell(state, group, arm, concurrency)
        for arm in group.profile.arms
        for concurrency in dict.fromkeys(cell.concurrency for cell in dict(group.cells)[arm.name])
    ]
    _add_ratios(rows)
    return {
        "name": group.name,
        "note": twin_words(group.profile.arms),
        "run": None if directory is None else f"runs/{directory.path.name}",
        "environment": None if environment is None else encode(environment),
        "rows": rows,
        "not_run": list(_not_run(state, group)),
    }


def _cell(state: SweepState, group: Group, arm: Arm, concurrency: int) -> dict[str, Any]:
    speculative = arm.engine.speculative
    taken = [
        row
        for row in state.rows
        if (row.group, row.arm, row.concurrency) == (group.name, arm.name, concurrency)
    ]
    usable = {row.repeat: row for row in taken if not row.invalid}
    planned = [cell for cell in dict(group.cells)[arm.name] if cell.concurrency == concurrency]
    return {
        "arm": arm.name,
        "method": speculative.method if speculative else NO_SPECULATION,
        "k": speculative.num_speculative_tokens if speculative else 0,
        "forced": forced_words(arm.engine),
        "streams": concurrency,
        "runs": len(usable),
        "planned": len(planned),
        "invalid": _reasons(taken),
        "metrics": _spreads(tuple(usable.values())),
        "gpu": _gpu([use for row in usable.values() for use in row.gpus]),
    }


def _gpu(uses: Sequence[GpuUse]) -> dict[str, Any] | None:
    """Return the extremes over the GPUs of usable runs; None without one."""
    if not uses:
        return None
    clocks = [use.sm_clock_min_mhz for use in uses if use.sm_clock_min_mhz is not None]
    heat = [use.temperature_max_c for use in uses if use.temperature_max_c is not None]
    power = [use.power_max_w for use in uses if use.power_max_w is not None]
    return {
        "sm_clock_min_mhz": min(clocks, default=None),
        "temperature_max_c": max(heat, default=None),
        "power_max_w": max(power, default=None),
        "reasons": sorted({reason for use in uses for reason in use.reasons}),
    }


def _reasons(rows: Sequence[Row]) -> list[str]:
    return list(dict.fromkeys(why.splitlines()[0] for row in rows for why in row.invalid))


def _spreads(rows: Sequence[Row]) -> dict[str, dict[str, float]]:
    """Return mean, smallest and largest of each metric over the runs that have it."""
    found: dict[str, list[float]] = {}
    for row in rows:
        for name, value in row.values.items():
            found.setdefault(name, []).append(value)
    return {
        name: {"mean": sum(values) / len(values), "low": min(values), "high": max(values)}
        for name, values in found.items()
    }


def _add_ratios(rows: Sequence[dict[str, Any]]) -> None:
    """Enter each cell's speed over that of `none` at the same streams; None without one."""
    base = {row["streams"]: _speed(row) for row in rows if row["arm"] == NO_SPECULATION}
    for row in rows:
        own, reference = _speed(row), base.get(row["streams"])
        row["over_none"] = own / reference if own is not None and reference else None


def _speed(row: Mapping[str, Any]) -> float | None:
    held = row["metrics"].get(SPEED)
    return None if held is None else float(held["mean"])


def _not_run(state: SweepState, group: Group) -> Iterator[dict[str, Any]]:
    for arm in group.profile.arms:
        left = state.left(group, arm.name)
        if left:
            failed = state.failed.get((group.name, arm.name))
            yield {
                "arm": arm.name,
                "cells": [encode(cell) for cell in left],
                "reason": _why(state, group, arm, left, failed),
            }


def _why(
    state: SweepState, group: Group, arm: Arm, left: Sequence[Cell], failed: str | None
) -> str:
    if failed is not None:
        return failed
    wanted = {(cell.concurrency, cell.repeat) for cell in left}
    tried = [
        row
        for row in state.rows
        if (row.group, row.arm) == (group.name, arm.name)
        and (row.concurrency, row.repeat) in wanted
    ]
    if tried and not state.stopped:
        return f"every try was invalid: {'; '.join(_reasons(tried))}"
    return state.stopped or "not begun"


def summary_markdown(document: Mapping[str, Any]) -> str:
    """Return the summary as Markdown: a table and what was not run, for each group."""
    lines = [f"# Sweep {escaped(document['name'])}", ""]
    if document["stopped"]:
        lines += [f"Stopped before its end: {escaped(document['stopped'])}.", ""]
    for group in document["groups"]:
        lines += _group_lines(group)
    return "\n".join(lines)


def _group_lines(group: Mapping[str, Any]) -> Iterator[str]:
    yield f"## {escaped(group['name'])}"
    yield ""
    if group["note"]:
        yield f"**{escaped(group['note'])}**"
        yield ""
    environment = group["environment"]
    if environment is not None:
        facts = [environment[key] for key in ("engine", "hardware", "draftgate")]
        facts.append(f"driver {environment['gpu_driver']}" if environment["gpu_driver"] else "")
        yield " · ".join(escaped(fact) for fact in facts if fact)
        yield ""
    shown = [column for column in _COLUMNS if any(column[0] in r["metrics"] for r in group["rows"])]
    heads = ["arm", "K", "streams", "runs", "tokens/s", "over none"]
    heads += [title for _, title, _ in shown]
    heads += ["GPU"] if any(row["gpu"] for row in group["rows"]) else []
    yield "| " + " | ".join(heads) + " |"
    yield "| :-- |" + " --: |" * (len(heads) - 1)
    for row in group["rows"]:
        cells = _row_cells(row, shown, with_gpu=heads[-1] == "GPU")
        yield "| " + " | ".join(cells) + " |"
    yield ""
    yield from _not_run_lines(group["not_run"])


def _gpu_text(gpu: Mapping[str, Any] | None) -> str:
    if gpu is None:
        return MISSING
    facts = [
        (gpu["sm_clock_min_mhz"], "MHz at least"),
        (gpu["temperature_max_c"], "°C"),
        (gpu["power_max_w"], "W at most"),
    ]
    told = [f"{number(value)} {words}" for value, words in facts if value is not None]
    return escaped(", ".join([*told, *gpu["reasons"]]))


def _row_cells(
    row: Mapping[str, Any], shown: Sequence[tuple[str, str, float]], *, with_gpu: bool
) -> Iterator[str]:
    yield escaped(row["arm"])
    yield str(row["k"] or MISSING)
    yield str(row["streams"])
    invalid = f", {len(row['invalid'])} reasons invalid" if row["invalid"] else ""
    yield f"{row['runs']} of {row['planned']}{invalid}"
    yield _shown(row["metrics"].get(SPEED), 1.0, row["runs"])
    yield times(row["over_none"]) if row["method"] != NO_SPECULATION else MISSING
    for name, _, factor in shown:
        yield _shown(row["metrics"].get(name), factor, 1)
    if with_gpu:
        yield _gpu_text(row["gpu"])


def _shown(spread: Mapping[str, float] | None, factor: float, runs: int) -> str:
    if spread is None:
        return MISSING
    text = number(spread["mean"] * factor)
    if runs < 2:
        return text
    return f"{text} ({number(spread['low'] * factor)}{TO}{number(spread['high'] * factor)})"


def _not_run_lines(not_run: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    if not not_run:
        yield "Everything that was planned was run."
        yield ""
        return
    yield "Not run:"
    yield ""
    for item in not_run:
        streams = sorted({cell["concurrency"] for cell in item["cells"]})
        told = ", ".join(map(str, streams))
        first = item["reason"].splitlines()[0]
        yield f"- {escaped(item['arm'])} at {told} streams: {escaped(first)}"
    yield ""
