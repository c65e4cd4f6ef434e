"""The bytes of a null engine's answers: heads, chunks, events and whole documents.

Formats of vLLM's OpenAI routes and of SGLang's `/generate`. Token i of every
answer has id 100 + i mod 128 and a text of five characters, so that the length
of an event depends on its number of tokens alone and most bytes are built once.
Knows neither pace nor faults.
"""

import json
from typing import Any, Protocol

from draftgate.null_engine.writes import Route, Work

_FIRST_ID = 100
_PERIOD = 128
_REPEATS = 2
"""A step of up to 128 tokens may begin anywhere in the period."""
_ID_BYTES = 4
_WORD_BYTES = 5
_IDS = "".join(f"{_FIRST_ID + i}," for i in range(_PERIOD)).encode()
_WORDS = "".join(f" w{_FIRST_ID + i}" for i in range(_PERIOD)).encode()
_COUNT_BITS = 8

STREAM_HEAD = (
    b"HTTP/1.1 200 OK\r\nserver: draftgate-null-engine\r\n"
    b"content-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n"
)
END = b"0\r\n\r\n"
_REASONS = {200: "OK", 400: "Bad Request", 404: "Not Found", 500: "Internal Server Error"}


def token_ids(start: int, count: int) -> list[int]:
    """Return the ids of `count` tokens from number `start`, from 0."""
    return [_FIRST_ID + i % _PERIOD for i in range(start, start + count)]


def token_text(start: int, count: int) -> str:
    """Return the text of `count` tokens from number `start`, from 0."""
    return "".join(f" w{token}" for token in token_ids(start, count))


def chunk(data: bytes) -> bytes:
    """Return `data` as one chunk of a chunked body."""
    return b"%x\r\n%b\r\n" % (len(data), data)


def unchunk(data: bytes) -> bytes:
    """Return what `chunk` was given."""
    return data[data.index(b"\r\n") + 2 : -2]


def event(data: bytes) -> bytes:
    """Return one server-sent event in a chunk of its own, as uvicorn sends what vLLM yields."""
    return chunk(b"data: " + data + b"\n\n")


DONE = event(b"[DONE]")


