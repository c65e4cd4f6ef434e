"""What a client is told when the front itself answers: a status and OpenAI's error object.

Every message says what was got, what was expected and what to do. None of them repeats
text of a request.
"""

import json
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Refusal:
    """One answer of the front in the engine's place.

    Attributes:
        status: HTTP status.
        code: OpenAI's `code`; also the reason by which it is counted.
        message: For people.
        kind: OpenAI's `type`.
        param: Field of the request that is at fault; None for none.
        retry_after_s: When to try again, seconds; None where trying again does not help.
    """

    status: int
    code: str
    message: str
    kind: str = "invalid_request_error"
    param: str | None = None
    retry_after_s: int | None = None

    def body(self) -> bytes:
        """Return the answer's body, JSON."""
        error: dict[str, Any] = {
            "message": self.message,
            "type": self.kind,
            "param": self.param,
            "code": self.code,
        }
        return json.dumps({"error": error}).encode()

    def headers(self) -> list[tuple[bytes, bytes]]:
        """Return the answer's headers."""
        found = [
            (b"content-type", b"application/json"),
            (b"content-length", str(len(self.body())).encode()),
        ]
        if self.retry_after_s is not None:
            found.append((b"retry-after", str(self.retry_after_s).encode()))
        if self.status == 401:
            found.append((b"www-authenticate", b"Bearer"))
        return found


class RefusedError(Exception):
    """A request that the front answers itself.

    Attributes:
        refusal: The answer.
    """

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.message)
        self.refusal = refusal


def queue_full(most: int, retry_after_s: int) -> Refusal:
    """Return the answer to a request for which there is no place in the queue."""
    return Refusal(
        429,
        "queue_full",
        f"{most} requests wait already, which is all that may. Try again in {retry_after_s} s.",
        kind="rate_limit_error",
        retry_after_s=retry_after_s,
    )


def draining(retry_after_s: int) -> Refusal:
    """Return the answer of a server that is about to end."""
    return Refusal(
        503,
        "draining",
        f"This server ends and takes no new requests. Try again in {retry_after_s} s.",
        kind="server_error",
        retry_after_s=retry_after_s,
    )


def engine_gone(reason: str, retry_after_s: int | None = None) -> Refusal:
    """Return the answer while there is no engine to answer."""
    next_step = "Ask whoever runs this server."
    if retry_after_s is not None:
        next_step = f"Try again in {retry_after_s} s."
    return Refusal(
        503,
        "engine_gone",
        f"There is no engine to answer: {reason}. {next_step}",
        kind="server_error",
        retry_after_s=retry_after_s,
    )


def wrong_key() -> Refusal:
    """Return the answer to a request without the right key."""
    return Refusal(
        401,
        "invalid_api_key",
        "The API key is missing or wrong. Send the header Authorization: Bearer KEY.",
    )


def too_large(most_bytes: int) -> Refusal:
    """Return the answer to a body that is too long."""
    return Refusal(
        413,
        "body_too_large",
        f"The body is larger than the {most_bytes} bytes that this server takes. Send less text.",
    )


def too_slow(seconds: float) -> Refusal:
    """Return the answer to a body that does not arrive."""
    return Refusal(
        408, "body_too_slow", f"The body did not arrive within {seconds:g} s. Send it again."
    )


def no_route(method: str, status: int) -> Refusal:
    """Return the answer to a method or path that there is not."""
    return Refusal(
        status,
        "not_found" if status == 404 else "method_not_allowed",
        f"There is no such {method} here. This server has POST /v1/chat/completions, "
        "POST /v1/completions and GET /v1/models.",
    )
