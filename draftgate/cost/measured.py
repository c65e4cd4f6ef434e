"""Measured loads, and the highest that meets the SLO: from stored runs or load summaries.

A load meets the SLO if p99 of every limited latency is within its limit, in
every run at that load: the rule of MLPerf Inference for its Server scenario.
Knows no price.
"""

import json
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import groupby
from pathlib import Path
from typing import Any

from draftgate.codec import decode
from draftgate.errors import MeasurementError, SpecError
from draftgate.loadtest.summary import SCHEMA_VERSION, Distribution, LoadSummary
from draftgate.metrics import compute_all, selection
from draftgate.records import RunSamples
from draftgate.runstore import StoredRun, load_run
from draftgate.specs import SLO, UrlLaunch
from draftgate.twins import twin_words

MAX_FAILED_SHARE = 0.01
"""A failed request keeps no limit, and p99 lets one request in a hundred break it."""

_LIMITS = {
    "ttft_s": "time to first token",
    "per_token_s": "time per token",
    "e2e_s": "end-to-end time",
}


@dataclass(frozen=True, slots=True)
class Load:
    """One load that was measured: an arm at a number of streams, or a load test.

    Attributes:
        name: What it is, for people.
        runs: Runs behind the numbers.
        output_tokens_per_s: Mean over the runs; None where nothing was served.
        lowest_tokens_per_s: The same of the slowest run.
        highest_tokens_per_s: The same of the fastest run.
        input_tokens: Mean per request; None where the server did not tell it.
        output_tokens: Mean per request; None where nothing was served.
        ttft_p99_s: Of the worst run; None without a value.
        per_token_p99_s: Likewise.
        e2e_p99_s: Likewise.
        tokens_per_step: Mean over the runs; None without a step.
        acceptance_length: Mean acceptance length by the engine's counters; None
            where they are not known.
        num_speculative_tokens: K; None where it is not known.
        refused: Why it does not count; empty if it meets the SLO.
    """

    name: str
    runs: int
    output_tokens_per_s: float | None
    lowest_tokens_per_s: float | None
    highest_tokens_per_s: float | None
    input_tokens: float | None
    output_tokens: float | None
    ttft_p99_s: float | None
    per_token_p99_s: float | None
    e2e_p99_s: float | None
    tokens_per_step: float | None
    acceptance_length: float | None
    num_speculative_tokens: int | None
    refused: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Setup:
    """What all loads have to have in common.

    Attributes:
        model: The served model.
        evaluation_set: Prompts, lengths and sampling, in words.
        hardware: Its name as in a stored run; None where it is not known.
        gpus: Names of GPUs as the driver prints them; empty without one.
    """

    model: str
    evaluation_set: str
    hardware: str | None
    gpus: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Measurement:
    """All loads of one set-up.

    Attributes:
        sources: Run folders or summary files, by name.
        started_at: Time of day of the first, ISO 8601, UTC.
        setup: What they have in common.
        slo: Limits that were applied.
        loads: All of them, in the order of the sources.
    """

    sources: tuple[str, ...]
    started_at: str
    setup: Setup
    slo: SLO
    loads: tuple[Load, ...]

    @property
    def all_meet(self) -> bool:
        """Whether no measured load was refused, so that a higher one may be cheaper."""
        return not any(load.refused for load in self.loads)


@dataclass(frozen=True, slots=True)
class _Source:
    """One run folder or summary file, read."""

    name: str
    started_at: str
    setup: Setup
    slo: SLO
    loads: Callable[[SLO], tuple[Load, ...]]


def read_measurement(paths: Sequence[Path], limits: SLO) -> Measurement:
    """Return the loads of run folders, or of the JSON files of `draftgate load`.

    Args:
        paths: At least one; all folders or all files.
        limits: What is set here replaces the limit of a run's profile.

    Raises:
        SpecError: If a path is neither, the set-ups differ, or no limit is set.
        BaselineError: If a run folder is damaged.
    """
    sources = [_source(path) for path in paths]
    first = sources[0]
    for source in sources[1:]:
        _check_alike(first, source)
    slo = _replaced(first.slo, limits)
    if slo == SLO():
        raise SpecError(
            f"cost of {first.name}: got no limit, expected an SLO: throughput without one is no "
            "sustained throughput. Give --slo-ttft, --slo-per-token or --slo-e2e in seconds"
            + (", or set [slo] in the profile." if paths[0].is_dir() else ".")
        )
    return Measurement(
        sources=tuple(source.name for source in sources),
        started_at=min(source.started_at for source in sources),
        setup=first.setup,
        slo=slo,
        loads=tuple(load for source in sources for load in source.loads(slo)),
    )


