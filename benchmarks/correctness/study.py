"""How many tokens each fault takes: the evidence, the limit, the oracle and the peers.

    .venv/bin/python -m benchmarks.correctness.study --kind greedy [--half even] [--other]

writes power-<kind>.json; with `--ours` only the columns of the evidence are taken anew, on
the same streams, and where there is no file yet they are all of it. The family was tuned on
the contexts of even number with other seeds; reported are the contexts of odd number, also
with faults at other strengths (`--other`), which had a part in the tuning on the even ones.
"""

import argparse
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import chain, repeat
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.correctness import serial
from benchmarks.correctness.bank import SPECIAL, Bank, Known, build
from benchmarks.correctness.contexts import KINDS, Setting
from benchmarks.correctness.joint import Run, joint_alarms, of_bank, of_drawn
from benchmarks.correctness.machine import machine
from benchmarks.correctness.peers import TESTS, Sample, needed
from benchmarks.correctness.places import CONDITIONS, World
from benchmarks.correctness.rules import RULES, TUNED, Rule, honest
from benchmarks.correctness.streams import (
    NEVER,
    Judge,
    Streams,
    arranged,
    copied,
    of_serial,
    without_draft,
)
from draftgate.stats.directions import directions

HERE = Path(__file__).parent

ALPHA = 1e-4
POWER = 0.9
STREAMS = 100
JOINT_STREAMS = 100
DRAWS = 500
SEED = 20260
FAINT = 2e-3
"""Nats a token below which streams are fewer, longer, and from more draws."""
FAINT_STREAMS, FAINT_DRAWS, FAINT_FACTOR = 40, 4000, 4.0
FACTOR = 10.0
"""Streams are this many times as long as the limit, so that more is "over 10 x"."""
LEAST, MOST = 60, 12_000
"""Shortest and longest streams, tokens; the longest is the budget at which a check passes."""

Ints = NDArray[np.integer[Any]]
Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Case:
    """A fault with its streams.

    Attributes:
        name: As in the issue's list.
        kl: Divergence of an emitted token, nats.
        streams: What is judged.
        world: The contexts it was drawn in.
        run: Steps for the joint verdict; None where they depend on each other.
    """

    name: str
    kl: float
    streams: Streams
    world: World
    run: Run | None


def length_for(kl: float) -> int:
    """Return how long streams are for a fault of that divergence."""
    return int(min(max(FACTOR * -np.log(ALPHA) / kl, LEAST), MOST))


def cases(kind: str, half: slice, *, other: bool) -> Iterator[Case]:
    """Yield the faults of one kind of drafts."""
    for condition in CONDITIONS:
        rules = [
            rule
            for rule in (TUNED.values() if other else RULES)
            if rule.condition == condition and kind in rule.kinds
        ]
        if not rules:
            continue
        world = World(Setting(), kind, condition, half)
        banks, known = build(world, [*rules, Rule("honest", honest)], DRAWS, SEED)
        for rule in rules:
            yield case_of(rule, world, banks[rule.name], known)
        if condition == "plain" and not other:
            yield from serial_cases(world, banks["honest"], known)


def case_of(rule: Rule, world: World, bank: Bank, known: list[Known]) -> Case:
    """Return the streams of a fault of one place."""
    count, length = STREAMS, length_for(bank.kl)
    if bank.kl < FAINT:
        banks, _ = build(world, [rule], FAINT_DRAWS, SEED)
        bank, count = banks[rule.name], FAINT_STREAMS
        length = int(FAINT_FACTOR * -np.log(ALPHA) / bank.kl)
    streams, _ = arranged(bank, known, count, length, SEED)
    return Case(rule.name, bank.kl, streams, world, of_bank(bank, SEED))


def serial_cases(world: World, fair: Bank, known: list[Known]) -> Iterator[Case]:
    """Yield the faults that reach over several tokens."""
    for name, draw, steps in (
        ("coin shared in the chain", serial.shared_coin, 1000),
        ("one quantile for ends of steps", serial.shared_quantile, 150),
        ("one quantile per request", serial.one_quantile, 60),
    ):
        drawn = draw(world, STREAMS, steps, SEED)
        kl = float(drawn.oracle[drawn.reached].mean())
        shortest = int(drawn.reached.sum(axis=(1, 2)).min())
        streams = of_serial(drawn, min(length_for(kl), shortest))
        run = of_drawn(drawn) if draw is serial.shared_coin else None
        yield Case(name, kl, streams, world, run)
    one, _ = arranged(fair, known, STREAMS, LEAST, SEED)
    pair = copied(one)
    yield Case("seed shared in the batch", float(pair.oracle.mean()), pair, world, None)


