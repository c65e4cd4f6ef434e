"""Published sets: each format, the check of fixed ones, and what is odd told with counts.

The tiny files are of our own writing. The sets themselves are only looked at
where the environment variable DRAFTGATE_PUBLISHED_PROMPTS names their folder.
"""

import gzip
import json
import os
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from draftgate.datasets import (
    PUBLISHED,
    Prompt,
    dataset_label,
    dataset_names,
    load_prompts,
    shuffled,
)
from draftgate.datasets.builtin import KINDS
from draftgate.datasets.published import HubFile, Prompts, content_sha256
from draftgate.datasets.rows import Row, read_rows
from draftgate.datasets.sharegpt import read_conversations
from draftgate.datasets.twin import LENGTHS
from draftgate.errors import SpecError
from draftgate.load.prompts import find_prompts
from draftgate.specfile import load_profile

FOLDER = "DRAFTGATE_PUBLISHED_PROMPTS"

FIXED = {
    "gsm8k": ("gsm8k/test.jsonl", 1319),
    "humaneval": ("humaneval/HumanEval.jsonl", 164),
    "mbpp": ("mbpp_sanitized/mbpp_sanitized.jsonl", 427),
    "mt_bench": ("mt_bench/question.jsonl", 80),
    "spec_bench": ("spec_bench/question.jsonl", 480),
}

ROWS: dict[str, list[dict[str, Any]]] = {
    "gsm8k": [
        {"question": "Ann has 3 pens and buys 4. How many?", "answer": "7\n#### 7"},
        {"question": "Half of 12?", "answer": "#### 6"},
    ],
    "humaneval": [{"task_id": "T/0", "prompt": "def one():\n", "entry_point": "one"}],
    "mbpp": [{"task_id": "T/1", "prompt": "def two():\n", "entry_point": "two"}],
    "mt_bench": [{"question_id": 1, "category": "writing", "turns": ["A poem.", "Shorter."]}],
    "spec_bench": [{"question_id": 1, "category": "qa", "turns": ["Who are you?"]}],
}

EXPECTED: dict[str, list[tuple[str, str]]] = {
    "gsm8k": [("gsm8k", "Ann has 3 pens and buys 4. How many?"), ("gsm8k", "Half of 12?")],
    "humaneval": [("humaneval", "Complete this Python function.\n\ndef one():\n")],
    "mbpp": [("mbpp", "Complete this Python function.\n\ndef two():\n")],
    "mt_bench": [("writing", "A poem.")],
    "spec_bench": [("qa", "Who are you?")],
}


def _write(path: Path, rows: list[dict[str, Any]]) -> Path:
    """Write rows in the form that the suffix says."""
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    if path.suffix == ".parquet":
        parquet.write_table(pa.Table.from_pylist(rows), path)
    elif path.suffix == ".gz":
        path.write_bytes(gzip.compress(lines.encode()))
    else:
        path.write_text(json.dumps(rows) if path.suffix == ".json" else lines, encoding="utf-8")
    return path


@pytest.mark.parametrize("suffix", ["jsonl", "jsonl.gz", "json", "parquet"])
@pytest.mark.parametrize("name", FIXED)
def test_rows_become_prompts(tmp_path: Path, name: str, suffix: str) -> None:
    """Each format gives the same prompts, whatever container it comes in."""
    path = _write(tmp_path / f"set.{suffix}", ROWS[name])

    found = PUBLISHED.get(name).read(read_rows(path))

    assert [(p.kind, p.messages) for p in found.prompts] == [
        (kind, (("user", text),)) for kind, text in EXPECTED[name]
    ]
    assert [p.prompt_id for p in found.prompts] == [
        f"{name}-{i:04d}" for i in range(1, len(EXPECTED[name]) + 1)
    ]
    assert found.notes == ()


@pytest.mark.parametrize("name", FIXED)
def test_another_set_under_a_fixed_name_is_refused(tmp_path: Path, name: str) -> None:
    """A fixed set of another count is a SpecError that names both counts and both hashes."""
    path = _write(tmp_path / "set.jsonl", ROWS[name])
    fixed = PUBLISHED.get(name)

    with pytest.raises(SpecError, match="is not the published set") as caught:
        load_prompts(f"{name}:{path}", seed=1)
    told = str(caught.value)
    assert f"got {len(ROWS[name])} prompts" in told
    assert f"expected {FIXED[name][1]} with {fixed.sha256}" in told
    assert content_sha256(fixed.read(read_rows(path)).prompts) in told


