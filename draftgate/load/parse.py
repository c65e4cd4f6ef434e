"""Stamped bytes of one exchange -> one `RequestRecord`, after the run.

Knows the OpenAI streaming format with vLLM's token ids. Counts tokens by
`choices[0].token_ids` alone, never by text or by events. Every way in which an
answer can be less than what was asked for becomes a `Failure`.
"""

import json
from dataclasses import dataclass, field
from typing import Any

from draftgate.load.client import RawExchange
from draftgate.load.requests import PreparedRequest
from draftgate.load.sse import SseEvent, SseParser
from draftgate.records import Failure, FailureKind, RequestRecord, StreamChunk

_DONE = "[DONE]"
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


@dataclass(slots=True)
class _Answer:
    """What the events of one response add up to."""

    chunks: list[StreamChunk] = field(default_factory=list)
    text: list[str] = field(default_factory=list)
    usage: dict[str, Any] | None = None
    finish_reason: str | None = None
    done: bool = False
    failure: Failure | None = None

    @property
    def token_count(self) -> int:
        """Return the number of token ids over all chunks."""
        return sum(len(chunk.token_ids) for chunk in self.chunks)


def parse_exchange(
    sent: SentRequest, *, secret: str | None = None, keep_text: bool = True
) -> RequestRecord:
    """Return the record of one exchange, with its failure classified.

    A chunk is one event that carries at least one token id, stamped by the
    read in which its last byte arrived; under speculation it often holds
    several tokens. What arrived before a failure stays in the record.

    Args:
        sent: The exchange and its place in the run.
        secret: The API key, struck out of whatever the server said.
        keep_text: Whether the record holds the output text.

    Returns:
        The record; `failure` is None only if the answer is whole: status 200,
        well-formed events, `[DONE]`, usage, and token ids that agree in number
        with usage and with the length asked for.
    """
    exchange = sent.exchange
    answer = _Answer()
    if exchange.status == 200:
        answer = _read_events(exchange.reads)
    failure = _classify(sent, answer)
    usage = answer.usage or {}
    return RequestRecord(
        index=sent.index,
        stream=sent.stream,
        prompt_id=sent.request.prompt_id,
        scheduled_ns=sent.scheduled_ns,
        sent_ns=exchange.sent_ns,
        ended_ns=exchange.ended_ns,
        chunks=tuple(answer.chunks),
        prompt_tokens=usage.get("prompt_tokens"),
        completion_tokens=usage.get("completion_tokens"),
        finish_reason=answer.finish_reason,
        failure=_clean(failure, secret),
        text="".join(answer.text) if keep_text else None,
    )


def _read_events(reads: tuple[tuple[int, bytes], ...]) -> _Answer:
    answer, parser = _Answer(), SseParser()
    try:
        for t_ns, data in reads:
            for event in parser.feed(data, t_ns):
                _add_event(answer, event)
                if answer.failure is not None:
                    return answer
    except ValueError as error:
        answer.failure = Failure(FailureKind.MALFORMED, f"the event stream is not UTF-8: {error}")
    return answer


def _add_event(answer: _Answer, event: SseEvent) -> None:
    if event.data == _DONE.encode():
        answer.done = True
        return
    try:
        document = json.loads(event.data)
    except json.JSONDecodeError as error:
        answer.failure = _malformed(f"data is not JSON ({error})", event.data.decode())
        return
    if not isinstance(document, dict):
        answer.failure = _malformed("data is not a JSON object", event.data.decode())
    elif document.get("error") is not None:
        said = document["error"]
        answer.failure = Failure(FailureKind.IN_BAND_ERROR, f"in the stream: {_said(said)}")
    elif not _add_document(answer, document, event.t_ns):
        what = "choices, token_ids or usage have another form"
        answer.failure = _malformed(what, event.data.decode())


def _add_document(answer: _Answer, document: dict[str, Any], t_ns: int) -> bool:
    """Add one data object; return whether it had the form expected."""
    usage = document.get("usage")
    if usage is not None:
        if not _is_usage(usage):
            return False
        answer.usage = usage
    choices = document.get("choices")
    if not isinstance(choices, list) or (choices and not isinstance(choices[0], dict)):
        return False
    return not choices or _add_choice(answer, choices[0], t_ns)


def _add_choice(answer: _Answer, choice: dict[str, Any], t_ns: int) -> bool:
    token_ids = choice.get("token_ids") or []
    text = _delta_text(choice)
    if not (isinstance(token_ids, list) and all(type(token) is int for token in token_ids)):
        return False
    if not isinstance(text, str):
        return False
    if token_ids:
        answer.chunks.append(StreamChunk(t_ns, tuple(token_ids)))
    answer.text.append(text)
    reason = choice.get("finish_reason")
    if reason is not None:
        answer.finish_reason = str(reason)
    return True


def _delta_text(choice: dict[str, Any]) -> Any:
    """Return the new text of a chat or a completion event, of whatever type it is."""
    delta = choice.get("delta")
    if isinstance(delta, dict):
        return delta.get("content") or ""
    return choice.get("text") or ""


def _is_usage(usage: Any) -> bool:
    if not isinstance(usage, dict):
        return False
    counts = (usage.get("prompt_tokens"), usage.get("completion_tokens"))
    return all(count is None or (type(count) is int and count >= 0) for count in counts)


def _classify(sent: SentRequest, answer: _Answer) -> Failure | None:
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
    return _incomplete(sent, answer)


def _incomplete(sent: SentRequest, answer: _Answer) -> Failure | None:
    """Return what a well-formed response lacks."""
    if not answer.done:
        body = _body_text(sent.exchange)
        if body.strip() and not body.lstrip("\ufeff").startswith(("data", ":", "event", "id")):
            return _malformed("status 200 without any server-sent event", body)
        got = answer.token_count
        return Failure(FailureKind.EARLY_END, f"the stream ended after {got} tokens, no {_DONE}")
    completion = (answer.usage or {}).get("completion_tokens")
    if completion is None:
        message = "no usage.completion_tokens, though stream_options.include_usage was sent"
        return Failure(FailureKind.MISSING_USAGE, message)
    return _wrong_length(answer.token_count, completion, sent.request.expected_tokens)


def _wrong_length(got: int, usage: int, expected: int | None) -> Failure | None:
    if got == 0 and usage > 0:
        message = f"no token ids, usage says {usage}; the server must honour return_token_ids"
    elif got != usage:
        message = f"{got} token ids, but usage says {usage}"
    elif expected is not None and got != expected:
        message = f"{got} tokens, expected {expected}; is ignore_eos honoured?"
    else:
        return None
    return Failure(FailureKind.WRONG_LENGTH, message)


def _malformed(what: str, data: str) -> Failure:
    return Failure(FailureKind.MALFORMED, f"{what}: {data}")


def _said(error: Any) -> str:
    if isinstance(error, dict) and isinstance(error.get("message"), str):
        return str(error["message"])
    return json.dumps(error)


def _body_text(exchange: RawExchange) -> str:
    return b"".join(data for _, data in exchange.reads).decode("utf-8", errors="replace")


def _clean(failure: Failure | None, secret: str | None) -> Failure | None:
    """Strike out the key, then cut; the other way round could leave part of it."""
    if failure is None:
        return None
    message = failure.message.replace(secret, "***") if secret else failure.message
    return Failure(failure.kind, message[:_MESSAGE_CHARS])
