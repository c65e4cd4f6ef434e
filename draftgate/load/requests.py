"""What is sent, and where to: prepared before the run, so that sending is one write.

Knows the OpenAI chat format and the fields vLLM adds to it. Opens no socket
and times nothing; `draftgate.load.client` sends what is built here.
"""

import json
import os
from dataclasses import dataclass
from typing import Any, Protocol
from urllib.parse import SplitResult, urlsplit

from draftgate.errors import SpecError
from draftgate.specs import SamplingParams

CHAT_PATH = "/v1/chat/completions"


class ChatPrompt(Protocol):
    """What a prompt must offer to be sent as a chat."""

    @property
    def prompt_id(self) -> str:
        """Return the prompt's id in its dataset."""

    @property
    def messages(self) -> tuple[tuple[str, str], ...]:
        """Return (role, content) pairs in order."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where requests go.

    Attributes:
        base_url: Scheme, host, port and an optional prefix, without `/v1`.
        model: Model name that requests ask for.
        api_key_env: Environment variable that holds the key. The key itself is
            read when a connection is made and enters no record.
    """

    base_url: str
    model: str
    api_key_env: str | None = None

    def __post_init__(self) -> None:
        """Check the address.

        Raises:
            SpecError: If it is no http(s) URL, has no host, holds a user name
                or password, or its port is no number.
        """
        parts = urlsplit(self.base_url)
        if "@" in parts.netloc:
            raise SpecError(
                "endpoint URL: holds a user name or password. Put the key into an environment "
                "variable and name it as api_key_env."
            )
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise SpecError(
                f"endpoint URL: got {self.base_url!r}, expected http://HOST:PORT or "
                "https://HOST[:PORT], without /v1."
            )
        try:
            _ = parts.port
        except ValueError as error:
            raise SpecError(f"endpoint URL {self.base_url!r}: {error}.") from None

    @property
    def address(self) -> SplitResult:
        """Return the URL in parts."""
        return urlsplit(self.base_url)

    def api_key(self) -> str | None:
        """Return the key from the environment; None if the endpoint needs none.

        Raises:
            SpecError: If the named variable is unset or empty, or if its value
                cannot stand in an HTTP header. The message never shows it.
        """
        if self.api_key_env is None:
            return None
        key = os.environ.get(self.api_key_env, "").strip()
        if not key:
            raise SpecError(
                f"api_key_env {self.api_key_env!r}: the variable is unset or empty. Export the key "
                "under that name, or drop api_key_env."
            )
        if not (key.isascii() and key.isprintable()):
            raise SpecError(
                f"api_key_env {self.api_key_env!r}: the value holds characters that an HTTP header "
                "cannot carry. Export the key alone, without quotes or line breaks."
            )
        return key


@dataclass(frozen=True, slots=True)
class PreparedRequest:
    """One request, ready to be written.

    Attributes:
        prompt_id: The prompt's id in its dataset.
        path: Path below the endpoint's base address.
        body: JSON document in UTF-8.
        expected_tokens: Output length that the answer must have; None where
            the model may end by itself.
    """

    prompt_id: str
    path: str
    body: bytes
    expected_tokens: int | None


def prepare_chat(
    prompt: ChatPrompt,
    endpoint_model: str,
    sampling: SamplingParams,
    *,
    cache_salt: str | None,
) -> PreparedRequest:
    """Return a streaming chat request that asks for token ids and usage.

    Only what `sampling` sets away from its neutral value is sent, so that a
    server without an extension such as `top_k` is not asked for it.

    Args:
        prompt: What to ask.
        endpoint_model: Model name by which the server knows its model.
        sampling: How tokens are drawn.
        cache_salt: vLLM's field of that name; a salt of its own per request
            defeats the prefix cache. None shares it.

    Returns:
        The request; its length is checked later when `ignore_eos` fixes it.
    """
    body: dict[str, Any] = {
        "model": endpoint_model,
        "messages": [{"role": role, "content": content} for role, content in prompt.messages],
        "stream": True,
        "stream_options": {"include_usage": True},
        "return_token_ids": True,
        **_sampling_fields(sampling),
    }
    if cache_salt is not None:
        body["cache_salt"] = cache_salt
    return PreparedRequest(
        prompt_id=prompt.prompt_id,
        path=CHAT_PATH,
        body=json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode(),
        expected_tokens=sampling.max_tokens if sampling.ignore_eos else None,
    )


def _sampling_fields(sampling: SamplingParams) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "max_tokens": sampling.max_tokens,
        "temperature": sampling.temperature,
    }
    if sampling.top_p != 1.0:
        fields["top_p"] = sampling.top_p
    if sampling.top_k != 0:
        fields["top_k"] = sampling.top_k
    if sampling.seed is not None:
        fields["seed"] = sampling.seed
    if sampling.ignore_eos:
        fields["ignore_eos"] = True
    return fields