def best_load(measurement: Measurement) -> Load:
    """Return the load with the highest output rate of those that meet the SLO.

    Raises:
        MeasurementError: If none does; the message says why of each.
    """
    met = [load for load in measurement.loads if not load.refused]
    if met:
        return max(met, key=lambda load: load.output_tokens_per_s or 0.0)
    reasons = "; ".join(f"{load.name}: {', '.join(load.refused)}" for load in measurement.loads)
    raise MeasurementError(
        f"cost of {', '.join(measurement.sources)}: got no load that meets the SLO "
        f"({slo_text(measurement.slo)}), expected one or more: {reasons or 'no run was taken'}. "
        "Measure fewer streams (workload.concurrencies, or draftgate load --concurrency) until p99 "
        "is within the limits, or state the limits that you promise."
    )


def slo_text(slo: SLO) -> str:
    """Return the limits in words, for example `time to first token <= 2 s`."""
    given = ((_LIMITS[f.name], getattr(slo, f.name)) for f in fields(slo))
    return ", ".join(f"{title} <= {limit:g} s" for title, limit in given if limit is not None)


def _replaced(slo: SLO, limits: SLO) -> SLO:
    given = {f.name: getattr(limits, f.name) for f in fields(limits)}
    return replace(slo, **{name: limit for name, limit in given.items() if limit is not None})


def _check_alike(first: _Source, other: _Source) -> None:
    for name in ("model", "evaluation_set", "hardware"):
        held, got = getattr(first.setup, name), getattr(other.setup, name)
        if held != got:
            raise SpecError(
                f"cost of {other.name}: {name} is {got!r}, expected {held!r} as in {first.name}: "
                "loads of unlike set-ups are not one curve. Ask for the cost of each by itself."
            )
    if first.slo != other.slo:
        raise SpecError(
            f"cost of {other.name}: its SLO is ({slo_text(other.slo)}), expected "
            f"({slo_text(first.slo)}) as in {first.name}. Ask for the cost of each by itself."
        )


def _source(path: Path) -> _Source:
    if path.is_dir():
        return _run_source(load_run(path))
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise SpecError(
            f"cost: {path}: got {error}, expected a run folder or the file of draftgate load "
            "--json. Name one that is there."
        ) from error
    return _summary_source(path, document)


def _run_source(run: StoredRun) -> _Source:
    profile = run.profile
    target = profile.arms[0].engine
    workload = profile.workload
    sampling = workload.sampling
    # The environment is this machine's; a server behind a URL may stand elsewhere.
    here = not any(isinstance(arm.engine.launch, UrlLaunch) for arm in profile.arms)
    digest = f" ({workload.prompts_digest[:12]})" if workload.prompts_digest else ""
    words = (
        f"{workload.dataset}{digest}; max_tokens: {sampling.max_tokens}; "
        f"{_sampling_text(sampling.temperature, sampling.top_p, sampling.top_k)}; prefix cache "
        f"{workload.prefix_cache.value}"
    )
    twin = twin_words(profile.arms)
    words += f"; {twin[:1].lower()}{twin[1:].rstrip('.')}" if twin else ""
    setup = Setup(
        model=target.target,
        evaluation_set=words,
        hardware=run.environment.hardware if here else None,
        gpus=run.environment.gpus if here else (),
    )
    return _Source(
        f"run {run.id}", run.started_at, setup, profile.slo, lambda slo: _run_loads(run, slo)
    )


def _sampling_text(temperature: float, top_p: float, top_k: int) -> str:
    if temperature == 0:
        return "greedy"
    return f"temperature {temperature:g}, top_p {top_p:g}, top_k {top_k}"


def _run_loads(run: StoredRun, slo: SLO) -> tuple[Load, ...]:
    def place(samples: RunSamples) -> tuple[str, int]:
        return samples.arm, samples.concurrency

    order = {arm.name: number for number, arm in enumerate(run.profile.arms)}
    ordered = sorted(run.samples, key=lambda s: (order.get(s.arm, len(order)), s.concurrency))
    return tuple(
        _cell(f"{arm} at {streams} stream{'s' if streams > 1 else ''}", list(cell), slo)
        for (arm, streams), cell in groupby(ordered, place)
    )


def _cell(name: str, samples: Sequence[RunSamples], slo: SLO) -> Load:
    """Return the load of all usable runs of one arm at one number of streams."""
    usable = [run for run in samples if not run.invalid]
    values = [compute_all(run, slo) for run in usable]
    records = [record for run in usable for record in selection.ended_inside(run)]
    prompts = [r.prompt_tokens for r in records if r.prompt_tokens is not None]
    speeds = [value["output_tokens_per_s"] for value in values if "output_tokens_per_s" in value]
    load = Load(
        name=name,
        runs=len(usable),
        output_tokens_per_s=_mean(speeds),
        lowest_tokens_per_s=min(speeds, default=None),
        highest_tokens_per_s=max(speeds, default=None),
        input_tokens=_mean(prompts),
        output_tokens=_mean(sum(c.num_tokens for c in r.chunks) for r in records),
        ttft_p99_s=_worst(values, "ttft_p99_s"),
        per_token_p99_s=_worst(values, "per_token_p99_s"),
        e2e_p99_s=_worst(values, "e2e_p99_s"),
        tokens_per_step=_mean(_present(values, "tokens_per_step")),
        acceptance_length=_mean(_present(values, "mean_acceptance_length")),
        num_speculative_tokens=samples[0].num_speculative_tokens,
    )
    if not usable:
        return replace(load, refused=(f"no usable run: {samples[0].invalid[0]}",))
    failed = max(
        sum(record.failure is not None for record in run.records) / max(1, len(run.records))
        for run in usable
    )
    return _judged(load, slo, failed)


