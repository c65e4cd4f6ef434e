"""What the OpenAI-like dialects share: request fields, event forms, two readers.

`TokenIdReader` counts by `choices[0].token_ids`, `RunningUsageReader` by the
growth of the usage that each event repeats. Neither counts events or looks at
the text to count tokens. Field names are those of the OpenAI streaming API
with the extensions of vLLM, SGLang and TensorRT-LLM.
"""

from typing import Annotated, Any

import msgspec

from draftgate.load.apis.dialect import Answer, Settings
from draftgate.records import Failure, FailureKind, StreamChunk

Count = Annotated[int, msgspec.Meta(ge=0, lt=2**31)]
"""A number of tokens as a server states it; records store 32 bits."""

TokenId = Annotated[int, msgspec.Meta(ge=0, lt=2**31)]
"""A token; records store 32 bits, and no vocabulary comes near."""


class Delta(msgspec.Struct, gc=False):
    """New text of a chat event; reasoning has two spellings in use."""

    content: str | None = None
    reasoning: str | None = None
    reasoning_content: str | None = None


class Choice(msgspec.Struct, gc=False):
    """The part of an event that belongs to one answer."""

    delta: Delta | None = None
    text: str | None = None
    token_ids: tuple[TokenId, ...] | None = None
    finish_reason: str | None = None


class Usage(msgspec.Struct, gc=False):
    """Token counts up to and including the event that carries them."""

    prompt_tokens: Count | None = None
    completion_tokens: Count | None = None


class Event(msgspec.Struct, gc=False):
    """One event of a stream; what is not named here is passed over."""

    choices: list[Choice]
    usage: Usage | None = None
    error: Any = None


_DECODE = msgspec.json.Decoder(Event).decode


def sampling_fields(
    settings: Settings, *, max_tokens: str = "max_tokens", seed: str = "seed"
) -> dict[str, Any]:
    """Return the fields of sampling; two of them have other names outside OpenAI's APIs.

    Only what is set away from its neutral value is among them, so that a server
    without an extension such as `top_k` is not asked for it. `temperature` is
    always there, because servers default to 1.
    """
    sampling = settings.sampling
    fields: dict[str, Any] = {
        max_tokens: sampling.max_tokens,
        "temperature": sampling.temperature,
    }
    if sampling.top_p != 1.0:
        fields["top_p"] = sampling.top_p
    if sampling.top_k != 0:
        fields["top_k"] = sampling.top_k
    if sampling.seed is not None:
        fields[seed] = sampling.seed
    if sampling.ignore_eos:
        fields["ignore_eos"] = True
    return fields


def salt_fields(settings: Settings) -> dict[str, Any]:
    """Return the field that keeps a request out of others' cached prefixes, if asked for."""
    return {} if settings.cache_salt is None else {"cache_salt": settings.cache_salt}


def streaming_fields(*, running_usage: bool = False) -> dict[str, Any]:
    """Return the fields that ask for a stream with usage at its end, or in every event."""
    options = {"include_usage": True}
    if running_usage:
        options["continuous_usage_stats"] = True
    return {"stream": True, "stream_options": options}


class TokenIdReader:
    """Counts the token ids that events carry: each event holds the new ones alone."""

    __slots__ = ()

    decode = staticmethod(_DECODE)

    def convert(self, document: Any, /) -> Event:
        """Return a parsed document as an event."""
        return msgspec.convert(document, Event)

    def take(self, event: Event, t_ns: int, answer: Answer, /) -> None:
        """Add an event; it is a chunk if it holds at least one token id."""
        if event.usage is not None:
            _note_usage(event.usage, answer)
        if event.choices:
            choice = event.choices[0]
            if choice.token_ids:
                answer.chunks.append(StreamChunk(t_ns, choice.token_ids))
            _note_choice(choice, answer)
        if event.error is not None:
            answer.failure = in_band_error(event.error)


class RunningUsageReader:
    """Counts by how much `usage.completion_tokens` has grown since the event before.

    A server that holds text back counts its tokens with the event that it sends
    next, so a chunk is when the server told of tokens, not when it had them.
    Text without usage is marked as uncounted: then usage at the end alone would
    make the whole answer look like one late chunk.
    """

    __slots__ = ("_seen",)

    decode = staticmethod(_DECODE)

    def __init__(self) -> None:
        self._seen = 0

    def convert(self, document: Any, /) -> Event:
        """Return a parsed document as an event."""
        return msgspec.convert(document, Event)

    def take(self, event: Event, t_ns: int, answer: Answer, /) -> None:
        """Add an event; it is a chunk if its usage tells of new tokens."""
        completion = None
        if event.usage is not None:
            _note_usage(event.usage, answer)
            completion = event.usage.completion_tokens
        if completion is not None:
            self._count(completion, t_ns, answer)
        if event.choices:
            choice = event.choices[0]
            if completion is None and _has_text(choice):
                answer.uncounted = True
            _note_choice(choice, answer)
        if event.error is not None:
            answer.failure = in_band_error(event.error)

    def _count(self, completion: int, t_ns: int, answer: Answer) -> None:
        fresh = completion - self._seen
        if fresh > 0:
            answer.chunks.append(StreamChunk(t_ns, (), fresh))
            self._seen = completion
        elif fresh < 0:
            message = f"usage.completion_tokens fell from {self._seen} to {completion}"
            answer.failure = Failure(FailureKind.MALFORMED, message)


def in_band_error(said: Any) -> Failure:
    """Return the failure for an error that a server put into the stream.

    Args:
        said: Content of the `error` field, or the whole document.
    """
    if isinstance(said, dict) and isinstance(said.get("message"), str):
        text = said["message"]
    else:
        text = msgspec.json.encode(said).decode()
    return Failure(FailureKind.IN_BAND_ERROR, f"in the stream: {text}")


def _note_usage(usage: Usage, answer: Answer) -> None:
    answer.prompt_tokens = usage.prompt_tokens
    answer.completion_tokens = usage.completion_tokens


def _note_choice(choice: Choice, answer: Answer) -> None:
    delta = choice.delta
    text = choice.text if delta is None else delta.content
    if text:
        answer.text.append(text)
    if choice.finish_reason is not None:
        answer.end(choice.finish_reason)


def _has_text(choice: Choice) -> bool:
    delta = choice.delta
    if delta is None:
        return bool(choice.text)
    return bool(delta.content or delta.reasoning or delta.reasoning_content)