def test_changed_content_of_the_right_count_is_refused(tmp_path: Path) -> None:
    """One changed letter is another hash; the true content passes."""
    path = _write(tmp_path / "set.jsonl", ROWS["gsm8k"])
    prompts = PUBLISHED.get("gsm8k").read(read_rows(path)).prompts
    fixed = replace(PUBLISHED.get("gsm8k"), count=2, sha256=content_sha256(prompts))

    assert fixed.load(path).prompts == prompts
    changed = [ROWS["gsm8k"][0], {"question": "Half of 13?"}]
    with pytest.raises(SpecError, match="got 2 prompts with content sha256"):
        fixed.load(_write(tmp_path / "other.jsonl", changed))


@pytest.mark.parametrize("name", FIXED)
def test_docs_state_count_and_hash_as_checked(name: str) -> None:
    """`docs/datasets.md` and the code can't disagree."""
    docs = (Path(__file__).parents[2] / "docs" / "datasets.md").read_text(encoding="utf-8")
    fixed = PUBLISHED.get(name)

    assert fixed.count == FIXED[name][1]
    assert f"| `{name}` | {fixed.count:,} | `{fixed.sha256}` |" in docs


@pytest.mark.parametrize("name", FIXED)
def test_published_set_is_the_fixed_one(name: str) -> None:
    """The published file has the stated count and content."""
    folder = os.environ.get(FOLDER)
    if folder is None:
        pytest.skip(f"{FOLDER} names no folder with the published sets, so none can be checked")
    file, count = FIXED[name]

    prompts = load_prompts(f"{name}:{Path(folder) / file}", seed=1)

    assert len({prompt.prompt_id for prompt in prompts}) == count


def _conversation(*turns: tuple[str, str], **fields: Any) -> dict[str, Any]:
    return {"id": "c", "conversations": [{"from": r, "value": v} for r, v in turns], **fields}


H, G, S = ("human", "Hi"), ("gpt", "Hello"), ("system", "Be brief.")


def _read(*conversations: dict[str, Any]) -> Prompts:
    return read_conversations([Row(f"f[{i}]", c) for i, c in enumerate(conversations)])


@pytest.mark.parametrize(
    ("turns", "roles"),
    [
        ((H, G), ["user"]),
        ((H, G, H, G), ["user", "assistant", "user"]),
        ((H, G, H), ["user", "assistant", "user"]),
        ((S, H, G), ["system", "user"]),
        ((("user", "Hi"), ("chatgpt", "Hello")), ["user"]),
    ],
)
def test_conversation_ends_at_its_last_human_turn(
    turns: tuple[tuple[str, str], ...], roles: list[str]
) -> None:
    """Messages up to the last human turn are sent; the answer to it is left out."""
    found = _read(_conversation(*turns))

    (prompt,) = found.prompts
    assert [role for role, _ in prompt.messages] == roles
    assert (prompt.kind, found.notes) == ("sharegpt", ())


@pytest.mark.parametrize(
    ("odd", "note"),
    [
        ({"id": "x", "conversations": []}, "skipped, no turns"),
        ({"id": "x"}, "skipped, no turns"),
        ({"conversations": ["Hi"]}, "skipped, a turn of another form"),
        (_conversation(("bot", "Hi")), "skipped, role 'bot'"),
        (_conversation(("human", " ")), "skipped, a turn without text"),
        (_conversation(("human", None)), "skipped, a turn without text"),  # type: ignore[arg-type]
        (_conversation(G), "skipped, no human turn"),
        (_conversation(H, H, G), "skipped, two turns of one role in a row"),
        (_conversation(H, S, H), "skipped, a system turn in the middle"),
    ],
)
def test_odd_conversation_is_skipped_and_told(odd: dict[str, Any], note: str) -> None:
    """What can't be sent is counted by its reason and never dropped in silence."""
    found = _read(odd, _conversation(H, G), odd)

    assert len(found.prompts) == 1
    assert found.notes == (f"2 of 3 conversations {note}",)


