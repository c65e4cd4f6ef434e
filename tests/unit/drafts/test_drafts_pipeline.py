"""The pipeline: steps in order, found again, and redone where a recipe touches them.

The target's own answers come from a rule here instead of an engine.
"""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from draftgate.drafts import pipeline
from draftgate.drafts.answers import read_samples, write_samples
from draftgate.drafts.pipeline import STEPS, Job, make_head
from draftgate.drafts.recipe import AnswersRecipe, Recipe
from draftgate.drafts.steps import STAMP, Facts, facts
from draftgate.errors import SpecError
from tests.support.drafts import (
    one_thread,
    random_samples,
    require_speculators,
    small_recipe,
    write_target,
)

CONFIG = {"vocab_size": 64, "num_hidden_layers": 7}


@pytest.fixture(autouse=True)
def answered(monkeypatch: pytest.MonkeyPatch) -> list[AnswersRecipe]:
    """Answers by a rule; the list tells for which recipes they were asked."""
    asked: list[AnswersRecipe] = []

    def answer(
        _target: Path, _prompts: Path, recipe: AnswersRecipe, *, folder: Path, **_: Any
    ) -> Facts:
        asked.append(recipe)
        write_samples(random_samples(8, held_out=2), folder)
        return {"samples": 8}

    monkeypatch.setattr(pipeline, "answer", answer)
    return asked


@pytest.fixture
def bare(tmp_path: Path) -> Path:
    """A target's folder that holds a config alone."""
    folder = tmp_path / "bare"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(CONFIG), encoding="utf-8")
    return folder


def recipe_of(**training: Any) -> Recipe:
    """Return a small recipe of 60 prompts."""
    recipe = small_recipe(**training)
    prompts = replace(recipe.prompts, written_per_kind=20, held_out_ratio=0.2)
    return replace(recipe, prompts=prompts)


def job_of(recipe: Recipe, root: Path, target: Path, **words: Any) -> Job:
    """Return a job below `root` that tells nothing."""
    return Job(recipe, (), root, lambda _line: None, target, **words)


def counted(root: Path) -> dict[str, int]:
    """Return how many folders of each step lie below `root`."""
    names = [path.name.rpartition("-")[0] for path in root.glob("[a-z]*")]
    return {name: names.count(name) for name in STEPS if name in names}


def test_unknown_step_is_refused(tmp_path: Path, bare: Path) -> None:
    """A step that is none names the option and lists the steps; nothing is begun."""
    with pytest.raises(SpecError, match=r"--until: got 'answer', expected one of prompts, answers"):
        make_head(job_of(recipe_of(), tmp_path / "root", bare), until="answer")

    assert not (tmp_path / "root").exists()


@pytest.mark.parametrize("text", [None, "{", "[]", '{"vocab_size": 64}'])
def test_target_without_a_config_is_refused(tmp_path: Path, text: str | None) -> None:
    """A folder that is no language model is an error that names it."""
    if text is not None:
        (tmp_path / "config.json").write_text(text, encoding="utf-8")

    with pytest.raises(SpecError, match=r"got no config\.json with vocab_size") as raised:
        make_head(job_of(recipe_of(), tmp_path / "root", tmp_path))

    assert str(tmp_path) in str(raised.value)


def test_layer_beyond_the_target_is_refused(tmp_path: Path, bare: Path) -> None:
    """Layers are numbered from 0, so a target of seven has no layer 7."""
    recipe = recipe_of()
    recipe = replace(recipe, head=replace(recipe.head, layer_ids=(2, 7)))

    with pytest.raises(SpecError, match=r"head\.layer_ids: got 7, expected numbers below 7"):
        make_head(job_of(recipe, tmp_path / "root", bare))


def test_target_that_is_a_hub_name_is_refused(tmp_path: Path) -> None:
    """Weights are read here, so a name alone does not do."""
    recipe = replace(recipe_of(), target="someone/model")
    job = Job(recipe, (), tmp_path, print)

    with pytest.raises(SpecError, match=r"'someone/model' is no folder here\. .*--target"):
        make_head(job)


def test_steps_up_to_one_are_made(tmp_path: Path, bare: Path) -> None:
    """The folder of the last step comes back, and no later one is there."""
    folder = make_head(job_of(recipe_of(), tmp_path / "root", bare), until="answers")

    assert counted(tmp_path / "root") == {"prompts": 1, "answers": 1}
    assert folder.name.startswith("answers-")
    assert len(read_samples(folder)) == 8


