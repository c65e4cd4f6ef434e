"""Servers by arm: started together, kept while wanted, all stopped in the end.

Starting a server costs half a minute, so a pool keeps those that are asked for
again and stops the longest unused when more than `max_alive` would live.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from types import TracebackType

from draftgate.clock import SYSTEM_CLOCK, Clock
from draftgate.engines.running import Progress, RunningEngine, launch, stop_each
from draftgate.errors import DraftgateError, EngineError
from draftgate.specs import Arm

MAX_ALIVE = 5
"""Servers at once: 3.5 GB each was measured for SmolLM2-135M on CPU, with 24 GB to live in."""


class EnginePool(AbstractContextManager["EnginePool"]):
    """Live servers, keyed by the whole arm.

    Args:
        logs: Folder for one log a server.
        progress: Takes lines of progress.
        max_alive: Most servers that live at once.
        on_command: Called with (arm name, start command) at every start.
    """

    def __init__(
        self,
        logs: Path,
        progress: Progress,
        *,
        max_alive: int = MAX_ALIVE,
        on_command: Callable[[str, str], None] = lambda _name, _command: None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._logs = logs
        self._progress = progress
        self._max_alive = max_alive
        self._on_command = on_command
        self._clock = clock
        self._engines: dict[Arm, RunningEngine] = {}
        self._starts: dict[str, int] = {}

    def require(self, arms: Sequence[Arm]) -> tuple[RunningEngine, ...]:
        """Return a ready server for each arm, all alive at the same time.

        Raises:
            EngineError: If one cannot be started, died since, or more are
                asked for than may live at once. Servers that were started in
                this call are stopped again; those from before live on.
        """
        missing = self._missing(arms)
        try:
            for arm in missing:
                self._start(arm)
            for arm in missing:
                self._wait(arm)
        except BaseException:
            for arm in missing:
                self.discard(arm)
            raise
        for arm in arms:
            self._engines[arm] = self._engines.pop(arm)
            self._engines[arm].check_alive()
        return tuple(self._engines[arm] for arm in arms)

    def start_all(self, arms: Sequence[Arm]) -> dict[Arm, DraftgateError]:
        """Start all of these together and return why some failed; the others are ready.

        Raises:
            EngineError: If more are asked for than may live at once.
        """
        failures: dict[Arm, DraftgateError] = {}
        missing = self._missing(arms)
        ready: list[Arm] = []
        try:
            for step in (self._start, self._wait):
                for arm in missing:
                    if arm not in failures:
                        self._try(step, arm, failures)
            ready = [arm for arm in missing if arm not in failures]
        finally:
            for arm in missing:
                if arm not in ready:
                    self.discard(arm)
        return failures

    def discard(self, arm: Arm) -> None:
        """Stop the arm's server if it has one."""
        engine = self._engines.pop(arm, None)
        if engine is not None:
            engine.stop()

    def keep_only(self, arms: Sequence[Arm]) -> None:
        """Stop all servers but those of these arms: an idle one holds memory that they may need."""
        for arm in [arm for arm in self._engines if arm not in arms]:
            self._progress(f"{arm.name}: stopping, its memory is for others")
            self.discard(arm)

    def stop_all(self) -> None:
        """Stop every server; goes on to the next if one stop fails, then raises the first error."""
        try:
            stop_each(tuple(reversed(self._engines.values())))
        finally:
            self._engines.clear()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop every server."""
        self.stop_all()

    def _start(self, arm: Arm) -> None:
        self._starts[arm.name] = number = self._starts.get(arm.name, 0) + 1
        suffix = f"-{number}" if number > 1 else ""
        engine = launch(arm, self._logs / f"{arm.name}{suffix}.log", self._progress, self._clock)
        self._engines[arm] = engine
        if engine.command is not None:
            self._on_command(arm.name, engine.command.render())
            self._progress(f"{arm.name}: {engine.command.render()}")

    def _wait(self, arm: Arm) -> None:
        self._engines[arm].wait_ready(self._progress)

    def _try(
        self, step: Callable[[Arm], None], arm: Arm, failures: dict[Arm, DraftgateError]
    ) -> None:
        try:
            step(arm)
        except DraftgateError as error:
            failures[arm] = error

    def _missing(self, arms: Sequence[Arm]) -> list[Arm]:
        """Return those that have no server yet, after making room for them."""
        missing = [arm for arm in dict.fromkeys(arms) if arm not in self._engines]
        self._make_room(keep=tuple(dict.fromkeys(arms)), new=len(missing))
        return missing

    def _make_room(self, keep: Sequence[Arm], new: int) -> None:
        if len(keep) > self._max_alive:
            raise EngineError(
                f"{len(keep)} servers are asked for at once, at most {self._max_alive} may live "
                "(memory). Use fewer arms, or engine.keep_alive = false to start one at a time."
            )
        idle = [arm for arm in self._engines if arm not in keep]
        while idle and len(self._engines) + new > self._max_alive:
            arm = idle.pop(0)
            self._progress(f"{arm.name}: stopping to make room")
            self.discard(arm)
