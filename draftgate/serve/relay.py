"""One request to the engine and its answer back, byte for byte.

Parses no chunk: what arrives is passed on as it is, when it arrives. The client library is
aiohttp: for each chunk it took a third of the processor time of httpx (docs/serve.md).
"""

import os
from collections.abc import Callable
from dataclasses import dataclass

import aiohttp
from starlette.types import Send

from draftgate.clock import Clock
from draftgate.errors import EngineError
from draftgate.serve.exchange import Exchange

CONNECT_TIMEOUT_S = 5.0
"""To have a connection. The engine's answer may take as long as it takes: a long prompt is silent
for minutes, and a dead engine closes its connections."""

_IDLE_S = 2.0
"""How long an idle connection is kept: well under the 5 s after which uvicorn, under vLLM and
SGLang, closes one, so that no request goes out on a connection that is being closed. To open one
was half of what a request cost."""

_NOT_PASSED = frozenset(
    {
        "connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "te", "trailer",
        "transfer-encoding", "upgrade", "date", "server", "set-cookie", "location",
    }
)  # fmt: skip
"""Headers of an answer that stay here: those of one hop (RFC 9110, 7.6.1), and what would name
the engine's place or mark a client."""


@dataclass(frozen=True, slots=True)
class Upstream:
    """An engine that requests are passed to.

    Attributes:
        name: What lines call it.
        base_url: Address without `/v1`.
        key: Its own API key; None without one. A client never gets to see it.
    """

    name: str
    base_url: str
    key: str | None = None


class EngineAwayError(EngineError):
    """There is no engine to answer, and maybe there will be one.

    Attributes:
        retry_after_s: When it may be there again, seconds; None where nobody starts it.
    """

    def __init__(self, reason: str, retry_after_s: float | None = None) -> None:
        super().__init__(reason)
        self.retry_after_s = retry_after_s


UpstreamOf = Callable[[Exchange | None], Upstream]
"""Returns where a request goes, or with None whether there is an engine at all; raises
`EngineError` with the reason if nowhere."""


def open_session() -> aiohttp.ClientSession:
    """Return the client of all requests; to be closed.

    A connection is used again once an answer has come to its end; one that is closed before
    cancels its request. It follows no redirect, keeps no cookie and asks no proxy of the
    environment.
    """
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=_IDLE_S),
        cookie_jar=aiohttp.DummyCookieJar(),
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT_S),
        auto_decompress=False,
        skip_auto_headers=("User-Agent", "Accept-Encoding"),
    )


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A request as the engine gets it.

    Attributes:
        method: HTTP method.
        path: Path, from our own list of routes.
        body: Body; empty for none.
    """

    method: str
    path: str
    body: bytes = b""


async def relay(
    session: aiohttp.ClientSession,
    upstream: Upstream,
    request: Outgoing,
    send: Send,
    exchange: Exchange,
    clock: Clock,
) -> None:
    """Pass a request on and its answer back; cancelled, it closes the engine's connection.

    Raises:
        EngineError: If the engine can't be reached, refuses our key, or ends before its answer
            does. Whether the answer had begun stands in the exchange's `status`.
    """
    try:
        async with session.request(
            request.method,
            upstream.base_url + request.path,
            data=request.body or None,
            headers=_headers(upstream),
            allow_redirects=False,
        ) as answer:
            if upstream.key is not None and answer.status in (401, 403):
                raise EngineError(f"{upstream.name} refuses the key it was given")
            exchange.status = answer.status
            await send(_start(exchange, answer))
            read = answer.content.readany
            while chunk := await read():
                exchange.passed(chunk, clock.now_ns())
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
    except (aiohttp.ClientError, TimeoutError) as error:
        raise EngineError(f"{upstream.name}: {_reason(error)}") from error
    await send({"type": "http.response.body", "body": b"", "more_body": False})


def _headers(upstream: Upstream) -> dict[str, str]:
    found = {"Content-Type": "application/json", "Accept-Encoding": "identity"}
    if upstream.key is not None:
        found["Authorization"] = f"Bearer {upstream.key}"
    return found


def _start(exchange: Exchange, answer: aiohttp.ClientResponse) -> dict[str, object]:
    headers = [
        (name.lower(), value)
        for name, value in answer.raw_headers
        if name.decode("latin-1").lower() not in _NOT_PASSED
    ]
    if exchange.waited_ms is not None:
        headers.append((b"x-queue-wait-ms", f"{exchange.waited_ms:.1f}".encode()))
    return {"type": "http.response.start", "status": answer.status, "headers": headers}


def _reason(error: Exception) -> str:
    """Return what went wrong without the engine's address."""
    if isinstance(error, aiohttp.ClientConnectorError):
        number = error.os_error.errno or 0
        return f"it accepts no connection ({os.strerror(number) if number > 0 else 'no such host'})"
    if isinstance(error, TimeoutError):
        return f"it accepted no connection within {CONNECT_TIMEOUT_S:g} s"
    if isinstance(error, aiohttp.ClientPayloadError | aiohttp.ClientConnectionError):
        return "it closed the connection before its answer was whole"
    return f"its answer is no HTTP ({type(error).__name__})"
