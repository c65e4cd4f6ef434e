"""One connection of a null engine, and the answer that is on its way over it.

Holds state only; `engine` reads, sends and decides.
"""

import socket
from collections.abc import Iterator

from draftgate.null_engine.http import RequestReader
from draftgate.null_engine.record import StreamRecord
from draftgate.null_engine.writes import Write


class Connection:
    """A client's connection.

    Attributes:
        socket: Its socket, non-blocking.
        reader: Cuts what comes in into requests.
        stream: The answer on its way, if any.
        unsent: Bytes that the socket did not take yet.
        arrived_ns: When it was last read from, monotonic clock.
        closing: Close once the answer is out.
    """

    __slots__ = ("arrived_ns", "closing", "reader", "socket", "stream", "unsent")

    def __init__(self, sock: socket.socket) -> None:
        self.socket = sock
        self.reader = RequestReader()
        self.stream: Stream | None = None
        self.unsent = b""
        self.arrived_ns = 0
        self.closing = False

    @property
    def is_free(self) -> bool:
        """Return whether it is open and has no answer on its way."""
        return self.stream is None and not self.unsent and self.socket.fileno() >= 0


class Stream:
    """One answer on its way.

    Attributes:
        serial: Its key in the engine's heap.
        connection: Where it goes.
        send: The socket's own send, bound once.
        writes: What is yet to come.
        write: What goes out next.
        record: What went out.
        note: Appends to the record, bound once.
    """

    __slots__ = ("connection", "note", "record", "send", "serial", "write", "writes")

    def __init__(
        self, serial: int, connection: Connection, writes: Iterator[Write], record: StreamRecord
    ) -> None:
        self.serial = serial
        self.connection = connection
        self.send = connection.socket.send
        self.writes = writes
        self.write = next(writes)
        self.record = record
        self.note = record.rows.append
