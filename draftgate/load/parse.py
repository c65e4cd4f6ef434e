"""Stamped bytes of one exchange -> one `RequestRecord`, after the run.

HTTP framing, server-sent events and the dialect's documents come off in one
pass over the reads. Counts tokens as the dialect does: by ids or by the server's
running usage, never by text or by events. Every way in which an answer can be
less than what was asked for becomes a `Failure`.
"""

import json
from dataclasses import dataclass
from typing import Any

import msgspec

from draftgate.load.apis import APIS, Dialect
from draftgate.load.apis.dialect import Answer, EventReader
from draftgate.load.apis.openai import in_band_error
from draftgate.load.exchange import RawExchange
from draftgate.load.http1 import HttpError, ResponseDecoder
from draftgate.load.requests import PreparedRequest
from draftgate.load.sse import SseParser
from draftgate.records import Failure, FailureKind, RequestRecord

_DONE = "[DONE]"
_DONE_DATA = _DONE.encode()
_MESSAGE_CHARS = 300
"""Length to which what a server said is cut; enough for vLLM's error bodies."""


@dataclass(frozen=True, slots=True)
class SentRequest:
    """One exchange together with what is known about it beforehand.

    Attributes:
        index: Running number inside the run, in order of sending.
        stream: The stream that sent it.
        scheduled_ns: When it was due.
        request: What was sent.
        exchange: What came back.
    """

    index: int
    stream: int
    scheduled_ns: int
    request: PreparedRequest
    exchange: RawExchange


@dataclass(frozen=True, slots=True)
class ReadStats:
    """How events fell into reads; two records add up to that of both.

    Attributes:
        reads: Reads that brought bytes of a response.
        events: Events that carried tokens.
        coalesced_reads: Reads in which two or more such events ended, so that
            all but the last of them are stamped too late.
    """

    reads: int = 0
    events: int = 0
    coalesced_reads: int = 0

    def __add__(self, other: "ReadStats") -> "ReadStats":
        """Return the sums."""
        return ReadStats(
            self.reads + other.reads,
            self.events + other.events,
            self.coalesced_reads + other.coalesced_reads,
        )


def parse_exchange(
    sent: SentRequest, *, secret: str | None = None, keep_text: bool = True
) -> RequestRecord:
    """Return the record of one exchange, with its failure classified.

    A chunk is one event that carries at least one new token, stamped by the
    read in which its last byte arrived; under speculation it often holds
    several tokens. What arrived before a failure stays in the record.

    Args:
        sent: The exchange and its place in the run.
        secret: The API key, struck out of whatever the server said.
        keep_text: Whether the record holds the output text.

    Returns:
        The record; `failure` is None only if the answer is whole: status 200,
        well-formed events, `[DONE]`, usage, and tokens that agree in number
        with usage and with the length asked for.

    Raises:
        SpecError: If the request names a dialect that is not registered.
    """
    return parse_with_stats(sent, secret=secret, keep_text=keep_text)[0]


def parse_with_stats(
    sent: SentRequest, *, secret: str | None = None, keep_text: bool = True
) -> tuple[RequestRecord, ReadStats]:
    """Return what `parse_exchange` does, and how the events fell into reads.

    A response with another status than 200 counts as reads without events.
    """
    exchange, dialect = sent.exchange, APIS.get(sent.request.dialect)
    answer, coalesced = Answer(), 0
    if exchange.status == 200:
        coalesced = _read_events(exchange, dialect.reader(), answer)
    failure = _classify(sent, answer, dialect)
    record = RequestRecord(
        index=sent.index,
        stream=sent.stream,
        prompt_id=sent.request.prompt_id,
        scheduled_ns=sent.scheduled_ns,
        sent_ns=exchange.sent_ns,
        ended_ns=exchange.ended_ns,
        chunks=tuple(answer.chunks),
        prompt_tokens=answer.prompt_tokens,
        completion_tokens=answer.completion_tokens,
        finish_reason=answer.finish_reason,
        failure=_clean(failure, secret),
        text="".join(answer.text) if keep_text and dialect.gives_text else None,
    )
    return record, ReadStats(len(exchange.reads), len(answer.chunks), coalesced)


def _read_events(exchange: RawExchange, reader: EventReader, answer: Answer) -> int:
    """Fill `answer`; return the number of reads with two or more chunks."""
    decoder, coalesced = ResponseDecoder(), 0
    try:
        coalesced = _read_all(exchange, decoder, reader, answer)
    except HttpError as error:
        answer.failure = Failure(FailureKind.MALFORMED, f"not an HTTP/1.1 response: {error}")
    except ValueError as error:
        answer.failure = Failure(FailureKind.MALFORMED, f"the event stream is not UTF-8: {error}")
    encoding = "identity" if decoder.head is None else decoder.head.encoding
    if encoding != "identity":
        answer.failure = Failure(
            FailureKind.MALFORMED,
            f"the body is encoded as {encoding!r}, though only identity was accepted; look for "
            "a proxy that compresses",
        )
    elif answer.failure is None and exchange.error is None and not decoder.eof():
        answer.failure = Failure(FailureKind.EARLY_END, "the response's last bytes are missing")
    return coalesced


