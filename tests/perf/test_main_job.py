"""The main job: every arm of the profile at every concurrency, measured, then judged."""

from collections.abc import Callable

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from draftgate.metrics import compute_all
from draftgate.plugin.asked import PlannedRun
from draftgate.plugin.outcomes import settle
from draftgate.plugin.session import GateSession
from draftgate.records import RunSamples

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

    settle(draftgate_session.judge(arm, concurrency), draftgate_session.options)
