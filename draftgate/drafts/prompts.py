"""The step `prompts`: which conversations the target will answer, and which are held out.

Sources are the project's own written prompts and the user's JSONL files. A
prompt that one of the built-in evaluation sets holds is left out, whatever its
source. Knows no model.
"""

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from draftgate.datasets import Prompt, shuffled
from draftgate.datasets.builtin import KINDS, stored
from draftgate.datasets.jsonl import read_prompts
from draftgate.drafts.recipe import PromptsRecipe
from draftgate.drafts.steps import Facts
from draftgate.drafts.written import written_prompts
from draftgate.errors import SpecError

FILE = "prompts.jsonl"


@dataclass(frozen=True, slots=True)
class Chosen:
    """A prompt to be answered.

    Attributes:
        prompt: The conversation.
        held_out: Whether it is kept from training.
    """

    prompt: Prompt
    held_out: bool


def files_digest(files: Sequence[Path]) -> str:
    """Return a digest of the contents of files, whatever their names or order.

    Raises:
        SpecError: If one cannot be read.
    """
    try:
        parts = sorted(hashlib.sha256(path.read_bytes()).hexdigest() for path in files)
    except OSError as error:
        raise SpecError(f"prompts: a file cannot be read: {error}. Correct --prompts.") from error
    return hashlib.sha256("".join(parts).encode()).hexdigest()[:16]


def choose_prompts(
    recipe: PromptsRecipe, files: Sequence[Path], *, seed: int, folder: Path
) -> Facts:
    """Write the chosen prompts of all sources into a folder.

    Args:
        recipe: How many of each kind, and how many are held out.
        files: JSONL files as `draftgate.datasets` reads them.
        seed: Decides which are taken where there are more, and their order.
        folder: Where `prompts.jsonl` goes.

    Returns:
        Counts by kind, and what was left out.

    Raises:
        SpecError: If a file is wrong, or nothing is left.
    """
    found = list(written_prompts(seed=seed, per_kind=recipe.written_per_kind))
    for path in files:
        found.extend(_limited(shuffled(read_prompts(path), seed), recipe.most_per_kind))
    known = {folded(prompt) for kind in KINDS for prompt in stored(kind)}
    fresh = [prompt for prompt in shuffled(found, seed) if folded(prompt) not in known]
    unique = [
        Chosen(prompt, _held_out(text, recipe.held_out_ratio))
        for text, prompt in {folded(prompt): prompt for prompt in fresh}.items()
    ]
    if not unique or all(c.held_out for c in unique) or not any(c.held_out for c in unique):
        raise SpecError(
            f"prompts: got {len(unique)} with {sum(c.held_out for c in unique)} held out, expected "
            "some of either. Name more files with --prompts, or raise written_per_kind."
        )
    _write(unique, folder / FILE)
    return {
        "prompts": len(unique),
        "held_out": sum(c.held_out for c in unique),
        "kinds": _counts(unique),
        "left_out_repeated": len(fresh) - len(unique),
        "left_out_evaluation": len(found) - len(fresh),
    }


def read_chosen(folder: Path) -> tuple[Chosen, ...]:
    """Return the prompts that a finished step chose, in order."""
    lines = (folder / FILE).read_text(encoding="utf-8").splitlines()
    return tuple(_chosen(json.loads(line)) for line in lines)


def folded(prompt: Prompt) -> str:
    """Return a prompt's words in lower case with single spaces: equal for what reads alike."""
    return " ".join(" ".join(content for _, content in prompt.messages).lower().split())


def _limited(prompts: Iterable[Prompt], most: int) -> list[Prompt]:
    taken: dict[str, int] = {}
    kept = []
    for prompt in prompts:
        taken[prompt.kind] = taken.get(prompt.kind, 0) + 1
        if taken[prompt.kind] <= most:
            kept.append(prompt)
    return kept


def _held_out(text: str, ratio: float) -> bool:
    """Decide by the text alone, so that a prompt is held out in every run or in none."""
    rank = int.from_bytes(hashlib.sha256(text.encode()).digest()[:8])
    return rank < ratio * 2**64


def _counts(chosen: Iterable[Chosen]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for one in chosen:
        counts[one.prompt.kind] = counts.get(one.prompt.kind, 0) + 1
    return counts


def _write(chosen: Iterable[Chosen], path: Path) -> None:
    lines = (
        json.dumps(
            {
                "id": one.prompt.prompt_id,
                "kind": one.prompt.kind,
                "messages": one.prompt.messages,
                "held_out": one.held_out,
            },
            ensure_ascii=True,
        )
        for one in chosen
    )
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _chosen(raw: dict[str, object]) -> Chosen:
    messages = tuple((str(role), str(content)) for role, content in raw["messages"])  # type: ignore[attr-defined] # our own file
    prompt = Prompt(str(raw["id"]), str(raw["kind"]), messages)
    return Chosen(prompt, bool(raw["held_out"]))
