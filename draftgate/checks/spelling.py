"""From conversations to token ids and from ids back to text, by the server or in process.

A check sends prompts as ids, so that reference and server read the same ones. Knows no
sockets (it is handed a function that posts) and imports transformers only when used.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from draftgate.checks.ask import Post
from draftgate.datasets import Prompt
from draftgate.errors import EngineError, SpecError


class Spelling(Protocol):
    """What a tokenizer does for a check."""

    def ids(self, prompt: Prompt) -> tuple[int, ...]:
        """Return the prompt under the model's chat template, up to where the answer begins."""
        ...

    def text(self, ids: Sequence[int]) -> str | None:
        """Return the text of ids; None if it can't be told."""
        ...


class ServerSpelling:
    """vLLM's routes `/tokenize` and `/detokenize`.

    Args:
        post: Posts JSON to the server.
        model: Name by which it serves its model.
    """

    def __init__(self, post: Post, model: str) -> None:
        self._post = post
        self._model = model

    def ids(self, prompt: Prompt) -> tuple[int, ...]:
        """Return the prompt's ids.

        Raises:
            EngineError: If the server has no such route or answers without ids.
        """
        messages = [{"role": role, "content": content} for role, content in prompt.messages]
        answer = self._post("/tokenize", {"model": self._model, "messages": messages})
        return tuple(_list_of_ids(answer))

    def text(self, ids: Sequence[int]) -> str | None:
        """Return the text of ids."""
        answer = self._post("/detokenize", {"model": self._model, "tokens": list(ids)})
        said = answer.get("prompt") if isinstance(answer, dict) else None
        return said if isinstance(said, str) else None


class LocalSpelling:
    """The tokenizer in a model's folder.

    Args:
        folder: Holds the tokenizer's files.

    Raises:
        SpecError: If transformers is not installed or the folder holds no tokenizer.
    """

    def __init__(self, folder: Path | str) -> None:
        try:
            from transformers import AutoTokenizer  # noqa: PLC0415 - heavy, and optional
        except ImportError as error:
            raise SpecError(
                f"tokenizer {str(folder)!r}: the package transformers is not installed. Install "
                "it, or check a vLLM server, which tokenizes by itself."
            ) from error
        try:
            self._tokenizer: Any = AutoTokenizer.from_pretrained(folder, local_files_only=True)
        except (OSError, ValueError) as error:
            said = " ".join(str(error).split())[:200]
            raise SpecError(
                f"tokenizer {str(folder)!r}: can't be loaded ({said}). Name the folder of the "
                "served model."
            ) from error

    def ids(self, prompt: Prompt) -> tuple[int, ...]:
        """Return the prompt's ids; without a chat template those of its texts in a row."""
        messages = [{"role": role, "content": content} for role, content in prompt.messages]
        if self._tokenizer.chat_template is None:
            text = "\n".join(content for _, content in prompt.messages)
            return tuple(self._tokenizer(text)["input_ids"])
        text = self._tokenizer.apply_chat_template(
            messages, tokenize=False, add_generation_prompt=True
        )
        return tuple(self._tokenizer(text, add_special_tokens=False)["input_ids"])

    def text(self, ids: Sequence[int]) -> str | None:
        """Return the text of ids, special tokens included."""
        return str(self._tokenizer.decode(list(ids)))


def _list_of_ids(answer: Any) -> list[int]:
    ids = answer.get("tokens") if isinstance(answer, dict) else None
    if not isinstance(ids, list) or not ids or not all(isinstance(token, int) for token in ids):
        raise EngineError(
            f"/tokenize: got {str(answer)[:80]!r}, expected the token ids of a prompt. Is it vLLM? "
            "Other servers need --tokenizer FOLDER."
        )
    return ids
