"""Raw exchanges without a socket: HTTP responses built by hand, one stamp a read."""

import json
from collections.abc import Sequence

from draftgate.load.exchange import RawExchange
from draftgate.load.parse import ReadStats, SentRequest, parse_with_stats
from draftgate.load.requests import LoadPrompt, PreparedRequest, prepare
from draftgate.records import RequestRecord
from draftgate.specs import SamplingParams

OPEN_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"
"""Head of a response that the end of the connection ends."""

CHUNKED_HEAD = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
"""Head of a response in chunks."""

DONE = b"data: [DONE]\n\n"


def event(document: object) -> bytes:
    """Return `document` as one server-sent event."""
    return f"data: {json.dumps(document)}\n\n".encode()


def chunk(data: bytes) -> bytes:
    """Return `data` as one chunk of a chunked body; empty data is the last chunk."""
    return b"%x\r\n%s\r\n" % (len(data), data)


def exchange(*reads: bytes, status: int | None = 200) -> RawExchange:
    """Return a whole exchange whose read i, from 0, holds `reads[i]` and is stamped i."""
    return RawExchange(0, len(reads), status, tuple(enumerate(reads)), None)


def answered(*documents: object, done: bool = True) -> RawExchange:
    """Return an exchange whose read i holds document i as one event; the head is in read 0."""
    events = [event(document) for document in documents]
    if done:
        events.append(DONE)
    return exchange(OPEN_HEAD + events[0], *events[1:])


def ids(*tokens: int, **more: object) -> dict[str, object]:
    """Return a chat event that holds `tokens`."""
    return {"choices": [{"delta": {"content": "x"}, "token_ids": list(tokens), **more}]}


def usage(count: int) -> dict[str, object]:
    """Return the event that ends a stream of `count` tokens, 3 of them in the prompt."""
    return {"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": count}}


def request(max_tokens: int, api: str = "chat") -> PreparedRequest:
    """Return a request for just `max_tokens` tokens."""
    return prepare(api, LoadPrompt("p", text="hello"), "m", SamplingParams(max_tokens=max_tokens))


def parsed(
    raw: RawExchange, max_tokens: int, api: str = "chat", *, secret: str | None = None
) -> tuple[RequestRecord, ReadStats]:
    """Return the record of `raw` as the answer to `request`, and its read statistics."""
    return parse_with_stats(SentRequest(0, 0, 0, request(max_tokens, api), raw), secret=secret)


def tokens(record: RequestRecord) -> Sequence[tuple[int, ...]]:
    """Return the token ids of each chunk."""
    return [chunk.token_ids for chunk in record.chunks]
