"""The report as one HTML page that asks the network for nothing.

Puts tables, figures and words together and hands them to the template. All
text is escaped by the template engine; the plots are the one exception, they
are made here and hold no text from outside.
"""

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from draftgate.drift.judge import TRAFFIC_GATE
from draftgate.metrics import Direction, MetricDefinition, definition
from draftgate.records import Environment
from draftgate.report.details import client_table, failure_table, few_samples_note, metric_tables
from draftgate.report.figures import figures
from draftgate.report.format import count, minute, number, percent
from draftgate.report.headline import best_arms, sentence
from draftgate.report.positions import step_figure
from draftgate.report.summary import Summary
from draftgate.report.table import streams
from draftgate.report.tables import main_table, why_table
from draftgate.report.templating import templates
from draftgate.report.traffic import traffic_figure, traffic_setting, traffic_table
from draftgate.report.verdicts import blocks, reach_of
from draftgate.runstore import StoredRun

OWN_FILES = ("report.html", "report.md")
"""What a report writes itself; listed without a size, which it can't know."""


@dataclass(frozen=True, slots=True)
class Definition:
    """One metric in the glossary at the end of the page."""

    title: str
    name: str
    unit: str
    better: str
    formula: str


def render_html(summary: Summary, history: str | None = None) -> str:
    """Return the whole page.

    Args:
        summary: What is shown.
        history: HTML that stands under "History" as it is, so it must be safe; None
            leaves the section out.
    """
    template = templates().get_template("report.html.j2")
    return template.render(page(summary), history=history) + "\n"


def page(summary: Summary) -> dict[str, Any]:
    """Return everything the template shows, by the template's names."""
    run = summary.run
    return {
        "run": run,
        "summary": summary,
        "when": minute(run.started_at),
        "sentence": sentence(summary),
        "best": best_arms(summary),
        "main": main_table(summary),
        "why": why_table(summary),
        "few_samples": few_samples_note(summary),
        "blocks": blocks(summary.verdicts),
        "reach": _bar_reach(summary),
        "figures": () if summary.traffic_only else figures(summary),
        "traffic": traffic_table(summary),
        "traffic_figure": traffic_figure(summary),
        "steps": step_figure(summary),
        "traffic_setting": traffic_setting(summary),
        "traffic_confidence": percent(TRAFFIC_GATE.confidence),
        "metric_tables": metric_tables(summary),
        "failures": failure_table(summary),
        "client": client_table(summary),
        "invalid": invalid_reasons(summary),
        "definitions": _definitions(summary),
        "machine": machine(run.environment),
        "workload": workload(run),
        "command": shlex.join(run.argv),
        "rebuild": shlex.join(["draftgate", "report", str(run.path)]),
        "files": _files(run.path),
    }


def machine(environment: Environment) -> tuple[tuple[str, str], ...]:
    """Return the environment as (name, value) pairs."""
    memory = f"{number(environment.memory_bytes / 1e9)} GB"
    cores = count(environment.cpu_count, "core")
    return (
        ("Hardware", environment.hardware),
        ("CPU", f"{environment.cpu_model}, {cores} usable"),
        ("Memory", memory),
        ("GPU", ", ".join(environment.gpus) or "none"),
        *((("GPU driver", environment.gpu_driver),) if environment.gpu_driver else ()),
        ("Platform", environment.platform),
        ("Host", environment.host),
        ("Engine", environment.engine),
        ("draftgate", environment.draftgate),
        ("Python", environment.python),
        ("Packages", ", ".join(f"{name} {version}" for name, version in environment.packages)),
    )


def workload(run: StoredRun) -> tuple[tuple[str, str], ...]:
    """Return what was sent and how runs were taken as (name, value) pairs."""
    sent = run.profile.workload
    limits = run.profile.slo
    slo = [
        f"{name} ≤ {value:g} s"
        for name, value in (
            ("TTFT", limits.ttft_s),
            ("per token", limits.per_token_s),
            ("end to end", limits.e2e_s),
        )
        if value is not None
    ]
    return (
        ("Dataset", sent.dataset),
        *((("API", sent.api),) if sent.api != "chat" else ()),
        ("Load", f"closed loop, {', '.join(map(str, sent.concurrencies))} streams"),
        ("Output", count(sent.sampling.max_tokens, "token") + " per request"),
        ("Temperature", f"{sent.sampling.temperature:g}"),
        ("Prefix cache", sent.prefix_cache.value),
        ("Runs per cell", f"{sent.repeats}, arms interleaved by repeat"),
        ("Window", f"at least {sent.window_s:g} s and {count(sent.min_requests, 'request')}"),
        ("Warm-up", count(sent.warmup_requests, "request") + " per stream"),
        ("SLO", ", ".join(slo) or "none"),
        ("Seed", str(sent.seed)),
    )


def invalid_reasons(summary: Summary) -> tuple[tuple[str, str], ...]:
    """Return (which run, why it can't be used) for every invalid run."""
    return tuple(
        (f"{bad.arm} at {streams(bad.concurrency)}, repeat {bad.repeat}", "; ".join(bad.invalid))
        for cell in summary.cells.values()
        for bad in cell.invalid
    )


def _bar_reach(summary: Summary) -> str:
    """Return the change at the ends of the verdicts' bars; empty if there are none."""
    compared = any(verdict.comparison is not None for verdict in summary.verdicts)
    return f"{reach_of(summary.verdicts) * 100.0:.0f} %" if compared else ""


def _definitions(summary: Summary) -> tuple[Definition, ...]:
    families: dict[str, list[MetricDefinition]] = {}
    for name in summary.metric_names():
        families.setdefault(re.sub(r"_(p|pos_)\d+_", r"_\g<1>*_", name), []).append(
            definition(name)
        )
    return tuple(_definition(name, family) for name, family in families.items())


def _definition(name: str, family: Sequence[MetricDefinition]) -> Definition:
    """Return one entry for metrics that differ in a percentile or a position only."""
    first = family[0]
    better = {Direction.HIGHER: "higher is better", Direction.LOWER: "lower is better"}
    title, formula = first.title, first.formula
    if len(family) > 1:
        title = f"{title} to {family[-1].title.rsplit(' ', 1)[-1]}"
        formula = re.sub(r"^p\d+ of", "percentile of", formula)
    unit = first.unit or "ratio"
    return Definition(title, name, unit, better.get(first.direction, ""), formula)


def _files(folder: Path) -> tuple[tuple[str, str], ...]:
    """Return (name, size) of the run's files, the report's own first."""
    found = sorted(path for path in folder.rglob("*") if path.is_file())
    names = [(path.relative_to(folder).as_posix(), path) for path in found]
    others = [
        (name, f"{number(path.stat().st_size / 1e3)} kB")
        for name, path in names
        if name not in OWN_FILES and not path.name.endswith(".part")
    ]
    return (*((name, "this report") for name in OWN_FILES), *others)
