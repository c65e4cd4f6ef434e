"""One client's connection: its body, and whether the client is still there.

Knows ASGI messages, and neither routes nor an engine.
"""

import asyncio
from collections.abc import Coroutine
from typing import Any

from starlette.types import Receive, Scope, Send

from draftgate.serve.refusals import Refusal, RefusedError, too_large, too_slow

BODY_TIMEOUT_S = 30.0
"""For a body to arrive whole. Without a limit a client that sends a byte a minute holds memory
for as long as it likes."""


class ClientGoneError(Exception):
    """The client closed its connection."""


def header(scope: Scope, name: bytes) -> bytes | None:
    """Return the value of a header of the request, by its name in lower case; None without it."""
    headers: list[tuple[bytes, bytes]] = scope["headers"]
    return next((value for known, value in headers if known == name), None)


async def read_body(scope: Scope, receive: Receive, most_bytes: int) -> bytes:
    """Return the body of a request.

    A length that is announced is believed before a byte is read; what arrives is counted
    all the same.

    Raises:
        RefusedError: If it is longer than `most_bytes`, or does not arrive in time.
        ClientGoneError: If the client leaves before it is whole.
    """
    announced = header(scope, b"content-length") or b"0"
    if not announced.isdigit() or int(announced) > most_bytes:
        raise RefusedError(too_large(most_bytes))
    parts: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(BODY_TIMEOUT_S):
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise ClientGoneError
                parts.append(message.get("body", b""))
                size += len(parts[-1])
                if size > most_bytes:
                    raise RefusedError(too_large(most_bytes))
                if not message.get("more_body", False):
                    return b"".join(parts)
    except TimeoutError as error:
        raise RefusedError(too_slow(BODY_TIMEOUT_S)) from error


async def while_connected(
    receive: Receive, work: Coroutine[Any, Any, None], running: set[asyncio.Task[None]]
) -> bool:
    """Run `work` to its end, or until the client is gone; return whether it came to its end.

    Args:
        receive: The request's, whose body was read.
        work: Is cancelled when the client is gone.
        running: Holds the task of `work` meanwhile; whoever cancels that ends it likewise.
    """
    working, gone = asyncio.create_task(work), asyncio.create_task(_gone(receive))
    running.add(working)
    try:
        await asyncio.wait((working, gone), return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in (working, gone):
            task.cancel()
        await asyncio.wait((working, gone))
        running.discard(working)
    if working.cancelled():
        return False
    working.result()
    return True


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass  # the body was read; nothing else comes


async def refuse(send: Send, refusal: Refusal) -> None:
    """Send the front's own answer."""
    headers = refusal.headers()
    await send({"type": "http.response.start", "status": refusal.status, "headers": headers})
    await send({"type": "http.response.body", "body": refusal.body(), "more_body": False})
