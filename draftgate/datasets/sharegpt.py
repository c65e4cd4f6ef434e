"""Conversations in ShareGPT's format: a JSON list of {id, conversations: [{from, value}]}.

The set is not fixed, so neither count nor hash is checked. What is sent of a
conversation are its messages up to the last human turn; the answer that the
server is to write, and what follows it, is left out.
"""

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

from draftgate.datasets import PUBLISHED
from draftgate.datasets.jsonl import Prompt
from draftgate.datasets.published import HubFile, Prompts, Published
from draftgate.datasets.rows import Row

ROLES = {
    "human": "user",
    "user": "user",
    "gpt": "assistant",
    "chatgpt": "assistant",
    "assistant": "assistant",
    "system": "system",
}
"""Roles of the chat API by the names that files of this format use."""

Messages = tuple[tuple[str, str], ...]


def read_conversations(rows: Sequence[Row]) -> Prompts:
    """Return what is sent of each conversation, with a count of what was odd.

    Answers before the first human turn (files that were split have them) are
    left out. A conversation is skipped if it has no turns or no human turn, a
    turn of another form, role or without text, or two turns of one role in a
    row, which chat templates refuse. An id that is used again gets a number.
    """
    odd: Counter[str] = Counter()
    seen: Counter[str] = Counter()
    prompts = []
    for number, row in enumerate(rows, start=1):
        turns = _turns(row.fields.get("conversations"))
        if isinstance(turns, str):
            odd[f"skipped, {turns}"] += 1
            continue
        messages, cut = _up_to_last_user(turns)
        fault = _fault(messages)
        if fault:
            odd[f"skipped, {fault}"] += 1
            continue
        odd["had answers before the first human turn, left out"] += cut
        own = row.fields.get("id")
        name = own if isinstance(own, str) and own else f"sharegpt-{number:06d}"
        seen[name] += 1
        odd["had an id that was used before, numbered"] += seen[name] > 1
        unique = name if seen[name] == 1 else f"{name}#{seen[name]}"
        prompts.append(Prompt(unique, "sharegpt", messages))
    told = (f"{count} of {len(rows)} conversations {what}" for what, count in odd.items() if count)
    return Prompts(tuple(prompts), tuple(told))


def _turns(turns: object) -> Messages | str:
    """Return the turns as messages, or what is wrong with them."""
    if not isinstance(turns, list) or not turns:
        return "no turns"
    messages = []
    for turn in turns:
        if not isinstance(turn, dict) or not isinstance(turn.get("from"), str):
            return "a turn of another form"
        role = ROLES.get(turn["from"])
        if role is None:
            return f"role {turn['from']!r}"
        text = turn.get("value")
        if not isinstance(text, str) or not text.strip():
            return "a turn without text"
        messages.append((role, text))
    return tuple(messages)


def _up_to_last_user(messages: Messages) -> tuple[Messages, bool]:
    """Return the messages up to the last human turn, and whether leading answers were cut."""
    last = max((i for i, (role, _) in enumerate(messages) if role == "user"), default=-1)
    kept = messages[: last + 1]
    system = kept[:1] if kept and kept[0][0] == "system" else ()
    rest = kept[len(system) :]
    first = next((i for i, (role, _) in enumerate(rest) if role == "user"), len(rest))
    return system + rest[first:], first > 0


def _fault(messages: Messages) -> str | None:
    """Return why a chat template would refuse the messages; None if it would not."""
    roles = [role for role, _ in messages if role != "system"]
    if not roles:
        return "no human turn"
    if "system" in [role for role, _ in messages[1:]]:
        return "a system turn in the middle"
    if any(one == other for one, other in pairwise(roles)):
        return "two turns of one role in a row"
    return None


PUBLISHED.register("sharegpt")(
    Published(
        name="sharegpt",
        read=read_conversations,
        hub=HubFile(
            "anon8231489123/ShareGPT_Vicuna_unfiltered",
            "ShareGPT_V3_unfiltered_cleaned_split.json",
        ),
    )
)
