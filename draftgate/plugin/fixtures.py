"""The fixtures a test may ask for.

`perf_run` and `measure` take one run each; `perf_cell` names a cell to judge;
`engine_pool`, `profile` and `draftgate_session` are for tests that start
servers of their own.
"""

from collections.abc import Callable

import pytest

from draftgate.engines.pool import EnginePool
from draftgate.errors import DraftgateError
from draftgate.plugin.session import SESSION, FailedEarlierError, GateSession, PlannedRun
from draftgate.records import RunSamples
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
        try:
            return draftgate_session.measure(planned)
        except FailedEarlierError as error:
            skipped, told = True, str(error)
        except DraftgateError as error:
            skipped, told = False, str(error)
        # Outside of the handler, so that pytest shows the message alone.
        if skipped:
            pytest.skip(told)
        pytest.fail(told, pytrace=False)

    return take
