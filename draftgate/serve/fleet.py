"""The engines behind a front: started together, watched, and started again when they end.

One engine for each arm. Knows nothing of which of them requests should go to; whoever
does is told when one has ended and when it is ready again. Engines that ran before
(`launch = "url"`) are never started or stopped.
"""

import asyncio
import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from types import TracebackType
from typing import Protocol

from draftgate.clock import Clock
from draftgate.engines.running import Progress, RunningEngine, launch, read_key, stop_each
from draftgate.errors import DraftgateError, EngineError
from draftgate.serve.relay import EngineAwayError, Upstream
from draftgate.specs import Arm

FIRST_WAIT_S, LONGEST_WAIT_S = 1.0, 60.0
"""Wait before an engine is started again, doubled with each end in a row: what starts and dies at
once must not keep the machine busy with starting, and Kubernetes' waits begin and grow likewise."""

STEADY_S = 60.0
"""An engine that lived this long after it was ready has not ended in a row."""

WATCH_S = 0.25
"""Between two looks at whether engines live, as between two at their start (`POLL_S`)."""


class Member:
    """One arm and its engine.

    Attributes:
        arm: The arm.
        engine: Its engine, the latest that was started.
        ready: Whether it has been ready and has not ended since.
        reason: Why it is not there; "" while it is.
        restarts: Times that it was ready again.
        ends: Ends in a row.
    """

    def __init__(self, arm: Arm, engine: RunningEngine) -> None:
        self.arm = arm
        self.engine = engine
        self.ready = False
        self.reason = ""
        self.restarts = 0
        self.ends = 0
        self.starts = 1
        self.ready_ns = 0
        self.due_ns: int | None = None
        self.took_s = 0.0
        self.upstream: Upstream | None = None

    @property
    def exit_code(self) -> int | None:
        """Exit code of its process; None while it runs, and of one that is not ours."""
        return None if self.engine.child is None else self.engine.child.exit_code()


class Changed(Protocol):
    """Is told when engines come and go."""

    def __call__(self, arm: str, *, alive: bool) -> None:
        """Take the name of an arm and whether its engine is there now."""


