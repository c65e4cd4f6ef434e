"""The step `prompts`: what is answered, what is held out, and what is left out."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from draftgate.datasets.builtin import stored
from draftgate.drafts.prompts import choose_prompts, files_digest, read_chosen
from draftgate.drafts.recipe import PromptsRecipe
from draftgate.errors import SpecError

RECIPE = PromptsRecipe(written_per_kind=20, most_per_kind=1000, held_out_ratio=0.3)


def write_file(path: Path, texts: Sequence[str], kind: str = "own") -> Path:
    """Write a JSONL file of prompts."""
    lines = [json.dumps({"prompt": text, "kind": kind}) for text in texts]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    """Two files of prompts with ten texts in common."""
    return (
        write_file(tmp_path / "one.jsonl", [f"Describe stone {n}." for n in range(40)]),
        write_file(tmp_path / "two.jsonl", [f"Describe stone {n}." for n in range(30, 70)], "two"),
    )


def chosen(folder: Path, files: Sequence[Path], recipe: PromptsRecipe = RECIPE) -> dict[str, bool]:
    """Return whether each text that was chosen is held out."""
    folder.mkdir()
    choose_prompts(recipe, files, seed=1, folder=folder)
    return {one.prompt.messages[-1][1]: one.held_out for one in read_chosen(folder)}


def test_hold_out_does_not_depend_on_order(tmp_path: Path, files: tuple[Path, Path]) -> None:
    """The same texts are held out whichever file comes first."""
    one = chosen(tmp_path / "a", files)
    other = chosen(tmp_path / "b", files[::-1])

    assert one == other
    assert 0.15 < sum(one.values()) / len(one) < 0.45


def test_hold_out_does_not_depend_on_company(tmp_path: Path, files: tuple[Path, Path]) -> None:
    """A text that is held out of two files is held out of one alone."""
    both = chosen(tmp_path / "a", files)
    alone = chosen(tmp_path / "b", files[:1])

    assert alone.items() <= both.items()


def test_hold_out_grows_with_the_ratio(tmp_path: Path, files: tuple[Path, Path]) -> None:
    """A larger share holds out what the smaller one did, and more."""
    few = chosen(tmp_path / "a", files)
    more = chosen(tmp_path / "b", files, PromptsRecipe(20, 1000, 0.6))

    assert {text for text, out in few.items() if out} < {text for text, out in more.items() if out}


def test_chosen_prompts_are_read_as_written(tmp_path: Path, files: tuple[Path, Path]) -> None:
    """Facts count what the file holds: every text once, sources and kinds kept."""
    found = choose_prompts(RECIPE, files, seed=1, folder=tmp_path)
    held = read_chosen(tmp_path)

    assert found["prompts"] == len(held) == 3 * 20 + 70
    assert found["held_out"] == sum(one.held_out for one in held)
    assert found["left_out_repeated"] == 10
    assert found["kinds"]["chat"] == 20
    assert sum(found["kinds"].values()) == len(held)


def test_evaluation_prompts_are_left_out(tmp_path: Path) -> None:
    """A prompt of the built-in sets is left out, also in other case and spacing."""
    texts = [prompt.messages[-1][1] for prompt in stored("chat")[:4]]
    spread = [text.upper().replace(" ", " \n ") for text in texts[:2]] + texts[2:]
    path = write_file(tmp_path / "leak.jsonl", [*spread, "Describe a stone."])

    found = choose_prompts(RECIPE, [path], seed=1, folder=tmp_path)

    assert found["left_out_evaluation"] == 4
    held = {one.prompt.messages[-1][1] for one in read_chosen(tmp_path)}
    assert "Describe a stone." in held
    assert not held & set(spread)


def test_limit_is_per_kind(tmp_path: Path) -> None:
    """Each kind of a file gives at most so many, the others are not cut for it."""
    path = tmp_path / "mixed.jsonl"
    lines = [{"prompt": f"Name hill {n}.", "kind": "hills"} for n in range(30)]
    lines += [{"prompt": f"Name lake {n}.", "kind": "lakes"} for n in range(3)]
    path.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")

    found = choose_prompts(PromptsRecipe(20, 5, 0.3), [path], seed=1, folder=tmp_path)

    assert found["kinds"]["hills"] == 5
    assert found["kinds"]["lakes"] == 3


@pytest.mark.parametrize("ratio", [1e-12, 1 - 1e-12])
def test_all_or_none_held_out_is_refused(tmp_path: Path, ratio: float) -> None:
    """With nothing to train on or nothing to measure on there is no step."""
    with pytest.raises(SpecError, match="expected some of either"):
        choose_prompts(PromptsRecipe(2, 5, ratio), [], seed=1, folder=tmp_path)


def test_digest_is_of_contents(tmp_path: Path) -> None:
    """Files in any order and place give one digest, another content gives another."""
    one = write_file(tmp_path / "one.jsonl", ["a"])
    two = write_file(tmp_path / "two.jsonl", ["b"])
    (tmp_path / "moved").mkdir()
    moved = write_file(tmp_path / "moved" / "one.jsonl", ["a"])

    assert files_digest([one, two]) == files_digest([two, moved])
    assert files_digest([one, two]) != files_digest([one])


def test_missing_file_is_refused(tmp_path: Path) -> None:
    """A file that is not there is an error that names the option."""
    with pytest.raises(SpecError, match=r"gone\.jsonl.*--prompts"):
        files_digest([tmp_path / "gone.jsonl"])
