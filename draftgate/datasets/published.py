"""Published data sets: found in a file or on the hub, checked, made into prompts.

Each lives in its own file beside this one and says how a row becomes a prompt.
Their content is never part of draftgate. The optional `huggingface_hub` is
imported here alone, when a set is named without a file.
"""

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from draftgate.datasets.jsonl import Prompt
from draftgate.datasets.rows import Row, read_rows
from draftgate.errors import SpecError


@dataclass(frozen=True, slots=True)
class HubFile:
    """Where the hub keeps a set."""

    repo: str
    file: str


@dataclass(frozen=True, slots=True)
class Prompts:
    """Prompts in file order, and what was odd about the file, in words."""

    prompts: tuple[Prompt, ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Published:
    """One published set.

    Attributes:
        name: What a workload calls it.
        read: From rows to prompts, in order.
        hub: Where the hub keeps it; None where it has to be given as a file.
        count: Number of prompts of a set that is fixed; None where it is not.
        sha256: `content_sha256` of a fixed set; None likewise.
    """

    name: str
    read: Callable[[Sequence[Row]], Prompts]
    hub: HubFile | None
    count: int | None = None
    sha256: str | None = None

    def load(self, path: Path | None) -> Prompts:
        """Return the set from a file, or from the hub's where there is none.

        Raises:
            SpecError: If it cannot be had or read, or a fixed set is another.
        """
        file = path or self._from_hub()
        found = self.read(read_rows(file))
        if not found.prompts:
            raise SpecError(
                f"dataset {self.name!r}: {file} holds no usable prompt. {'; '.join(found.notes)}"
            )
        self._check(found.prompts, file)
        return found

    def _check(self, prompts: Sequence[Prompt], file: Path) -> None:
        got = content_sha256(prompts)
        if self.count in (None, len(prompts)) and self.sha256 in (None, got):
            return
        raise SpecError(
            f"dataset {self.name!r}: {file} is not the published set: got {len(prompts)} prompts "
            f"with content sha256 {got}, expected {self.count} with {self.sha256}. Use the "
            "published file, or send other prompts as a plain JSONL file."
        )

    def _from_hub(self) -> Path:
        give = f'give the file: dataset = "{self.name}:/path/to/file"'
        if self.hub is None:
            raise SpecError(f"dataset {self.name!r}: it is not looked up on the hub; {give}.")
        try:
            from huggingface_hub import hf_hub_download  # noqa: PLC0415 - optional
            from huggingface_hub.errors import EntryNotFoundError  # noqa: PLC0415 - optional
        except ImportError as error:
            raise SpecError(
                f"dataset {self.name!r}: the hub needs huggingface_hub, which is not installed. "
                f"Install draftgate[hub], or {give}."
            ) from error
        where = f"{self.hub.file} of {self.hub.repo}"
        try:
            return Path(hf_hub_download(self.hub.repo, self.hub.file, repo_type="dataset"))
        except (OSError, EntryNotFoundError) as error:
            said = (str(error).strip() or type(error).__name__).splitlines()[0]
            raise SpecError(
                f"dataset {self.name!r}: {where} can't be had from the hub ({said}). Go online, "
                f"unset HF_HUB_OFFLINE if it is set, or {give}."
            ) from error


def content_sha256(prompts: Sequence[Prompt]) -> str:
    """Return a hash of all messages in order, whatever file they came from."""
    content = [prompt.messages for prompt in prompts]
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()


def one_turn(name: str, number: int, text: str, kind: str | None = None) -> Prompt:
    """Return a prompt of one user message; `number` counts from 1."""
    return Prompt(f"{name}-{number:04d}", kind or name, (("user", text),))
