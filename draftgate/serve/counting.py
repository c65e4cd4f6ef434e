"""The engines' own counters, read while a front runs: for lines, and for the fallback.

Each engine is asked in a thread, because it blocks. An engine that was started again is
another one, whose counters begin at nothing; what the old one counted last is lost.
"""

import asyncio
from collections.abc import Sequence

from draftgate.clock import Clock
from draftgate.engines.counters import CounterSnapshot, difference
from draftgate.engines.running import RunningEngine
from draftgate.errors import EngineError, MeasurementError
from draftgate.records import EngineCounters, SpeculationCounters
from draftgate.serve.admission import Admission
from draftgate.serve.fleet import Fleet
from draftgate.serve.routing import Router


class CounterReader:
    """Reads one engine's totals. It blocks while it asks, so it is for a thread of its own."""

    def __init__(self, engine: RunningEngine) -> None:
        self.engine = engine
        self._before: CounterSnapshot | None = None

    def read(self) -> EngineCounters | None:
        """Return what was counted since the last reading.

        None at the first reading, and of an engine without counters.

        Raises:
            EngineError: If the page can't be had, or lacks a total.
            MeasurementError: If a total fell: the engine was started anew.
        """
        page = self.engine.scrape()
        if page is None:
            return None
        before, self._before = self._before, self.engine.parse_counters(page)
        return None if before is None else difference(before, self._before)


class Counting:
    """What all engines counted since it was last closed.

    Args:
        fleet: The engines; those that are not there are left out.
        router: Is told what each counted, and how many requests ran meanwhile.
        admission: Knows how many run.
        clock: Of the time between readings.
    """

    def __init__(self, fleet: Fleet, router: Router, admission: Admission, clock: Clock) -> None:
        self._fleet, self._router = fleet, router
        self._admission, self._clock = admission, clock
        self._readers: dict[str, CounterReader] = {}
        self._counted: list[EngineCounters] = []
        self._problems: dict[str, str] = {}
        self._read_ns, self._busy_s = clock.now_ns(), admission.busy_s()
        self._one_at_a_time = asyncio.Lock()

    async def read(self) -> None:
        """Read every engine that is there."""
        async with self._one_at_a_time:
            self._tell_running()
            for name, member in self._fleet.members.items():
                if self._fleet.is_there(name):
                    await self._read(name, member.engine)

    def close(self) -> tuple[EngineCounters | None, tuple[str, ...]]:
        """Return what was counted since the last time, and why some could not be read.

        None if nothing could be read.
        """
        counted, self._counted = self._counted, []
        problems, self._problems = tuple(self._problems.values()), {}
        return together(counted), problems

    def _tell_running(self) -> None:
        now_ns, busy_s = self._clock.now_ns(), self._admission.busy_s()
        seconds = (now_ns - self._read_ns) / 1e9
        if seconds > 0:
            self._router.ran((busy_s - self._busy_s) / seconds)
        self._read_ns, self._busy_s = now_ns, busy_s

    async def _read(self, name: str, engine: RunningEngine) -> None:
        reader = self._readers.get(name)
        if reader is None or reader.engine is not engine:
            reader = self._readers[name] = CounterReader(engine)
        try:
            counted = await asyncio.to_thread(reader.read)
        except (EngineError, MeasurementError) as error:
            self._problems[name] = str(error).splitlines()[0]
            return
        if counted is not None:
            self._counted.append(counted)
            self._router.counted(name, counted)


def together(counted: Sequence[EngineCounters]) -> EngineCounters | None:
    """Return what several readings counted together; None of none.

    Times of prefill and the use of KV blocks are left out.
    """
    if not counted:
        return None
    drafts = [one.speculation for one in counted if one.speculation is not None]
    return EngineCounters(
        generation_tokens=sum(one.generation_tokens for one in counted),
        prompt_tokens=sum(one.prompt_tokens for one in counted),
        queue_time_sum_s=sum(one.queue_time_sum_s for one in counted),
        queue_time_count=sum(one.queue_time_count for one in counted),
        kv_use_max_ratio=None,
        speculation=_drafts_together(drafts) if drafts else None,
    )


def _drafts_together(drafts: Sequence[SpeculationCounters]) -> SpeculationCounters:
    return SpeculationCounters(
        num_drafts=sum(one.num_drafts for one in drafts),
        num_draft_tokens=sum(one.num_draft_tokens for one in drafts),
        num_accepted_tokens=sum(one.num_accepted_tokens for one in drafts),
    )
