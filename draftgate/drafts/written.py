"""Prompts of our own writing that draft heads are trained on.

The words are data: `written/<kind>.toml` holds templates, each with slots and
what may fill them, and this module draws combinations. The prompts resemble
the built-in ones of `draftgate.datasets` and share no text with them, since
those are held out for evaluation. Knows nothing of models, tokens or training.
"""

import hashlib
import math
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from itertools import chain, count, cycle, zip_longest
from typing import Any

from jinja2 import Environment as Templates
from jinja2 import StrictUndefined, Template, meta

from draftgate.datasets import Prompt
from draftgate.errors import SpecError

KINDS = ("chat", "code", "arithmetic")
"""The kinds that are written, those of the built-in prompts."""

Messages = tuple[tuple[str, str], ...]
"""(role, content) pairs, as a `Prompt` holds them."""


@dataclass(frozen=True, slots=True)
class Pattern:
    """One template of a conversation with all that may fill it.

    Attributes:
        turns: (role, template of the content) pairs.
        slots: Name of each slot to its fillers; every combination makes sense.
    """

    turns: tuple[tuple[str, Template], ...]
    slots: Mapping[str, Sequence[Any]]

    @property
    def size(self) -> int:
        """How many combinations of fillers there are."""
        return math.prod(len(fillers) for fillers in self.slots.values())

    def messages(self, index: int) -> Messages:
        """Return the conversation of one combination, numbered from 0 up to `size`."""
        values = {}
        for name, fillers in self.slots.items():
            index, place = divmod(index, len(fillers))
            values[name] = fillers[place]
        return tuple((role, text.render(values).strip()) for role, text in self.turns)


def written_prompts(*, seed: int, per_kind: int = 2000) -> tuple[Prompt, ...]:
    """Return `per_kind` prompts of each of `KINDS`, kind after kind.

    No two are equal. Templates take turns, so that each is used as often as the
    others until its combinations are spent, in any stretch of a kind.

    Args:
        seed: Any integer; equal seeds give equal prompts on every machine.
        per_kind: How many of each kind.

    Raises:
        SpecError: If a kind has fewer than `per_kind` prompts to give.
    """
    return tuple(
        Prompt(prompt_id=f"written-{kind}-{number:05d}", kind=kind, messages=messages)
        for kind in KINDS
        for number, messages in enumerate(_drawn(kind, seed, per_kind))
    )


@cache
def patterns(kind: str) -> tuple[Pattern, ...]:
    """Return the templates of one of `KINDS` in file order."""
    path = files("draftgate.drafts").joinpath("written", f"{kind}.toml")
    document = tomllib.loads(path.read_text(encoding="utf-8"))
    return tuple(_pattern(entry, document["fillers"]) for entry in document["templates"])


def _drawn(kind: str, seed: int, wanted: int) -> tuple[Messages, ...]:
    possible = sum(pattern.size for pattern in patterns(kind))
    if not 0 < wanted <= possible:
        raise _wrong_count(kind, wanted, possible)
    sequences = (
        map(pattern.messages, _scattered(pattern.size, f"{seed}/{kind}/{place}"))
        for place, pattern in enumerate(patterns(kind))
    )
    found: dict[Messages, None] = {}
    for messages in filter(None, chain.from_iterable(zip_longest(*sequences))):
        found[messages] = None
        if len(found) == wanted:
            return tuple(found)
    raise _wrong_count(kind, wanted, len(found))


def _wrong_count(kind: str, wanted: int, possible: int) -> SpecError:
    return SpecError(
        f"written prompts of kind {kind!r}: got per_kind = {wanted}, expected 1 to {possible}, "
        "since no more exist. Ask for fewer, or add templates or fillers to "
        f"draftgate/drafts/written/{kind}.toml."
    )


def _scattered(size: int, key: str) -> Iterator[int]:
    """Yield each number below `size` once, in an order that only `key` decides."""
    seen: set[int] = set()
    for draw in count():
        if len(seen) == size:
            return
        digest = hashlib.sha256(f"{key}/{draw}".encode()).digest()
        number = int.from_bytes(digest[:8], "big") % size
        if number not in seen:
            seen.add(number)
            yield number


def _pattern(entry: Mapping[str, Any], shared: Mapping[str, Any]) -> Pattern:
    """Return a template from its table: `turns`, perhaps `system`, and `slots` of its own."""
    roles = cycle(("user", "assistant"))
    contents = [*zip(roles, entry["turns"], strict=False)]
    if "system" in entry:
        contents.insert(0, ("system", entry["system"]))
    known = {**shared, **entry.get("slots", {})}
    return Pattern(
        turns=tuple((role, TEMPLATES.from_string(content)) for role, content in contents),
        slots={name: _fillers(known[name]) for name in _names(contents)},
    )


def _names(contents: Iterable[tuple[str, str]]) -> list[str]:
    texts = "\n".join(content for _, content in contents)
    return sorted(meta.find_undeclared_variables(TEMPLATES.parse(texts)))


def _fillers(given: Any) -> Sequence[Any]:
    """Return a list as it is, and a table such as `{from = 10, to = 40, step = 5}` as numbers."""
    if isinstance(given, Mapping):
        return range(given["from"], given["to"] + 1, given.get("step", 1))
    return tuple(given)


def _templates() -> Templates:
    templates = Templates(
        undefined=StrictUndefined,
        autoescape=False,  # noqa: S701 (prompts are plain text, never a page)
    )
    templates.filters["grouped"] = "{:,}".format
    templates.filters["money"] = lambda cents: f"{cents / 100:.2f}"
    return templates


TEMPLATES = _templates()
"""How the texts of templates are read: Jinja, with `grouped` 1,250 and `money` 12.50 of cents."""
