"""The main job: every arm of the profile at every concurrency, measured, then judged."""

from collections.abc import Callable, Sequence

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from draftgate.metrics import compute_all
from draftgate.plugin.session import GateSession, PlannedRun
from draftgate.records import RunSamples
from draftgate.verdict import Outcome, Verdict, worst

pytestmark = pytest.mark.perf


def test_run(
    benchmark: BenchmarkFixture,
    draftgate_session: GateSession,
    perf_run: PlannedRun,
    measure: Callable[[PlannedRun], RunSamples],
) -> None:
    """A run of the arm can be used: no failed request, no dead server, no busy client."""
    benchmark.group = f"{perf_run.arm} x{perf_run.concurrency}"

    run = benchmark.pedantic(measure, args=(perf_run,), rounds=1, iterations=1)

    benchmark.extra_info.update(compute_all(run, draftgate_session.profile.slo))
    if run.invalid:
        pytest.fail("INVALID_RUN: " + "\n".join(run.invalid), pytrace=False)


def test_verdict(draftgate_session: GateSession, perf_cell: tuple[str, int]) -> None:
    """No gated metric of the cell is worse than the baseline by more than its margin."""
    arm, concurrency = perf_cell
    if not draftgate_session.measured(arm, concurrency):
        pytest.skip("no run of this cell was taken in this session")

    verdicts = draftgate_session.judge(arm, concurrency)

    outcome = worst(verdicts)
    options = draftgate_session.options
    told = _told(verdicts)
    if outcome in (Outcome.REGRESSION, Outcome.INVALID_RUN):
        pytest.fail(told, pytrace=False)
    if outcome is Outcome.NO_BASELINE:
        _not_green(told, failing=options.require_baseline)
    if outcome is Outcome.INCONCLUSIVE:
        _not_green(told, failing=options.require_verdict)


def _told(verdicts: Sequence[Verdict]) -> str:
    """Return each reason for not being green once, with the metrics that it holds for."""
    metrics: dict[str, list[str]] = {}
    for v in verdicts:
        if not v.outcome.green:
            why = " ".join(filter(None, (v.reason, v.cause, v.next_step)))
            metrics.setdefault(f"{v.outcome.name} {{}}: {why}", []).append(v.metric)
    return "\n".join(line.replace("{}", ", ".join(names), 1) for line, names in metrics.items())


def _not_green(told: str, *, failing: bool) -> None:
    """Fail if the option for it is set; else skip aloud, for this is no pass either."""
    if failing:
        pytest.fail(told, pytrace=False)
    pytest.skip(told)