def test_changed_answers_redo_answers_and_later(
    tmp_path: Path, bare: Path, answered: list[AnswersRecipe]
) -> None:
    """Another length of answers leaves the prompts and begins anew from the answers."""
    root, recipe = tmp_path / "root", recipe_of()
    longer = replace(recipe, answers=replace(recipe.answers, max_tokens=99))

    for one in (recipe, longer, recipe):
        make_head(job_of(one, root, bare), until="hidden-states")

    assert counted(root) == {"prompts": 1, "answers": 2, "hidden-states": 2}
    assert answered == [recipe.answers, longer.answers]


def test_changed_training_leaves_what_is_before(tmp_path: Path, bare: Path) -> None:
    """How a head learns does not touch what it learns from."""
    for recipe in (recipe_of(), recipe_of(steps=9, tokens_per_step=99)):
        make_head(job_of(recipe, tmp_path / "root", bare), until="hidden-states")

    assert counted(tmp_path / "root") == {"prompts": 1, "answers": 1, "hidden-states": 1}


def test_changed_seed_redoes_all(tmp_path: Path, bare: Path) -> None:
    """Prompts are drawn by the seed, so another one begins from the first step."""
    recipe = recipe_of()
    for one in (recipe, replace(recipe, seed=2)):
        make_head(job_of(one, tmp_path / "root", bare), until="answers")

    assert counted(tmp_path / "root") == {"prompts": 2, "answers": 2}


def test_other_target_redoes_answers(tmp_path: Path, bare: Path) -> None:
    """The digest is of the target's files: another folder of the same files is the same target."""
    root = tmp_path / "root"
    other = tmp_path / "other"
    other.mkdir()
    (other / "config.json").write_text(json.dumps(CONFIG), encoding="utf-8")
    make_head(job_of(recipe_of(), root, bare), until="answers")
    make_head(job_of(recipe_of(), root, other), until="answers")
    assert counted(root) == {"prompts": 1, "answers": 1}

    (other / "model.safetensors").write_bytes(b"weights")
    make_head(job_of(recipe_of(), root, other), until="answers")

    assert counted(root) == {"prompts": 1, "answers": 2}


@pytest.mark.parametrize("stamp", [None, "{", '{"about": {"after": ["states-1"]}}'])
def test_start_that_is_no_training_is_refused(
    tmp_path: Path, bare: Path, stamp: str | None
) -> None:
    """First weights come with the vocabulary they were trained with; else the option is named."""
    start = tmp_path / "start"
    start.mkdir()
    if stamp is not None:
        (start / STAMP).write_text(stamp, encoding="utf-8")

    with pytest.raises(SpecError, match=r"--start .*: got no finished training"):
        make_head(job_of(recipe_of(), tmp_path / "root", bare, start=start), until="vocabulary")


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A random target, and PyTorch with one thread."""
    require_speculators()
    with one_thread():
        yield write_target(tmp_path_factory.mktemp("target"))


@pytest.mark.parametrize("stored", [True, False], ids=["stored", "computed"])
def test_all_steps_are_made_once(tmp_path: Path, target: Path, stored: bool) -> None:  # noqa: FBT001 (parametrised)
    """From prompts to a head; asked again, every step is there."""
    said: list[str] = []
    job = replace(
        job_of(recipe_of(steps=2, store_states=stored), tmp_path / "root", target), say=said.append
    )
    folder = make_head(job)
    assert (folder / "model.safetensors").is_file()
    said.clear()

    assert make_head(job) == folder
    assert [line.partition(":")[0] for line in said] == list(STEPS)
    assert all(": there (" in line for line in said)


def test_next_head_begins_with_the_last(tmp_path: Path, target: Path) -> None:
    """With --start the vocabulary is the first head's, and training is a step of its own."""
    root = tmp_path / "root"
    first = make_head(job_of(recipe_of(steps=2), root, target), until="training")

    second = make_head(job_of(recipe_of(steps=2), root, target, start=first))

    assert (second / "config.json").is_file()
    assert counted(root) == {
        "prompts": 1,
        "answers": 1,
        "hidden-states": 1,
        "vocabulary": 2,
        "training": 2,
        "export": 1,
    }
    taken = [facts(path) for path in root.glob("vocabulary-*")]
    assert sum("of" in one for one in taken) == 1
