"""The folder of a SpecForge run: both configurations and the prompts, from the pipeline's inputs.

Everything is checked before the first file is written. Equal inputs give equal
bytes.
"""

import json
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from draftgate.drafts.prompts import Chosen, choose_prompts, read_chosen
from draftgate.drafts.recipe import Recipe
from draftgate.drafts.specforge.run import DRAFT_FILE, Gpus, draft_config, run_config
from draftgate.drafts.specforge.schema import VERSION, check_config
from draftgate.drafts.specforge.targets import read_target
from draftgate.errors import SpecError
from draftgate.files import write_text
from draftgate.specfile.overrides import assign

RUN_FILE = "run.yaml"
PROMPTS_FILE = "prompts.jsonl"
HELD_OUT_FILE = "held-out.jsonl"


@dataclass(frozen=True, slots=True)
class Order:
    """What to write.

    Attributes:
        recipe: What head.
        target: Folder or hub name of the target; None for the recipe's.
        files: JSONL files of prompts.
        gpus: Where it is to run.
        assignments: KEY=VALUE of the run config, made last.
    """

    recipe: Recipe
    target: str | None
    files: tuple[Path, ...]
    gpus: Gpus
    assignments: tuple[str, ...] = ()


def write_run(order: Order, folder: Path) -> Path:
    """Write run.yaml, draft.json, prompts.jsonl and held-out.jsonl; return run.yaml's path.

    A line of prompts has `id` and `conversations`, messages of `role` and `content`, as
    SpecForge's scripts/regenerate_train_data.py reads them.

    Raises:
        SpecError: If the target or a prompt file is wrong, SpecForge would refuse the run or
            cannot do what the recipe says, or the folder cannot be written.
    """
    recipe = order.recipe
    target = read_target(order.target or recipe.target)
    prompts = _prompts(order)
    training = [one for one in prompts if not one.held_out]
    draft = draft_config(recipe, target)
    samples = len(training) * len(recipe.answers.temperatures)
    config = run_config(recipe, target, order.gpus, samples)
    for assignment in order.assignments:
        assign(config, assignment)
    check_config(config, RUN_FILE)
    head = f"# {recipe.algorithm} head of {target.path}, by the recipe {recipe.name}, for"
    texts = {
        DRAFT_FILE: json.dumps(draft, indent=2) + "\n",
        PROMPTS_FILE: _lines(training),
        HELD_OUT_FILE: _lines(one for one in prompts if one.held_out),
        RUN_FILE: f"{head} SpecForge {VERSION}. Run in this folder.\n{to_yaml(config)}",
    }
    try:
        for name, text in texts.items():
            write_text(folder / name, text)
    except OSError as error:
        raise SpecError(
            f"--folder {folder}: cannot be written ({error.strerror or error}). Name another."
        ) from error
    return folder / RUN_FILE


def to_yaml(document: Mapping[str, Any]) -> str:
    """Return the YAML text of tables, keys in their order; equal documents give equal texts."""
    text: str = yaml.safe_dump(document, sort_keys=False, allow_unicode=True)
    return text


def _prompts(order: Order) -> Sequence[Chosen]:
    with tempfile.TemporaryDirectory() as scratch:
        recipe = order.recipe
        choose_prompts(recipe.prompts, order.files, seed=recipe.seed, folder=Path(scratch))
        return read_chosen(Path(scratch))


def _lines(chosen: Iterable[Chosen]) -> str:
    rows = (
        {
            "id": one.prompt.prompt_id,
            "conversations": [
                {"role": role, "content": content} for role, content in one.prompt.messages
            ],
        }
        for one in chosen
    )
    return "".join(json.dumps(row, ensure_ascii=True) + "\n" for row in rows)