def _read_all(
    exchange: RawExchange, decoder: ResponseDecoder, reader: EventReader, answer: Answer
) -> int:
    body_of, events_of = decoder.feed, SseParser().feed
    decode, take, chunks = reader.decode, reader.take, answer.chunks
    coalesced = 0
    for t_ns, data in exchange.reads:
        before = len(chunks)
        for event in events_of(body_of(data), t_ns):
            try:
                document = decode(event.data)
            except (msgspec.DecodeError, RecursionError):
                document = _look_closer(event.data, reader, answer)
            if document is not None:
                take(document, t_ns, answer)
            if answer.failure is not None:
                return coalesced
        if len(chunks) - before > 1:
            coalesced += 1
    return coalesced


def _look_closer(data: bytes, reader: EventReader, answer: Answer) -> Any:
    """Return the document of data that the dialect did not take, or None.

    It is the end mark, an error of the server, or of no use; or JSON that
    Python reads and the fast decoder does not, such as NaN in a log-probability.
    """
    if data.strip() == _DONE_DATA:
        answer.done = True
        return None
    try:
        document = json.loads(data)
    except (ValueError, RecursionError) as error:
        answer.failure = _malformed(f"data is not JSON ({error})", data.decode())
        return None
    if not isinstance(document, dict):
        answer.failure = _malformed("data is not a JSON object", data.decode())
    elif document.get("error") is not None:
        answer.failure = in_band_error(document["error"])
    elif document.get("object") == "error":
        answer.failure = in_band_error(document)
    else:
        return _convert(document, data, reader, answer)
    return None


def _convert(document: dict[str, Any], data: bytes, reader: EventReader, answer: Answer) -> Any:
    try:
        json.dumps(document, ensure_ascii=False).encode()  # halves of characters are no text
        return reader.convert(document)
    except (msgspec.ValidationError, UnicodeEncodeError) as error:
        answer.failure = _malformed(f"data has another form ({error})", data.decode())
        return None


def _classify(sent: SentRequest, answer: Answer, dialect: Dialect) -> Failure | None:
    """Return what is wrong, the nearest to the cause first."""
    exchange = sent.exchange
    if exchange.status not in {None, 200}:
        body = _body_text(exchange)
        return Failure(FailureKind.HTTP_ERROR, f"HTTP status {exchange.status}: {body}")
    if answer.failure is not None and answer.failure.kind is FailureKind.IN_BAND_ERROR:
        return answer.failure
    if exchange.error is not None:
        return exchange.error
    if answer.failure is not None:
        return answer.failure
    return _incomplete(sent, answer, dialect)


def _incomplete(sent: SentRequest, answer: Answer, dialect: Dialect) -> Failure | None:
    """Return what a well-formed response lacks."""
    got, usage = answer.num_tokens, answer.completion_tokens
    if not answer.done:
        body = _body_text(sent.exchange)
        if body.strip() and not body.lstrip("\ufeff").startswith(("data", ":", "event", "id")):
            return _malformed("status 200 without any server-sent event", body)
        return Failure(FailureKind.EARLY_END, f"the stream ended after {got} tokens, no {_DONE}")
    if answer.uncounted:
        return Failure(FailureKind.MISSING_USAGE, f"text without running usage; {dialect.advice}")
    if usage is None:
        return Failure(FailureKind.MISSING_USAGE, f"no {dialect.usage_field}")
    if got == 0 and usage > 0:
        message = f"no token ids, usage says {usage}; {dialect.advice}"
        return Failure(FailureKind.WRONG_LENGTH, message)
    return _wrong_length(got, usage, sent.request.expected_tokens)


def _wrong_length(got: int, usage: int, expected: int | None) -> Failure | None:
    if got != usage:
        message = f"{got} token ids, but usage says {usage}"
    elif expected is not None and got != expected:
        message = f"{got} tokens, expected {expected}; is ignore_eos honoured?"
    else:
        return None
    return Failure(FailureKind.WRONG_LENGTH, message)


def _malformed(what: str, data: str) -> Failure:
    return Failure(FailureKind.MALFORMED, f"{what}: {data}")


def _body_text(exchange: RawExchange) -> str:
    """Return the body as far as it came and could be framed, for a message."""
    decoder, parts = ResponseDecoder(), []
    try:
        for _, data in exchange.reads:
            parts.append(decoder.feed(data))
    except HttpError as error:
        parts.append(f"(then no HTTP/1.1: {error})".encode())
    if decoder.head is not None and decoder.head.encoding != "identity":
        return f"(a body encoded as {decoder.head.encoding!r})"
    return b"".join(parts).decode("utf-8", errors="replace")


def _clean(failure: Failure | None, secret: str | None) -> Failure | None:
    """Strike out the key, then cut; the other way round could leave part of it."""
    if failure is None:
        return None
    message = failure.message.encode("utf-8", errors="replace").decode()
    message = message.replace(secret, "***") if secret else message
    return Failure(failure.kind, message[:_MESSAGE_CHARS])
