"""The front: routes of OpenAI's API before an engine, with a key, limits and a queue.

A Starlette application. It lets an answer through as it comes (`draftgate.serve.relay`) and
answers itself only to refuse. There are no other routes to the engine than those below, and
nothing that a client sends chooses where a request goes.
"""

import asyncio
import hashlib
import hmac
import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass

import aiohttp
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from draftgate.clock import Clock
from draftgate.errors import EngineError
from draftgate.serve.admission import Admission, QueueClosedError, QueueFullError
from draftgate.serve.connection import (
    ClientGoneError,
    header,
    read_body,
    refuse,
    while_connected,
)
from draftgate.serve.exchange import Exchange
from draftgate.serve.fallback.classes import class_of
from draftgate.serve.limits import Limits, check_request
from draftgate.serve.metrics import Metrics
from draftgate.serve.refusals import (
    Refusal,
    RefusedError,
    draining,
    engine_gone,
    no_route,
    queue_full,
    wrong_key,
)
from draftgate.serve.relay import EngineAwayError, Outgoing, UpstreamOf, relay

CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"
MODELS = "/v1/models"

_LONGEST_RETRY_S = 60
"""OpenAI's client obeys a Retry-After of up to two minutes (openai 3.57,
`_calculate_retry_timeout`), older versions one of up to one."""


@dataclass(frozen=True, slots=True)
class FrontSettings:
    """What a front may do.

    Attributes:
        limits: Of a request.
        max_queue: Requests that may wait, for messages.
        key: API key that every client needs; None for none.
        metrics: Whether there is a route /metrics.
        drain_timeout_s: Time that requests get when the server ends.
        class_header: Header that labels a request's class, in lower case; None for none.
    """

    limits: Limits
    max_queue: int
    key: str | None
    metrics: bool
    drain_timeout_s: float
    class_header: bytes | None = None


