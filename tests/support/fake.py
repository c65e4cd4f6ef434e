"""The fake server inside the test process: on a thread of its own, on a free port."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from draftgate.engines.fake_server import FakeConfig, FakeServer
from draftgate.load.requests import Endpoint, PreparedRequest, prepare_chat
from draftgate.specs import SamplingParams


@dataclass(frozen=True, slots=True)
class OnePrompt:
    """A chat prompt of one user message."""

    prompt_id: str
    messages: tuple[tuple[str, str], ...]


def chat(text: str = "hello there", max_tokens: int = 8, **sampling: object) -> PreparedRequest:
    """Return a chat request to the fake server's model."""
    prompt = OnePrompt(f"p-{text}", (("user", text),))
    params = SamplingParams(max_tokens=max_tokens, **sampling)  # type: ignore[arg-type]
    return prepare_chat(prompt, "fake", params, cache_salt=None)


def endpoint(server: FakeServer) -> Endpoint:
    """Return where `server` listens."""
    return Endpoint(server.url, server.config.model)


@contextmanager
def fake_server(
    config: FakeConfig | None = None, *, on_death: Callable[[], None] | None = None
) -> Iterator[FakeServer]:
    """Yield a running server; its counts may be read from the test's thread.

    It runs on another thread, so it goes on while the test's own event loop
    or the test itself is busy.
    """
    started = threading.Event()
    box: list[tuple[FakeServer, asyncio.AbstractEventLoop, asyncio.Event]] = []

    async def serve() -> None:
        server, stop = FakeServer(config, on_death=on_death), asyncio.Event()
        await server.start()
        box.append((server, asyncio.get_running_loop(), stop))
        started.set()
        await stop.wait()
        await server.stop()

    thread = threading.Thread(target=asyncio.run, args=(serve(),), name="fake-server")
    thread.start()
    assert started.wait(10), "the fake server did not start"
    server, loop, stop = box[0]
    try:
        yield server
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(10)
        assert not thread.is_alive(), "the fake server did not stop"


@contextmanager
def raw_server(answer: bytes, *, keep_open: bool = False) -> Iterator[str]:
    """Yield the address of a server that answers any request with `answer` and closes.

    Args:
        answer: Every byte it sends.
        keep_open: Keep the connection open afterwards, until the client closes.
    """
    started = threading.Event()
    box: list[tuple[str, asyncio.AbstractEventLoop, asyncio.Event]] = []

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(65536)
        writer.write(answer)
        await writer.drain()
        if keep_open:
            await reader.read()
        writer.close()

    async def serve() -> None:
        server, stop = await asyncio.start_server(handle, "127.0.0.1", 0), asyncio.Event()
        port = server.sockets[0].getsockname()[1]
        box.append((f"http://127.0.0.1:{port}", asyncio.get_running_loop(), stop))
        started.set()
        await stop.wait()
        server.close()

    thread = threading.Thread(target=asyncio.run, args=(serve(),), name="raw-server")
    thread.start()
    assert started.wait(10), "the raw server did not start"
    url, loop, stop = box[0]
    try:
        yield url
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(10)
        assert not thread.is_alive(), "the raw server did not stop"
