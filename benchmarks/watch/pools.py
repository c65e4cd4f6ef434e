"""What windows are drawn from: verify steps and accepted tokens of each recorded prompt."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.floating[Any]]

HERE = Path(__file__).parent
BASELINES = HERE.parents[1] / "baselines"

REQUESTS = 100
"""Requests in a window."""

WINDOWS = 100_000
"""Windows drawn of each pool; streams draw from these with replacement."""


@dataclass(frozen=True, slots=True)
class Pool:
    """One draft on one kind of traffic.

    Attributes:
        name: Source, draft, kind and temperature.
        steps: Verify steps of each prompt's answer; shape (prompts,).
        accepted: Accepted tokens of it; shape (prompts,).
    """

    name: str
    steps: Floats
    accepted: Floats

    def windows(self, rng: np.random.Generator) -> tuple[Floats, Floats]:
        """Return steps and accepted tokens of many windows of requests; shape (WINDOWS,) each."""
        prompts = self.steps.size
        counts = rng.multinomial(REQUESTS, np.full(prompts, 1 / prompts), size=WINDOWS)
        return counts @ self.steps, counts @ self.accepted


def pools() -> list[Pool]:
    """Return every pool whose drafts are neither always nor never accepted."""
    found = [*of_baselines(), *recorded(HERE / "recorded.json")]
    return [pool for pool in found if np.ptp(pool.accepted / pool.steps) > 0]


def of_baselines() -> list[Pool]:
    """Return the pools of accepted drift measurements: tokens per step of every prompt.

    Counters by prompt are not stored there. Every step is taken for a verify step, so
    acceptance is that of all steps: lower and more scattered with n-gram drafts, which
    most steps lack, than what an engine counts.
    """
    found = []
    for path in sorted(BASELINES.rglob("*.acceptance.json")):
        for row in json.loads(path.read_text(encoding="utf-8"))["traffic"]:
            per_step = np.array([value for _, value in row["tokens_per_step"]])
            if row["num_speculative_tokens"] and not row["invalid"]:
                tokens = row["setting"]["max_tokens"] - 1
                steps = tokens / per_step
                name = f"baseline {row['arm']} {row['kind']} T=0"
                found.append(Pool(name, steps, tokens - steps))
    return found


def recorded(path: Path) -> list[Pool]:
    """Return the pools of `record.py`, and for each draft one of all its kinds."""
    rows = json.loads(path.read_text(encoding="utf-8"))["arms"]
    found = [
        Pool(
            f"recorded {row['arm']} {row['kind']} T={row['temperature']:g}",
            np.array(row["steps"], dtype=float),
            np.array(row["accepted"], dtype=float),
        )
        for row in rows
    ]
    for arm, temperature in sorted({(row["arm"], row["temperature"]) for row in rows}):
        mine = [r for r in rows if (r["arm"], r["temperature"]) == (arm, temperature)]
        steps = np.concatenate([np.array(r["steps"], dtype=float) for r in mine])
        accepted = np.concatenate([np.array(r["accepted"], dtype=float) for r in mine])
        found.append(Pool(f"recorded {arm} all T={temperature:g}", steps, accepted))
    return found
