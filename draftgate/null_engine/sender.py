"""Sends the writes of all answers when they are due, and keeps the record of it.

A heap of due times and the streams behind them. Knows sockets only by their
`send`: a connection that needs something else (to be waited for, closed, or
read again) is put on a list that the engine works off.
"""

import socket
import struct
from collections.abc import Iterator
from heapq import heappop, heappush, heapreplace

from draftgate.clock import SYSTEM_CLOCK
from draftgate.null_engine.connection import Connection, Stream
from draftgate.null_engine.pages import Totals
from draftgate.null_engine.record import COLUMNS, SendLog, StreamRecord
from draftgate.null_engine.writes import (
    BLOCKED,
    KIND_SHIFT,
    TOKENS_MASK,
    Ending,
    EventKind,
    Work,
    Write,
)

_SERIAL_BITS = 32
_SERIAL_MASK = (1 << _SERIAL_BITS) - 1
_BATCH_SENDS = 64
"""Writes after which the engine looks for input: about 0.4 ms at 6 us each."""
_LINGER_RESET = struct.pack("ii", 1, 0)


class Sender:
    """All answers that are on their way.

    Args:
        log: Where the record of an answer goes when it ends.
        totals: What is counted on the way.

    Attributes:
        freed: Connections whose answer has ended.
        blocked: Connections that did not take all bytes; the rest is theirs.
        broken: Connections to be closed.
    """

    def __init__(self, log: SendLog, totals: Totals) -> None:
        self.freed: list[Connection] = []
        self.blocked: list[Connection] = []
        self.broken: list[Connection] = []
        self._log = log
        self._totals = totals
        self._now_ns = SYSTEM_CLOCK.now_ns
        self._origin_ns = self._latest_ns = self._now_ns()
        self._streams: dict[int, Stream] = {}
        # Due time after the origin, then the stream's serial, in one number: quicker to compare
        # than a tuple. A stream that is gone leaves its number behind until that is due.
        self._heap: list[int] = []

    def add(self, connection: Connection, work: Work, writes: Iterator[Write]) -> None:
        """Begin to send an answer over a connection that is free."""
        serial = work.number & _SERIAL_MASK
        stream = Stream(serial, connection, writes, StreamRecord(work))
        connection.stream = self._streams[serial] = stream
        self._schedule(stream)

    def wait_s(self) -> float | None:
        """Return the time until something is due, <= 0 if something is; None if nothing ever is."""
        if not self._heap:
            return None
        due_ns = (self._heap[0] >> _SERIAL_BITS) + self._origin_ns
        return (due_ns - self._now_ns()) / 1e9

    def running(self) -> tuple[StreamRecord, ...]:
        """Return the records of the answers on their way."""
        return tuple(stream.record for stream in self._streams.values())

    def send_due(self) -> None:
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

    def resume(self, stream: Stream) -> None:
        """Go on with a stream whose connection has taken all bytes at last."""
        if self._next_write(stream) is not None:
            self._schedule(stream)

    def leave(self, stream: Stream) -> None:
        """End a stream whose client went away."""
        self._end(stream, Ending.LEFT)

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
            self.broken.append(stream.connection)
            return None
        if sent_bytes != len(data):
            note |= BLOCKED
        append = stream.note
        append(due_ns)
        append(sent_ns)
        append(note)
        self._totals.generation_tokens += note & TOKENS_MASK
        if note & BLOCKED:
            stream.connection.unsent = data[sent_bytes:]
            self.blocked.append(stream.connection)
            return None
        return self._next_write(stream)

    def _next_write(self, stream: Stream) -> Write | None:
        write = next(stream.writes, None)
        if write is None:
            self._end(stream, Ending.COMPLETE)
        else:
            stream.write = write
        return write

    def _follow(self, stream: Stream) -> Write | None:
        """Do what a write without bytes says: a command, or an event that went out before."""
        due_ns, _, note = stream.write
        record, kind = stream.record, note >> KIND_SHIFT
        is_command = kind >= EventKind.STALL
        sent_ns = self._now_ns() if is_command else record.rows[-COLUMNS + 1]
        record.rows.extend((due_ns, sent_ns, note))
        self._totals.generation_tokens += note & TOKENS_MASK
        if not is_command:
            return self._next_write(stream)
        if kind == EventKind.STALL:
            record.ending = Ending.STALLED
            return None
        connection = stream.connection
        if kind == EventKind.RESET:
            connection.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_RESET)
        self._end(stream, Ending.CLOSED)
        self.broken.append(connection)
        return None

    def _end(self, stream: Stream, ending: Ending) -> None:
        record, connection = stream.record, stream.connection
        if record.ending is Ending.OPEN:
            record.ending = ending
        del self._streams[stream.serial]
        self._log.add(record)
        connection.stream = None
        self.freed.append(connection)

    def _schedule(self, stream: Stream) -> None:
        due_ns = stream.write[0] - self._origin_ns
        heappush(self._heap, due_ns << _SERIAL_BITS | stream.serial)
