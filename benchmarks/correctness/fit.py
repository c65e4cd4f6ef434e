"""Prior weights by which the evidence would be largest when faults are found, on even contexts.

    .venv/bin/python -m benchmarks.correctness.fit

prints the weights of families, of directions within theirs and of scopes within the three
groups of families. Those in `draftgate.stats.directions` follow them, rounded and further from 0.
Expectation maximisation of the mean over faults of the mean log e-value of the slowest
streams; a part's weight is the product of the three, as in `eprocess.log_weights`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.correctness.bank import SPECIAL
from benchmarks.correctness.contexts import KINDS, Setting
from benchmarks.correctness.places import World
from benchmarks.correctness.remedies import Fixed, tokens_of
from benchmarks.correctness.streams import Judge, Streams
from benchmarks.correctness.study import ALPHA, FAINT, cases, quantile
from draftgate.stats.directions import FAMILIES, SCOPES, Direction, directions, groups

SLOWEST = 0.3
"""Share of a fault's streams that count: it is the slow ones that decide about 90 %."""

ROUNDS = 60
"""Of expectation and maximisation."""

COUNTS = (0.2, 0.1, 0.1)
"""Added to each family, direction and scope, in faults: none comes out at 0."""

Floats = NDArray[np.floating[Any]]


@dataclass(frozen=True, slots=True)
class Weights:
    """Prior weights that multiply.

    Attributes:
        families: By the order of FAMILIES; they add up to 1.
        directions: Within their family.
        scopes: Within a group of families; shape (3, scopes).
    """

    families: Floats
    directions: Floats
    scopes: Floats


def families_of(family: Sequence[Direction]) -> NDArray[np.int64]:
    """Return the number of each direction's family, in the order of FAMILIES."""
    names = list(FAMILIES)
    return np.array([names.index(direction.family) for direction in family])


def fitted(found: Sequence[Floats], family: Sequence[Direction]) -> Weights:
    """Return the weights under which the logs of the parts' e-values, mixed, are largest.

    Args:
        found: For each fault, shape (streams, directions, scopes).
        family: The directions.
    """
    own, group = families_of(family), groups(family)
    weights = np.full(found[0].shape[1:], 1.0)
    for _ in range(ROUNDS):
        credit = sum(_credit(logs + np.log(weights)) for logs in found)
        result = _maximised(np.asarray(credit), own, group)
        parts = (result.families[own] * result.directions)[:, None] * result.scopes[group]
        weights = parts
    return result


def _credit(logs: Floats) -> Floats:
    """Return each part's share of the mixture, in the mean over streams."""
    flat = logs.reshape(len(logs), -1)
    share = np.exp(flat - flat.max(axis=1, keepdims=True))
    share /= share.sum(axis=1, keepdims=True)
    return np.asarray(share.mean(axis=0).reshape(logs.shape[1:]))


def _maximised(credit: Floats, own: NDArray[np.int64], group: NDArray[np.int64]) -> Weights:
    family, direction, scope = COUNTS
    whole = np.bincount(own, credit.sum(axis=1), len(FAMILIES)) + family
    within = credit.sum(axis=1) + direction
    scopes = np.stack([credit[group == number].sum(axis=0) + scope for number in range(3)])
    return Weights(
        whole / whole.sum(),
        within / np.bincount(own, within, len(FAMILIES))[own],
        scopes / scopes.sum(axis=1, keepdims=True),
    )


def at_detection(streams: Streams, family: Sequence[Direction]) -> Floats | None:
    """Return the parts' log e-values when 90 % of streams have alarmed, of the slowest streams.

    None if fewer alarm.
    """
    judge = Judge(streams.rows, family)
    alarms = judge.alarms(streams, ALPHA)
    tokens = quantile(alarms)
    if tokens is None:
        return None
    fixed = Fixed(len(alarms), judge.weights.shape)
    for ratio, holds in tokens_of(judge, streams, tokens):
        fixed.grow(ratio, holds)
    slow = np.argsort(-alarms)[: int(SLOWEST * len(alarms))]
    logs = fixed.log[slow]
    along = [d.family in judge.changing for d in family]
    order = np.argsort(np.argsort(along, kind="stable"), kind="stable")
    return logs[:, order]


def main() -> None:
    """Fit on both kinds of drafts and print the weights."""
    family = directions(World(Setting(), KINDS[0], "plain", slice(0, 1)).vocabulary, SPECIAL)
    even = (case for kind in KINDS for case in cases(kind, slice(0, None, 2), other=False))
    found = [at_detection(case.streams, family) for case in even if case.kl >= FAINT]
    weights = fitted([logs for logs in found if logs is not None], family)
    own = families_of(family)
    for number, name in enumerate(FAMILIES):
        print(f"{name}: {weights.families[number]:.3f}")
        for at in np.flatnonzero(own == number):
            print(f"    {family[at].label}: {weights.directions[at]:.3f}")
    for scope, row in zip(SCOPES, weights.scopes.T, strict=True):
        print(f"{scope.label}: law {row[0]:.3f}, drafts {row[1]:.3f}, others {row[2]:.3f}")


if __name__ == "__main__":
    main()