class Front:
    """The application and what it knows; lives on one event loop.

    Args:
        settings: What it may do.
        upstream: Says where the next request goes.
        admission: Slots and queue.
        metrics: Counts.
        on_end: Called with each request when it is over.
        clock: Stamps.
    """

    def __init__(
        self,
        settings: FrontSettings,
        upstream: UpstreamOf,
        admission: Admission,
        metrics: Metrics,
        on_end: Callable[[Exchange], None],
        *,
        clock: Clock,
    ) -> None:
        self._settings = settings
        self._upstream = upstream
        self._admission = admission
        self._metrics = metrics
        self._on_end = on_end
        self._clock = clock
        self._numbers = itertools.count(1)
        self._running: set[asyncio.Task[None]] = set()
        self._cutting = False
        self.session: aiohttp.ClientSession | None = None

    def app(self) -> Starlette:
        """Return the application."""
        routes = [
            Route(CHAT, _Passed(self, chat=True), methods=["POST"]),
            Route(COMPLETIONS, _Passed(self, chat=False), methods=["POST"]),
            Route(MODELS, _Passed(self, chat=False), methods=["GET"]),
            Route("/health", self._health),
        ]
        if self._settings.metrics:
            routes.append(Route("/metrics", self._page))
        app = Starlette(routes=routes, exception_handlers={HTTPException: _unknown})
        app.router.redirect_slashes = False  # a redirect would repeat the client's Host header
        return app

    async def handle(self, scope: Scope, receive: Receive, send: Send, *, chat: bool) -> None:
        """Answer one request of a route that leads to the engine."""
        number, now_ns = next(self._numbers), self._clock.now_ns()
        exchange = Exchange(number, scope["path"], _client(scope), now_ns)
        try:
            request = await self._checked(exchange, scope, receive, chat=chat)
            work = self._pass_on(exchange, request, send)
            if not await while_connected(receive, work, self._running):
                exchange.cut = "drain" if self._cutting else "client"
        except RefusedError as error:
            exchange.refused, exchange.status = error.refusal.code, error.refusal.status
            await refuse(send, error.refusal)
        except ClientGoneError:
            exchange.cut = "client"
        except asyncio.CancelledError:
            exchange.cut = "drain"
            raise
        finally:
            exchange.end(self._clock.now_ns())
            self._metrics.take(exchange)
            self._on_end(exchange)

    async def cut(self) -> int:
        """End all requests that still run, in the middle of their answers; return how many."""
        self._cutting = True
        tasks = [task for task in self._running if not task.done()]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        return len(tasks)

    async def _checked(
        self, exchange: Exchange, scope: Scope, receive: Receive, *, chat: bool
    ) -> Outgoing:
        """Return what goes to the engine.

        Raises:
            RefusedError: If nothing does.
            ClientGoneError: If the client leaves first.
        """
        if not self._key_fits(scope):
            raise RefusedError(wrong_key())
        if self._admission.closed:
            raise RefusedError(self._draining())
        self._demand_engine()
        if self._settings.class_header is not None:
            exchange.kind = class_of(header(scope, self._settings.class_header))
        limits = self._settings.limits
        body = await read_body(scope, receive, limits.max_body_bytes)
        if scope["method"] != "POST":
            return Outgoing("GET", MODELS)
        checked = check_request(body, limits, chat=chat)
        exchange.stream = checked.stream
        return Outgoing("POST", CHAT if chat else COMPLETIONS, checked.body)

    async def _pass_on(self, exchange: Exchange, request: Outgoing, send: Send) -> None:
        if request.method == "GET":  # takes no place in the engine's batch
            await self._relay(exchange, request, send)
            return
        try:
            async with self._admission.slot() as waited_ns:
                exchange.waited_ns = waited_ns
                await self._relay(exchange, request, send)
        except QueueFullError as error:
            refusal = queue_full(self._settings.max_queue, self._retry_s())
            raise RefusedError(refusal) from error
        except QueueClosedError as error:
            raise RefusedError(self._draining()) from error

    async def _relay(self, exchange: Exchange, request: Outgoing, send: Send) -> None:
        """Pass a request on; to another arm, if one gave no byte of an answer.

        Nothing of it has reached the client then, and the engine that failed keeps nothing.
        """
        assert self.session is not None, "a request before the session was opened"
        asks, failed = None if request.method == "GET" else exchange, None
        while True:
            try:
                upstream = self._upstream(asks)
            except EngineError as error:
                raise RefusedError(self._gone(failed or error)) from error
            try:
                await relay(self.session, upstream, request, send, exchange, self._clock)
            except EngineError as error:
                if exchange.status is not None:
                    exchange.cut = "engine"  # it has begun: the connection's end tells the client
                    return
                if exchange.arm is None:
                    raise RefusedError(self._gone(error)) from error
                exchange.tried.add(exchange.arm)
                failed = error
            else:
                return

    def _demand_engine(self) -> None:
        try:
            self._upstream(None)
        except EngineError as error:
            raise RefusedError(self._gone(error)) from error

    def _gone(self, error: EngineError) -> Refusal:
        wait_s = error.retry_after_s if isinstance(error, EngineAwayError) else None
        return engine_gone(str(error), None if wait_s is None else _whole_retry_s(wait_s))

    def _key_fits(self, scope: Scope) -> bool:
        """Whether a request has the key; the time that takes does not depend on what it has."""
        if self._settings.key is None:
            return True
        scheme, _, given = (header(scope, b"authorization") or b"").partition(b" ")
        same = hmac.compare_digest(_digest(given.strip()), _digest(self._settings.key.encode()))
        return same and scheme.lower() == b"bearer"

    def _retry_s(self) -> int:
        """Return when a place is likely: p95 of recent waits, whole seconds from 1 to 60."""
        return _whole_retry_s((self._metrics.waits_ms.percentile(95) or 0.0) / 1000)

    def _draining(self) -> Refusal:
        return draining(_whole_retry_s(self._settings.drain_timeout_s))

    async def _health(self, _request: Request) -> Response:
        """Answer 200 while requests are taken."""
        if self._admission.closed:
            return JSONResponse({"status": "draining"}, 503)
        try:
            upstream = self._upstream(None)
        except EngineError as error:
            return JSONResponse({"status": "engine_gone", "reason": str(error)}, 503)
        return JSONResponse({"status": "ok", "engine": upstream.name})

    async def _page(self, request: Request) -> Response:
        """Answer with the metrics, to whoever has the key."""
        if not self._key_fits(request.scope):
            return _own(wrong_key())
        return Response(self._metrics.page(), media_type="text/plain; version=0.0.4")


class _Passed:
    """An endpoint as Starlette wants it: no function, so it gets the plain ASGI messages."""

    def __init__(self, front: Front, *, chat: bool) -> None:
        self._front = front
        self._chat = chat

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._front.handle(scope, receive, send, chat=self._chat)


def _whole_retry_s(seconds: float) -> int:
    return min(max(1, math.ceil(seconds)), _LONGEST_RETRY_S)


def _digest(text: bytes) -> bytes:
    """Return a hash, all of one length: comparing those tells nothing of a key's length."""
    return hashlib.sha256(text).digest()


def _client(scope: Scope) -> str:
    client = scope.get("client")
    return str(client[0]) if client else "unknown"


async def _unknown(request: Request, error: Exception) -> Response:
    """Answer a request for which there is no route."""
    assert isinstance(error, HTTPException), "a handler of HTTPException"
    return _own(no_route(request.method, error.status_code))


def _own(refusal: Refusal) -> Response:
    return Response(
        refusal.body(), refusal.status, {k.decode(): v.decode() for k, v in refusal.headers()}
    )