class Fleet(AbstractContextManager["Fleet"]):
    """All engines; ended on leaving the block.

    Args:
        arms: One for each engine.
        logs: Folder for their logs.
        progress: Takes what is said while one starts; called from other threads too.
        clock: Stamps.
        restart: Whether an engine that has ended is started again.

    Attributes:
        members: By arm.
    """

    def __init__(
        self,
        arms: Sequence[Arm],
        logs: Path,
        progress: Progress,
        clock: Clock,
        *,
        restart: bool = True,
    ) -> None:
        self.members: dict[str, Member] = {}
        self._arms, self._logs, self._progress, self._clock = arms, logs, progress, clock
        self._restart = restart
        self._lock = threading.Lock()
        self._ending = False

    def start(self) -> None:
        """Start every engine and wait until all are ready.

        Raises:
            SpecError: If one cannot run its arm.
            EngineError: If one does not become ready, or they serve models of different names.
        """
        started_ns = self._clock.now_ns()
        for arm in self._arms:
            self.members[arm.name] = Member(arm, self._launch(arm, 1))
        for member in self.members.values():
            member.engine.wait_ready(self._progress)
            self._now_ready(member, started_ns)
        models = {member.engine.model for member in self.members.values()}
        if len(models) > 1:
            raise EngineError(
                f"serve: arms serve models of different names ({', '.join(sorted(models))}), "
                "expected one: a request names the model. Give all of them one name."
            )

    @property
    def model(self) -> str:
        """Name of the model that requests have to ask for."""
        return next(iter(self.members.values())).engine.model

    def is_there(self, name: str) -> bool:
        """Whether an arm's engine is ready and has not ended."""
        member = self.members[name]
        return member.ready and member.exit_code is None

    def upstream(self, name: str) -> Upstream:
        """Return where an arm's requests go.

        Raises:
            EngineAwayError: If its engine is not there, with the reason.
        """
        member = self.members[name]
        if member.upstream is None or not self.is_there(name):
            raise self.away(name)
        return member.upstream

    def away(self, name: str) -> EngineAwayError:
        """Return why an arm's engine is not there, and when it may be."""
        member = self.members[name]
        code = member.exit_code
        reason = member.reason or _ended(name, -1 if code is None else code)
        if not self._restart:
            return EngineAwayError(reason)
        due_ns = self._clock.now_ns() if member.due_ns is None else member.due_ns
        left_s = max(0.0, (due_ns - self._clock.now_ns()) / 1e9) + member.took_s
        return EngineAwayError(f"{reason}; it is started again", left_s)

    async def keep(self, tell: Callable[[str], None], changed: Changed) -> None:
        """Watch every engine of ours until cancelled; start again what has ended."""
        async with asyncio.TaskGroup() as group:
            for member in self.members.values():
                if member.engine.child is not None:
                    group.create_task(self._keep(member, tell, changed))

    def abandon(self) -> None:
        """Start nothing any more and end what is not ready; blocks until that has ended."""
        with self._lock:
            self._ending = True
        for member in self.members.values():
            if not member.ready:
                member.engine.stop()

    def raise_if_dead(self) -> None:
        """Do nothing if all engines of ours live.

        Raises:
            EngineError: If one has ended, with its exit code and last log lines.
        """
        for member in self.members.values():
            if member.engine.child is not None:
                member.engine.child.raise_if_dead()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End every engine of ours; goes on to the next if one can't be, then raises the first."""
        with self._lock:
            self._ending = True
        stop_each([member.engine for member in self.members.values()])

    def _launch(self, arm: Arm, number: int) -> RunningEngine:
        suffix = f"-{number}" if number > 1 else ""
        log = self._logs / f"{arm.name}{suffix}.log"
        engine = launch(arm, log, self._progress, self._clock)
        if engine.command is not None:
            self._progress(f"{arm.name}: {engine.command.render()}")
        return engine

    def _now_ready(self, member: Member, started_ns: int) -> None:
        engine = member.engine
        key = read_key(engine.api_key_env) if engine.api_key_env else None
        member.upstream = Upstream(f"arm {member.arm.name}", engine.base_url, key)
        member.ready_ns = self._clock.now_ns()
        member.took_s = (member.ready_ns - started_ns) / 1e9
        member.ready, member.reason, member.due_ns = True, "", None

    async def _keep(self, member: Member, tell: Callable[[str], None], changed: Changed) -> None:
        name = member.arm.name
        while True:
            code = member.exit_code
            if code is None:
                await asyncio.sleep(WATCH_S)
                continue
            member.ready, member.reason = False, _ended(name, code)
            if not self._restart:
                tell(f"[serve] ENGINE GONE: {member.reason}; it is not started again")
                changed(name, alive=False)
                return
            await self._again(member, tell, changed)

    async def _again(self, member: Member, tell: Callable[[str], None], changed: Changed) -> None:
        """Start an engine until it is ready."""
        lived_s = (self._clock.now_ns() - member.ready_ns) / 1e9
        member.ends = 1 if lived_s >= STEADY_S else member.ends + 1
        told = f"[serve] ENGINE GONE: {member.reason}"
        first = True
        while not member.ready:
            wait_s = min(LONGEST_WAIT_S, FIRST_WAIT_S * 2 ** (member.ends - 1))
            member.due_ns = self._clock.now_ns() + int(wait_s * 1e9)
            tell(f"{told}; it is started again in {wait_s:g} s")
            if first:
                changed(member.arm.name, alive=False)
                first = False
            await asyncio.sleep(wait_s)
            try:
                await asyncio.to_thread(self._start_again, member)
            except DraftgateError as error:
                member.ends += 1
                told = f"[serve] arm {member.arm.name} did not start: {str(error).splitlines()[0]}"
        member.restarts += 1
        tell(
            f"[serve] arm {member.arm.name} is ready again after {member.took_s:.0f} s, "
            f"restart {member.restarts}"
        )
        changed(member.arm.name, alive=True)

    def _start_again(self, member: Member) -> None:
        """Start an engine and wait until it is ready; for a thread of its own.

        Raises:
            SpecError: If it can no longer run its arm.
            EngineError: If it does not become ready, or the server ends.
        """
        started_ns = self._clock.now_ns()
        with self._lock:
            if self._ending:
                raise EngineError(f"arm {member.arm.name}: the server ends")
            member.engine.stop()  # descendants that outlived it
            member.starts += 1
            member.engine = self._launch(member.arm, member.starts)
        member.engine.wait_ready(self._progress)
        self._now_ready(member, started_ns)


def _ended(name: str, code: int) -> str:
    return f"arm {name}: its process ended with exit code {code}"
