"""Engines and their front, from start to end.

Starts the engines, lets uvicorn serve the front, tells the lines, and ends in order: first no
new requests, then those that run, then the engines. What is said goes to the caller.
"""

import asyncio
import math
import signal
import socket
import sys
import tempfile
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from logging import LogRecord, getLogger
from pathlib import Path

import uvicorn
import uvloop

from draftgate.clock import Clock
from draftgate.engines.running import Progress
from draftgate.errors import EngineError, SpecError
from draftgate.load.health import frozen_heap
from draftgate.serve.admission import Admission
from draftgate.serve.counting import Counting
from draftgate.serve.exchange import Exchange
from draftgate.serve.fleet import Fleet
from draftgate.serve.front import Front, FrontSettings
from draftgate.serve.intervals import Tally
from draftgate.serve.limits import Limits
from draftgate.serve.lines import interval_lines, request_line
from draftgate.serve.metrics import Metrics
from draftgate.serve.relay import open_session
from draftgate.serve.routing import FallbackSpec, Router, checked_ladder
from draftgate.specs import Arm

_SWITCH_S = 0.0005
"""Longest turn of another thread: reading the engine's counters takes milliseconds of Python, and
must not hold up a chunk by more than half of the 1 ms that the front may add at p99."""

_KEEP_ALIVE_S = 30
"""A connection may idle: longer than the 5 s after which httpx, and with it OpenAI's client, drops
one, so that no request goes out on a connection that is being closed."""

_LAST_BYTES_S = 1
"""For a client to take what was written to it, once all requests are over."""

_COUNT_S = 1.0
"""At most between two readings of the engines' counters for the fallback: a reading takes
milliseconds, and a window of the rule is seconds of steps."""


@dataclass(frozen=True, slots=True)
class ServeSpec:
    """What to serve, and how.

    Attributes:
        arm: The engine.
        listen: Host and port; port 0 takes a free one.
        max_in_flight: Requests at the engine at once, >= 1.
        max_queue: Requests that may wait, >= 0.
        limits: Of one request.
        key: API key that clients need; None for none.
        metrics: Whether to have /metrics.
        interval_s: Between lines, > 0.
        drain_timeout_s: For requests that run when it ends, >= 0.
        usd_per_hour: Price of the machine, > 0; None to speak of no cost.
        fallback: Arms to fall back to, and when; None to serve `arm` alone.
        restart: Whether an engine that has ended is started again.
    """

    arm: Arm
    listen: tuple[str, int]
    max_in_flight: int
    max_queue: int
    limits: Limits
    key: str | None = field(default=None, repr=False)
    metrics: bool = False
    interval_s: float = 10.0
    drain_timeout_s: float = 30.0
    usd_per_hour: float | None = None
    fallback: FallbackSpec | None = None
    restart: bool = True

    def __post_init__(self) -> None:
        """Check the ranges.

        Raises:
            SpecError: If one is broken.
        """
        for option, value in (
            ("--interval", self.interval_s),
            ("--usd-per-hour", self.usd_per_hour),
        ):
            if value is not None and not 0 < value < math.inf:
                raise SpecError(f"serve: {option} must be above 0, got {value:g}.")
        if not 0 <= self.drain_timeout_s < math.inf:
            raise SpecError(
                f"serve: --drain-timeout must be 0 or more seconds, got {self.drain_timeout_s:g}."
            )

    @property
    def arms(self) -> tuple[Arm, ...]:
        """The arms to start, the wanted one first.

        Raises:
            SpecError: If they are no ladder.
        """
        if self.fallback is None:
            return (self.arm,)
        arms = (self.arm, *self.fallback.arms)
        return checked_ladder(arms, per_request=self.fallback.class_header is not None)


Tell = Callable[[str], None]
"""Takes one line of the log."""


def run_serve(spec: ServeSpec, tell: Tell, progress: Progress, clock: Clock) -> None:
    """Serve until SIGINT or SIGTERM, then drain; a second one ends the draining.

    Args:
        spec: What to serve.
        tell: Takes the lines of the log.
        progress: Takes what is said while the engine starts.
        clock: Stamps.

    Raises:
        SpecError: If a number is out of range, or the engine cannot run its spec.
        EngineError: If the address cannot be had, an engine does not start, or one is dead at the
            end. A front whose engine died goes on, to say so to clients, until it is told to end.
        KeyboardInterrupt: On SIGINT or SIGTERM before the engines are ready.
    """
    admission = Admission(spec.max_in_flight, spec.max_queue, clock)
    arms = spec.arms
    with (
        _bound(spec.listen) as listener,
        Fleet(arms, _new_folder(), progress, clock, restart=spec.restart) as fleet,
    ):
        fleet.start()
        for member in fleet.members.values():
            if member.engine.log_path is not None:
                progress(f"log {member.engine.log_path}")
        with (
            asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
            frozen_heap(),
            _short_turns(),
        ):
            runner.run(_Serving(spec, fleet, admission, tell, clock).run(listener))
        fleet.raise_if_dead()


def _new_folder() -> Path:
    """Return a folder for the engines' logs, which outlive the server: people read them then."""
    return Path(tempfile.mkdtemp(prefix="draftgate-serve-"))


