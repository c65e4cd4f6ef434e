"""One connection and the exchanges on it: write a request, stamp each read.

Knows HTTP/1.1 and the clock; knows nothing of JSON, events or tokens. The
receive path takes one stamp per read and appends; `draftgate.load.parse` makes
sense of it after the run. A request is sent once and never again.
"""

import asyncio
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

import httptools

from draftgate.clock import Clock
from draftgate.load.requests import Endpoint, PreparedRequest
from draftgate.records import Failure, FailureKind

_SHORTEST_TIMER_S = 0.001
"""Resolution of the event loop's timers (libuv counts milliseconds)."""

Reads = tuple[tuple[int, bytes], ...]


@dataclass(frozen=True, slots=True)
class RawExchange:
    """What one request brought back, unparsed.

    Attributes:
        sent_ns: When the request's last byte was handed to the socket; when
            it was never sent, the time at which the attempt began.
        ended_ns: When the last byte arrived, or the failure was noticed.
        status: HTTP status; None if none arrived.
        reads: Body bytes in order, each with the stamp of its read.
        error: What ended it early; None if the response arrived in full,
            whatever its status says.
    """

    sent_ns: int
    ended_ns: int
    status: int | None
    reads: Reads
    error: Failure | None

    @property
    def answered(self) -> bool:
        """Return whether a whole response with status 200 arrived."""
        return self.error is None and self.status == 200


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
        SpecError: If the endpoint's key variable is unset.
    """

    def __init__(self, endpoint: Endpoint, clock: Clock, *, stall_timeout_s: float) -> None:
        self.connects = 0
        self._ended_bytes = 0
        self._response: _Response | None = None
        self._endpoint = endpoint
        self._clock = clock
        self._stall_timeout_s = stall_timeout_s
        self._headers = _fixed_headers(endpoint)
        self._ssl = ssl.create_default_context() if endpoint.address.scheme == "https" else None
        self._protocol: _StreamProtocol | None = None

    @property
    def body_bytes(self) -> int:
        """Return the body bytes received so far, the open exchange included."""
        return self._ended_bytes + (self._response.body_bytes if self._response else 0)

    async def exchange(
        self,
        request: PreparedRequest,
        *,
        deadline_ns: int | None = None,
        on_first_byte: Callable[[int], None] | None = None,
    ) -> RawExchange:
        """Send `request`, wait for the end of its response and return it.

        The next request is the caller's affair. The exchange's times leave
        out connecting, which happens before `sent_ns`.

        Args:
            request: What to send.
            deadline_ns: Time of the clock after which the exchange is given up.
            on_first_byte: Called with the stamp of the first body byte of a
                response with status 200; it runs in the receive path.

        Returns:
            The exchange, failed or not; only cancellation raises.
        """
        began_ns = self._clock.now_ns()
        try:
            protocol = await self._connected(began_ns, deadline_ns)
        except OSError as error:  # refused, unresolved, timed out, bad certificate
            return self._never_sent(began_ns, deadline_ns, error)
        self._response = response = _Response(self._clock, on_first_byte)
        try:
            sent_ns = protocol.send(self._message(request), response)
            watchdog = _Watchdog(response, self._clock, self._stall_timeout_s, deadline_ns)
            try:
                await response.done
            finally:
                watchdog.stop()
        finally:
            self._ended_bytes += response.body_bytes
            self._response = None
            protocol.release(response)
        return RawExchange(
            sent_ns, response.ended_ns, response.status, tuple(response.reads), response.error
        )

    async def close(self) -> None:
        """Close the socket, if any, and return once it is closed."""
        protocol, self._protocol = self._protocol, None
        if protocol is not None:
            await protocol.close()

    def _message(self, request: PreparedRequest) -> bytes:
        prefix = self._endpoint.address.path.rstrip("/")
        first = f"POST {prefix}{request.path} HTTP/1.1\r\n".encode()
        last = f"Content-Length: {len(request.body)}\r\n\r\n".encode()
        return first + self._headers + last + request.body

    async def _connected(self, now_ns: int, deadline_ns: int | None) -> "_StreamProtocol":
        if self._protocol is not None and self._protocol.usable:
            return self._protocol
        await self.close()
        limit_s = self._stall_timeout_s
        if deadline_ns is not None:
            limit_s = min(limit_s, (deadline_ns - now_ns) / 1e9)
        address = self._endpoint.address
        assert address.hostname is not None, "checked by Endpoint"
        port = address.port or (443 if self._ssl else 80)
        async with asyncio.timeout(limit_s):
            _, protocol = await asyncio.get_running_loop().create_connection(
                lambda: _StreamProtocol(self._clock), address.hostname, port, ssl=self._ssl
            )
        self.connects += 1
        self._protocol = protocol
        return protocol

    def _never_sent(self, began_ns: int, deadline_ns: int | None, error: OSError) -> RawExchange:
        now_ns = self._clock.now_ns()
        kind, reason = FailureKind.CONNECT, str(error) or type(error).__name__
        if isinstance(error, TimeoutError):
            reason = f"no connection after {(now_ns - began_ns) / 1e9:.1f} s"
            if deadline_ns is not None and now_ns >= deadline_ns:
                kind = FailureKind.DEADLINE
        failure = Failure(kind, f"cannot connect to {self._endpoint.address.netloc}: {reason}")
        return RawExchange(began_ns, now_ns, None, (), failure)


def _fixed_headers(endpoint: Endpoint) -> bytes:
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
    """State of one response; its `on_` methods are httptools callbacks."""

    __slots__ = (
        "_clock",
        "_encoding",
        "_length_known",
        "_on_first_byte",
        "body_bytes",
        "done",
        "ended_ns",
        "error",
        "keep_alive",
        "parser",
        "reads",
        "stamp_ns",
        "status",
    )

    def __init__(self, clock: Clock, on_first_byte: Callable[[int], None] | None) -> None:
        self.parser = httptools.HttpResponseParser(self)
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.reads: list[tuple[int, bytes]] = []
        self.body_bytes = 0
        self.stamp_ns = 0
        self.ended_ns = 0
        self.status: int | None = None
        self.error: Failure | None = None
        self.keep_alive = False
        self._clock = clock
        self._on_first_byte = on_first_byte
        self._length_known = False
        self._encoding = b"identity"

    def on_header(self, name: bytes, value: bytes) -> None:
        """Note how the body's end will be told, and whether it is plain."""
        lowered = name.lower()
        if lowered in {b"content-length", b"transfer-encoding"}:
            self._length_known = True
        elif lowered == b"content-encoding":
            self._encoding = value.lower()

    def on_headers_complete(self) -> None:
        """Note the status; refuse a body that was compressed unasked."""
        self.status = self.parser.get_status_code()
        if self._encoding != b"identity":
            self.fail(
                FailureKind.MALFORMED,
                f"the body is encoded as {self._encoding.decode('latin-1')!r}, though only "
                "identity was accepted; look for a proxy that compresses",
            )

    def on_body(self, body: bytes) -> None:
        """Keep the bytes with the stamp of their read."""
        if self._on_first_byte is not None and not self.reads and self.status == 200:
            self._on_first_byte(self.stamp_ns)
        self.reads.append((self.stamp_ns, body))
        self.body_bytes += len(body)

    def on_message_complete(self) -> None:
        """End well, at the stamp of the last read."""
        self.keep_alive = self.parser.should_keep_alive()  # the parser forgets it on return
        self._end(self.stamp_ns, None)

    def fail(self, kind: FailureKind, message: str) -> None:
        """End now, with a failure; a response that has ended stays as it is."""
        self._end(self._clock.now_ns(), Failure(kind, message))

    def lost(self, error: Exception | None) -> None:
        """End because the connection is gone: well only if that was to tell the end."""
        if error is None and self.status is not None and not self._length_known:
            self._end(self._clock.now_ns(), None)
            return
        where = "before it answered" if self.status is None else "inside the response"
        reason = f": {error}" if error is not None else ""
        self.fail(FailureKind.EARLY_END, f"the server closed the connection {where}{reason}")

    def _end(self, t_ns: int, error: Failure | None) -> None:
        if not self.done.done():
            self.ended_ns = t_ns
            self.error = error
            self.done.set_result(None)


