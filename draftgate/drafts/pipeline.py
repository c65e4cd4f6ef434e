"""The pipeline that makes a head: named steps, each made once and found again.

    prompts -> answers -> hidden-states -> vocabulary -> training -> export

What a step needs is the folder of the one before; its digest is part of the
next one's, so a change of recipe redoes what it touches and nothing else.
"""

import hashlib
import json
import math
import shutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from draftgate.drafts.answers import Samples, answer, read_samples
from draftgate.drafts.asking import Answers, Ask, answer_all
from draftgate.drafts.export import export_head
from draftgate.drafts.prompts import choose_prompts, files_digest
from draftgate.drafts.recipe import Recipe
from draftgate.drafts.states import Computed, Source, Stored, default_layer_ids, store_states
from draftgate.drafts.steps import STAMP, Facts, Say, Step, facts, made
from draftgate.drafts.training import WEIGHTS, Lesson, train
from draftgate.drafts.vocabulary import FILE as VOCABULARY
from draftgate.drafts.vocabulary import choose_vocabulary, read_vocabulary
from draftgate.errors import SpecError
from draftgate.targets import resolve_target

STEPS = ("prompts", "answers", "hidden-states", "vocabulary", "training", "export")
"""Names of the steps in order; measuring the head is `draftgate drafts check`."""


@dataclass(frozen=True, slots=True)
class Job:
    """One making of a head.

    Attributes:
        recipe: What to make.
        files: JSONL files of prompts.
        root: Where the steps' folders lie.
        say: Takes lines of progress.
        target: Folder of a target other than the recipe's: its next version, say.
        start: Folder of a step `training` whose weights are the first.
        limit_s: Longest that the step `training` may take, seconds.
        engines: Processes in which the target answers side by side; what they answer is held
            to be the same, so the step's name does not tell.
    """

    recipe: Recipe
    files: tuple[Path, ...]
    root: Path
    say: Say
    target: Path | None = None
    start: Path | None = None
    limit_s: float = math.inf
    engines: int = 1


def make_head(job: Job, *, until: str = STEPS[-1]) -> Path:
    """Run the steps up to `until`, those not yet done, and return the folder of the last.

    Raises:
        SpecError: If a step is unknown, a file is wrong, or a folder cannot be written.
        EngineError: If the target's engine does not answer.
    """
    if until not in STEPS:
        raise SpecError(f"--until: got {until!r}, expected one of {', '.join(STEPS)}.")
    makers = _Makers(job)
    folder = Path()
    for name in STEPS[: STEPS.index(until) + 1]:
        folder = makers.made(name)
    return folder


