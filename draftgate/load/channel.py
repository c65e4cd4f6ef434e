"""Connected sockets that stamp what they read and hand it on; plain and TLS.

A plain socket is read directly, so that the kernel's receive stamps come with
the bytes; TLS goes through the event loop's transport, without them. Knows
neither HTTP nor what is sent.
"""

import asyncio
import socket
import ssl
from typing import Protocol, cast

from draftgate.clock import RECEIVE_STAMP_BYTES, Clock, stamp_receives

_READ_BYTES = 65_536
"""Most that one read returns; a smaller buffer is no faster (tried: 4 KiB and
64 KiB alike)."""


class Receiver(Protocol):
    """Whoever waits for what a channel reads."""

    @property
    def ended(self) -> bool:
        """Whether it waits for nothing more."""

    @property
    def reusable(self) -> bool:
        """Whether the channel may carry another exchange afterwards."""

    def began(self, t_ns: int) -> None:
        """Note that sending began at `t_ns`."""

    def sent(self, t_ns: int) -> None:
        """Note that the last byte was handed over at `t_ns`."""

    def take(self, read_ns: int, stamp: bytes | None, data: bytes) -> None:
        """Keep one read: its stamp, the kernel's as it came, the bytes."""

    def lost(self, error: Exception | None) -> None:
        """Note that the connection is gone."""


class Channel(Protocol):
    """A connected socket that hands each read to the receiver that waits for it."""

    @property
    def usable(self) -> bool:
        """Whether another request may be sent on it."""

    def send(self, message: bytes, receiver: Receiver) -> None:
        """Write `message`; `receiver` gets the reads and the stamp of having sent."""

    def release(self, receiver: Receiver) -> None:
        """Let go of an ended receiver; close unless the connection can be used again."""

    async def close(self) -> None:
        """Close and wait until the socket is gone."""


async def open_channel(host: str, port: int, tls: ssl.SSLContext | None, clock: Clock) -> Channel:
    """Connect, trying each address of the host in turn.

    Raises:
        OSError: If none can be reached, or its certificate is not accepted.
    """
    loop = asyncio.get_running_loop()
    if tls is not None:
        # Receive stamps belong to encrypted records, not to what is in them.
        _, protocol = await loop.create_connection(lambda: _TlsChannel(clock), host, port, ssl=tls)
        return protocol
    infos = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    failed: OSError | None = None
    for family, kind, protocol_number, _, address in infos:
        sock = socket.socket(family, kind, protocol_number)
        try:
            sock.settimeout(0)  # non-blocking
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await loop.sock_connect(sock, address)
        except OSError as error:
            sock.close()
            failed = error
        except BaseException:
            sock.close()
            raise
        else:
            return _SocketChannel(sock, clock)
    raise failed if failed is not None else OSError(f"{host!r} has no address")


class _SocketChannel:
    """A plain socket, read directly, with the kernel's receive stamps."""

    def __init__(self, sock: socket.socket, clock: Clock) -> None:
        stamp_receives(sock)
        self._sock = sock
        self._loop = asyncio.get_running_loop()
        self._receiver: Receiver | None = None
        self._unsent = memoryview(b"")
        self._now_ns = clock.now_ns
        self._recvmsg = sock.recvmsg
        self._open = True
        self._loop.add_reader(sock.fileno(), self._readable)

    @property
    def usable(self) -> bool:
        """Whether another request may be sent on it."""
        return self._open

    def send(self, message: bytes, receiver: Receiver) -> None:
        """Write `message`, now as far as the socket takes it, the rest when it can."""
        assert self._receiver is None, "one exchange at a time"
        self._receiver = receiver
        receiver.began(self._now_ns())
        self._unsent = memoryview(message)
        self._write()

    def release(self, receiver: Receiver) -> None:
        """Let go of an ended receiver; close unless the connection can be used again."""
        self._receiver = None
        if not receiver.reusable or len(self._unsent):
            self._shut()

    async def close(self) -> None:
        """Close the socket."""
        self._shut()

    def _readable(self) -> None:
        try:
            data, ancillary, _, _ = self._recvmsg(_READ_BYTES, RECEIVE_STAMP_BYTES)
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self._lost(error)
            return
        read_ns = self._now_ns()
        receiver = self._receiver
        if not data:
            self._lost(None)
        elif receiver is None or receiver.ended:  # bytes that nobody asked for
            self._shut()
        else:
            receiver.take(read_ns, ancillary[0][2] if ancillary else None, data)

    def _write(self) -> None:
        receiver = self._receiver
        try:
            taken = self._sock.send(self._unsent)
        except (BlockingIOError, InterruptedError):
            taken = 0
        except OSError as error:
            self._lost(error)
            return
        self._unsent = self._unsent[taken:]
        if len(self._unsent):
            self._loop.add_writer(self._sock.fileno(), self._write)
            return
        self._loop.remove_writer(self._sock.fileno())
        if receiver is not None:
            receiver.sent(self._now_ns())

    def _lost(self, error: OSError | None) -> None:
        receiver = self._receiver
        self._shut()
        if receiver is not None:
            receiver.lost(error)

    def _shut(self) -> None:
        if self._open:
            self._open = False
            self._loop.remove_reader(self._sock.fileno())
            self._loop.remove_writer(self._sock.fileno())
            self._sock.close()


class _TlsChannel(asyncio.Protocol):
    """A TLS connection, read through the event loop's own transport."""

    def __init__(self, clock: Clock) -> None:
        self._now_ns = clock.now_ns
        self._transport: asyncio.Transport | None = None
        self._receiver: Receiver | None = None
        self._closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    @property
    def usable(self) -> bool:
        """Whether another request may be sent on it."""
        transport = self._transport
        return transport is not None and not transport.is_closing() and not self._closed.done()

    def send(self, message: bytes, receiver: Receiver) -> None:
        """Write `message`; it counts as sent once the transport has it."""
        assert self._transport is not None, "connection_made runs before create_connection returns"
        assert self._receiver is None, "one exchange at a time"
        self._receiver = receiver
        self._transport.write(message)
        receiver.sent(self._now_ns())

    def release(self, receiver: Receiver) -> None:
        """Let go of an ended receiver; close unless the connection can be used again."""
        self._receiver = None
        if not receiver.reusable and self._transport is not None:
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
        """Stamp the read and hand it on."""
        read_ns = self._now_ns()
        receiver = self._receiver
        if receiver is not None and not receiver.ended:
            receiver.take(read_ns, None, data)
        elif self._transport is not None:  # bytes that nobody asked for
            self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell the waiting receiver and whoever waits for the close."""
        if self._receiver is not None:
            self._receiver.lost(exc)
        if not self._closed.done():
            self._closed.set_result(None)
