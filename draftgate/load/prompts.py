"""Where prompts come from: made up by number and seed, a file, or a dataset.

Every source answers for prompt number n alone, so several processes can draw
different numbers of the same source. Knows neither output lengths nor when or
how anything is sent; `draftgate.load.workload` puts requests together.
"""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from draftgate.datasets import load_prompts, split_published
from draftgate.datasets.jsonl import KEYS, parse_prompts
from draftgate.errors import SpecError
from draftgate.load.apis import LoadPrompt
from draftgate.load.lengths import Lengths, draw
from draftgate.load.words import WORDS

_KEYS = tuple(sorted((*KEYS, "max_tokens")))

_STAND_IN = "token ids"
"""Text in whose place token ids stand, while the reader of texts checks the line."""


class Prompts(Protocol):
    """A source of prompts."""

    def prompt(self, number: int, seed: int) -> LoadPrompt:
        """Return prompt `number`, a function of the arguments and the source alone."""

    def max_tokens(self, number: int) -> int | None:
        """Return the output length that comes with the prompt; None if none does."""

    def has_token_ids(self) -> bool:
        """Return whether some prompt is given as token ids."""

    def describe(self) -> str:
        """Return a phrase for reports."""


class Filler(Protocol):
    """What synthetic prompts are filled with."""

    def prompt(self, prompt_id: str, parts: tuple[tuple[str, int], ...]) -> LoadPrompt:
        """Return a prompt of the parts in a row, each a key and its number of units.

        Equal keys and numbers give equal units, whatever prompt they are in.
        """

    def describe(self) -> str:
        """Return the name of its units for reports."""


@dataclass(frozen=True, slots=True)
class Words:
    """Words of `draftgate.load.words.WORDS`, drawn at random, as raw text."""

    def describe(self) -> str:
        """Return the name of its units."""
        return "random words"

    def prompt(self, prompt_id: str, parts: tuple[tuple[str, int], ...]) -> LoadPrompt:
        """Return a text of as many words as the parts add up to."""
        drawn = b"".join(_octets(key, count) for key, count in parts)
        return LoadPrompt(prompt_id, text=" ".join(WORDS[octet] for octet in drawn))


@dataclass(frozen=True, slots=True)
class TokenIds:
    """Token ids drawn at random, each of a range as likely.

    The exact length is known without a tokenizer. Choose the range so that it
    leaves out the model's special tokens.

    Attributes:
        low: First id, >= 0.
        high: Last id, >= `low`.
    """

    low: int
    high: int

    def __post_init__(self) -> None:
        """Check the range.

        Raises:
            SpecError: If it is empty or begins below 0.
        """
        if not 0 <= self.low <= self.high:
            raise SpecError(
                f"prompt token ids: expected 0 <= low <= high, got {self.low} to {self.high}."
            )

    def describe(self) -> str:
        """Return the name of its units."""
        return f"random token ids from {self.low} to {self.high}"

    def prompt(self, prompt_id: str, parts: tuple[tuple[str, int], ...]) -> LoadPrompt:
        """Return as many token ids as the parts add up to."""
        octets = b"".join(_octets(key, 8 * count) for key, count in parts)
        drawn = np.frombuffer(octets, dtype="<u8") % np.uint64(self.high - self.low + 1)
        return LoadPrompt(prompt_id, token_ids=tuple((drawn + np.uint64(self.low)).tolist()))


@dataclass(frozen=True, slots=True)
class SharedPrefix:
    """Beginnings that prompts have in common, for a server's prefix cache.

    A prompt without a shared beginning gets one of its own of the same
    length, so the two kinds differ in nothing else.

    Attributes:
        prefixes: How many different ones there are, >= 1.
        length: Units of each, >= 1.
        share: Share of prompts that begin with one of them, in [0, 1].
    """

    prefixes: int
    length: int
    share: float = 1.0

    def __post_init__(self) -> None:
        """Check the numbers.

        Raises:
            SpecError: If one is out of range.
        """
        for name in ("prefixes", "length"):
            if getattr(self, name) < 1:
                raise SpecError(f"shared prefix: {name} must be >= 1, got {getattr(self, name)}.")
        if not 0.0 <= self.share <= 1.0:
            raise SpecError(f"shared prefix: share must be in [0, 1], got {self.share}.")


@dataclass(frozen=True, slots=True)
class Synthetic:
    """Prompts made up as they are asked for.

    Beyond a shared prefix prompts differ: two of 8 words are alike with
    probability 2 ** -64, though short ones will repeat.

    Attributes:
        length: Units of each prompt, behind a shared prefix where there is one.
        filler: What they are.
        shared: Beginnings in common; None for none.
    """

    length: Lengths
    filler: Filler
    shared: SharedPrefix | None = None

    def describe(self) -> str:
        """Return a phrase for reports."""
        text = f"synthetic prompts of {self.filler.describe()}, length {self.length.describe()}"
        if self.shared is None:
            return text
        return (
            f"{text}, {self.shared.share:.0%} behind one of {self.shared.prefixes} shared "
            f"prefixes of {self.shared.length}"
        )

    def prompt(self, number: int, seed: int) -> LoadPrompt:
        """Return prompt `number`."""
        length = self.length.at(number, draw(seed, "prompt length", number))
        parts: tuple[tuple[str, int], ...] = ((f"{seed}/prompt/{number}", length),)
        if self.shared is not None:
            parts = ((self._prefix(self.shared, number, seed), self.shared.length), *parts)
        return self.filler.prompt(f"synthetic-{number}", parts)

    def max_tokens(self, number: int) -> int | None:
        """Return None: outputs have a law of their own."""
        del number
        return None

    def has_token_ids(self) -> bool:
        """Return whether the filler makes token ids."""
        return isinstance(self.filler, TokenIds)

    def _prefix(self, shared: SharedPrefix, number: int, seed: int) -> str:
        if draw(seed, "prefix is shared", number) < shared.share:
            which = int(draw(seed, "which prefix", number) * shared.prefixes)
            return f"{seed}/shared prefix/{which}"
        return f"{seed}/own prefix/{number}"


