"""The null engine itself: one thread, one loop, non-blocking sockets.

Owns the connections and the waiting; `http` reads requests, `answers` makes
writes, `sender` sends them when they are due and `record` keeps what was sent.
Nothing polls: between two due times the thread sleeps in the kernel.
"""

import contextlib
import os
import select
import socket
import threading
from collections.abc import Iterable
from pathlib import Path

from draftgate.clock import (
    RECEIVE_STAMP_BYTES,
    SYSTEM_CLOCK,
    realtime_offset_ns,
    receive_stamp_ns,
    stamp_receives,
)
from draftgate.errors import EngineError
from draftgate.null_engine import faults, pages
from draftgate.null_engine.answers import answer
from draftgate.null_engine.connection import Connection
from draftgate.null_engine.http import BadRequest, HttpRequest, read_ask
from draftgate.null_engine.pace import Pace
from draftgate.null_engine.record import SendLog
from draftgate.null_engine.script import Script
from draftgate.null_engine.sender import Sender
from draftgate.null_engine.writes import Route, Work

_BATCH_INPUTS = 16
"""Ready sockets after which the loop looks for due writes: reading a request takes about 50 us."""
_COARSE_S, _EARLY_S = 0.002, 0.001
"""`select` may oversleep by a thousandth of its time, so long waits end early and are resumed."""
_TIMER_SLACK_NS = 1_000
"""With the kernel's default of 50,000 each write would be 50 us late, with this some 20."""
_READ_BYTES = 1 << 18
_BACKLOG = 4_096
"""What Linux allows a listener by default (net.core.somaxconn)."""
_POSTS = {route.value: route for route in Route}
_READABLE = select.EPOLLIN | select.EPOLLRDHUP


