"""A training: rates, a small one for real, one that is cut off, and the head it leaves."""

import json
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from draftgate.clock import SYSTEM_CLOCK, Clock, ManualClock
from draftgate.drafts import training
from draftgate.drafts.answers import Samples
from draftgate.drafts.export import WEIGHTS as EXPORTED
from draftgate.drafts.export import export_head
from draftgate.drafts.recipe import Recipe
from draftgate.drafts.states import Computed, Stored, store_states
from draftgate.drafts.training import CHECKPOINT, LAST_RATE, WEIGHTS, Lesson, rate_at, train
from draftgate.drafts.vocabulary import choose_vocabulary, read_vocabulary
from draftgate.errors import SpecError
from tests.support.drafts import (
    DRAFT_VOCAB,
    HIDDEN,
    VOCAB,
    one_thread,
    random_samples,
    require_speculators,
    samples_of,
    small_recipe,
    write_target,
)

LAYER_IDS = (2, 3, 4)
ALGORITHMS = pytest.mark.parametrize("algorithm", ["eagle3", "peagle"])


@pytest.fixture(scope="module", autouse=True)
def quick() -> Iterator[None]:
    """PyTorch with one thread."""
    with one_thread():
        yield


@dataclass(frozen=True, slots=True)
class School:
    """A random target with samples, their states and a vocabulary."""

    target: Path
    samples: Samples
    states: Path
    vocabulary: Path

    def lesson(self, recipe: Recipe, **words: Any) -> Lesson:
        """Return a lesson by a recipe."""
        return Lesson(
            recipe,
            self.target,
            read_vocabulary(self.vocabulary),
            LAYER_IDS,
            self.samples,
            Stored(self.states, self.samples),
            **words,
        )


def found_school(root: Path, target: Path, samples: Samples) -> School:
    """Return a school whose states and vocabulary lie below `root`."""
    school = School(target, samples, root / "states", root / "vocabulary")
    school.states.mkdir()
    school.vocabulary.mkdir()
    store_states(Computed(target, LAYER_IDS, samples), samples, school.states, print)
    choose_vocabulary(
        samples,
        draft_vocab_size=DRAFT_VOCAB,
        target_vocab_size=VOCAB,
        folder=school.vocabulary,
    )
    return school


@pytest.fixture(scope="module")
def school(tmp_path_factory: pytest.TempPathFactory) -> School:
    """A random target, and eight samples of which two are held out."""
    require_speculators()
    root = tmp_path_factory.mktemp("school")
    return found_school(root, write_target(root / "target"), random_samples(8, held_out=2))


def weights_of(path: Path) -> dict[str, Any]:
    """Return trained weights by name."""
    import torch

    return dict(torch.load(path, weights_only=True))


def stopping_at(line: str) -> Callable[[str], None]:
    """Return a listener that breaks the training off at a line."""

    def say(said: str) -> None:
        if said.startswith(line):
            raise RuntimeError("unplugged")

    return say


def test_rate_rises_and_falls() -> None:
    """From the last share up to the peak in a straight line, then down to it again."""
    recipe = small_recipe(warmup_ratio=0.2).training
    rates = [rate_at(done / 100, recipe) for done in range(101)]

    assert rates[0] == rates[100] == pytest.approx(LAST_RATE)
    assert rates[20] == max(rates) == 1.0
    assert rates[10] == pytest.approx((1 + LAST_RATE) / 2)
    assert rates[60] == pytest.approx((1 + LAST_RATE) / 2)
    assert all(before < after for before, after in pairwise(rates[:21]))
    assert all(before > after for before, after in pairwise(rates[20:]))


def test_rate_without_a_rise_begins_at_the_peak() -> None:
    """A share of 0 for the rise is no division by it."""
    assert rate_at(0.0, small_recipe(warmup_ratio=0.0).training) == 1.0