def quantile(alarms: Ints) -> int | None:
    """Return after how many tokens POWER of the streams have alarmed, None if fewer do."""
    at = int(np.sort(alarms)[int(np.ceil(POWER * len(alarms))) - 1])
    return None if at == NEVER else at


def oracle_alarms(streams: Streams) -> Ints:
    """Return when the likelihood ratio of the fault's own law reaches 1 / alpha."""
    over = np.cumsum(streams.oracle, axis=1) >= -np.log(ALPHA)
    return np.where(over.any(axis=1), over.argmax(axis=1) + 1, NEVER)


def studied(case: Case) -> Row:
    """Return everything about one fault."""
    sample = sampled(case.streams)
    return {
        **judged(case),
        "joint": joint(case),
        **{name: needed(test, sample, ALPHA, POWER) for name, test in TESTS.items()},
    }


def judged(case: Case) -> Row:
    """Return what one fault is, and what the oracle and the evidence take."""
    return {
        "fault": case.name,
        "kl": case.kl,
        "limit": -np.log(ALPHA) / case.kl,
        "tokens": case.streams.row.shape[1],
        "oracle": quantile(oracle_alarms(case.streams)),
        **evidence_columns(case),
    }


def evidence_columns(case: Case) -> Row:
    """Return what the evidence takes, with the draft model's law and without it."""
    streams, vocabulary = case.streams, case.world.vocabulary
    blind = replace(streams, rows=without_draft(streams.rows))
    bare = directions(vocabulary, SPECIAL, drafts=False)
    whole = directions(vocabulary, SPECIAL)
    return {
        "ours": quantile(Judge(streams.rows, whole).alarms(streams, ALPHA)),
        "draft unknown": quantile(Judge(blind.rows, bare).alarms(blind, ALPHA)),
    }


def renewed(case: Case, row: Row | None) -> Row:
    """Return a row with the evidence's columns taken anew, the others as they were, if any.

    Raises:
        ValueError: If the streams are not those that the row is about.
    """
    if row is None:
        return judged(case)
    oracle = quantile(oracle_alarms(case.streams))
    if (case.name, oracle) != (row["fault"], row["oracle"]):
        raise ValueError(
            f"{case.name}: the oracle takes {oracle} tokens, the kept row of {row['fault']!r} says "
            f"{row['oracle']}: other streams. Run the study without --ours."
        )
    return row | evidence_columns(case)


def sampled(streams: Streams) -> Sample:
    """Return streams as fixed-sample tests see them."""
    rng = np.random.default_rng(SEED)
    logp = streams.rows.logp[streams.row]
    uniform = streams.rows.below[streams.row] + rng.random(logp.shape) * np.exp(logp)
    return Sample(streams.bin, streams.place, logp, uniform, streams.known)


def joint(case: Case) -> int | None:
    """Return the tokens that the joint verdict takes; None if never or not asked."""
    if case.run is None:
        return None
    return quantile(joint_alarms(case.world, case.run, JOINT_STREAMS, ALPHA, SEED))


def named(arguments: argparse.Namespace) -> Path:
    """Return the file of a study."""
    parts = ["power", arguments.kind]
    parts += ["even"] * (arguments.half == "even") + ["other"] * arguments.other
    return HERE / f"{'-'.join(parts)}.json"


def main() -> None:
    """Study one kind of drafts and write its numbers."""
    parser = argparse.ArgumentParser(description="Tokens to detection of each fault.")
    parser.add_argument("--kind", choices=KINDS, required=True)
    parser.add_argument("--half", choices=("even", "odd"), default="odd", help="of the contexts")
    parser.add_argument("--other", action="store_true", help="other strengths of faults")
    parser.add_argument(
        "--ours", action="store_true", help="only the evidence anew, the rest from the file"
    )
    arguments = parser.parse_args()
    begun = time.perf_counter()
    half = slice(0 if arguments.half == "even" else 1, None, 2)
    file = named(arguments)
    old = arguments.ours and file.exists()
    kept: Row = json.loads(file.read_text(encoding="utf-8")) if old else {"rows": []}
    rows, contexts = [], 0
    every = cases(arguments.kind, half, other=arguments.other)
    for case, row in zip(every, chain(kept["rows"], repeat(None)), strict=False):
        rows.append(renewed(case, row) if arguments.ours else studied(case))
        contexts = len(case.world)
        print(json.dumps(rows[-1]), flush=True)
    result = {
        "machine": machine(),
        "minutes": (time.perf_counter() - begun) / 60,
        "kind": arguments.kind,
        "contexts": contexts,
        "streams": STREAMS,
        "alpha": ALPHA,
        "rows": rows,
    }
    if old:
        result |= {"minutes": kept["minutes"], "minutes of the evidence": result["minutes"]}
    file.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