class _Serving:
    """One front and its engines, while it runs."""

    def __init__(
        self, spec: ServeSpec, fleet: Fleet, admission: Admission, tell: Tell, clock: Clock
    ) -> None:
        self._spec, self._fleet, self._tell = spec, fleet, tell
        self._admission = admission
        self._metrics = Metrics(admission, clock)
        self._tally = Tally(admission, clock)
        self._router = Router(fleet, spec.fallback, self._metrics, tell, clock)
        self._counting = Counting(fleet, self._router, admission, clock)
        label = spec.fallback.class_header if spec.fallback is not None else None
        settings = FrontSettings(
            spec.limits,
            spec.max_queue,
            spec.key,
            spec.metrics,
            spec.drain_timeout_s,
            None if label is None else label.encode(),
        )
        self._front = Front(
            settings, self._router.choose, admission, self._metrics, self._over, clock=clock
        )
        self._asked, self._hurry = asyncio.Event(), asyncio.Event()

    async def run(self, listener: socket.socket) -> None:
        """Serve on a bound socket until a signal, then drain."""
        server = _Server(_config(self._front))
        async with open_session() as session:
            self._front.session = session
            with _signals_to(self._signalled):
                listener.listen()
                self._say_where(listener)
                async with asyncio.TaskGroup() as group:
                    group.create_task(server.serve(sockets=[listener]))
                    helpers = [
                        group.create_task(self._tell_intervals()),
                        group.create_task(self._fleet.keep(self._tell, self._router.changed)),
                    ]
                    if self._spec.fallback is not None:
                        helpers.append(group.create_task(self._count()))
                    await self._asked.wait()
                    await self._drain()
                    for helper in helpers:
                        helper.cancel()
                    await asyncio.to_thread(self._fleet.abandon)
                    server.should_exit = True

    def _over(self, exchange: Exchange) -> None:
        self._tally.take(exchange)
        self._router.over(exchange)
        self._tell(request_line(exchange))

    def _signalled(self) -> None:
        (self._hurry if self._asked.is_set() else self._asked).set()

    def _say_where(self, listener: socket.socket) -> None:
        spec, (host, port) = self._spec, listener.getsockname()[:2]
        address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        self._tell(
            f"[serve] listening on http://{address}/v1, model {self._fleet.model}, arm "
            f"{' > '.join(self._fleet.members)}: {spec.max_in_flight} in flight, "
            f"{spec.max_queue} queued, API key {'needed' if spec.key else 'none'}, "
            f"/metrics {'on' if spec.metrics else 'off'}"
        )

    async def _tell_intervals(self) -> None:
        """Tell the lines of each interval, as long as there is one."""
        await self._counting.read()
        while True:
            await asyncio.sleep(self._spec.interval_s)
            await self._counting.read()
            counted, problems = self._counting.close()
            for problem in problems:
                self._tell(f"[serve] no counters of the engine: {problem}")
            if counted is not None:
                self._metrics.add_tokens(counted.generation_tokens)
            for line in interval_lines(self._tally.close(counted), self._spec.usd_per_hour):
                self._tell(line)

    async def _count(self) -> None:
        """Read counters often enough for the fallback, until cancelled."""
        while True:
            await asyncio.sleep(min(_COUNT_S, self._spec.interval_s))
            await self._counting.read()

    async def _drain(self) -> None:
        """Take no new request, and give those that run their time."""
        self._tell(
            f"[serve] draining: {self._admission.in_flight} in flight get up to "
            f"{self._spec.drain_timeout_s:g} s, {self._admission.queued} queued are turned away"
        )
        self._admission.close()
        ends = (
            asyncio.create_task(self._admission.drained()),
            asyncio.create_task(self._hurry.wait()),
        )
        await asyncio.wait(
            ends, timeout=self._spec.drain_timeout_s, return_when=asyncio.FIRST_COMPLETED
        )
        for end in ends:
            end.cancel()
        count = await self._front.cut()
        self._tell(f"[serve] drained, {count} cut off")


class _Server(uvicorn.Server):
    """uvicorn without its own signal handlers, which refuse connections at once."""

    @contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """Leave signals as they are."""
        yield


def _config(front: Front) -> uvicorn.Config:
    getLogger("uvicorn.error").addFilter(_is_news)
    return uvicorn.Config(
        front.app(),
        log_config=None,
        log_level="error",
        access_log=False,
        lifespan="off",
        ws="none",
        http="httptools",
        proxy_headers=False,
        server_header=False,
        timeout_keep_alive=_KEEP_ALIVE_S,
        timeout_graceful_shutdown=_LAST_BYTES_S,
    )


def _is_news(record: LogRecord) -> bool:
    """Whether uvicorn says what our lines don't: they tell of answers that were cut."""
    return "without completing response" not in record.getMessage()


@contextmanager
def _bound(listen: tuple[str, int]) -> Iterator[socket.socket]:
    """Yield a socket that has the address but does not listen yet; the engine starts first.

    Raises:
        EngineError: If the address cannot be had.
    """
    host, port = listen
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        bound = socket.socket(family, kind, protocol)
    except OSError as error:
        raise _no_address(host, port, error) from error
    with bound:
        try:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            bound.bind(address)
        except OSError as error:
            raise _no_address(host, port, error) from error
        yield bound


def _no_address(host: str, port: int, error: OSError) -> EngineError:
    return EngineError(
        f"serve: cannot listen on {host}:{port} ({error.strerror or error}). Give another address "
        "with --listen."
    )


@contextmanager
def _signals_to(callback: Callable[[], None]) -> Iterator[None]:
    """Have SIGINT and SIGTERM call `callback` on this loop; put the handlers back in the end."""
    loop = asyncio.get_running_loop()

    def handler(_number: int, _frame: object) -> None:
        loop.call_soon_threadsafe(callback)

    before = {number: signal.signal(number, handler) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, known in before.items():
            signal.signal(number, known)


@contextmanager
def _short_turns() -> Iterator[None]:
    """Let no thread hold the interpreter for long, until the block ends."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(_SWITCH_S)
    try:
        yield
    finally:
        sys.setswitchinterval(before)
