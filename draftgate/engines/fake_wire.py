"""The fake server's side of the wire: HTTP/1.1 messages and OpenAI documents.

Knows formats, neither pace nor faults. Used by
`draftgate.engines.fake_server`.
"""

import asyncio
import json
from dataclasses import dataclass
from typing import Any

from draftgate.engines.fake_law import Step


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """One request as read from a connection; header names in lower case."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class Generation:
    """One generation request, worked out in full before the first byte.

    Attributes:
        number: Running number of the request, from 1.
        model: Name the server answers under.
        chat: Whether it came to the chat route.
        stream: Whether it asked for a stream.
        include_usage: Whether a stream is to end with usage.
        give_ids: Whether choices hold token ids.
        prompt_tokens: Length of the prompt.
        tokens: The whole output.
        steps: The same, chunk by chunk.
        faults: Planted faults that hit it.
        prompt_ids: The prompt's tokens, where the model knows them.
        prompt_logprobs: Per token of the prompt what `prompt_logprobs` asks for;
            empty if it was not asked for.
        tell_accepted: Whether the answer tells what was accepted for it.
    """

    number: int
    model: str
    chat: bool
    stream: bool
    include_usage: bool
    give_ids: bool
    prompt_tokens: int
    tokens: tuple[int, ...]
    steps: tuple[Step, ...]
    faults: frozenset[str]
    prompt_ids: tuple[int, ...] = ()
    prompt_logprobs: tuple[dict[str, Any] | None, ...] = ()
    tell_accepted: bool = False

    @property
    def sent_steps(self) -> tuple[Step, ...]:
        """Return what is sent of it: all but the last token under the fault `wrong_length`."""
        if "wrong_length" not in self.faults:
            return self.steps
        last = self.steps[-1]
        shorter = (Step(last.tokens[:-1], last.accepted),) if len(last.tokens) > 1 else ()
        return self.steps[:-1] + shorter

    @property
    def halfway(self) -> int:
        """Return the number of tokens after which a halfway fault strikes."""
        return max(1, len(self.tokens) // 2)


def parse_prompt(given: Any) -> tuple[str, int]:
    """Return a prompt's text and length in tokens: its words, or as many as ids were sent."""
    if isinstance(given, str):
        return given, len(given.split())
    if all(isinstance(part, int) for part in given):
        return json.dumps(given), len(given)
    text = "\n".join(f"{message['role']}: {message['content']}" for message in given)
    return text, len(text.split())


def output_text(tokens: tuple[int, ...]) -> str:
    """Return the text of tokens: " w7 w8" for 7, 8."""
    return "".join(f" w{token}" for token in tokens)


def opening_document(work: Generation) -> dict[str, Any]:
    """Return a chat's first event, which names the role and holds no token."""
    delta = {"role": "assistant", "content": ""}
    choice = {"index": 0, "delta": delta, "finish_reason": None}
    return {**_frame(work), "choices": [choice]}


def step_document(work: Generation, tokens: tuple[int, ...], given: int) -> dict[str, Any]:
    """Return the event of one step; `given` tokens are out with it."""
    is_last = given >= len(work.tokens)
    text = output_text(tokens)
    choice: dict[str, Any] = {"index": 0, "finish_reason": "length" if is_last else None}
    choice.update({"delta": {"content": text}} if work.chat else {"text": text})
    if work.give_ids:
        choice["token_ids"] = list(tokens)
    return {**_frame(work), "choices": [choice]}


def usage_document(work: Generation) -> dict[str, Any]:
    """Return a stream's last event, which has no choice."""
    return {**_frame(work), "choices": [], "usage": _usage(work), **_accepted(work)}


def whole_document(work: Generation) -> dict[str, Any]:
    """Return the answer to a request that asked for no stream."""
    text = output_text(work.tokens)
    choice: dict[str, Any] = {"index": 0, "finish_reason": "length"}
    message = {"role": "assistant", "content": text}
    choice.update({"message": message} if work.chat else {"text": text})
    if work.give_ids:
        choice["token_ids"] = list(work.tokens)
    if work.prompt_logprobs:
        choice["prompt_logprobs"] = list(work.prompt_logprobs)
    document = {**_frame(work), "choices": [choice], "usage": _usage(work), **_accepted(work)}
    if work.give_ids and work.prompt_ids:  # where vLLM puts them
        (document if work.chat else choice)["prompt_token_ids"] = list(work.prompt_ids)
    return document


def _frame(work: Generation) -> dict[str, Any]:
    kind = "chat.completion" if work.chat else "text_completion"
    suffix = ".chunk" if work.chat and work.stream else ""
    return {"id": f"fake-{work.number}", "object": kind + suffix, "model": work.model}


def _usage(work: Generation) -> dict[str, int]:
    prompt, completion = work.prompt_tokens, len(work.tokens)
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
    }


def _accepted(work: Generation) -> dict[str, Any]:
    """Return what an answer tells of its own drafts, where vLLM puts it; empty if it does not."""
    if not work.tell_accepted:
        return {}
    accepted = sum(step.accepted for step in work.steps)
    drafts = {"num_spec_steps": len(work.steps) - 1, "num_accepted_draft_tokens": accepted}
    return {"metrics": {"speculative_decoding": drafts}}


async def read_request(reader: asyncio.StreamReader) -> HttpRequest | None:
    """Return the next request of a connection; None when the client has closed it."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")
        method, path, _ = first.split(" ", 2)
        pairs = (line.split(":", 1) for line in lines if line)
        headers = {name.lower(): value.strip() for name, value in pairs}
        body = await reader.readexactly(int(headers.get("content-length", "0")))
    except asyncio.IncompleteReadError:
        return None
    return HttpRequest(method, path, headers, body)


async def send(
    writer: asyncio.StreamWriter, status: int, body: bytes, kind: str = "text/plain"
) -> None:
    """Write a whole response with a known length."""
    head = f"HTTP/1.1 {status} -\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n"
    writer.write(head.encode() + body)
    await writer.drain()


async def send_json(writer: asyncio.StreamWriter, status: int, document: dict[str, Any]) -> None:
    """Write a JSON response."""
    await send(writer, status, json.dumps(document).encode(), "application/json")


async def send_error(writer: asyncio.StreamWriter, status: int, message: str) -> None:
    """Write an error in OpenAI's form."""
    await send_json(writer, status, {"error": error_document(message, status)})


def error_document(message: str, code: int) -> dict[str, Any]:
    """Return the value of an `error` key."""
    return {"message": message, "type": "fake", "code": code}


def write_stream_head(writer: asyncio.StreamWriter) -> None:
    """Begin an event stream, sent in chunks."""
    writer.write(
        b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\n"
        b"Transfer-Encoding: chunked\r\n\r\n"
    )


def write_event(writer: asyncio.StreamWriter, document: dict[str, Any]) -> None:
    """Write one event that holds a JSON document."""
    write_data(writer, json.dumps(document).encode())


def write_data(writer: asyncio.StreamWriter, data: bytes) -> None:
    """Write one event that holds `data`, which has no line breaks."""
    event = b"data: " + data + b"\n\n"
    writer.write(b"%x\r\n%b\r\n" % (len(event), event))


async def write_stream_end(writer: asyncio.StreamWriter) -> None:
    """Write `[DONE]` and end the chunked body."""
    write_data(writer, b"[DONE]")
    writer.write(b"0\r\n\r\n")
    await writer.drain()
