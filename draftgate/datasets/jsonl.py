"""The one file format of prompts, and the record a line becomes.

A line is a JSON object with `prompt` (a text) or `messages` (a conversation
that ends with the user), and optionally `id`, `kind`, `source` and `license`.
The built-in prompts and a user's own file are read by the same code. Knows
nothing of seeds, order or tokens.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from draftgate.errors import SpecError

ROLES = ("system", "user", "assistant")
"""Roles of the OpenAI chat API that need no further fields."""

KEYS = ("id", "kind", "license", "messages", "prompt", "source")
"""What a line may hold."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """One conversation to send.

    Attributes:
        prompt_id: Unique in its dataset; request records refer to it.
        kind: Kind of traffic, for example `chat`; acceptance is reported by it.
        messages: (role, content) pairs; the last is the user's.
    """

    prompt_id: str
    kind: str
    messages: tuple[tuple[str, str], ...]


def read_prompts(path: Path) -> tuple[Prompt, ...]:
    """Return the prompts of a JSONL file in file order.

    A line without `kind` gets its `source`, else the file's stem; a line
    without `id` gets stem and line number. `license` is for readers.

    Raises:
        SpecError: If the file cannot be read or a line is wrong; the message
            names file and line number.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SpecError(
            f"dataset {str(path)!r}: cannot be read as UTF-8 text: {error}. "
            "Expected a JSONL file; check the path in [workload] dataset."
        ) from error
    return parse_prompts(text, source=str(path), kind=path.stem)


def parse_prompts(text: str, *, source: str, kind: str) -> tuple[Prompt, ...]:
    """Return the prompts in `text`, one JSON object a line, blank lines skipped.

    Args:
        text: Content of the file.
        source: What messages call it.
        kind: Kind of lines without one, and prefix of ids that are made up.

    Raises:
        SpecError: If a line is wrong, an id repeats, or there is no prompt.
    """
    first_line: dict[str, int] = {}
    prompts = []
    for number, prompt in _numbered_prompts(text, source, kind):
        if prompt.prompt_id in first_line:
            raise SpecError(
                f"{source}:{number}: id {prompt.prompt_id!r} is already used in line "
                f"{first_line[prompt.prompt_id]}; ids must be unique. Rename one."
            )
        first_line[prompt.prompt_id] = number
        prompts.append(prompt)
    if not prompts:
        raise SpecError(
            f"{source}: got no prompts, expected at least one. Write one JSON object a line, "
            'for example {"prompt": "Name three rivers."}.'
        )
    return tuple(prompts)


def _numbered_prompts(text: str, source: str, kind: str) -> Iterator[tuple[int, Prompt]]:
    # Split at "\n" only: str.splitlines() also splits at U+2028, which JSON
    # allows inside a string.
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        place = f"{source}:{number}"
        entry = _object(line, place)
        named = _text(entry.get("source", kind), place, "source")
        _text(entry.get("license", "none"), place, "license")
        yield (
            number,
            Prompt(
                prompt_id=_text(entry.get("id", f"{kind}-{number:03d}"), place, "id"),
                kind=_text(entry.get("kind", named), place, "kind"),
                messages=_messages(entry, place),
            ),
        )


def _object(line: str, place: str) -> dict[str, Any]:
    try:
        entry = json.loads(line)
    except json.JSONDecodeError as error:
        raise SpecError(
            f"{place}: not valid JSON ({error.msg}, column {error.colno}). "
            "Expected one JSON object a line."
        ) from error
    if not isinstance(entry, dict):
        raise SpecError(f"{place}: expected a JSON object, got {_shown(entry)}.")
    unknown = sorted(set(entry) - set(KEYS))
    if unknown:
        raise SpecError(
            f"{place}: unknown key {unknown[0]!r}. Known: {', '.join(KEYS)}. "
            "Correct its spelling or remove it."
        )
    return entry


def _messages(entry: dict[str, Any], place: str) -> tuple[tuple[str, str], ...]:
    if ("prompt" in entry) == ("messages" in entry):
        got = "both" if "prompt" in entry else f"only {sorted(entry)}"
        raise SpecError(f"{place}: expected either 'prompt' or 'messages', got {got}.")
    if "prompt" in entry:
        return (("user", _text(entry["prompt"], place, "prompt")),)
    turns = entry["messages"]
    if not isinstance(turns, list) or not turns:
        raise SpecError(f"{place}: messages must be a list of messages, got {_shown(turns)}.")
    messages = tuple(_message(turn, f"{place}: messages[{i}]") for i, turn in enumerate(turns))
    if messages[-1][0] != "user":
        raise SpecError(
            f"{place}: the last message must have role 'user', got {messages[-1][0]!r}. "
            "Drop the answer that the server is to write."
        )
    return messages


def _message(turn: object, place: str) -> tuple[str, str]:
    if not isinstance(turn, dict) or set(turn) != {"role", "content"}:
        raise SpecError(
            f"{place}: expected an object with 'role' and 'content' alone, got {_shown(turn)}."
        )
    if turn["role"] not in ROLES:
        raise SpecError(f"{place}: unknown role {_shown(turn['role'])}. Known: {', '.join(ROLES)}.")
    return turn["role"], _text(turn["content"], place, "content")


def _text(value: object, place: str, key: str) -> str:
    if not isinstance(value, str) or not value.strip():
        raise SpecError(f"{place}: {key} must be a text that is not blank, got {_shown(value)}.")
    return value


def _shown(value: object) -> str:
    """Return `value` as JSON, cut so that a long line cannot flood a message."""
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 80 else f"{text[:77]}..."
