"""What a request may ask for: the number of output tokens and of choices.

Reads the few fields that count and skips the rest. Knows no HTTP and no engine; how
many bytes a body may have is kept where it is read, in `draftgate.serve.front`.
"""

import json
from dataclasses import dataclass
from typing import Any

import msgspec

from draftgate.errors import SpecError
from draftgate.serve.refusals import Refusal, RefusedError

COMPLETIONS_DEFAULT_TOKENS = 16
"""`max_tokens` of /v1/completions where a request has none: OpenAI's API reference, and vLLM's
`CompletionRequest.max_tokens`. A chat without one goes on to the end of the context."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What one request may ask for.

    Attributes:
        max_body_bytes: Length of the body, >= 1.
        max_output_tokens: Output tokens of one choice, >= 1; None for as many as the engine gives.
        max_choices: Choices of one request: `n` times the number of prompts, >= 1. Each takes a
            place in the engine's batch, while a request takes one slot.
    """

    max_body_bytes: int
    max_output_tokens: int | None = None
    max_choices: int = 1

    def __post_init__(self) -> None:
        """Check the ranges.

        Raises:
            SpecError: If a limit is below 1.
        """
        for option, value in (
            ("--max-body-bytes", self.max_body_bytes),
            ("--max-output-tokens", self.max_output_tokens),
            ("--max-choices", self.max_choices),
        ):
            if value is not None and value < 1:
                raise SpecError(f"serve: {option} must be 1 or more, got {value}.")


class _Fields(msgspec.Struct):
    """The fields that count, as the client wrote them."""

    stream: Any = False
    max_tokens: Any = msgspec.UNSET
    max_completion_tokens: Any = None
    n: Any = None
    best_of: Any = None
    prompt: msgspec.Raw = msgspec.Raw(b"")


_DECODER = msgspec.json.Decoder(_Fields)


@dataclass(frozen=True, slots=True)
class Checked:
    """A request that may go to the engine.

    Attributes:
        body: What is sent: the client's own bytes, unless a limit had to be written into them.
        stream: Whether it asks for a stream.
    """

    body: bytes
    stream: bool


def check_request(body: bytes, limits: Limits, *, chat: bool) -> Checked:
    """Return a request that keeps the limits.

    Only where a request says nothing of its length, and would get more than
    `max_output_tokens`, is it written anew, with that as its `max_tokens`.

    Args:
        body: The client's.
        limits: To keep.
        chat: Whether it came to /v1/chat/completions.

    Raises:
        RefusedError: If it is no JSON object, or asks for too much.
    """
    try:
        fields = _DECODER.decode(body)
        choices = _choices(fields)
    except (msgspec.DecodeError, RecursionError) as error:
        raise _wrong(f"The body is no JSON object that can be read ({error})") from error
    if choices > limits.max_choices:
        raise _wrong(
            f"The request asks for {choices} choices (n times the number of prompts), expected at "
            f"most {limits.max_choices}. Send one request for each",
            "n",
        )
    most = limits.max_output_tokens
    if most is not None and _asked_tokens(fields, most, chat=chat) > most:
        body = _with_tokens(body, most)
    return Checked(body, fields.stream is True)


def _choices(fields: _Fields) -> int:
    each = max(_count(fields.n, "n") or 1, _count(fields.best_of, "best_of") or 1)
    return each * _prompts(fields.prompt)


def _prompts(prompt: msgspec.Raw) -> int:
    """Return how many prompts there are: a list of texts or of lists of ids is several."""
    if _first(prompt) != b"[":
        return 1
    parts = msgspec.json.decode(prompt, type=list[msgspec.Raw])
    several = bool(parts) and _first(parts[0]) in (b'"', b"[")
    return len(parts) if several else 1


def _first(raw: msgspec.Raw) -> bytes:
    return bytes(raw).lstrip()[:1]


def _asked_tokens(fields: _Fields, most: int, *, chat: bool) -> float:
    """Return how many output tokens the engine would give; infinity for no limit.

    Raises:
        RefusedError: If the client itself asks for more than `most`.
    """
    unset = fields.max_tokens is msgspec.UNSET
    plain = _count(None if unset else fields.max_tokens, "max_tokens")
    newer = _count(fields.max_completion_tokens, "max_completion_tokens")
    for name, value in (("max_tokens", plain), ("max_completion_tokens", newer)):
        if value is not None and value > most:
            raise _wrong(
                f"{name} is {value}, expected at most {most}. Ask for a shorter answer", name
            )
    given = [value for value in (plain, newer if chat else None) if value is not None]
    if given:
        return max(given)
    return COMPLETIONS_DEFAULT_TOKENS if unset and not chat else float("inf")


def _count(value: Any, name: str) -> int | None:
    """Return a count; None where the request has none.

    An engine may take "9" or 9.0 for 9, so what is no whole number is refused, not ignored.
    """
    if value is None:
        return None
    if type(value) is not int or value < 0:
        raise _wrong(f"{name} is not a whole number of 0 or more. Send one, or leave it out", name)
    return value


def _with_tokens(body: bytes, most: int) -> bytes:
    try:
        document = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise _wrong("The body is no JSON object that can be read") from error
    document["max_tokens"] = most
    return json.dumps(document).encode()


def _wrong(what: str, param: str | None = None) -> RefusedError:
    code = "invalid_body" if param is None else "over_limit"
    return RefusedError(Refusal(400, code, f"{what}.", param=param))