def test_leading_answers_and_repeated_ids_are_told() -> None:
    """A split conversation loses its first answer, a repeated id gets a number."""
    found = _read(_conversation(G, H, G), _conversation(H), {**_conversation(H), "id": 7})

    assert [prompt.prompt_id for prompt in found.prompts] == ["c", "c#2", "sharegpt-000003"]
    assert [len(prompt.messages) for prompt in found.prompts] == [1, 1, 1]
    assert found.notes == (
        "1 of 3 conversations had answers before the first human turn, left out",
        "1 of 3 conversations had an id that was used before, numbered",
    )


def test_notes_are_handed_on_when_loaded(tmp_path: Path) -> None:
    """A load tells what was odd, naming the set; the order is that of the seed."""
    told: list[str] = []
    rows = [{"id": "bad"}, *({**_conversation(H, G), "id": f"c{i}"} for i in range(5))]
    path = _write(tmp_path / "talk.json", rows)

    prompts = load_prompts(f"sharegpt:{path}", seed=3, tell=told.append)

    assert told == ["dataset 'sharegpt': 1 of 6 conversations skipped, no turns"]
    assert prompts == shuffled(prompts, 3)
    assert len(prompts) == 5


def test_file_without_a_usable_conversation_is_an_error(tmp_path: Path) -> None:
    """Nothing to send is never an empty workload; the reasons are named."""
    path = _write(tmp_path / "talk.json", [{"id": "bad"}])

    with pytest.raises(
        SpecError, match=r"no usable prompt\. 1 of 1 conversations skipped, no turns"
    ):
        load_prompts(f"sharegpt:{path}", seed=1)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", r"set\.jsonl:1: not valid JSON"),
        ("[1]", r"set\.jsonl\[0\]: expected a JSON object, got 1"),
        ('{"answer": "7"}', r"set\.jsonl:1: expected a text 'question' .*got only answer"),
        ('{"question": 7}', r"set\.jsonl:1: expected a text 'question' .*got 7"),
    ],
)
def test_wrong_row_is_named(tmp_path: Path, content: str, message: str) -> None:
    """A file of another kind is a SpecError with the place."""
    path = tmp_path / "set.jsonl"
    path.write_text(content, encoding="utf-8")

    with pytest.raises(SpecError, match=message):
        load_prompts(f"gsm8k:{path}", seed=1)


def test_row_without_turns_is_named(tmp_path: Path) -> None:
    """MT-Bench's format needs a list of turns."""
    path = _write(tmp_path / "set.jsonl", [{"category": "qa", "turns": []}])

    with pytest.raises(SpecError, match=r"set\.jsonl:1: expected a list 'turns'"):
        load_prompts(f"mt_bench:{path}", seed=1)


@pytest.mark.parametrize("file", ["absent.jsonl", "broken.jsonl.gz", "broken.parquet"])
def test_unreadable_file_is_named(tmp_path: Path, file: str) -> None:
    """Absent, not gzipped, no Parquet: a SpecError with the path."""
    path = tmp_path / file
    if file.startswith("broken"):
        path.write_text("no", encoding="utf-8")

    with pytest.raises(SpecError, match=file):
        load_prompts(f"gsm8k:{path}", seed=1)


def _hub(monkeypatch: pytest.MonkeyPatch, download: Any) -> None:
    """Stand in for the optional package."""
    hub, errors = ModuleType("huggingface_hub"), ModuleType("huggingface_hub.errors")
    hub.hf_hub_download = download  # type: ignore[attr-defined]
    errors.EntryNotFoundError = LookupError  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "huggingface_hub", hub)
    monkeypatch.setitem(sys.modules, "huggingface_hub.errors", errors)


