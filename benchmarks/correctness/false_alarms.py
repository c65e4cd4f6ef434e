"""How often right streams alarm.

    .venv/bin/python -m benchmarks.correctness.false_alarms

writes false_alarms.json after every batch, and goes on where it stopped. Every batch
draws its tokens afresh from the laws of all contexts; drafts of both kinds take turns.
Twins that began alike are in it, so that no direction is idle.
"""

import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.correctness.bank import SPECIAL, Bank, build
from benchmarks.correctness.contexts import KINDS, K, Setting
from benchmarks.correctness.machine import machine
from benchmarks.correctness.places import World
from benchmarks.correctness.rules import Rule, honest
from benchmarks.correctness.streams import ALONG, NEVER, Judge, Streams, arranged
from draftgate.stats.directions import directions

HERE = Path(__file__).parent
FILE = HERE / "false_alarms.json"

STREAMS = 100_000
BATCH = 5000
TOKENS = 512
SHORT = 16
ALPHAS = (1e-4, 1e-3, 1e-2)
"""The level that is promised, and larger ones at which the bound can be seen at work."""

Ints = NDArray[np.integer[Any]]


def with_twins(streams: Streams, bank: Bank, draw: Ints, seed: int) -> Streams:
    """Return the streams with a sibling for each token: another draw of the same place."""
    draws = bank.draws.shape[2]
    other = draw // draws * draws + np.random.default_rng(seed).integers(draws, size=draw.shape)
    return replace(streams, sibling=bank.rows.token[bank.draws.ravel()[other]])


def batch(number: int, count: int) -> list[list[int]]:
    """Return how many of `count` streams alarmed, per level: within SHORT and within TOKENS."""
    kind = KINDS[number % len(KINDS)]
    world = World(Setting(), kind, "plain", slice(None))
    places = len(world) * (K + 1)
    banks, known = build(world, [Rule("honest", honest)], 2 * count * TOKENS // places, number)
    bank = banks["honest"]
    streams, draw = arranged(bank, known, count, TOKENS, number)
    streams = with_twins(streams, bank, draw, number)
    judge = Judge(streams.rows, directions(world.vocabulary, SPECIAL), (*ALONG, "copy"))
    found = judge.alarms_at(streams, ALPHAS)
    return [[int((at <= SHORT).sum()), int((at != NEVER).sum())] for at in found]


def main() -> None:
    """Run the batches that are missing."""
    result: dict[str, Any] = {"machine": machine(), "tokens": TOKENS, "short": SHORT}
    result |= {"streams": 0, "minutes": 0.0, "alphas": ALPHAS}
    result |= {"alarms": [[0, 0] for _ in ALPHAS]}
    if FILE.exists():
        result |= json.loads(FILE.read_text(encoding="utf-8"))
    while result["streams"] < STREAMS:
        begun = time.perf_counter()
        found = batch(result["streams"] // BATCH, BATCH)
        pairs = zip(result["alarms"], found, strict=True)
        result["alarms"] = [[a + b for a, b in zip(*pair, strict=True)] for pair in pairs]
        result["streams"] += BATCH
        result["minutes"] += (time.perf_counter() - begun) / 60
        FILE.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
        print(result["streams"], result["alarms"], f"{result['minutes']:.1f} min", flush=True)


if __name__ == "__main__":
    main()
