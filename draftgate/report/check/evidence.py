"""The e-processes of a check, kept as they were judged: every path and every part of it.

A page draws what was decided, so the paths are stored beside the result instead of being
worked out again with directions that may have changed since. Knows no pages.
"""

import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from draftgate.checks.distribution import Gathered
from draftgate.checks.kept import CHECKED, PLAIN
from draftgate.checks.ledger import Ledger
from draftgate.checks.outcome import CheckResult, ConditionEvidence
from draftgate.errors import BaselineError
from draftgate.files import replacing
from draftgate.stats.directions import SCOPES
from draftgate.stats.eprocess import log_weights

EVIDENCE = "evidence.npz"

Floats = NDArray[np.floating[Any]]


@dataclass(frozen=True, slots=True)
class Process:
    """One e-process.

    Attributes:
        path: Log e-value after each token; shape (n,).
        parts: Log of each part's own e-value at the end; shape (directions, scopes).
    """

    path: Floats
    parts: Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptEvidence:
    """All e-processes of a check.

    Attributes:
        families: Family of each direction.
        labels: What the tokens look like if a direction is the true law.
        scopes: Parts of the chain.
        weights: Log prior weight of each part; shape (directions, scopes).
        processes: By arm (`CHECKED` or `PLAIN`) and name of the condition.
    """

    families: tuple[str, ...]
    labels: tuple[str, ...]
    scopes: tuple[str, ...]
    weights: Floats
    processes: Mapping[tuple[str, str], Process]


def evidence_of(gathered: Gathered) -> KeptEvidence:
    """Return the e-processes of a check that has just ended."""
    family = gathered.checked.family
    arms = {CHECKED: gathered.checked}
    if gathered.plain is not None:
        arms[PLAIN] = gathered.plain
    return KeptEvidence(
        families=tuple(direction.family for direction in family),
        labels=tuple(direction.label for direction in family),
        scopes=tuple(scope.label for scope in SCOPES),
        weights=log_weights(family),
        processes={
            (arm, condition): process
            for arm, ledger in arms.items()
            for condition, process in _processes(ledger)
        },
    )


def _processes(ledger: Ledger) -> Iterator[tuple[str, Process]]:
    for index, condition in enumerate(ledger.conditions):
        found = ledger.evidence(index)
        if found is not None:
            yield condition.name, Process(found.path, found.parts)


def write_evidence(folder: Path, kept: KeptEvidence) -> Path:
    """Write `EVIDENCE` into a check's folder, whole or not at all, and return its path.

    Raises:
        OSError: If it can't be written.
    """
    arrays: dict[str, Any] = {
        "families": np.array(kept.families),
        "labels": np.array(kept.labels),
        "scopes": np.array(kept.scopes),
        "weights": kept.weights,
    }
    for (arm, condition), process in kept.processes.items():
        arrays[f"path/{arm}/{condition}"] = process.path
        arrays[f"parts/{arm}/{condition}"] = process.parts
    path = folder / EVIDENCE
    with replacing(path) as part, part.open("wb") as file:
        np.savez_compressed(file, **arrays)
    return path


def read_evidence(folder: Path, result: CheckResult) -> KeptEvidence | None:
    """Return the e-processes in a check's folder; None if none were kept.

    Args:
        folder: Of the check.
        result: What the folder's `check.json` holds, to which they must belong.

    Raises:
        BaselineError: If they are damaged or another check's.
    """
    path = folder / EVIDENCE
    if not path.exists():
        return None
    try:
        # Opened here: numpy leaves a file open that turns out to be no archive.
        with path.open("rb") as file, np.load(file, allow_pickle=False) as held:
            kept = _from_arrays({name: held[name] for name in held.files})
    except (OSError, ValueError, KeyError, EOFError, BadZipFile, zlib.error) as error:
        raise BaselineError(
            f"{path}: no readable evidence: {error}. Take the check again, or remove the file to "
            "get the report without its plots."
        ) from error
    _check_belongs(path, kept, result)
    return kept


def _from_arrays(held: Mapping[str, Any]) -> KeptEvidence:
    names = [name.removeprefix("path/") for name in held if name.startswith("path/")]
    kept = KeptEvidence(
        families=_texts(held["families"]),
        labels=_texts(held["labels"]),
        scopes=_texts(held["scopes"]),
        weights=held["weights"],
        processes={_key(n): Process(held[f"path/{n}"], held[f"parts/{n}"]) for n in names},
    )
    shape = (len(kept.labels), len(kept.scopes))
    shapes = {kept.weights.shape, *(process.parts.shape for process in kept.processes.values())}
    if shapes != {shape} or len(kept.families) != len(kept.labels):
        raise ValueError(f"got parts of shape {sorted(shapes)}, expected {shape}")
    return kept


def _key(name: str) -> tuple[str, str]:
    arm, _, condition = name.partition("/")
    return arm, condition


def _texts(held: Sequence[Any]) -> tuple[str, ...]:
    return tuple(str(text) for text in held)


def _check_belongs(path: Path, kept: KeptEvidence, result: CheckResult) -> None:
    found = result.findings
    for arm, entries in ((CHECKED, found.checked), (PLAIN, found.plain)):
        for entry in entries:
            process = kept.processes.get((arm, entry.condition))
            if not _is_of(process, entry):
                got = "none" if process is None else f"{len(process.path)} tokens"
                raise BaselineError(
                    f"{path}: {arm} {entry.condition}: got {got}, expected the {entry.tokens} "
                    "tokens and the e-value of check.json. The file is another check's; remove it "
                    "to get the report without its plots."
                )


def _is_of(process: Process | None, entry: ConditionEvidence) -> bool:
    if process is None or not len(process.path):
        return entry.tokens == 0
    same_end = np.isclose(process.path[-1], entry.log_e, rtol=1e-9, atol=1e-9)
    return len(process.path) == entry.tokens and bool(same_end)
