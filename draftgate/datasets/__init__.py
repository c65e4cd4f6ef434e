"""Prompts: what a workload sends, a function of (spec, seed) only.

A dataset is a registered function from a seed to prompts in sending order, one
source a file in this package; a path to a JSONL file does as well. Knows
nothing of engines, tokens or load.
"""

import hashlib
import json
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

from draftgate.datasets.jsonl import Prompt, read_prompts
from draftgate.registry import Registry
from draftgate.specs import WorkloadSpec

__all__ = [
    "DATASETS",
    "Dataset",
    "Prompt",
    "load_prompts",
    "prompts_digest",
    "shuffled",
    "with_prompts_digest",
]

Dataset = Callable[[int], tuple[Prompt, ...]]
"""From the workload's seed to all prompts, in the order they are sent."""

DATASETS: Registry[Dataset] = Registry("dataset", "draftgate.datasets")
"""Datasets by the name a profile uses."""


def load_prompts(name_or_path: str, seed: int) -> tuple[Prompt, ...]:
    """Return the prompts of a dataset in the order that `seed` gives them.

    Args:
        name_or_path: Registered name, or path of a file that ends in `.jsonl`.
        seed: Any integer; equal seeds give equal order on every machine.

    Raises:
        SpecError: If the name is unknown, or the file is absent or wrong.
    """
    if name_or_path.endswith(".jsonl"):
        return shuffled(read_prompts(Path(name_or_path)), seed)
    return DATASETS.get(name_or_path)(seed)


def prompts_digest(prompts: Iterable[Prompt]) -> str:
    """Return a short hash of ids and content, whatever the order."""
    content = sorted([prompt.prompt_id, prompt.messages] for prompt in prompts)
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:16]


def with_prompts_digest(workload: WorkloadSpec) -> WorkloadSpec:
    """Return the workload with the digest of its prompts; that of one which was sent stays.

    Raises:
        SpecError: As from `load_prompts`.
    """
    if workload.prompts_digest is not None:
        return workload
    prompts = load_prompts(workload.dataset, workload.seed)
    return replace(workload, prompts_digest=prompts_digest(prompts))


def shuffled(prompts: Iterable[Prompt], seed: int) -> tuple[Prompt, ...]:
    """Return `prompts` ordered by a hash of seed and id.

    Unlike `random.shuffle` the order depends on no Python version, and a prompt
    that is added or removed leaves the order of the others as it was.
    """
    return tuple(sorted(prompts, key=lambda prompt: _rank(prompt.prompt_id, seed)))


def _rank(prompt_id: str, seed: int) -> bytes:
    return hashlib.sha256(f"{seed}/{prompt_id}".encode()).digest()
