"""`draftgate drafts train`: what is wrong is told in one line, before anything is begun."""

from pathlib import Path
from typing import Any

import pytest

from draftgate.cli import Exit, main
from draftgate.drafts import pipeline
from draftgate.drafts.recipe import load_recipe, tiny
from tests.support.drafts import complaint_of


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["smollm2-eagle3", "--steps", "0"], "--steps got 0, expected 1 or more"),
        (["smollm2-eagle3", "--max-minutes", "0"], "--max-minutes got 0.0, expected above 0"),
        (["smollm2-eagle3", "--max-minutes", "nan"], "--max-minutes got nan, expected above 0"),
        (["smollm2-eagle3", "--until", "test"], "--until: got 'test', expected one of prompts"),
        (["smollm2-medusa"], "recipe 'smollm2-medusa': got no file"),
        (["smollm2-eagle3", "--target", "."], "got no config.json"),
    ],
)
def test_mistake_is_one_line(
    arguments: list[str],
    complaint: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A wrong option or recipe ends with the code of a wrong file and a line on standard error."""
    assert complaint in complaint_of(["train", *arguments], tmp_path, monkeypatch, capsys)


def test_options_reach_the_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each option becomes a part of the job, and the folder is printed last."""
    asked: list[Any] = []

    def make_head(job: pipeline.Job, *, until: str) -> Path:
        asked.extend((job, until))
        job.say("training: step 1")
        return tmp_path / "training-0123456789"

    monkeypatch.setattr(pipeline, "make_head", make_head)
    options = "--tiny --steps 3 --max-minutes 2 --engines 4 --prompts a.jsonl --prompts b.jsonl"
    places = "--folder heads --until training --target next --start training-1"
    code = main(["drafts", "train", "smollm2-peagle", *options.split(), *places.split()])

    job, until = asked
    assert (code, until) == (Exit.OK, "training")
    assert job.recipe.training.steps == 3
    assert job.recipe.name == tiny(load_recipe("smollm2-peagle")).name
    assert job.files == (Path("a.jsonl"), Path("b.jsonl"))
    assert (job.root, job.target, job.start) == (Path("heads"), Path("next"), Path("training-1"))
    assert (job.limit_s, job.engines) == (120.0, 4)
    out = capsys.readouterr().out
    assert out == f"training: step 1\n{tmp_path / 'training-0123456789'}\n"
