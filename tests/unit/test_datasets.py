"""The built-in prompts, their order by seed, and the errors of a user's own file."""

import json
from pathlib import Path

import pytest

from draftgate.datasets import DATASETS, Prompt, load_prompts, shuffled
from draftgate.datasets.builtin import KINDS, stored
from draftgate.datasets.jsonl import ROLES
from draftgate.errors import SpecError

FEWEST_PROMPTS = 60
"""Per kind: what the drift test was promised (issue 2)."""

LONG_TEXT_CHARS = 500
"""About 90 words: enough for a drafter that copies."""


def write_lines(path: Path, *entries: object) -> str:
    """Write each entry as a line, texts as they are, and return the path."""
    lines = [entry if isinstance(entry, str) else json.dumps(entry) for entry in entries]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return str(path)


@pytest.mark.parametrize("kind", KINDS)
def test_kind_has_enough_prompts(kind: str) -> None:
    """Each kind holds the promised number of prompts and labels them with its name."""
    prompts = load_prompts(kind, seed=1)

    assert len(prompts) >= FEWEST_PROMPTS
    assert {prompt.kind for prompt in prompts} == {kind}


def test_builtin_ids_and_contents_are_unique() -> None:
    """No id and no conversation occurs twice, within a kind or between kinds."""
    prompts = [prompt for kind in KINDS for prompt in stored(kind)]

    assert len({prompt.prompt_id for prompt in prompts}) == len(prompts)
    assert len({" ".join(str(prompt.messages).lower().split()) for prompt in prompts}) == len(
        prompts
    )


@pytest.mark.parametrize("kind", KINDS)
def test_builtin_roles_alternate_and_end_with_the_user(kind: str) -> None:
    """After an optional system message, user and assistant alternate up to the user."""
    for prompt in stored(kind):
        roles = [role for role, _ in prompt.messages]
        turns = roles[1:] if roles[0] == "system" else roles

        assert set(roles) <= set(ROLES)
        assert turns == ["user" if i % 2 == 0 else "assistant" for i in range(len(turns))]
        assert turns[-1] == "user"


@pytest.mark.parametrize("kind", KINDS)
def test_kind_offers_something_to_copy(kind: str) -> None:
    """Several prompts of each kind carry an earlier turn or a long text."""
    to_copy = [
        prompt
        for prompt in stored(kind)
        if len(prompt.messages) > 1 or len(prompt.messages[0][1]) >= LONG_TEXT_CHARS
    ]

    assert len(to_copy) >= 8


@pytest.mark.parametrize("name", [*KINDS, "mixed"])
def test_order_is_a_function_of_the_seed(name: str) -> None:
    """Equal seeds give equal order; another seed gives the same prompts in another order."""
    first, again, other = (load_prompts(name, seed) for seed in (7, 7, 8))

    assert first == again
    assert first != other
    assert sorted(first, key=str) == sorted(other, key=str)


def test_order_is_pinned() -> None:
    """The order for seed 1 stays as released, on every machine and Python version."""
    prompts = [Prompt(f"p{i}", "k", (("user", str(i)),)) for i in range(5)]

    assert [prompt.prompt_id for prompt in shuffled(prompts, 1)] == ["p3", "p1", "p2", "p0", "p4"]


def test_order_of_others_survives_a_removed_prompt() -> None:
    """A prompt that goes away does not reshuffle the prompts that stay."""
    prompts = stored("chat")

    whole = shuffled(prompts, 3)
    without = shuffled(prompts[1:], 3)

    assert without == tuple(prompt for prompt in whole if prompt != prompts[0])


def test_mixed_takes_the_kinds_in_turn() -> None:
    """Every stretch of three prompts holds one of each kind."""
    kinds = [prompt.kind for prompt in load_prompts("mixed", seed=1)]

    assert len(kinds) >= 3 * FEWEST_PROMPTS
    assert kinds == [*KINDS] * (len(kinds) // 3)


def test_registry_lists_the_datasets() -> None:
    """The registry finds each built-in dataset, and each can be loaded by its name."""
    assert {*KINDS, "mixed"} <= set(DATASETS.names())
    assert all(load_prompts(name, seed=1) for name in DATASETS.names())


def test_unknown_name_lists_the_known_ones() -> None:
    """A misspelt dataset is a SpecError that lists what exists."""
    with pytest.raises(SpecError, match=r"unknown dataset 'chatt'.*arithmetic.*chat.*code.*mixed"):
        load_prompts("chatt", seed=1)


def test_jsonl_accepts_prompt_and_messages(tmp_path: Path) -> None:
    """A file may mix texts and conversations; ids and kinds have defaults."""
    conversation = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Grüße \u2028 👋"},
    ]
    path = write_lines(
        tmp_path / "mine.jsonl",
        {"prompt": "Name three rivers."},
        "",
        json.dumps(
            {"id": "hello", "kind": "greeting", "messages": conversation}, ensure_ascii=False
        ),
    )

    by_id = {prompt.prompt_id: prompt for prompt in load_prompts(path, seed=1)}

    assert by_id == {
        "mine-001": Prompt("mine-001", "mine", (("user", "Name three rivers."),)),
        "hello": Prompt(
            "hello", "greeting", (("system", "Be brief."), ("user", "Grüße \u2028 👋"))
        ),
    }


