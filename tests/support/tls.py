"""A TLS front for a plain test server, with a certificate of its own for 127.0.0.1."""

import asyncio
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

CERTIFICATE = Path(__file__).parents[1] / "unit" / "data" / "local-server.pem"
"""Self-signed, so it is its own authority."""

_WITH_KEY = CERTIFICATE.with_name("local-server-with-key.pem")


@contextmanager
def tls_front(port: int) -> Iterator[str]:
    """Yield an https address whose connections are passed on to `port` of this machine."""
    started = threading.Event()
    box: list[tuple[int, asyncio.AbstractEventLoop, asyncio.Event]] = []
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(_WITH_KEY)

    async def serve() -> None:
        server = await asyncio.start_server(_pass_on(port), "127.0.0.1", 0, ssl=context)
        stop = asyncio.Event()
        box.append((server.sockets[0].getsockname()[1], asyncio.get_running_loop(), stop))
        started.set()
        await stop.wait()
        server.close()

    thread = threading.Thread(target=asyncio.run, args=(serve(),), name="tls-front")
    thread.start()
    assert started.wait(10), "the TLS front did not start"
    own_port, loop, stop = box[0]
    try:
        yield f"https://127.0.0.1:{own_port}"
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(10)
        assert not thread.is_alive(), "the TLS front did not stop"


def _pass_on(port: int):  # type: ignore[no-untyped-def] # the callback's type is asyncio's own
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        inner_reader, inner_writer = await asyncio.open_connection("127.0.0.1", port)
        await asyncio.gather(_copy(reader, inner_writer), _copy(inner_reader, writer))

    return handle


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65536):
        writer.write(data)
    writer.close()
