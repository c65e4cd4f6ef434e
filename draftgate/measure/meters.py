"""What the server and the machine tell about one measurement, and why it cannot be used.

Decides only whether a measurement can be used, never what it means.
"""

from collections.abc import Sequence

from draftgate.engines.counters import difference
from draftgate.engines.running import RunningEngine
from draftgate.errors import EngineError, MeasurementError
from draftgate.load.generator import LoadResult
from draftgate.records import EngineCounters, FailureKind, RequestRecord, ResourceUse
from draftgate.resources import ResourceSampler

MAX_CLIENT_CPU_RATIO = 0.5
"""Share of one core above which the client counts as part of what was measured."""

DYING_S = 1.0
"""Time a server that cut requests off gets to end, so that its death is told as the cause."""

_CUT_OFF = (FailureKind.CONNECT, FailureKind.HTTP_ERROR, FailureKind.EARLY_END)


class Meters:
    """Reads the server's counters and the machine's meters at the window's two ends.

    A server that does not answer makes the run unusable, not the program: what
    it said is kept as a problem.
    """

    def __init__(self, engine: RunningEngine, sampler: ResourceSampler) -> None:
        self._engine = engine
        self._sampler = sampler
        self._pages: list[str] = []
        self._resources = ResourceUse()
        self._problems: list[str] = []

    def open(self) -> None:
        """Take the first reading."""
        self._scrape()
        self._sampler.start()

    def close(self) -> None:
        """Take the second reading."""
        self._resources = self._sampler.stop()
        self._scrape()

    def read(self) -> tuple[EngineCounters | None, ResourceUse, tuple[str, ...]]:
        """Return what was counted and what went wrong; parses only now, after the run."""
        counters = None
        if len(self._pages) == 2:
            try:
                before, after = (self._engine.parse_counters(page) for page in self._pages)
                counters = difference(before, after)
            except (EngineError, MeasurementError) as error:
                self._problems.append(str(error))
        return counters, self._resources, tuple(self._problems)

    def _scrape(self) -> None:
        try:
            page = self._engine.scrape()
        except EngineError as error:
            self._problems.append(str(error))
        else:
            self._pages += [page] if page is not None else []


def failed(loaded: LoadResult, max_failure_share: float) -> tuple[str, ...]:
    """Return that too many requests failed, if so."""
    failures = [record.failure for record in loaded.records if record.failure]
    share = len(failures) / max(1, len(loaded.records))
    if share <= max_failure_share:
        return ()
    kinds = ", ".join(sorted({failure.kind.value for failure in failures}))
    told = f"{len(failures)} of {len(loaded.records)} requests failed ({kinds})"
    return (f"{told}; at most {max_failure_share:.1%} may. First: {failures[0].message}",)


def busy(loaded: LoadResult) -> tuple[str, ...]:
    """Return that the client took too much of a core, if so."""
    client = loaded.client
    if client.wall_s <= 0 or client.cpu_s / client.wall_s <= MAX_CLIENT_CPU_RATIO:
        return ()
    used, limit = f"{client.cpu_s / client.wall_s:.0%}", f"{MAX_CLIENT_CPU_RATIO:.0%}"
    return (f"the client used {used} of a core; above {limit} it is part of what is measured",)


def dead(engine: RunningEngine, records: Sequence[RequestRecord]) -> tuple[str, ...]:
    """Return that our own server has ended, if so; waits a little for one that is about to."""
    if engine.child is None:
        return ()
    cut_off = any(record.failure and record.failure.kind in _CUT_OFF for record in records)
    code = engine.child.wait(DYING_S) if cut_off else engine.child.exit_code()
    if code is None:
        return ()
    told = f"{engine.arm.name}: the server process ended with exit code {code} during the run."
    return (f"{told}\nLast lines of {engine.child.log_path}:\n{engine.child.log_tail()}",)
