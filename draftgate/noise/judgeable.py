"""Which tails can be judged on this runner, decided before the comparison begins.

A p99 that cannot be judged is asked as a p95, and says so. Depends only on the
study, the profile and the plan, never on pairs of the comparison itself: the
choice of a gate by its own data would cost the error rate that is promised.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from draftgate.compare.records import Gate
from draftgate.noise.gates import stand_in_of
from draftgate.noise.power import PowerRow, Question, power_row
from draftgate.noise.records import NoiseStudy
from draftgate.specs import CompareSpec
from draftgate.stats.power import POWER
from draftgate.stats.tail import requests_for_bound

_P99_REQUESTS = requests_for_bound(0.99)
_P95_REQUESTS = requests_for_bound(0.95)

Key = tuple[str, int, str]


def judgeable(
    study: NoiseStudy | None,
    gates: Sequence[Gate],
    requests_per_start: Mapping[int, int],
    plan: CompareSpec,
) -> tuple[Gate, ...]:
    """Return the gates that are to be asked, each p99 that cannot be judged as its p95.

    A p99 cannot be judged if the requests of one side over all pairs of stage
    one stay under 299, or if the study says that a loss at its limit would be
    found with less than 80 %. Margins stay as they are. If the p95 is a gate
    already, it takes the note and the p99 is dropped.

    A p95 with under 59 requests in total cannot be judged either. It is kept
    and its note says so: one step down is the same question asked more
    modestly, and it ends INCONCLUSIVE with a remedy; a p90 would answer another
    question, with a PASS that a reader could take for the tail's.

    Args:
        study: Noise of this runner; None where none was taken, then requests
            alone decide.
        gates: What the profile asks.
        requests_per_start: By number of streams, as sure before the comparison;
            where the study knows a gate, its number counts instead.
        plan: Looks and levels.

    Raises:
        KeyError: If a number of streams is not in `requests_per_start`.
    """
    found: dict[Key, Gate] = {}
    stand_ins = []
    for gate in gates:
        note = _trouble(study, gate, requests_per_start[gate.concurrency], plan, len(gates))
        metric = stand_in_of(gate.metric)
        if not note or metric is None:
            found[_key(gate)] = gate
            continue
        stand_in = replace(gate, metric=metric, instead_of=gate.metric, note=note)
        found.setdefault(_key(stand_in), stand_in)
        stand_ins.append(stand_in)
    for stand_in in stand_ins:  # also where the p95 is a gate of its own, before or after
        held = found[_key(stand_in)]
        found[_key(stand_in)] = replace(held, instead_of=stand_in.instead_of, note=stand_in.note)
    return tuple(found.values())


def _key(gate: Gate) -> Key:
    return gate.arm, gate.concurrency, gate.metric


def _trouble(
    study: NoiseStudy | None, gate: Gate, requests: int, plan: CompareSpec, gates: int
) -> str:
    """Return why a gate cannot be judged and what it would need; empty if it can."""
    if stand_in_of(gate.metric) is None:
        return ""
    held = None if study is None else study.noise(gate.arm, gate.concurrency, gate.metric)
    pairs = plan.looks[-1]
    if held is None:
        return _too_few(gate, requests, pairs, None)
    row = power_row(replace(held, gate=gate), Question(pairs, gate.limit, plan, gates))
    if not row.possible:
        return _too_few(gate, row.requests, pairs, row)
    return "" if row.power >= POWER else _too_noisy(gate, row)


def _too_few(gate: Gate, requests: int, pairs: int, row: PowerRow | None) -> str:
    if requests * pairs >= _P99_REQUESTS:
        return ""
    each = math.ceil(_P99_REQUESTS / pairs)
    if row is not None and row.requests_needed is not None:
        each = row.requests_needed
    text = f"{gate.metric} needs {_per_start(each, pairs)}; there are {_per_start(requests, pairs)}"
    if requests * pairs < _P95_REQUESTS:
        text += f". The p95 needs {_P95_REQUESTS} in all, so it can't pass either"
    return text


def _too_noisy(gate: Gate, row: PowerRow) -> str:
    found = f"{gate.metric} finds a loss of {gate.limit:.0%} with {row.power:.0%}, not {POWER:.0%}"
    now = f"{row.requests:,} requests per start and {row.pairs} pairs"
    if row.requests_needed is not None:
        return f"{found}, from {now}; it needs {_per_start(row.requests_needed, row.pairs)}"
    more = "no number of pairs" if row.pairs_needed is None else f"{row.pairs_needed:,} pairs"
    return f"{found}, from {now}; starts differ too much for more requests to do: it needs {more}"


def _per_start(requests: int, pairs: int) -> str:
    return f"{requests:,} requests per start ({requests * pairs:,} over {pairs} pairs)"
