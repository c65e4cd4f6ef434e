"""The null engine itself: one thread, one loop, non-blocking sockets.

The loop knows three things: a heap of due times, the sockets that are ready,
and the write that each answer says comes next. Everything else is decided
before: `http` reads requests, `answers` makes writes, `record` keeps what was
sent. Nothing polls: between two due times the thread sleeps in the kernel.
"""

import contextlib
import os
import select
import socket
import struct
import threading
from collections.abc import Iterable
from heapq import heappop, heappush, heapreplace
from pathlib import Path

from draftgate.clock import SYSTEM_CLOCK
from draftgate.errors import EngineError
from draftgate.null_engine import faults, pages
from draftgate.null_engine.answers import answer
from draftgate.null_engine.connection import Connection, Stream
from draftgate.null_engine.http import BadRequest, HttpRequest, read_ask
from draftgate.null_engine.pace import Pace
from draftgate.null_engine.record import COLUMNS, SendLog, StreamRecord
from draftgate.null_engine.script import Script
from draftgate.null_engine.writes import (
    BLOCKED,
    KIND_SHIFT,
    TOKENS_MASK,
    Ending,
    EventKind,
    Route,
    Work,
    Write,
)

_SERIAL_BITS = 32
_SERIAL_MASK = (1 << _SERIAL_BITS) - 1
_BATCH_SENDS = 64
"""Writes after which the loop looks for input: about 0.3 ms at 5 us each."""
_BATCH_INPUTS = 16
"""Ready sockets after which the loop looks for due writes: reading a request takes about 50 us."""
_COARSE_S, _EARLY_S = 0.002, 0.001
"""`select` may oversleep by a thousandth of its time, so long waits end early and are resumed."""
_TIMER_SLACK_NS = 1_000
"""The least that `PR_SET_TIMERSLACK` honours; the default of 50 us would be lateness."""
_READ_BYTES = 1 << 18
_BACKLOG = 4_096
_LINGER_RESET = struct.pack("ii", 1, 0)
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
    """

    def __init__(self, script: Script, *, log_path: Path | None = None) -> None:
        self.port = 0
        self.totals = pages.Totals()
        self._script = script
        self._now_ns = SYSTEM_CLOCK.now_ns
        self._origin_ns = self._latest_ns = self._now_ns()
        self._pace = Pace(script, self._origin_ns)
        self._log = SendLog(log_path)
        self._epoll = select.epoll()
        self._listener = socket.socket()
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._connections: dict[int, Connection] = {}
        self._streams: dict[int, Stream] = {}
        self._heap: list[int] = []
        self._freed: list[Connection] = []
        self._host = ""
        self._stopping = False
        self._thread: threading.Thread | None = None
        self._failure: BaseException | None = None

    @property
    def url(self) -> str:
        """Return the base address, without `/v1`."""
        return f"http://{self._host}:{self.port}"

    def bind(self, host: str = "127.0.0.1", port: int = 0) -> None:
        """Listen; port 0 takes a free one.

        Raises:
            EngineError: If the address cannot be had.
        """
        self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            self._listener.bind((host, port))
        except OSError as error:
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
                f"null engine: its loop failed: {self._failure!r}. This is a defect of draftgate."
            ) from self._failure

    def request_stop(self) -> None:
        """Let `run` return soon; safe in a signal handler."""
        self._stopping = True
        os.eventfd_write(self._wake, 1)

    def run(self) -> None:
        """Serve until `request_stop`; then close all connections and finish the log."""
        _sharpen_timers()
        try:
            while not self._stopping:
                self._send_due()
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
        for stream in self._streams.values():
            self._log.add(stream.record)
        for connection in self._connections.values():
            connection.socket.close()
        self._streams.clear()
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
        wait_s: float | None = None
        if self._heap:
            due_ns = (self._heap[0] >> _SERIAL_BITS) + self._origin_ns
            wait_s = (due_ns - self._now_ns()) / 1e9
            if wait_s <= 0:
                return self._epoll.poll(0, _BATCH_INPUTS)
            if wait_s > _COARSE_S:
                wait_s -= _EARLY_S
        else:
            self._log.flush()
        ready, _, _ = select.select((self._epoll,), (), (), wait_s)
        return self._epoll.poll(0, _BATCH_INPUTS) if ready else ()

    def _send_due(self) -> None:
        """Send what is due, up to a batch."""
        heap, streams, origin_ns, send = self._heap, self._streams, self._origin_ns, self._send
        left = _BATCH_SENDS
        self._latest_ns = self._now_ns()
        while heap and left and heap[0] >> _SERIAL_BITS <= self._latest_ns - origin_ns:
            left -= 1
            serial = heap[0] & _SERIAL_MASK
            stream = streams.get(serial)
            following = None if stream is None else send(stream)
            # Nothing that `send` does puts anything on the heap, so its top is still this one.
            if following is None:
                heappop(heap)
            else:
                heapreplace(heap, (following[0] - origin_ns) << _SERIAL_BITS | serial)
        if self._freed:
            freed, self._freed = self._freed, []
            for connection in freed:
                if connection.socket.fileno() in self._connections:
                    self._take_requests(connection)

    def _send(self, stream: Stream) -> Write | None:
        """Send the write that is due; return the next, or None if none is to be scheduled."""
        due_ns, data, note = stream.write
        if not data:
            return self._follow(stream)
        self._latest_ns = sent_ns = self._now_ns()
        try:
            sent_bytes = stream.send(data)
        except BlockingIOError:
            sent_bytes = 0
        except OSError:  # the client went away, which is its right
            self._drop(stream.connection)
            return None
        if sent_bytes != len(data):
            note |= BLOCKED
        append = stream.note
        append(due_ns)
        append(sent_ns)
        append(note)
        self.totals.generation_tokens += note & TOKENS_MASK
        if note & BLOCKED:
            self._block(stream.connection, data[sent_bytes:])
            return None
        write = next(stream.writes, None)
        if write is None:
            self._end(stream, Ending.COMPLETE)
            return None
        stream.write = write
        return write

    def _next_write(self, stream: Stream) -> Write | None:
        write = next(stream.writes, None)
        if write is None:
            self._end(stream, Ending.COMPLETE)
            return None
        stream.write = write
        return write

    def _follow(self, stream: Stream) -> Write | None:
        """Do what a write without bytes says: a command, or an event that went out before."""
        due_ns, _, note = stream.write
        record, kind = stream.record, note >> KIND_SHIFT
        is_command = kind >= EventKind.STALL
        sent_ns = self._now_ns() if is_command else record.rows[-COLUMNS + 1]
        record.rows.extend((due_ns, sent_ns, note))
        self.totals.generation_tokens += note & TOKENS_MASK
        if not is_command:
            return self._next_write(stream)
        if kind == EventKind.STALL:
            record.ending = Ending.STALLED
            return None
        connection = stream.connection
        if kind == EventKind.RESET:
            connection.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_RESET)
        self._end(stream, Ending.CLOSED)
        self._drop(connection)
        return None

    def _end(self, stream: Stream, ending: Ending) -> None:
        record, connection = stream.record, stream.connection
        if record.ending is Ending.OPEN:
            record.ending = ending
        del self._streams[stream.serial]
        self._log.add(record)
        connection.stream = None
        self._freed.append(connection)

    def _drop(self, connection: Connection) -> None:
        """Close a connection, once; what was on its way over it ends."""
        if self._connections.pop(connection.socket.fileno(), None) is None:
            return
        if connection.stream is not None:
            self._end(connection.stream, Ending.LEFT)
        self._epoll.unregister(connection.socket.fileno())
        connection.socket.close()

    def _on_ready(self, handle: int, events: int) -> None:
        if handle == self._listener.fileno():
            self._accept()
        elif handle in self._connections:  # not the wake-up, nor one dropped in this round
            connection = self._connections[handle]
            if events & select.EPOLLOUT:
                self._unblock(connection)
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
            self._connections[client.fileno()] = Connection(client)
            self._epoll.register(client.fileno(), _READABLE)

    def _read(self, connection: Connection) -> None:
        try:
            data = connection.socket.recv(_READ_BYTES)
        except BlockingIOError:
            return
        except OSError:  # reset by the client
            data = b""
        if not data:
            self._drop(connection)
            return
        connection.reader.feed(data)
        self._take_requests(connection)

    def _take_requests(self, connection: Connection) -> None:
        """Answer requests until one has an answer on its way, or none is left."""
        while connection.stream is None and not connection.unsent:
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
            self._reply(connection, self._page(request))
            return
        arrived_ns = self._now_ns()
        try:
            ask = read_ask(route, request.body, self._script.model)
        except BadRequest as error:
            self._reply(connection, pages.error_page(error.status, str(error)))
            return
        totals = self.totals
        totals.requests += 1
        totals.prompt_tokens += ask.prompt_tokens
        number = totals.requests
        work = Work(
            ask=ask,
            number=number,
            key=request.headers.get("x-request-id", str(number)),
            arrived_ns=arrived_ns,
            created_s=int(SYSTEM_CLOCK.wall().timestamp()),
            faults=faults.hitting(self._script, number, stream=ask.stream),
        )
        writes = answer(work, self._script, self._pace)
        serial = number & _SERIAL_MASK
        stream = Stream(serial, connection, writes, StreamRecord(work))
        connection.stream = self._streams[serial] = stream
        due_ns = stream.write[0]
        heappush(self._heap, (due_ns - self._origin_ns) << _SERIAL_BITS | serial)

    def _page(self, request: HttpRequest) -> bytes:
        running = tuple(stream.record for stream in self._streams.values())
        state = pages.State(self._script.model, self.totals, self._log, running)
        return pages.page(f"{request.method} {request.path}", state)

    def _reply(self, connection: Connection, data: bytes) -> None:
        try:
            sent_bytes = connection.socket.send(data)
        except BlockingIOError:
            sent_bytes = 0
        except OSError:  # the client went away, which is its right
            connection.closing = True
            return
        if sent_bytes != len(data):
            self._block(connection, data[sent_bytes:])

    def _block(self, connection: Connection, rest: bytes) -> None:
        connection.unsent = rest
        self._epoll.modify(connection.socket.fileno(), _READABLE | select.EPOLLOUT)

    def _unblock(self, connection: Connection) -> None:
        """Send more of what the socket did not take; go on once it took all."""
        try:
            sent_bytes = connection.socket.send(connection.unsent)
        except BlockingIOError:
            return
        except OSError:  # the client went away, which is its right
            self._drop(connection)
            return
        connection.unsent = connection.unsent[sent_bytes:]
        if connection.unsent:
            return
        self._epoll.modify(connection.socket.fileno(), _READABLE)
        stream = connection.stream
        if stream is None:
            self._take_requests(connection)
            return
        write = self._next_write(stream)
        if write is not None:
            due_ns = write[0] - self._origin_ns
            heappush(self._heap, due_ns << _SERIAL_BITS | stream.serial)


def _sharpen_timers() -> None:
    """Let this thread's sleeps end on time, where the kernel allows that to be set."""
    with contextlib.suppress(OSError):  # without it a write is some 50 us later, as the log shows
        Path(f"/proc/{threading.get_native_id()}/timerslack_ns").write_text(
            str(_TIMER_SLACK_NS), encoding="ascii"
        )
