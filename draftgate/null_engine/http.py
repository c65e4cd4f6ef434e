"""HTTP/1.1 requests out of bytes, and what a generation request asks for.

Knows neither sockets nor answers. Reads what load generators send: requests
with a Content-Length over connections that stay open; anything else is a
`BadRequest`, which the engine answers with its status.
"""

from dataclasses import dataclass
from typing import Any

import msgspec

from draftgate.null_engine.writes import TOKENS_MASK, Ask, Route

_HEAD_LIMIT_BYTES = 64 * 1024
"""As uvicorn's h11 side allows; anything longer is no request of a load generator."""
_BODY_LIMIT_BYTES = 64 * 1024 * 1024
"""Over a million token ids, beyond any context length."""
_DEFAULT_TOKENS = {Route.CHAT: 16, Route.COMPLETIONS: 16, Route.GENERATE: 128}
"""Lengths where none is asked for: vLLM's for completions, SGLang's for its own route; chat has
none upstream but the context's, which a null engine lacks."""
_PROMPT_CHARS = 64


class BadRequest(ValueError):  # noqa: N818 - named as HTTP names it
    """A request that cannot be answered as it asks.

    Attributes:
        status: The HTTP status to answer with.
    """

    def __init__(self, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """One request; header names in lower case, values as text."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def closes(self) -> bool:
        """Return whether the connection is to be closed after the answer."""
        return self.headers.get("connection", "").lower() == "close"


class RequestReader:
    """Cuts the bytes of one connection into requests."""

    def __init__(self) -> None:
        self._data = bytearray()
        self._head: tuple[str, str, dict[str, str]] | None = None
        self._body_bytes = 0

    def feed(self, data: bytes) -> None:
        """Add what was read."""
        self._data += data

    def take(self) -> HttpRequest | None:
        """Return the next request whose last byte is there, or None.

        Raises:
            BadRequest: If the bytes are no request; the connection is then of
                no further use.
        """
        if self._head is None and not self._take_head():
            return None
        if self._head is None or len(self._data) < self._body_bytes:
            return None
        body = bytes(self._data[: self._body_bytes])
        del self._data[: self._body_bytes]
        request = HttpRequest(*self._head, body)
        self._head = None
        return request

    def _take_head(self) -> bool:
        end = self._data.find(b"\r\n\r\n")
        if end < 0:
            if len(self._data) > _HEAD_LIMIT_BYTES:
                raise BadRequest(f"a head must end within {_HEAD_LIMIT_BYTES} bytes", 431)
            return False
        first, *lines = self._data[:end].decode("latin-1").split("\r\n")
        del self._data[: end + 4]
        words = first.split(" ")
        if len(words) != 3 or not words[2].startswith("HTTP/1."):
            raise BadRequest(f"expected METHOD PATH HTTP/1.1, got {first[:80]!r}")
        pairs = (line.partition(":") for line in lines)
        headers = {name.lower(): value.strip() for name, _, value in pairs}
        self._body_bytes = _body_length(headers)
        self._head = (words[0], words[1].partition("?")[0], headers)
        return True


def _body_length(headers: dict[str, str]) -> int:
    if "transfer-encoding" in headers:
        raise BadRequest("a request's body must come with Content-Length, not in chunks", 411)
    text = headers.get("content-length", "0")
    if not text.isdecimal() or int(text) > _BODY_LIMIT_BYTES:
        raise BadRequest(f"Content-Length must be 0 to {_BODY_LIMIT_BYTES}, got {text!r}", 413)
    return int(text)


class _StreamOptions(msgspec.Struct):
    include_usage: bool = False


class _SamplingParams(msgspec.Struct):
    max_new_tokens: int | None = None


class _Body(msgspec.Struct):
    """The fields that matter here, of all three routes; others are ignored, as vLLM does."""

    model: str | None = None
    messages: list[dict[str, Any]] | None = None
    prompt: str | list[int] | None = None
    text: str | None = None
    input_ids: list[int] | None = None
    stream: bool = False
    stream_options: _StreamOptions | None = None
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    sampling_params: _SamplingParams | None = None
    return_token_ids: bool = False
    n: int = 1


_DECODER = msgspec.json.Decoder(_Body)


def read_ask(route: Route, body: bytes, model: str) -> Ask:
    """Return what a generation request asks for.

    Args:
        route: Where it came to.
        body: Its JSON.
        model: Name to answer under where the request gives none.

    Raises:
        BadRequest: If the body is not JSON, lacks a prompt, or asks for what a
            null engine does not do; the message says which.
    """
    try:
        given = _DECODER.decode(body)
    except msgspec.MsgspecError as error:
        raise BadRequest(f"the body is no request: {error}") from error
    if given.n != 1:
        raise BadRequest(f"n must be 1, got {given.n}")
    max_tokens = _max_tokens(route, given)
    if not 1 <= max_tokens <= TOKENS_MASK:
        raise BadRequest(f"the number of tokens must be 1 to {TOKENS_MASK}, got {max_tokens}")
    prompt, prompt_tokens = _prompt(route, given)
    options = given.stream_options
    return Ask(
        route=route,
        model=given.model or model,
        prompt=prompt,
        prompt_tokens=prompt_tokens,
        max_tokens=max_tokens,
        stream=given.stream,
        include_usage=options is not None and options.include_usage,
        give_ids=given.return_token_ids,
    )


def _max_tokens(route: Route, given: _Body) -> int:
    params = given.sampling_params or _SamplingParams()
    asked = (given.max_completion_tokens, given.max_tokens, params.max_new_tokens)
    return next((n for n in asked if n is not None), _DEFAULT_TOKENS[route])


def _prompt(route: Route, given: _Body) -> tuple[str, int]:
    """Return the prompt's beginning and its length in tokens."""
    if route is Route.CHAT:
        if not given.messages:
            raise BadRequest("a chat request needs messages")
        texts = [str(message.get("content", "")) for message in given.messages]
        return texts[-1][:_PROMPT_CHARS], sum(len(text.split()) for text in texts)
    by_text, by_ids = given.text, given.input_ids
    prompt = given.prompt if route is Route.COMPLETIONS else by_ids if by_text is None else by_text
    if prompt is None:
        fields = "prompt" if route is Route.COMPLETIONS else "text or input_ids"
        raise BadRequest(f"a request to {route.value} needs {fields}")
    if isinstance(prompt, str):
        return prompt[:_PROMPT_CHARS], len(prompt.split())
    return str(prompt[:16])[:_PROMPT_CHARS], len(prompt)