@dataclass(frozen=True, slots=True)
class ListedPrompt:
    """One prompt of a list.

    Attributes:
        prompt: What to ask.
        max_tokens: Output length that comes with it, >= 1; None if none does.
    """

    prompt: LoadPrompt
    max_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class PromptList:
    """Listed prompts in order, from the start again after the last.

    Attributes:
        entries: At least one.
        source: What messages and reports call the list.
    """

    entries: tuple[ListedPrompt, ...]
    source: str

    def __post_init__(self) -> None:
        """Check that there is something to send.

        Raises:
            SpecError: If there is not.
        """
        if not self.entries:
            raise SpecError(f"{self.source}: got no prompts, expected at least one.")

    def describe(self) -> str:
        """Return a phrase for reports."""
        return f"{len(self.entries)} prompts of {self.source}"

    def prompt(self, number: int, seed: int) -> LoadPrompt:
        """Return prompt `number`; the seed changes nothing."""
        del seed
        return self.entries[number % len(self.entries)].prompt

    def max_tokens(self, number: int) -> int | None:
        """Return the output length listed with prompt `number`."""
        return self.entries[number % len(self.entries)].max_tokens

    def has_token_ids(self) -> bool:
        """Return whether some prompt is given as token ids."""
        return any(entry.prompt.token_ids for entry in self.entries)


def find_prompts(name_or_path: str, seed: int) -> PromptList:
    """Return the prompts of a file in file order, or of a dataset in the seed's order.

    Args:
        name_or_path: Path of a file, or a dataset as `load_prompts` takes it.
        seed: Decides a dataset's order.

    Raises:
        SpecError: If there is no such dataset, or the file is absent or wrong.
    """
    path = Path(name_or_path)
    if split_published(name_or_path) is None and (path.suffix == ".jsonl" or path.is_file()):
        return read_prompt_list(path)
    prompts = load_prompts(name_or_path, seed)
    return PromptList(
        tuple(ListedPrompt(LoadPrompt(p.prompt_id, messages=p.messages)) for p in prompts),
        f"dataset {name_or_path!r}",
    )


def read_prompt_list(path: Path) -> PromptList:
    """Return the prompts of a JSONL file in file order.

    A line is an object with `prompt` (a text, or a list of token ids) or
    `messages`, and optionally `id`, `kind`, `source`, `license` and `max_tokens`.

    Raises:
        SpecError: If the file cannot be read or a line is wrong; the message
            names file and line.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SpecError(
            f"prompts {str(path)!r}: cannot be read as UTF-8 text: {error}. Expected a JSONL "
            "file; check the path."
        ) from error
    lines = text.split("\n")
    entries = {number: _entry(line, f"{path}:{number}") for number, line in enumerate(lines, 1)}
    # Ids, kinds, texts and messages are checked by the one reader of prompt files.
    checked = parse_prompts(
        "\n".join(
            _as_plain(line, entry) for line, entry in zip(lines, entries.values(), strict=True)
        ),
        source=str(path),
        kind=path.stem,
    )
    found = [entry for entry in entries.values() if entry is not None]
    return PromptList(
        tuple(
            ListedPrompt(_prompt(entry, p.prompt_id, p.messages), entry.get("max_tokens"))
            for entry, p in zip(found, checked, strict=True)
        ),
        str(path),
    )


def _entry(line: str, place: str) -> dict[str, Any] | None:
    """Return the line's object once what plain prompt files lack is checked; None without one."""
    try:
        entry = json.loads(line)
    except json.JSONDecodeError:
        return None  # blank, or reported by `parse_prompts`
    if not isinstance(entry, dict):
        return None
    unknown = sorted(set(entry) - set(_KEYS))
    if unknown:
        raise SpecError(f"{place}: unknown key {unknown[0]!r}. Known: {', '.join(_KEYS)}.")
    limit = entry.get("max_tokens", 1)
    if not _is_count(limit) or limit < 1:
        raise SpecError(f"{place}: max_tokens must be a whole number >= 1, got {limit!r}.")
    ids = entry.get("prompt")
    if isinstance(ids, list) and not (ids and all(_is_count(token) for token in ids)):
        raise SpecError(
            f"{place}: a prompt of token ids must be a list of whole numbers >= 0 that is not "
            f"empty, got {json.dumps(ids)[:60]}."
        )
    return entry


def _as_plain(line: str, entry: dict[str, Any] | None) -> str:
    """Return the line as a plain prompt file would hold it."""
    if entry is None:
        return line
    plain = {key: value for key, value in entry.items() if key != "max_tokens"}
    if isinstance(plain.get("prompt"), list):
        plain["prompt"] = _STAND_IN
    return json.dumps(plain)


def _prompt(
    entry: dict[str, Any], prompt_id: str, messages: tuple[tuple[str, str], ...]
) -> LoadPrompt:
    match entry.get("prompt"):
        case None:
            return LoadPrompt(prompt_id, messages=messages)
        case str(text):
            return LoadPrompt(prompt_id, text=text)
        case ids:
            return LoadPrompt(prompt_id, token_ids=tuple(ids))


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _octets(key: str, count: int) -> bytes:
    """Return `count` random bytes that are a function of `key`."""
    return hashlib.shake_128(key.encode()).digest(count)
