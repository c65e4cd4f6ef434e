"""The fixtures a test may ask for.

`perf_run` and `measure` take one run each; `perf_cell` names a cell to judge;
`engine_pool`, `profile` and `draftgate_session` are for tests that start
servers of their own.
"""

from collections.abc import Callable

import pytest

from draftgate.compare.records import Gate
from draftgate.engines.pool import EnginePool
from draftgate.plugin.asked import PlannedRun
from draftgate.plugin.outcomes import told_once
from draftgate.plugin.paired import PairedSession
from draftgate.plugin.session import PAIRED, SESSION, GateSession
from draftgate.records import RunSamples, TrafficAcceptance
from draftgate.specs import Profile


@pytest.fixture(scope="session")
def draftgate_session(pytestconfig: pytest.Config) -> GateSession:
    """The session's state; the plugin stops its servers when the session ends."""
    return pytestconfig.stash[SESSION]


@pytest.fixture(scope="session")
def profile(draftgate_session: GateSession) -> Profile:
    """What to start and what to send."""
    return draftgate_session.profile


@pytest.fixture(scope="session")
def engine_pool(draftgate_session: GateSession) -> EnginePool:
    """Live servers by arm, shared by the whole session."""
    return draftgate_session.pool


@pytest.fixture
def perf_run(request: pytest.FixtureRequest) -> PlannedRun:
    """One planned run: an arm, a concurrency and a running number."""
    planned: PlannedRun = request.param
    return planned


@pytest.fixture
def perf_cell(request: pytest.FixtureRequest) -> tuple[str, int]:
    """One cell: an arm's name and a concurrency."""
    cell: tuple[str, int] = request.param
    return cell


@pytest.fixture(scope="session")
def paired_session(pytestconfig: pytest.Config) -> PairedSession:
    """The comparison that `--against` asks for; the test is skipped without it."""
    paired = pytestconfig.stash[PAIRED]
    if paired is None:
        pytest.skip("no --against SIDE was given, so there is nothing to compare with")
    return paired


@pytest.fixture
def paired_gate(request: pytest.FixtureRequest) -> Gate:
    """One question of the comparison that `--against` asks for."""
    gate: Gate = request.param
    return gate


@pytest.fixture
def speculative_arm(request: pytest.FixtureRequest) -> str:
    """Name of one arm of the profile that speculates."""
    name: str = request.param
    return name


@pytest.fixture
def measure(draftgate_session: GateSession) -> Callable[[PlannedRun], RunSamples]:
    """A function that takes one planned run; trouble fails the test in one message.

    What the same trouble would fail afterwards is skipped with a short reason.
    """

    def take(planned: PlannedRun) -> RunSamples:
        return told_once(lambda: draftgate_session.measure(planned))

    return take


@pytest.fixture
def measure_acceptance(
    draftgate_session: GateSession,
) -> Callable[..., TrafficAcceptance]:
    """A function that measures an arm on a kind of traffic; trouble as in `measure`."""

    def take(arm: str, kind: str, temperature: float = 0.0) -> TrafficAcceptance:
        return told_once(lambda: draftgate_session.acceptance(arm, kind, temperature))

    return take
