"""Prompts: what a workload sends, a function of (spec, seed) only.

A dataset is a registered function from a seed to prompts in sending order, one
source a file in this package; a path to a JSONL file does as well, and so does
a published set by its name, from a file or the hub. Messages are sent as they
are: the server applies its chat template. Knows nothing of engines, tokens or
load.
"""

import hashlib
import json
import logging
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

from draftgate.datasets.jsonl import Prompt, read_prompts
from draftgate.datasets.published import Published
from draftgate.errors import SpecError
from draftgate.registry import Registry
from draftgate.specs import WorkloadSpec

__all__ = [
    "DATASETS",
    "PUBLISHED",
    "Dataset",
    "Prompt",
    "dataset_label",
    "dataset_names",
    "load_prompts",
    "prompts_digest",
    "shuffled",
    "split_published",
    "with_prompts_digest",
]

Dataset = Callable[[int], tuple[Prompt, ...]]
"""From the workload's seed to all prompts, in the order they are sent."""

DATASETS: Registry[Dataset] = Registry("dataset", "draftgate.datasets")
"""Datasets by the name a profile uses."""


PUBLISHED: Registry[Published] = Registry("published dataset", "draftgate.datasets")
"""Sets that others have published, by the name a profile uses."""

_LOG = logging.getLogger(__name__)


def load_prompts(
    name_or_path: str, seed: int, *, tell: Callable[[str], None] = _LOG.warning
) -> tuple[Prompt, ...]:
    """Return the prompts of a dataset in the order that `seed` gives them.

    Args:
        name_or_path: Registered name, path of a file that ends in `.jsonl`, or
            a published set's name, alone (from the hub) or as `name:path`.
        seed: Any integer; equal seeds give equal order on every machine.
        tell: Gets what is odd about a published file, with counts.

    Raises:
        SpecError: If the name is unknown, or the file is absent or wrong.
    """
    published = split_published(name_or_path)
    if published is not None:
        name, path = published
        found = PUBLISHED.get(name).load(path)
        for note in found.notes:
            tell(f"dataset {name!r}: {note}")
        return shuffled(found.prompts, seed)
    if name_or_path.endswith(".jsonl"):
        return shuffled(read_prompts(Path(name_or_path)), seed)
    if name_or_path not in DATASETS.names():
        known = ", ".join(sorted(dataset_names()))
        raise SpecError(
            f"unknown dataset {name_or_path!r}. Known: {known}; or the path of a .jsonl file."
        )
    return DATASETS.get(name_or_path)(seed)


def dataset_names() -> tuple[str, ...]:
    """Return the names of all datasets, our own and published ones."""
    return (*DATASETS.names(), *PUBLISHED.names())


def split_published(name_or_path: str) -> tuple[str, Path | None] | None:
    """Return a published set's name and file, if one is given; None for anything else."""
    name, colon, path = name_or_path.partition(":")
    if name not in PUBLISHED.names():
        return None
    if colon and not path:
        raise SpecError(f"dataset {name_or_path!r}: no file after the colon. Drop it, or name one.")
    return name, Path(path) if colon else None


def dataset_label(name_or_path: str) -> str:
    """Return a name without the place of a file, which says nothing of its content."""
    published = split_published(name_or_path)
    return published[0] if published else Path(name_or_path).name


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