def response(status: int, body: bytes, kind: str = "application/json") -> bytes:
    """Return a whole response with a known length."""
    head = (
        f"HTTP/1.1 {status} {_REASONS.get(status, 'Status')}\r\nserver: draftgate-null-engine\r\n"
        f"content-type: {kind}\r\ncontent-length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def error_document(message: str, status: int) -> bytes:
    """Return an error in OpenAI's form."""
    error = {"message": message, "type": "null_engine", "param": None, "code": status}
    return _json({"error": error})


class StepEvents(Protocol):
    """Builds the events of the steps of one streamed answer."""

    def step(self, start: int, count: int) -> bytes:
        """Return the event of `count` tokens from number `start`, more to follow."""

    def last_step(self, start: int, count: int) -> bytes:
        """Return the event of the last step, which says why the answer ends."""


class OpenAIEvents:
    """Builds the events of one streamed answer on an OpenAI route."""

    def __init__(self, work: Work) -> None:
        self._frame = _open_frame(work)
        self._tails = _TAILS[(work.ask.route is Route.CHAT, work.ask.give_ids)]
        self._starts: dict[int, bytes] = {}

    def step(self, start: int, count: int) -> bytes:
        """Return the event of `count` tokens from number `start`, more to follow."""
        tail = self._tails[start % _PERIOD << _COUNT_BITS | count]
        # The part before the tail depends on the event's length alone.
        begin = self._starts.get(count)
        if begin is None:
            size = len(b"data: ") + len(self._frame) + len(tail) - len(b"\r\n")
            begin = self._starts[count] = b"%x\r\ndata: %b" % (size, self._frame)
        return begin + tail

    def last_step(self, start: int, count: int) -> bytes:
        """Return the event of the last step, which says why the answer ends."""
        tail = self._tails[start % _PERIOD << _COUNT_BITS | count]
        ended = tail.replace(b'"finish_reason":null', b'"finish_reason":"length"')
        return chunk(b"data: " + self._frame + ended.removesuffix(b"\r\n"))


class SglangEvents:
    """Builds the events of one streamed answer on SGLang's own route.

    Args:
        work: The request.
        cumulative: Whether each event repeats all text and ids before it.
    """

    def __init__(self, work: Work, *, cumulative: bool) -> None:
        periods = work.num_tokens // _PERIOD + _REPEATS
        self._words, self._ids = _WORDS * periods, _IDS * periods
        self._cumulative = cumulative
        meta = {"id": work.id, "prompt_tokens": work.ask.prompt_tokens, "cached_tokens": 0}
        self._meta = _json(meta)[:-1]

    def step(self, start: int, count: int) -> bytes:
        """Return the event of `count` tokens from number `start`, more to follow."""
        return self._event(start, start + count, b"null")

    def last_step(self, start: int, count: int) -> bytes:
        """Return the event of the last step, which says why the answer ends."""
        end = start + count
        return self._event(start, end, b'{"type":"length","length":%d}' % end)

    def _event(self, start: int, end: int, reason: bytes) -> bytes:
        begin = 0 if self._cumulative else start
        return event(
            b'{"text":"%b","output_ids":[%b],"meta_info":%b,"completion_tokens":%d,'
            b'"finish_reason":%b}}'
            % (
                self._words[begin * _WORD_BYTES : end * _WORD_BYTES],
                self._ids[begin * _ID_BYTES : end * _ID_BYTES - 1],
                self._meta,
                end,
                reason,
            )
        )


def role_event(work: Work) -> bytes:
    """Return a chat's first event, which holds no token."""
    choice = (
        b'{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,'
        b'"finish_reason":null}'
    )
    return event(b'%b,"choices":[%b]}' % (_open_frame(work), choice))


def usage_event(work: Work) -> bytes:
    """Return the event after the last step, which has no choice."""
    return event(b'%b,"choices":[],"usage":%b}' % (_open_frame(work), _json(_usage(work))))


def whole_document(work: Work) -> bytes:
    """Return the answer to a request that asked for no stream."""
    count = work.num_tokens
    text, ids = token_text(0, count), token_ids(0, count)
    if work.ask.route is Route.GENERATE:
        meta = {
            "id": work.id,
            "prompt_tokens": work.ask.prompt_tokens,
            "completion_tokens": count,
            "finish_reason": {"type": "length", "length": count},
        }
        return _json({"text": text, "output_ids": ids, "meta_info": meta})
    chat = work.ask.route is Route.CHAT
    kind = "chat.completion" if chat else "text_completion"
    said = {"message": {"role": "assistant", "content": text}} if chat else {"text": text}
    choice: dict[str, Any] = {"index": 0, **said, "logprobs": None, "finish_reason": "length"}
    if work.ask.give_ids:
        choice["token_ids"] = ids
    return _json({**_frame(work, kind), "choices": [choice], "usage": _usage(work)})


class _Tails(dict[int, bytes]):
    """Ends of step events, built when first asked for; the same for all requests."""

    def __init__(self, *, chat: bool, give_ids: bool) -> None:
        super().__init__()
        self._chat, self._give_ids = chat, give_ids

    def __missing__(self, key: int) -> bytes:
        span = (key >> _COUNT_BITS, key & ((1 << _COUNT_BITS) - 1))
        tail = self[key] = _tail(chat=self._chat, give_ids=self._give_ids, span=span)
        return tail


_TAILS = {
    (chat, ids): _Tails(chat=chat, give_ids=ids) for chat in (True, False) for ids in (True, False)
}


def _tail(*, chat: bool, give_ids: bool, span: tuple[int, int]) -> bytes:
    """Return a step event from its choices on, up to the end of its chunk."""
    text = token_text(*span).encode()
    said = b'"delta":{"content":"%b"}' % text if chat else b'"text":"%b"' % text
    ids = ',"token_ids":[%s]' % ",".join(map(str, token_ids(*span))) if give_ids else ""  # noqa: UP031
    return b',"choices":[{"index":0,%b,"logprobs":null,"finish_reason":null%b}]}\n\n\r\n' % (
        said,
        ids.encode(),
    )


def _open_frame(work: Work) -> bytes:
    """Return an event's first keys, without the closing brace, so that others can follow."""
    kind = "chat.completion.chunk" if work.ask.route is Route.CHAT else "text_completion"
    return _json(_frame(work, kind))[:-1]


def _frame(work: Work, kind: str) -> dict[str, Any]:
    return {"id": work.id, "object": kind, "created": work.created_s, "model": work.ask.model}


def _usage(work: Work) -> dict[str, int]:
    prompt, completion = work.ask.prompt_tokens, work.num_tokens
    total = prompt + completion
    return {"prompt_tokens": prompt, "total_tokens": total, "completion_tokens": completion}


def _json(document: dict[str, Any]) -> bytes:
    return json.dumps(document, separators=(",", ":")).encode()
