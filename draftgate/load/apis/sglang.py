"""`sglang`: SGLang's own `/generate`, which sends token ids in every event.

By default each event repeats all output so far; a server started with
`--incremental-streaming-output` sends the new part alone. Nothing in the stream
names the mode, but `meta_info.completion_tokens` is the total in both, so each
event shows by its length which one it is.
"""

from typing import Any

import msgspec

from draftgate.load.apis import APIS
from draftgate.load.apis.dialect import Answer, Dialect, LoadPrompt, Settings, raw_prompt
from draftgate.load.apis.openai import Count, TokenId, in_band_error, sampling_fields
from draftgate.records import Failure, FailureKind, StreamChunk

PATH = "/generate"

NAMES = {"max_tokens": "max_new_tokens", "seed": "sampling_seed"}
"""What `sampling_params` call the fields that OpenAI's APIs name otherwise."""


class _Reason(msgspec.Struct, gc=False):
    type: str
    message: str | None = None


class _Meta(msgspec.Struct, gc=False):
    prompt_tokens: Count | None = None
    completion_tokens: Count | None = None
    finish_reason: _Reason | str | None = None


class _Event(msgspec.Struct, gc=False):
    meta_info: _Meta
    output_ids: tuple[TokenId, ...] | None = None
    text: str | None = None
    error: Any = None


class GenerateReader:
    """Takes what is new out of events that hold all output or the new part."""

    __slots__ = ("_seen",)

    decode = staticmethod(msgspec.json.Decoder(_Event).decode)

    def __init__(self) -> None:
        self._seen = 0

    def convert(self, document: Any, /) -> _Event:
        """Return a parsed document as an event."""
        return msgspec.convert(document, _Event)

    def take(self, event: _Event, t_ns: int, answer: Answer, /) -> None:
        """Add an event; it is a chunk if it holds ids that were not there before."""
        meta = event.meta_info
        if meta.prompt_tokens is not None:
            answer.prompt_tokens = meta.prompt_tokens
        if meta.completion_tokens is not None:
            answer.completion_tokens = meta.completion_tokens
        if event.error is not None:
            answer.failure = in_band_error(event.error)
            return
        if meta.finish_reason is not None:
            _note_end(meta.finish_reason, answer)
            if answer.failure is not None:
                return
        if event.output_ids is not None:
            self._take_ids(event, event.output_ids, t_ns, answer)

    def _take_ids(self, event: _Event, ids: tuple[int, ...], t_ns: int, answer: Answer) -> None:
        seen, total, size = self._seen, event.meta_info.completion_tokens, len(ids)
        if size == total:  # everything so far; at the first tokens the two modes are one
            ids = ids[seen:]
            answer.text.clear()
        elif total is None or size != total - seen:
            answer.failure = _unclear(size, seen, total)
            return
        if event.text:
            answer.text.append(event.text)
        if ids:
            answer.chunks.append(StreamChunk(t_ns, ids))
            self._seen = seen + len(ids)


def _note_end(reason: _Reason | str, answer: Answer) -> None:
    if isinstance(reason, str):
        answer.end(reason)
    else:
        answer.end(reason.type, reason.message)


def _unclear(size: int, seen: int, total: int | None) -> Failure:
    return Failure(
        FailureKind.MALFORMED,
        f"an event holds {size} output_ids after {seen} tokens, while meta_info."
        f"completion_tokens says {total}: neither all tokens nor the new ones",
    )


def _body(prompt: LoadPrompt, settings: Settings) -> dict[str, Any]:
    content = raw_prompt("sglang", prompt)
    body: dict[str, Any] = {
        "text" if isinstance(content, str) else "input_ids": content,
        "sampling_params": sampling_fields(settings, **NAMES),
        "stream": True,
    }
    if settings.cache_salt is not None:
        body["extra_key"] = settings.cache_salt  # part of the radix cache's key, as a salt is
    return body


APIS.register("sglang")(
    Dialect(
        name="sglang",
        path=PATH,
        body=_body,
        reader=GenerateReader,
        usage_field="meta_info.completion_tokens",
        advice="events of /generate must hold output_ids; is it SGLang 0.5 or later?",
    )
)