class _StreamProtocol(asyncio.Protocol):
    """The socket's side: hands each read to the response that waits for it."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._transport: asyncio.Transport | None = None
        self._response: _Response | None = None
        self._closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    @property
    def usable(self) -> bool:
        """Return whether another request may be sent on this connection."""
        transport = self._transport
        return transport is not None and not transport.is_closing() and not self._closed.done()

    def send(self, message: bytes, response: _Response) -> int:
        """Write `message` for `response` and return the stamp of having done so."""
        assert self._transport is not None, "connection_made runs before create_connection returns"
        assert self._response is None, "one exchange at a time"
        self._response = response
        self._transport.write(message)
        response.stamp_ns = self._clock.now_ns()
        return response.stamp_ns

    def release(self, response: _Response) -> None:
        """Let go of an ended response; close unless the connection can be used again."""
        self._response = None
        reusable = response.keep_alive and response.error is None
        if not reusable and self._transport is not None:
            self._transport.abort()

    async def close(self) -> None:
        """Close and wait until the socket is gone."""
        if self._transport is not None:
            self._transport.abort()
            await self._closed

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop's does not inherit it

    def data_received(self, data: bytes) -> None:
        """Stamp the read and feed it to the waiting response."""
        stamp_ns = self._clock.now_ns()
        response = self._response
        if response is None or response.done.done():  # bytes that nobody asked for
            if self._transport is not None:
                self._transport.abort()
            return
        response.stamp_ns = stamp_ns
        try:
            response.parser.feed_data(data)
        except httptools.HttpParserCallbackError:  # a fault of ours, not of the server
            raise
        except httptools.HttpParserError as error:
            response.fail(FailureKind.MALFORMED, f"not an HTTP/1.1 response: {error}")

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell the waiting response and whoever waits for the close."""
        if self._response is not None:
            self._response.lost(exc)
        if not self._closed.done():
            self._closed.set_result(None)


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