def _summary_source(path: Path, document: Any) -> _Source:
    version = document.get("schema_version") if isinstance(document, dict) else None
    if version != SCHEMA_VERSION:
        raise SpecError(
            f"cost: {path}: got schema_version {version!r}, expected {SCHEMA_VERSION}, as "
            "draftgate load --json writes it. Take the load test again with this version."
        )
    try:
        summary = decode(LoadSummary, document, path.name)
    except ValueError as error:
        raise SpecError(
            f"cost: {path}: got no load summary ({error}), expected the file of draftgate load "
            "--json as it was written. Restore it, or take the load test again."
        ) from error
    asked = summary.asked
    words = (
        f"{asked.prompts}; {_sampling_text(asked.temperature, asked.top_p, asked.top_k)}; prefix "
        f"cache {asked.prefix_cache}"
    )
    setup = Setup(asked.model, words, hardware=None)
    return _Source(
        path.name,
        summary.started_at,
        setup,
        SLO(),
        lambda slo: (_summary_load(path.stem, summary, slo),),
    )


def _summary_load(name: str, summary: LoadSummary, slo: SLO) -> Load:
    """Return the load of a summary; in an open loop latency counts from when a request was due."""
    rates, times = summary.throughput, summary.latency
    served = rates.requests > 0 and rates.output_tokens > 0
    speed = rates.output_tokens_per_s if served else None
    load = Load(
        name=f"{name} ({summary.asked.arrivals})",
        runs=1,
        output_tokens_per_s=speed,
        lowest_tokens_per_s=speed,
        highest_tokens_per_s=speed,
        input_tokens=rates.input_tokens / rates.requests
        if served and rates.input_tokens is not None
        else None,
        output_tokens=rates.output_tokens / rates.requests if served else None,
        ttft_p99_s=_p99(times.ttft_from_scheduled_s or times.ttft_s),
        per_token_p99_s=_p99(times.per_token_s),
        e2e_p99_s=_p99(times.e2e_from_scheduled_s or times.e2e_s),
        tokens_per_step=rates.tokens_per_step,
        acceptance_length=None,
        num_speculative_tokens=None,
    )
    unusable = [f"invalid: {reason}" for reason in summary.invalid]
    if not summary.window.steady:
        unusable.append("not sustained: no steady window")
    if unusable:
        return replace(load, refused=tuple(unusable))
    return _judged(load, slo, summary.requests.failed_share)


def _judged(load: Load, slo: SLO, failed_share: float) -> Load:
    """Return the load with the reasons for which it does not meet the SLO."""
    if not load.output_tokens_per_s or not load.output_tokens:
        return replace(load, refused=("no request was served in the window",))
    refused = [
        f"{title} p99 {_seconds(p99)} > {limit:g} s"
        for title, limit, p99 in _limited(load, slo)
        if p99 is None or p99 > limit
    ]
    if failed_share > MAX_FAILED_SHARE:
        refused.append(f"{failed_share:.1%} of the requests failed")
    return replace(load, refused=tuple(refused))


def _limited(load: Load, slo: SLO) -> Iterable[tuple[str, float, float | None]]:
    """Yield title, limit and p99 of what is limited and can be broken."""
    measured = (load.ttft_p99_s, load.per_token_p99_s, load.e2e_p99_s)
    for (name, title), p99 in zip(_LIMITS.items(), measured, strict=True):
        limit = getattr(slo, name)
        # Without a token after the first chunk there is no per-token time to be too long.
        if limit is not None and not (name == "per_token_s" and p99 is None):
            yield title, limit, p99


def _seconds(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.3g} s"


def _p99(times: Distribution | None) -> float | None:
    return None if times is None else times.p99


def _mean(values: Iterable[float]) -> float | None:
    held = list(values)
    return statistics.fmean(held) if held else None


def _present(values: Sequence[Mapping[str, float]], name: str) -> list[float]:
    return [value[name] for value in values if name in value]


def _worst(values: Sequence[Mapping[str, float]], name: str) -> float | None:
    """Return the largest value; None where a run has none."""
    held = _present(values, name)
    return max(held) if held and len(held) == len(values) else None
