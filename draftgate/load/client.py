"""One connection and the exchanges on it: write a request, stamp each read.

Knows HTTP/1.1's framing and the clock; knows nothing of JSON, events or tokens.
The receive path stamps, appends and asks the scanner whether that was the end;
`draftgate.load.wire` and `draftgate.load.parse` make sense of the bytes after
the run. A request is sent once and never again.
"""

import asyncio
from collections.abc import Callable

from draftgate.clock import Clock, realtime_offset_ns
from draftgate.load.channel import Channel, open_channel
from draftgate.load.http1 import HttpError, ResponseScanner
from draftgate.load.requests import Endpoint, PreparedRequest
from draftgate.load.wire import WireExchange, WireRead, arrival_ns
from draftgate.records import Failure, FailureKind

_SHORTEST_TIMER_S = 0.001
"""Resolution of the event loop's timers (libuv counts milliseconds)."""

FirstByte = Callable[[int], None]


class StreamConnection:
    """The one connection of one stream, opened when needed and kept alive.

    Args:
        endpoint: Where to connect.
        clock: Source of every stamp.
        stall_timeout_s: Silence after which an exchange is given up; also the
            longest time that connecting may take.

    Attributes:
        connects: Connections opened so far; 1 as long as keep-alive holds.

    Raises:
        SpecError: If the endpoint's key variable is unset, or its certificate
            file cannot be read.
    """

    def __init__(self, endpoint: Endpoint, clock: Clock, *, stall_timeout_s: float) -> None:
        self.connects = 0
        self._ended_bytes = 0
        self._response: _Response | None = None
        self._clock = clock
        self._stall_timeout_s = stall_timeout_s
        self._prefix = endpoint.address.path.rstrip("/")
        self._headers = _fixed_headers(endpoint)
        self._ssl = endpoint.ssl_context()
        host = endpoint.address.hostname
        assert host is not None, "checked by Endpoint"
        self._host = host
        self._port = endpoint.address.port or (443 if self._ssl else 80)
        self._channel: Channel | None = None

    @property
    def body_bytes(self) -> int:
        """Return the bytes received so far, the open exchange included."""
        return self._ended_bytes + (self._response.received_bytes if self._response else 0)

    @property
    def usable(self) -> bool:
        """Return whether a request can be sent without connecting first."""
        return self._channel is not None and self._channel.usable

    async def connect(self, *, deadline_ns: int | None = None) -> None:
        """Open the connection unless it is open.

        Raises:
            OSError: If that fails or takes too long.
        """
        if self._channel is not None:
            if self._channel.usable:
                return
            await self.close()
        limit_s = self._stall_timeout_s
        if deadline_ns is not None:
            limit_s = min(limit_s, (deadline_ns - self._clock.now_ns()) / 1e9)
        async with asyncio.timeout(limit_s):
            self._channel = await open_channel(self._host, self._port, self._ssl, self._clock)
        self.connects += 1

    async def exchange(
        self,
        request: PreparedRequest,
        *,
        deadline_ns: int | None = None,
        on_first_byte: FirstByte | None = None,
    ) -> WireExchange:
        """Send `request`, wait for the end of its response and return it.

        The next request is the caller's affair. The exchange's times leave
        out connecting, which happens before `sent_ns`.

        Args:
            request: What to send.
            deadline_ns: Time of the clock after which the exchange is given up.
            on_first_byte: Called with the stamp of the first read of a response
                with status 200 that holds part of its body; it runs in the
                receive path.

        Returns:
            The exchange, failed or not; only cancellation raises.
        """
        began_ns = self._clock.now_ns()
        try:
            await self.connect(deadline_ns=deadline_ns)
        except OSError as error:  # refused, unresolved, timed out, bad certificate
            return self._never_sent(began_ns, deadline_ns, error)
        channel = self._channel
        assert channel is not None, "connect raises or leaves one"
        offset_ns = realtime_offset_ns()
        self._response = response = _Response(self._clock, offset_ns, on_first_byte)
        try:
            channel.send(self._message(request), response)
            watchdog = _Watchdog(response, self._clock, self._stall_timeout_s, deadline_ns)
            try:
                await response.done
            finally:
                watchdog.stop()
        finally:
            self._ended_bytes += response.received_bytes
            self._response = None
            channel.release(response)
        return response.exchange((offset_ns, realtime_offset_ns()))

    async def close(self) -> None:
        """Close the socket, if any, and return once it is closed."""
        channel, self._channel = self._channel, None
        if channel is not None:
            await channel.close()

    def _message(self, request: PreparedRequest) -> bytes:
        first = f"POST {self._prefix}{request.path} HTTP/1.1\r\n".encode()
        last = f"Content-Length: {len(request.body)}\r\n\r\n".encode()
        return first + self._headers + last + request.body

    def _never_sent(self, began_ns: int, deadline_ns: int | None, error: OSError) -> WireExchange:
        now_ns = self._clock.now_ns()
        kind, reason = FailureKind.CONNECT, str(error) or type(error).__name__
        if isinstance(error, TimeoutError):
            reason = f"no connection after {(now_ns - began_ns) / 1e9:.1f} s"
            if deadline_ns is not None and now_ns >= deadline_ns:
                kind = FailureKind.DEADLINE
        message = f"connecting to {self._host}:{self._port}: {reason}"
        return WireExchange(began_ns, now_ns, None, (), Failure(kind, message))


def _fixed_headers(endpoint: Endpoint) -> bytes:
    """Return the header lines that all requests of a connection share."""
    lines = [
        f"Host: {endpoint.address.netloc}",
        "User-Agent: draftgate",
        "Content-Type: application/json",
        "Accept: text/event-stream",
        "Accept-Encoding: identity",
    ]
    key = endpoint.api_key()
    if key is not None:
        lines.append(f"Authorization: Bearer {key}")
    return "".join(f"{line}\r\n" for line in lines).encode()


