"""What is sent, and where to: prepared before the run, so that sending is one write.

Knows addresses, keys and JSON; the fields of each API are its dialect's affair
(`draftgate.load.apis`). Opens no socket and times nothing:
`draftgate.load.client` sends what is built here.
"""

import json
import os
import ssl
from dataclasses import dataclass
from typing import Protocol
from urllib.parse import SplitResult, urlsplit

from draftgate.errors import SpecError
from draftgate.load.apis import APIS, LoadPrompt
from draftgate.load.apis.dialect import Settings
from draftgate.specs import SamplingParams

__all__ = ["ChatPrompt", "Endpoint", "LoadPrompt", "PreparedRequest", "prepare", "prepare_chat"]


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
        verify_tls: Whether an https server must prove who it is. Without it
            anybody on the way can read the key.
        ca_file: PEM file of the authorities to trust in place of the system's;
            None for the system's.
    """

    base_url: str
    model: str
    api_key_env: str | None = None
    verify_tls: bool = True
    ca_file: str | None = None

    def __post_init__(self) -> None:
        """Check the address.

        Raises:
            SpecError: If it is no http(s) URL, has no host, holds a user name
                or password, or its port is no number; or if authorities are
                named though nothing is verified.
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
        if self.ca_file is not None and not self.verify_tls:
            raise SpecError(
                f"ca_file {self.ca_file!r}: given though verify_tls is off, so nothing would be "
                "checked against it. Drop one of the two."
            )

    @property
    def address(self) -> SplitResult:
        """Return the URL in parts."""
        return urlsplit(self.base_url)

    def ssl_context(self) -> ssl.SSLContext | None:
        """Return how to secure connections; None for http.

        Raises:
            SpecError: If `ca_file` cannot be read or holds no certificate.
        """
        if self.address.scheme != "https":
            return None
        try:
            context = ssl.create_default_context(cafile=self.ca_file)
        except OSError as error:  # ssl.SSLError is one: no certificate inside
            raise SpecError(
                f"ca_file {self.ca_file!r}: cannot be read as PEM certificates: {error}. "
                "Name the file of the authority that signed the server's certificate."
            ) from error
        if not self.verify_tls:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return context

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
        dialect: Name of the API that it speaks and that reads the answer.
    """

    prompt_id: str
    path: str
    body: bytes
    expected_tokens: int | None
    dialect: str = "chat"


def prepare(
    dialect: str,
    prompt: LoadPrompt,
    model: str,
    sampling: SamplingParams,
    *,
    cache_salt: str | None = None,
) -> PreparedRequest:
    """Return a streaming request that asks for tokens to be counted by the server.

    Only what `sampling` sets away from its neutral value is sent, so that a
    server without an extension such as `top_k` is not asked for it.

    Args:
        dialect: Name of the API, one of `APIS.names()`.
        prompt: What to ask. A chat API sends raw text as one user message; the
            others send one user message as raw text, without a template.
        model: Name by which the server knows its model.
        sampling: How tokens are drawn.
        cache_salt: Keeps the prefix apart in the server's prefix cache; one of
            its own per request defeats the cache. None shares it.

    Returns:
        The request; its length is checked later when `ignore_eos` fixes it.

    Raises:
        SpecError: If the API is unknown or cannot express prompt or setting, or
            if the prompt's text is no Unicode.
    """
    api = APIS.get(dialect)
    document = api.body(prompt, Settings(model, sampling, cache_salt))
    try:
        body = json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()
    except UnicodeEncodeError as error:
        raise SpecError(
            f"prompt {prompt.prompt_id!r}: cannot be sent as UTF-8: {error}. It holds half of a "
            "surrogate pair; repair the text."
        ) from None
    return PreparedRequest(
        prompt_id=prompt.prompt_id,
        path=api.path,
        body=body,
        expected_tokens=sampling.max_tokens if sampling.ignore_eos else None,
        dialect=dialect,
    )


def prepare_chat(
    prompt: ChatPrompt,
    endpoint_model: str,
    sampling: SamplingParams,
    *,
    cache_salt: str | None,
) -> PreparedRequest:
    """Return `prepare` for the API `chat`, from any prompt that has messages."""
    asked = LoadPrompt(prompt.prompt_id, messages=prompt.messages)
    return prepare("chat", asked, endpoint_model, sampling, cache_salt=cache_salt)
