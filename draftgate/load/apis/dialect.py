"""What a dialect is: a way to ask and a way to read the answer's events.

Holds the prompt that is asked, the answer that events add up to, and the
interface between the two. Knows no server in particular, and neither HTTP nor
clocks.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from draftgate.errors import SpecError
from draftgate.records import Failure, FailureKind, StreamChunk
from draftgate.specs import SamplingParams

BROKEN_ENDS = frozenset({"abort", "error"})
"""Finish reasons by which vLLM and SGLang say that they gave up on a request."""


@dataclass(frozen=True, slots=True)
class LoadPrompt:
    """What to ask, in exactly one of three forms.

    Attributes:
        prompt_id: Its id in its dataset.
        messages: (role, content) pairs in order; empty for the other forms.
        text: Raw text, to which the server applies no chat template.
        token_ids: The prompt's tokens, none negative; empty for the other forms.
    """

    prompt_id: str
    messages: tuple[tuple[str, str], ...] = ()
    text: str | None = None
    token_ids: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        """Check that there is one form and that it holds something.

        Raises:
            SpecError: If there is none or more than one, or a negative token.
        """
        forms = [bool(self.messages), bool(self.text), bool(self.token_ids)]
        if sum(forms) != 1:
            raise SpecError(
                f"prompt {self.prompt_id!r}: got {sum(forms)} of messages, text and token ids "
                "that are not empty, expected exactly one."
            )
        if any(token < 0 for token in self.token_ids):
            raise SpecError(
                f"prompt {self.prompt_id!r}: got the token id {min(self.token_ids)}, "
                "expected none below 0."
            )


@dataclass(frozen=True, slots=True)
class Settings:
    """How a prompt is asked.

    Attributes:
        model: Name by which the server knows its model.
        sampling: How tokens are drawn.
        cache_salt: What keeps the request's prefix apart in the server's
            prefix cache; None shares it.
    """

    model: str
    sampling: SamplingParams
    cache_salt: str | None = None


@dataclass(slots=True)
class Answer:
    """What the events of one response have added up to so far.

    Attributes:
        chunks: Token-bearing events in order.
        text: Pieces of the output text.
        prompt_tokens: By the server's usage; None until it was sent.
        completion_tokens: Likewise.
        finish_reason: As the server named it.
        done: Whether the stream's end mark came.
        failure: Why reading stopped; None while all is well.
        uncounted: Whether text came whose tokens nothing counts.
    """

    chunks: list[StreamChunk] = field(default_factory=list)
    text: list[str] = field(default_factory=list)
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    finish_reason: str | None = None
    done: bool = False
    failure: Failure | None = None
    uncounted: bool = False

    @property
    def num_tokens(self) -> int:
        """Number of tokens over all chunks."""
        return sum(chunk.num_tokens for chunk in self.chunks)

    def end(self, reason: str, said: str | None = None) -> None:
        """Note why the server ended; an abort is a failure even under status 200."""
        self.finish_reason = reason
        if reason in BROKEN_ENDS:
            self.failure = Failure(
                FailureKind.IN_BAND_ERROR,
                f"in the stream: {said or f'the server ended with finish_reason {reason!r}'}",
            )


class EventReader(Protocol):
    """Reads the events of one response in order; a new one for each response."""

    def decode(self, data: bytes, /) -> Any:
        """Return one event's data as the dialect's document.

        Raises:
            msgspec.DecodeError: If it is no JSON or has another form.
        """

    def convert(self, document: Any, /) -> Any:
        """Return a JSON document that was parsed elsewhere, as `decode` would.

        Raises:
            msgspec.ValidationError: If it has another form.
        """

    def take(self, document: Any, t_ns: int, answer: Answer, /) -> None:
        """Add one document, stamped `t_ns`, to `answer`.

        It appends at most one chunk, and none without new tokens. What is
        wrong goes into `answer.failure`.
        """


@dataclass(frozen=True, slots=True)
class Dialect:
    """One API.

    Attributes:
        name: As registered.
        path: Path below the endpoint's base address.
        body: From a prompt and its settings to the request's JSON document;
            raises SpecError for what the API cannot express.
        reader: Makes the reader of one response.
        usage_field: What should have told the number of tokens; for messages.
        advice: What to do when nothing counts the tokens that came.
        gives_text: Whether answers hold text.
    """

    name: str
    path: str
    body: Callable[[LoadPrompt, Settings], dict[str, Any]]
    reader: Callable[[], EventReader]
    usage_field: str
    advice: str
    gives_text: bool = True


def refuse(api: str, setting: str, advice: str) -> SpecError:
    """Return the error for a setting that the API called `api` cannot express."""
    return SpecError(f"API {api!r}: cannot express {setting}. {advice}")


def raw_prompt(api: str, prompt: LoadPrompt) -> str | tuple[int, ...]:
    """Return what an API without a chat template is sent: text or token ids.

    The text of a single user message is sent as it stands, without a template.

    Raises:
        SpecError: If there are several messages, or one that is not the user's.
    """
    if not prompt.messages:
        return prompt.token_ids or prompt.text or ""
    if len(prompt.messages) == 1 and prompt.messages[0][0] == "user":
        return prompt.messages[0][1]
    roles = ", ".join(role for role, _ in prompt.messages)
    raise refuse(
        api,
        f"the messages of prompt {prompt.prompt_id!r} ({roles})",
        "It applies no chat template, so it takes text, token ids or one user message; "
        "use a chat API.",
    )


def chat_messages(api: str, prompt: LoadPrompt) -> list[dict[str, str]]:
    """Return what a chat API is sent; raw text becomes one user message.

    Raises:
        SpecError: If the prompt is given as token ids.
    """
    if prompt.token_ids:
        raise refuse(
            api,
            f"the token ids of prompt {prompt.prompt_id!r}",
            "A chat takes messages or text; use completions, sglang or trtllm.",
        )
    messages = prompt.messages or (("user", prompt.text or ""),)
    return [{"role": role, "content": content} for role, content in messages]