class _Response:
    """State of one response, fed by the channel it comes through."""

    __slots__ = (
        "_began_ns",
        "_clock",
        "_feed",
        "_is_new",
        "_offset_ns",
        "_on_first_byte",
        "done",
        "ended_ns",
        "error",
        "reads",
        "received_bytes",
        "scanner",
        "sent_ns",
    )

    def __init__(self, clock: Clock, offset_ns: int, on_first_byte: FirstByte | None) -> None:
        self.scanner = ResponseScanner()
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.reads: list[WireRead] = []
        self.received_bytes = 0
        self.sent_ns = 0
        self._began_ns = 0
        self.ended_ns = 0
        self.error: Failure | None = None
        self._clock = clock
        self._offset_ns = offset_ns
        self._feed = self.scanner.feed
        self._on_first_byte = on_first_byte
        self._is_new = True

    @property
    def stamp_ns(self) -> int:
        """Return when something happened last: a read, or the request's sending."""
        return self.reads[-1][0] if self.reads else max(self._began_ns, self.sent_ns)

    @property
    def status(self) -> int | None:
        """Return the HTTP status; None before the head is complete."""
        head = self.scanner.head
        return head.status if head is not None else None

    @property
    def reusable(self) -> bool:
        """Return whether the connection may carry another request."""
        head = self.scanner.head
        return self.error is None and head is not None and head.keep_alive

    @property
    def ended(self) -> bool:
        """Return whether nothing more is waited for."""
        return self.done.done()

    def began(self, t_ns: int) -> None:
        """Note that sending began at `t_ns`; silence counts from here."""
        self._began_ns = t_ns

    def sent(self, t_ns: int) -> None:
        """Note that the request's last byte was handed over at `t_ns`."""
        self.sent_ns = t_ns

    def take(self, read_ns: int, stamp: bytes | None, data: bytes) -> None:
        """Keep one read; end if it completes the response. The hot path."""
        self.reads.append((read_ns, stamp, data))
        self.received_bytes += len(data)
        try:
            complete = self._feed(data)
        except HttpError as error:
            self.fail(FailureKind.MALFORMED, f"not an HTTP/1.1 response: {error}")
            return
        if self._is_new:
            self._look_at_head(read_ns)
        if complete:
            self._complete()

    def fail(self, kind: FailureKind, message: str) -> None:
        """End now, with a failure; a response that has ended stays as it is."""
        self._end(self._clock.now_ns(), Failure(kind, message))

    def lost(self, error: Exception | None) -> None:
        """End because the connection is gone: well only if that was to tell the end."""
        if error is None and self.scanner.eof():
            self._end_well()
            return
        where = "before it answered" if self.status is None else "inside the response"
        reason = f": {error}" if error is not None else ""
        self.fail(FailureKind.EARLY_END, f"the server closed the connection {where}{reason}")

    def exchange(self, offsets_ns: tuple[int, int]) -> WireExchange:
        """Return what was seen, once it has ended."""
        reads = tuple(self.reads)
        sent_ns = self.sent_ns or self.ended_ns
        return WireExchange(sent_ns, self.ended_ns, self.status, reads, self.error, offsets_ns)

    def _look_at_head(self, read_ns: int) -> None:
        """Refuse a body that was compressed unasked; tell the body's first byte."""
        head = self.scanner.head
        if head is None:
            return
        if head.encoding != "identity":
            self._is_new = False
            self.fail(
                FailureKind.MALFORMED,
                f"the body is encoded as {head.encoding!r}, though only identity was accepted; "
                "look for a proxy that compresses",
            )
        elif self.scanner.body_started:
            self._is_new = False
            if self._on_first_byte is not None and head.status == 200:
                self._on_first_byte(read_ns)

    def _complete(self) -> None:
        extra = self.scanner.extra
        if extra:
            self.fail(FailureKind.MALFORMED, f"{extra} bytes came after the response's end")
        else:
            self._end_well()

    def _end_well(self) -> None:
        """End when the last byte arrived, as the records will have it."""
        last = self.reads[-1]
        arrived_ns = arrival_ns(last, self.sent_ns, self._offset_ns)
        self._end(last[0] if arrived_ns is None else arrived_ns, None)

    def _end(self, t_ns: int, error: Failure | None) -> None:
        if not self.done.done():
            self.ended_ns = t_ns
            self.error = error
            self.done.set_result(None)


class _Watchdog:
    """Fails a response that is silent for too long or runs past its deadline."""

    def __init__(
        self, response: _Response, clock: Clock, stall_timeout_s: float, deadline_ns: int | None
    ) -> None:
        self._response = response
        self._clock = clock
        self._stall_ns = round(stall_timeout_s * 1e9)
        self._deadline_ns = deadline_ns
        self._timer: asyncio.TimerHandle | None = None
        self._look()

    def stop(self) -> None:
        """Look no more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        now_ns = self._clock.now_ns()
        left_ns = self._response.stamp_ns + self._stall_ns - now_ns
        if self._deadline_ns is not None:
            if now_ns >= self._deadline_ns:
                self._response.fail(FailureKind.DEADLINE, "open when the run's time was up")
                return
            left_ns = min(left_ns, self._deadline_ns - now_ns)
        if left_ns <= 0:
            silence = f"no byte for {self._stall_ns / 1e9:g} s (stall_timeout_s)"
            self._response.fail(FailureKind.STALLED, silence)
            return
        delay_s = max(left_ns / 1e9, _SHORTEST_TIMER_S)
        self._timer = asyncio.get_running_loop().call_later(delay_s, self._look)