class _Makers:
    """The steps of one job, with what is read once and used by several."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._folders: dict[str, Path] = {}
        target = job.target or resolve_target(job.recipe.target, log=job.say)
        if not isinstance(target, Path):
            raise SpecError(
                f"recipe {job.recipe.name}: target {job.recipe.target!r} is no folder here. "
                "Download it, and give its folder with --target."
            )
        self._target = target
        self._target_vocab, layers = _sizes(target)
        self._layer_ids = job.recipe.head.layer_ids or default_layer_ids(layers)
        if self._layer_ids[-1] >= layers:
            raise SpecError(
                f"recipe {job.recipe.name}: head.layer_ids: got {self._layer_ids[-1]}, expected "
                f"numbers below {layers}, the layers of {target}. Correct the value."
            )

    def made(self, name: str) -> Path:
        """Return the folder of a step whose forerunners are done."""
        step = getattr(self, "_" + name.replace("-", "_"))()
        self._folders[name] = made(step, self._job.root, self._job.say)
        return self._folders[name]

    def _prompts(self) -> Step:
        job = self._job
        recipe, seed = job.recipe.prompts, job.recipe.seed
        about = {"recipe": asdict(recipe), "files": files_digest(job.files), "seed": seed}
        return Step(
            "prompts",
            about,
            lambda folder: choose_prompts(recipe, job.files, seed=seed, folder=folder),
        )

    def _answers(self) -> Step:
        job = self._job
        prompts = self._folders["prompts"]
        about = {
            "after": prompts.name,
            "recipe": asdict(job.recipe.answers),
            "seed": job.recipe.seed,
            "target": target_digest(self._target),
        }

        def ask(rendered: Sequence[list[int]]) -> tuple[Answers, str]:
            recipe = job.recipe
            return answer_all(Ask(self._target, recipe.answers, recipe.seed, rendered, job.engines))

        def build(folder: Path) -> Facts:
            recipe = job.recipe.answers
            return answer(self._target, prompts, recipe, ask=ask, folder=folder, say=job.say)

        return Step("answers", about, build)

    def _hidden_states(self) -> Step:
        answers = self._folders["answers"]
        store = self._job.recipe.training.store_states
        about = {"after": answers.name, "layer_ids": list(self._layer_ids), "store": store}

        def build(folder: Path) -> Facts:
            if not store:
                return {"shards": 0}
            samples = read_samples(answers)
            source = Computed(self._target, self._layer_ids, samples)
            return store_states(source, samples, folder, self._job.say)

        return Step("hidden-states", about, build, resumes=True)

    def _vocabulary(self) -> Step:
        answers = self._folders["answers"]
        size = self._job.recipe.head.draft_vocab_size
        about: dict[str, Any] = {"after": answers.name, "draft_vocab_size": size}
        if self._job.start is not None:
            about = {"of": self._job.start.name}

        def build(folder: Path) -> Facts:
            if self._job.start is not None:
                return _copy_vocabulary(self._job.start, folder)
            return choose_vocabulary(
                read_samples(answers),
                draft_vocab_size=size,
                target_vocab_size=self._target_vocab,
                folder=folder,
            )

        return Step("vocabulary", about, build)

    def _training(self) -> Step:
        job = self._job
        states, vocabulary = self._folders["hidden-states"], self._folders["vocabulary"]
        about = {
            "after": [states.name, vocabulary.name],
            "algorithm": job.recipe.algorithm,
            "head": asdict(job.recipe.head),
            "recipe": asdict(job.recipe.training),
            "seed": job.recipe.seed,
            "start": job.start.name if job.start else None,
            "limit_s": None if math.isinf(job.limit_s) else job.limit_s,
            "speculators": version("speculators"),
        }

        def build(folder: Path) -> Facts:
            samples = read_samples(self._folders["answers"])
            lesson = Lesson(
                job.recipe,
                self._target,
                read_vocabulary(vocabulary),
                self._layer_ids,
                samples,
                self._source(states, samples),
                None if job.start is None else job.start / WEIGHTS,
                job.limit_s,
            )
            return train(lesson, folder, job.say)

        return Step("training", about, build, resumes=True)

    def _source(self, states: Path, samples: Samples) -> Source:
        if facts(states)["shards"]:
            return Stored(states, samples)
        return Computed(self._target, self._layer_ids, samples)

    def _export(self) -> Step:
        job = self._job
        training, vocabulary = self._folders["training"], self._folders["vocabulary"]
        about = {"after": [training.name, vocabulary.name], "target": job.recipe.target}

        def build(folder: Path) -> Facts:
            return export_head(
                job.recipe,
                self._target,
                read_vocabulary(vocabulary),
                self._layer_ids,
                training / WEIGHTS,
                folder,
            )

        return Step("export", about, build)


def target_digest(folder: Path) -> str:
    """Return a digest of a model folder's weights and config."""
    digest = hashlib.sha256()
    for path in sorted((*folder.glob("*.safetensors"), folder / "config.json")):
        with path.open("rb") as handle:
            digest.update(hashlib.file_digest(handle, "sha256").digest())
    return digest.hexdigest()[:16]


def _sizes(folder: Path) -> tuple[int, int]:
    """Return how many tokens and layers a model has."""
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        return int(config["vocab_size"]), int(config["num_hidden_layers"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise SpecError(
            f"target {folder}: got no config.json with vocab_size and num_hidden_layers ({error}). "
            "Give the folder of a language model in Hugging Face's format."
        ) from error


def _copy_vocabulary(start: Path, folder: Path) -> Facts:
    """Take the vocabulary that the first weights were trained with."""
    try:
        about = json.loads((start / STAMP).read_text(encoding="utf-8"))["about"]
        source = start.parent / about["after"][1]
        shutil.copyfile(source / VOCABULARY, folder / VOCABULARY)
    except (OSError, ValueError, KeyError, IndexError, TypeError) as error:
        raise SpecError(
            f"--start {start}: got no finished training with its vocabulary beside it ({error}). "
            "Give a folder training-... with the vocabulary-... it was made from."
        ) from error
    return {"of": source.name}