def test_name_alone_is_looked_up_on_the_hub(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The hub's file is read and checked like any other."""
    path = _write(tmp_path / "set.parquet", ROWS["gsm8k"])
    asked: list[tuple[Any, ...]] = []

    def download(*args: str, repo_type: str) -> str:
        asked.append((*args, repo_type))
        return str(path)

    _hub(monkeypatch, download)

    with pytest.raises(SpecError, match="got 2 prompts"):
        load_prompts("gsm8k", seed=1)
    assert asked == [("openai/gsm8k", "main/test-00000-of-00001.parquet", "dataset")]


@pytest.mark.parametrize("error", [OSError("offline mode is on\nmore"), LookupError("gone")])
def test_hub_out_of_reach_says_what_to_do(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """Offline or absent is a SpecError with the way out, in one line."""

    def download(*_args: str, repo_type: str) -> str:
        del repo_type
        raise error

    _hub(monkeypatch, download)

    with pytest.raises(SpecError, match=r"HF_HUB_OFFLINE.*mt_bench:/path/to/file") as caught:
        load_prompts("mt_bench", seed=1)
    assert "\n" not in str(caught.value)


def test_missing_hub_package_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the optional package the message names the extra and the file."""
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)

    with pytest.raises(SpecError, match=r"Install draftgate\[hub\], or give the file"):
        load_prompts("gsm8k", seed=1)


def test_set_that_is_not_on_the_hub_asks_for_a_file() -> None:
    """Sets without a known place on the hub are loaded from files alone."""
    with pytest.raises(SpecError, match="not looked up on the hub; give the file"):
        load_prompts("mbpp", seed=1)


def test_offline_is_honoured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the real package and HF_HUB_OFFLINE nothing is asked; an empty cache is an error."""
    constants = pytest.importorskip("huggingface_hub.constants", reason="it is optional")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))

    with pytest.raises(SpecError, match="can't be had from the hub"):
        replace(PUBLISHED.get("gsm8k"), hub=HubFile("nobody/nothing", "a.jsonl")).load(None)


def test_unknown_name_lists_published_ones_too() -> None:
    """A misspelt set is an error that lists all."""
    with pytest.raises(SpecError, match=r"unknown dataset 'gsm8'.*chat.*gsm8k.*sharegpt"):
        load_prompts("gsm8", seed=1)
    twins = {f"twin-{length}" for length in LENGTHS}
    assert {*KINDS, "mixed", *FIXED, "sharegpt", *twins} == set(dataset_names())


def test_empty_file_name_is_an_error() -> None:
    """A colon asks for a file."""
    with pytest.raises(SpecError, match="no file after the colon"):
        load_prompts("gsm8k:", seed=1)


@pytest.mark.parametrize(
    ("name", "label"),
    [("gsm8k:/a/b.jsonl", "gsm8k"), ("gsm8k", "gsm8k"), ("/a/b.jsonl", "b.jsonl"), ("chat",) * 2],
)
def test_label_leaves_out_where_a_file_lies(name: str, label: str) -> None:
    """Two places of one file are the same workload."""
    assert dataset_label(name) == label


def test_load_command_takes_published_sets(tmp_path: Path) -> None:
    """`draftgate load --prompts sharegpt:FILE` sends the conversations."""
    path = _write(tmp_path / "talk.json", [_conversation(H, G)])

    found = find_prompts(f"sharegpt:{path}", seed=1)

    assert found.prompt(0, seed=1).messages == (("user", "Hi"),)


PROFILE = """
schema = 1
name = "toy"
description = "A toy"
[engine]
name = "fake"
[target]
model = "fake"
[[arm]]
name = "none"
method = "none"
[workload]
dataset = "{dataset}"
concurrencies = [1]
[workload.sampling]
max_tokens = 8
"""


def test_profile_resolves_the_file_from_its_own_folder(tmp_path: Path) -> None:
    """`name:path` is relative to the profile, like any path in it."""
    path = _write(tmp_path / "talk.json", [_conversation(H, G)])
    profile = tmp_path / "toy.toml"
    profile.write_text(PROFILE.format(dataset="sharegpt:talk.json"), encoding="utf-8")

    dataset = load_profile(str(profile)).workload.dataset

    assert dataset == f"sharegpt:{path.resolve()}"
    assert load_prompts(dataset, 1) == (Prompt("c", "sharegpt", (("user", "Hi"),)),)


def test_profile_with_an_absent_file_is_an_error(tmp_path: Path) -> None:
    """The message names the path that was looked at."""
    profile = tmp_path / "toy.toml"
    profile.write_text(PROFILE.format(dataset="gsm8k:absent.jsonl"), encoding="utf-8")

    with pytest.raises(SpecError, match=r"there is none at .*absent\.jsonl"):
        load_profile(str(profile))