@ALGORITHMS
def test_training_leaves_a_head(algorithm: str, school: School, tmp_path: Path) -> None:
    """Six steps change finite weights, tell their losses, and leave no checkpoint."""
    said: list[str] = []
    facts = train(school.lesson(small_recipe(algorithm)), tmp_path, said.append)

    weights = weights_of(tmp_path / WEIGHTS)
    assert [path.name for path in tmp_path.iterdir()] == [WEIGHTS]
    assert all(bool(tensor.isfinite().all()) for tensor in weights.values())
    assert "embed_tokens.weight" not in weights
    assert weights["lm_head.weight"].shape == (DRAFT_VOCAB, HIDDEN)
    assert (facts["steps"], facts["samples"]) == (6, 6)
    assert facts["parameters"] == sum(tensor.numel() for tensor in weights.values())
    assert [one["step"] for one in facts["evaluations"]] == [1, 2, 3, 4, 5, 6]
    assert all(math.isfinite(one["loss"]) and one["loss"] > 0 for one in facts["evaluations"])
    assert any(line.startswith("training: step 6 of 6: loss") for line in said)


@ALGORITHMS
def test_interrupted_training_ends_as_if_it_was_not(
    algorithm: str, school: School, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From its checkpoint it takes the steps that were left, to equal weights and numbers."""
    import torch

    monkeypatch.setattr(training, "SAVE_EVERY_S", 0.0)
    (tmp_path / "whole").mkdir()
    (tmp_path / "cut").mkdir()
    lesson = school.lesson(small_recipe(algorithm))
    whole = train(lesson, tmp_path / "whole", print)
    with pytest.raises(RuntimeError, match="unplugged"):
        train(lesson, tmp_path / "cut", stopping_at("training: step 4, held out"))
    assert (tmp_path / "cut" / CHECKPOINT).is_file()
    assert not (tmp_path / "cut" / WEIGHTS).exists()

    said: list[str] = []
    cut = train(lesson, tmp_path / "cut", said.append)

    assert said[0] == "training: goes on at step 3"
    assert cut == whole
    before, after = (weights_of(tmp_path / name / WEIGHTS) for name in ("whole", "cut"))
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)


@ALGORITHMS
def test_head_learns_what_it_sees_again(algorithm: str, school: School, tmp_path: Path) -> None:
    """Sixty steps on four samples, measured on the same: the first draft is mostly right."""
    parts = [
        (school.samples.tokens(n)[:4].tolist(), school.samples.tokens(n)[4:].tolist())
        for n in range(4)
    ]
    same = samples_of(parts * 2, [False] * 4 + [True] * 4)
    again = found_school(tmp_path, school.target, same)
    recipe = small_recipe(algorithm, steps=60, tokens_per_step=200, learning_rate=0.003)
    (tmp_path / "head").mkdir()

    facts = train(again.lesson(recipe), tmp_path / "head", print)

    first, last = facts["evaluations"][0], facts["evaluations"][-1]
    assert (first["step"], last["step"]) == (7, 60)
    assert last["accuracy"][0] > first["accuracy"][0] + 0.15
    assert last["accuracy"][0] > 0.8
    assert last["loss"] < first["loss"]


@dataclass(slots=True)
class Ticking:
    """A clock on which a second passes at each look."""

    inner: ManualClock

    def now_ns(self) -> int:
        """Return the time, a second after the last."""
        self.inner.advance(1.0)
        return self.inner.now_ns()

    def wall(self) -> Any:
        """Return the time of day."""
        return self.inner.wall()


def limited(school: School, folder: Path, say: Callable[[str], None] = print) -> Any:
    """Train by a recipe of 400 steps that may take 16 s, a second a step."""
    clock: Clock = Ticking(ManualClock())
    recipe = small_recipe(steps=400)
    return train(school.lesson(recipe, limit_s=16.0), folder, say, clock)


def test_training_ends_in_time(school: School, tmp_path: Path) -> None:
    """A limit ends it with steps left, and its end is measured all the same."""
    facts = limited(school, tmp_path)

    assert 10 <= facts["steps"] <= 16
    assert [one["step"] for one in facts["evaluations"]] == [facts["steps"]]
    assert (tmp_path / WEIGHTS).is_file()


def test_time_before_a_stop_counts(
    school: School, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A training that goes on has what was left of its time, not all of it again."""
    monkeypatch.setattr(training, "SAVE_EVERY_S", 0.0)
    monkeypatch.setattr(training, "EVALUATIONS", 40)
    with pytest.raises(RuntimeError, match="unplugged"):
        limited(school, tmp_path, stopping_at("training: step 10, held out"))

    assert limited(school, tmp_path)["steps"] <= 16


@ALGORITHMS
def test_exported_head_is_what_engines_load(algorithm: str, school: School, tmp_path: Path) -> None:
    """bfloat16 weights without the target's embedding, the map of drafts, the target by name."""
    import torch
    from safetensors.torch import load_file

    recipe = small_recipe(algorithm)
    lesson = school.lesson(recipe)
    (tmp_path / "head").mkdir()
    train(lesson, tmp_path, print)

    facts = export_head(
        recipe,
        school.target,
        lesson.vocabulary,
        LAYER_IDS,
        tmp_path / WEIGHTS,
        tmp_path / "head",
    )

    trained = weights_of(tmp_path / WEIGHTS)
    tensors = load_file(tmp_path / "head" / EXPORTED)
    assert tensors.keys() == trained.keys() | {"d2t"}
    assert all(torch.equal(tensors[name], trained[name].bfloat16()) for name in trained)
    assert torch.equal(tensors["d2t"], lesson.vocabulary[1])
    assert facts["bytes"] == (tmp_path / "head" / EXPORTED).stat().st_size
    text = (tmp_path / "head" / "config.json").read_text(encoding="utf-8")
    config = json.loads(text)
    assert config["speculators_config"]["verifier"]["name_or_path"] == recipe.target
    assert config["speculators_config"]["algorithm"] == algorithm
    assert config["eagle_aux_hidden_state_layer_ids"] == list(LAYER_IDS)
    assert config["dtype"] == "bfloat16"
    assert str(tmp_path) not in text
    assert str(school.target) not in text


def test_fixed_output_rows_are_exported(school: School, tmp_path: Path) -> None:
    """A head that keeps the target's rows brings them along, since the engine wants them."""
    from safetensors.torch import load_file

    recipe = small_recipe(steps=1, train_lm_head=False)
    lesson = school.lesson(recipe)
    (tmp_path / "head").mkdir()
    train(lesson, tmp_path, print)
    export_head(
        recipe,
        school.target,
        lesson.vocabulary,
        LAYER_IDS,
        tmp_path / WEIGHTS,
        tmp_path / "head",
    )

    assert "lm_head.weight" not in weights_of(tmp_path / WEIGHTS)
    exported = load_file(tmp_path / "head" / EXPORTED)["lm_head.weight"]
    embedding = load_file(school.target / "model.safetensors")["model.embed_tokens.weight"]
    rows = np.flatnonzero(lesson.vocabulary[0])
    assert exported.equal(embedding[rows].bfloat16())


def test_training_begins_with_given_weights(school: School, tmp_path: Path) -> None:
    """With a rate of almost nothing, the weights stay those it began with."""
    import torch

    (tmp_path / "next").mkdir()
    train(school.lesson(small_recipe()), tmp_path, print)
    recipe = small_recipe(steps=1, learning_rate=1e-12)

    train(school.lesson(recipe, start=tmp_path / WEIGHTS), tmp_path / "next", print)

    before, after = weights_of(tmp_path / WEIGHTS), weights_of(tmp_path / "next" / WEIGHTS)
    assert all(torch.allclose(before[name], after[name], atol=1e-9) for name in before)


@pytest.mark.parametrize("kind", ["gone", "damaged", "of another algorithm"])
def test_wrong_start_is_refused(kind: str, school: School, tmp_path: Path) -> None:
    """First weights that are not there, not whole or not of such a head: one line that says so."""
    start = tmp_path / WEIGHTS
    if kind == "damaged":
        start.write_bytes(b"no weights")
    elif kind == "of another algorithm":
        train(school.lesson(small_recipe("peagle", steps=1)), tmp_path, print)

    with pytest.raises(SpecError, match=r"--start: got no weights of such a head") as raised:
        train(school.lesson(small_recipe(), start=start), tmp_path, print, SYSTEM_CLOCK)

    assert "\n" not in str(raised.value)


def test_samples_of_no_use_are_refused(school: School, tmp_path: Path) -> None:
    """Without a held-out greedy answer there is nothing to measure on, and no training."""
    sampled = replace(school.samples, greedy=np.zeros(len(school.samples), dtype=bool))
    lesson = replace(school.lesson(small_recipe()), samples=sampled)

    with pytest.raises(SpecError, match="training: got 6 answers to learn from and 0 greedy"):
        train(lesson, tmp_path, print)