class NullEngine:
    """A scripted server. Either `start` and `stop`, which use a thread, or `bind` and `run`.

    Args:
        script: What it does.
        log_path: File for the send log; None keeps it in memory, for `GET /log`.

    Attributes:
        port: Bound port; 0 before `bind`.
        totals: What it has counted.

    Raises:
        OSError: If the file cannot be written.
    """

    def __init__(self, script: Script, *, log_path: Path | None = None) -> None:
        self.port = 0
        self.totals = pages.Totals()
        self._script = script
        self._pace = Pace(script, SYSTEM_CLOCK.now_ns())
        self._log = SendLog(log_path)
        self._sender = Sender(self._log, self.totals)
        self._connections: dict[int, Connection] = {}
        self._epoll = select.epoll()
        self._listener = socket.socket()
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._host = ""
        self._stopping = self._shut_down = False
        self._thread: threading.Thread | None = None
        self._failure: BaseException | None = None

    @property
    def url(self) -> str:
        """Return the base address, without `/v1`."""
        return f"http://{self._host}:{self.port}"

    def bind(self, host: str = "127.0.0.1", port: int = 0) -> None:
        """Listen; port 0 takes a free one.

        Raises:
            EngineError: If the address cannot be had; the engine is then of no
                further use.
        """
        self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            self._listener.bind((host, port))
        except (OSError, OverflowError) as error:  # the latter for a port above 65535
            self._shut()
            raise EngineError(
                f"null engine: cannot listen on {host}:{port}: {error}. Use port 0 for a free one."
            ) from error
        self._listener.listen(_BACKLOG)
        self._listener.setblocking(False)  # noqa: FBT003 - the library's own signature
        self._host, self.port = host, self._listener.getsockname()[1]
        self._epoll.register(self._listener.fileno(), select.EPOLLIN)
        self._epoll.register(self._wake, select.EPOLLIN)

    def start(self, host: str = "127.0.0.1", port: int = 0) -> None:
        """Bind, and run in a thread of this process until `stop`.

        For tests: a thread shares the interpreter with whoever measures.

        Raises:
            EngineError: If the address cannot be had.
        """
        self.bind(host, port)
        self._thread = threading.Thread(target=self._run_in_thread, name="null-engine")
        self._thread.start()

    def stop(self) -> None:
        """End the thread; the log is whole when this returns.

        Raises:
            EngineError: If the loop had failed.
        """
        self.request_stop()
        if self._thread is not None:
            self._thread.join()
        if self._failure is not None:
            raise EngineError(
                f"null engine: its loop failed: {self._failure!r}. This is a defect of draftgate; "
                "please report it with the script."
            ) from self._failure

    def request_stop(self) -> None:
        """Let `run` return soon; safe in a signal handler."""
        if not self._shut_down:
            # Before the flag: once that is up, the loop may end and close the handle.
            os.eventfd_write(self._wake, 1)
        self._stopping = True

    def run(self) -> None:
        """Serve until `request_stop`; then close all connections and finish the log."""
        _sharpen_timers()
        try:
            while not self._stopping:
                self._sender.send_due()
                self._settle()
                for handle, events in self._wait():
                    self._on_ready(handle, events)
        finally:
            self._shut()

    def _run_in_thread(self) -> None:
        try:
            self.run()
        except BaseException as error:  # noqa: BLE001 - `stop` raises it where it is seen
            self._failure = error

    def _shut(self) -> None:
        self._shut_down = True
        for record in self._sender.running():
            self._log.add(record)
        for connection in self._connections.values():
            connection.socket.close()
        self._connections.clear()
        self._listener.close()
        self._epoll.close()
        os.close(self._wake)
        self._log.close()

    def _wait(self) -> Iterable[tuple[int, int]]:
        """Return the sockets that are ready, waiting for one no longer than to the next due time.

        `select` on the epoll handle, because it counts in microseconds where
        `epoll.poll` rounds up to milliseconds.
        """
        wait_s = self._sender.wait_s()
        if wait_s is None:
            self._log.flush()
        elif wait_s <= 0:
            return self._epoll.poll(0, _BATCH_INPUTS)
        elif wait_s > _COARSE_S:
            wait_s -= _EARLY_S
        ready, _, _ = select.select((self._epoll,), (), (), wait_s)
        return self._epoll.poll(0, _BATCH_INPUTS) if ready else ()

    def _settle(self) -> None:
        """Do for connections what the sender leaves to others."""
        sender = self._sender
        while sender.broken:
            self._drop(sender.broken.pop())
        while sender.blocked:
            self._await_room(sender.blocked.pop())
        while sender.freed:
            self._take_requests(sender.freed.pop())

    def _on_ready(self, handle: int, events: int) -> None:
        if handle == self._listener.fileno():
            self._accept()
        elif handle in self._connections:  # not the wake-up, nor one dropped in this round
            connection = self._connections[handle]
            if events & select.EPOLLOUT and self._send_rest(connection):
                self._go_on(connection)
            if events & ~select.EPOLLOUT:
                self._read(connection)

    def _accept(self) -> None:
        for _ in range(_BATCH_INPUTS):
            try:
                client, _ = self._listener.accept()
            except BlockingIOError:
                return
            client.setblocking(False)  # noqa: FBT003 - the library's own signature
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            stamp_receives(client)
            self._connections[client.fileno()] = Connection(client)
            self._epoll.register(client.fileno(), _READABLE)

    def _drop(self, connection: Connection) -> None:
        """Close a connection, once; what was on its way over it ends."""
        handle = connection.socket.fileno()
        if self._connections.pop(handle, None) is None:
            return
        if connection.stream is not None:
            self._sender.leave(connection.stream)
        self._epoll.unregister(handle)
        connection.socket.close()

    def _read(self, connection: Connection) -> None:
        ancillary: list[tuple[int, int, bytes]] = []
        try:
            data, ancillary, _, _ = connection.socket.recvmsg(_READ_BYTES, RECEIVE_STAMP_BYTES)
        except BlockingIOError:
            return
        except OSError:  # reset by the client
            data = b""
        connection.arrived_ns = _arrival_ns(ancillary)
        if not data:
            self._drop(connection)
            return
        connection.reader.feed(data)
        self._take_requests(connection)

    def _take_requests(self, connection: Connection) -> None:
        """Answer requests until one has an answer on its way, or none is left."""
        while connection.is_free:
            if connection.closing:
                self._drop(connection)
                return
            try:
                request = connection.reader.take()
            except BadRequest as error:
                connection.closing = True
                self._reply(connection, pages.error_page(error.status, str(error)))
                continue
            if request is None:
                return
            connection.closing = request.closes
            self._answer(connection, request)

    def _answer(self, connection: Connection, request: HttpRequest) -> None:
        route = _POSTS.get(request.path) if request.method == "POST" else None
        if route is None:
            state = pages.State(self._script.model, self.totals, self._log, self._sender.running())
            self._reply(connection, pages.page(f"{request.method} {request.path}", state))
            return
        try:
            work = self._work(route, request, connection.arrived_ns)
        except BadRequest as error:
            self._reply(connection, pages.error_page(error.status, str(error)))
            return
        self._sender.add(connection, work, answer(work, self._script, self._pace))

    def _work(self, route: Route, request: HttpRequest, arrived_ns: int) -> Work:
        ask = read_ask(route, request.body, self._script.model)
        self.totals.requests += 1
        self.totals.prompt_tokens += ask.prompt_tokens
        number = self.totals.requests
        return Work(
            ask=ask,
            number=number,
            key=request.headers.get("x-request-id", str(number)),
            arrived_ns=arrived_ns,
            created_s=int(SYSTEM_CLOCK.wall().timestamp()),
            faults=faults.hitting(self._script, number, stream=ask.stream),
        )

    def _reply(self, connection: Connection, data: bytes) -> None:
        """Send an answer that nothing schedules."""
        connection.unsent = data
        if not self._send_rest(connection):
            self._await_room(connection)

    def _await_room(self, connection: Connection) -> None:
        handle = connection.socket.fileno()
        if handle in self._connections:
            self._epoll.modify(handle, _READABLE | select.EPOLLOUT)

    def _send_rest(self, connection: Connection) -> bool:
        """Send what the socket did not take; return whether it has taken all now."""
        try:
            sent_bytes = connection.socket.send(connection.unsent)
        except BlockingIOError:
            return False
        except OSError:  # the client went away, which is its right
            self._drop(connection)
            return False
        connection.unsent = connection.unsent[sent_bytes:]
        return not connection.unsent

    def _go_on(self, connection: Connection) -> None:
        self._epoll.modify(connection.socket.fileno(), _READABLE)
        if connection.stream is None:
            self._take_requests(connection)
        else:
            self._sender.resume(connection.stream)


def _arrival_ns(ancillary: list[tuple[int, int, bytes]]) -> int:
    """Return when what was just read arrived: by the kernel if it says, else now."""
    now_ns = SYSTEM_CLOCK.now_ns()
    if not ancillary:
        return now_ns
    return min(now_ns, receive_stamp_ns(ancillary[0][2]) - realtime_offset_ns())


def _sharpen_timers() -> None:
    """Let this thread's sleeps end on time, where the kernel allows that to be set."""
    with contextlib.suppress(OSError):  # without it writes are later, which the log shows
        Path(f"/proc/{threading.get_native_id()}/timerslack_ns").write_text(
            str(_TIMER_SLACK_NS), encoding="ascii"
        )
