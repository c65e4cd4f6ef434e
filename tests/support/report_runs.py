"""Stored runs for tests of the report, one for each situation it must survive."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from draftgate.drift.judge import judge_traffic
from draftgate.records import RunSamples, SpeculationCounters, TrafficAcceptance
from draftgate.runstore import StoredRun
from draftgate.specs import Profile
from draftgate.verdict import Outcome, Verdict
from tests.support.samples import make_environment, make_profile, make_runs, make_verdicts
from tests.support.traffic import make_traffic

SMALL: Mapping[str, Any] = {"requests": 3, "tokens": 16}
"""Settings of runs that are quick to make and to draw."""


def stored_run(
    path: Path,
    profile: Profile | None = None,
    samples: Sequence[RunSamples] | None = None,
    verdicts: Sequence[Verdict] = (),
    baseline: str | None = None,
    traffic: Sequence[TrafficAcceptance] = (),
) -> StoredRun:
    """Return a run as read back from `path`, with synthetic samples by default."""
    profile = profile or make_profile(concurrencies=(1, 8), repeats=3)
    return StoredRun(
        id="20260101T000000Z-example-0000",
        path=path,
        started_at="2026-01-01T00:00:00+00:00",
        argv=("draftgate", "measure", "--profile", "a b"),
        profile=profile,
        environment=make_environment(),
        commands={arm.name: f"serve --arm {arm.name}" for arm in profile.arms},
        samples=tuple(make_runs(profile, **SMALL) if samples is None else samples),
        verdicts=tuple(verdicts),
        baseline=baseline,
        traffic=tuple(traffic),
    )


def verdict_of(outcome: Outcome) -> Verdict:
    """Return the invented verdict with this outcome."""
    return next(verdict for verdict in make_verdicts() if verdict.outcome is outcome)


def complete(path: Path) -> StoredRun:
    """Return a run with every cell measured and one verdict of each outcome."""
    return stored_run(path, verdicts=make_verdicts(), baseline="baselines/example.json")


def without_reference(path: Path) -> StoredRun:
    """Return a run whose profile has no arm `none`."""
    profile = make_profile(concurrencies=(1,))
    profile = replace(profile, arms=profile.arms[1:])
    return stored_run(path, profile)


def one_repeat(path: Path) -> StoredRun:
    """Return a run with a single run per cell."""
    return stored_run(path, make_profile(concurrencies=(1,), repeats=1))


def all_invalid(path: Path) -> StoredRun:
    """Return a run of which nothing can be used."""
    profile = make_profile(concurrencies=(1,))
    runs = make_runs(profile, **SMALL, invalid=("event-loop lag of 80 ms",))
    return stored_run(path, profile, runs, [verdict_of(Outcome.INVALID_RUN)])


def no_baseline(path: Path) -> StoredRun:
    """Return a run that nothing stored could be compared with."""
    profile = make_profile(concurrencies=(1, 8))
    verdicts = [
        replace(verdict_of(Outcome.NO_BASELINE), arm=arm.name, concurrency=c, metric=gate.metric)
        for arm in profile.arms
        for c in (1, 8)
        for gate in profile.gates
    ]
    return stored_run(path, profile, verdicts=verdicts)


def without_counters(path: Path) -> StoredRun:
    """Return a run of a server that counts nothing."""
    profile = make_profile(concurrencies=(1,))
    runs = [replace(run, counters=None) for run in make_runs(profile, **SMALL)]
    return stored_run(path, profile, runs)


def without_requests(path: Path) -> StoredRun:
    """Return a run with one cell in which no request was sent."""
    profile = make_profile(concurrencies=(1,))
    runs = [
        replace(run, records=(), window=None, counters=None) if run.arm == "ngram" else run
        for run in make_runs(profile, **SMALL)
    ]
    return stored_run(path, profile, runs)


def aborted(path: Path) -> StoredRun:
    """Return a run that ended after four runs, with failed requests in the last."""
    profile = make_profile(concurrencies=(1, 8))
    runs = make_runs(profile, requests=6, tokens=16)[:4]
    failed = make_runs(profile, requests=6, tokens=16, failures=2)[3]
    failed = replace(failed, invalid=("2 of 48 requests failed",))
    return stored_run(path, profile, (*runs[:3], failed))


def nothing(path: Path) -> StoredRun:
    """Return a run that ended before its first sample."""
    return stored_run(path, samples=())


def traffic_of_each_kind() -> tuple[TrafficAcceptance, ...]:
    """Return acceptance of two arms on three kinds; one is invalid, one has no counters."""
    counts = {"chat": (520, 380, 240), "code": (710, 560, 470), "arithmetic": (640, 430, 310)}
    whole = [
        make_traffic(arm, kind, counters=SpeculationCounters(1000, 3000, sum(by), by))
        for arm in ("ngram", "draft_model")
        for kind, by in counts.items()
    ]
    lost = replace(whole[4], invalid=("3 of 60 requests failed (early end)",))
    return (*whole[:4], lost, replace(whole[5], counters=None))


def traffic_verdicts() -> tuple[Verdict, ...]:
    """Return what is decided on them: pass, regression, improvement, invalid, no baseline."""
    chat, code, arithmetic, *drafted = traffic_of_each_kind()
    return (
        judge_traffic(make_traffic("ngram", "chat"), chat),
        judge_traffic(make_traffic("ngram", "code", factor=1.25, noise=0.02), code),
        judge_traffic(make_traffic("ngram", "arithmetic", factor=0.8), arithmetic),
        *(judge_traffic(None, found) for found in drafted),
    )


def traffic_only(path: Path) -> StoredRun:
    """Return a run that measured acceptance by traffic and no speed."""
    return stored_run(
        path,
        samples=(),
        verdicts=traffic_verdicts(),
        baseline="baselines/example.acceptance.json",
        traffic=traffic_of_each_kind(),
    )


def mixed(path: Path) -> StoredRun:
    """Return a run that measured speed and acceptance by traffic."""
    verdicts = (verdict_of(Outcome.PASS), *traffic_verdicts())
    return stored_run(
        path, verdicts=verdicts, baseline="baselines/example.json", traffic=traffic_of_each_kind()
    )


SITUATIONS: Mapping[str, Callable[[Path], StoredRun]] = {
    situation.__name__: situation
    for situation in (
        complete,
        without_reference,
        one_repeat,
        all_invalid,
        no_baseline,
        without_counters,
        without_requests,
        aborted,
        nothing,
        traffic_only,
        mixed,
    )
}
