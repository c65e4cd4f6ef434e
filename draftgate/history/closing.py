"""Closing items: one small JSON file each, made to be reviewed and merged.

    history/_closed/<item id>.json

Two people who close two items write two files, so branches merge; two who close
one item meet in a conflict, as they should. The underscore keeps the folder out
of what pandas and Arrow read as data. Knows nothing of how items are found.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from draftgate.clock import Clock
from draftgate.codec import decode, encode, to_lines
from draftgate.errors import BaselineError, SpecError
from draftgate.files import write_text
from draftgate.history.records import Closure, Item
from draftgate.history.store import writing

CLOSURE_SCHEMA_VERSION = 1
"""History: 1 first version."""

FOLDER = "_closed"


@dataclass(frozen=True, slots=True)
class Word:
    """What a person says of an item.

    Attributes:
        reason: Why nothing more is to be done.
        by: Who says so.
        is_real: False if the level had not changed at all.
    """

    reason: str
    by: str
    is_real: bool = True


def closure_path(root: Path, item_id: str) -> Path:
    """Return the file that closes an item, there or not."""
    return root / FOLDER / f"{item_id}.json"


def load_closures(root: Path) -> tuple[Closure, ...]:
    """Return all closures of the history at `root`, by id; none if nothing was closed.

    Raises:
        BaselineError: If a file is damaged or of another schema, or its name is not its id.
    """
    return tuple(_load(path) for path in sorted((root / FOLDER).glob("*.json")))


def find_item(items: Iterable[Item], given: str) -> Item:
    """Return the item that a person means by an id, or by the first digits of one.

    An id that was told before the change's place had settled still finds it.

    Raises:
        SpecError: If there is no such item, or several begin like that.
    """
    items = tuple(items)
    exact = [item for item in items if item.id == given]
    begins = [item for item in items if given and item.id.startswith(given)]
    was = [item for item in items if given in item.aliases]
    was.sort(key=lambda item: item.aliases.index(given))
    for found in (exact, begins, was[:1]):
        if len(found) == 1:
            return found[0]
        if found:
            raise SpecError(
                f"history item {given!r}: {len(found)} items begin like that "
                f"({', '.join(item.id for item in found)}). Give more digits."
            )
    raise SpecError(
        f"history item {given!r}: there is no such item. Those that there are, by: "
        "draftgate history show --all"
    )


def close(root: Path, item: Item, word: Word, clock: Clock) -> Path:
    """Close an item: write its file and return it.

    Args:
        root: Folder of the history.
        item: What is closed.
        word: Why, and by whom.
        clock: Source of the time.

    Raises:
        SpecError: If it is closed already, or no reason or name is given.
        MeasurementError: If the file cannot be written; nothing of it is left.
    """
    path = closure_path(root, item.id)
    _check(path, item, word)
    closure = Closure(
        schema=CLOSURE_SCHEMA_VERSION,
        id=item.id,
        series=item.series.key,
        run=item.after.run_id,
        change=f"{item.level_before:.6g} -> {item.level_after:.6g} {item.series.unit}".strip(),
        reason=word.reason.strip(),
        is_real=word.is_real,
        by=word.by.strip(),
        at=clock.wall().isoformat(timespec="seconds"),
    )
    with writing(path):
        write_text(path, to_lines(encode(closure)) + "\n")
    return path


def _check(path: Path, item: Item, word: Word) -> None:
    if item.closure is not None or path.exists():
        raise SpecError(
            f"history item {item.id}: is closed already, see {path}. To change the reason, edit "
            "that file; to open the item again, delete it."
        )
    for name, text in (("reason", word.reason), ("by", word.by)):
        if not text.strip():
            raise SpecError(
                f"history item {item.id}: --{name} is empty. Say it: it is what readers will find."
            )


def _load(path: Path) -> Closure:
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        schema = document.get("schema") if isinstance(document, dict) else None
        if schema != CLOSURE_SCHEMA_VERSION:
            raise ValueError(f"schema {schema!r}, expected {CLOSURE_SCHEMA_VERSION}")  # noqa: TRY301 - one message for all damage
        closure = decode(Closure, document, "closure")
        if closure.id != path.stem:
            raise ValueError(f"holds item {closure.id!r}, expected {path.stem!r}")  # noqa: TRY301 - as above
    except (OSError, ValueError) as error:
        raise BaselineError(
            f"history {path}: can't be read ({error}). Restore it from version control, or delete "
            "it to open the item again."
        ) from error
    return closure