def test_source_stands_in_for_the_kind(tmp_path: Path) -> None:
    """A line may name source and licence; without a kind its source is the kind."""
    path = write_lines(
        tmp_path / "mine.jsonl",
        {"id": "a", "source": "letters", "license": "MIT", "prompt": "Write a letter."},
        {"id": "b", "source": "letters", "kind": "chat", "prompt": "Write another."},
    )

    assert {p.prompt_id: p.kind for p in load_prompts(path, 1)} == {"a": "letters", "b": "chat"}


USER = {"role": "user", "content": "Hi"}


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ("{", "not valid JSON"),
        ('["a"]', "expected a JSON object, got"),
        ({"prompt": "a", "promt": "b"}, "unknown key 'promt'. Known: id, kind, license, mess"),
        ({"id": "a"}, r"expected either 'prompt' or 'messages', got only \['id'\]"),
        ({"prompt": "a", "messages": [USER]}, "got both"),
        ({"prompt": 3}, "prompt must be a text that is not blank, got 3"),
        ({"prompt": " "}, "prompt must be a text that is not blank"),
        ({"id": 5, "prompt": "a"}, "id must be a text"),
        ({"kind": "", "prompt": "a"}, "kind must be a text"),
        ({"source": 3, "prompt": "a"}, "source must be a text"),
        ({"license": " ", "prompt": "a"}, "license must be a text"),
        ({"messages": []}, "messages must be a list of messages, got"),
        ({"messages": "Hi"}, "messages must be a list of messages"),
        ({"messages": [USER, "Hi"]}, r"messages\[1\]: expected an object with 'role'"),
        ({"messages": [{**USER, "name": "x"}]}, "'role' and 'content' alone"),
        ({"messages": [{"role": "robot", "content": "Hi"}]}, 'unknown role "robot". Known: sys'),
        ({"messages": [{"role": "user", "content": None}]}, "content must be a text"),
        ({"messages": [USER, {"role": "assistant", "content": "Hi"}]}, "last message must"),
        ({"id": "first", "prompt": "again"}, "id 'first' is already used in line 1"),
    ],
)
def test_wrong_line_is_named(tmp_path: Path, entry: object, message: str) -> None:
    """A wrong line is a SpecError with file, line number, what was got and expected."""
    path = write_lines(tmp_path / "mine.jsonl", {"id": "first", "prompt": "fine"}, entry)

    with pytest.raises(SpecError, match=message) as caught:
        load_prompts(path, seed=1)
    assert str(caught.value).startswith(f"{path}:2: ")


def test_long_value_is_cut_in_the_message(tmp_path: Path) -> None:
    """A huge wrong value does not flood the error."""
    path = write_lines(tmp_path / "mine.jsonl", ["x" * 10_000])

    with pytest.raises(SpecError) as caught:
        load_prompts(path, seed=1)
    assert len(str(caught.value)) < len(path) + 200


@pytest.mark.parametrize("content", [b"", b"\n \n"])
def test_file_without_prompts_is_an_error(tmp_path: Path, content: bytes) -> None:
    """An empty file is never an empty workload."""
    path = tmp_path / "empty.jsonl"
    path.write_bytes(content)

    with pytest.raises(SpecError, match="got no prompts, expected at least one"):
        load_prompts(str(path), seed=1)


def test_unreadable_file_is_an_error(tmp_path: Path) -> None:
    """A missing file and one in another encoding name the path."""
    latin = tmp_path / "latin.jsonl"
    latin.write_bytes('{"prompt": "Grüße"}'.encode("latin-1"))

    with pytest.raises(SpecError, match=r"absent\.jsonl.*cannot be read"):
        load_prompts(str(tmp_path / "absent.jsonl"), seed=1)
    with pytest.raises(SpecError, match=r"latin\.jsonl.*cannot be read as UTF-8"):
        load_prompts(str(latin), seed=1)
