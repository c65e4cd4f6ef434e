"""The fit of prior weights: each fault's weight goes to the part that sees it."""

import numpy as np
import pytest

from benchmarks.correctness.fit import COUNTS, SLOWEST, at_detection, families_of, fitted
from benchmarks.correctness.streams import Streams
from draftgate.stats.directions import FAMILIES, SCOPES, directions, groups
from draftgate.stats.eprocess import evidence
from draftgate.stats.scores import score_many

FAMILY = directions(50, 3)


def seen_by(direction: int, scope: int) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    """Return the logs of four streams in which one part alone has grown."""
    logs = np.zeros((4, len(FAMILY), len(SCOPES)))
    logs[:, direction, scope] = 60.0
    return logs


def test_weights_go_to_the_parts_that_see_faults() -> None:
    """Of four faults three are seen by one direction: its family has 3 of 4, and the counts."""
    own, group = families_of(FAMILY), groups(FAMILY)
    first, last = 0, len(FAMILY) - 1

    found = fitted([seen_by(first, 1)] * 3 + [seen_by(last, 0)], FAMILY)
    whole = 4 + COUNTS[0] * len(FAMILIES)
    assert found.families.sum() == pytest.approx(1)
    assert found.families[own[first]] == pytest.approx((3 + COUNTS[0]) / whole)
    assert found.families[own[last]] == pytest.approx((1 + COUNTS[0]) / whole)
    assert found.scopes[group[first]].argmax() == 1
    assert found.scopes[group[last]].argmax() == 0


def test_directions_share_their_family() -> None:
    """Weights within each family add up to 1, and those within each group's scopes."""
    own = families_of(FAMILY)

    found = fitted([seen_by(2, 3)], FAMILY)
    assert np.bincount(own, found.directions) == pytest.approx(np.ones(len(FAMILIES)))
    assert found.scopes.sum(axis=1) == pytest.approx(np.ones(3))


def hot_streams(count: int, length: int) -> Streams:
    """Return streams of tokens drawn at four times the temperature, each token a row of its own."""
    rng = np.random.default_rng(1)
    law = rng.dirichlet(np.full(50, 0.3)) * 0.99 + 0.01 / 50
    hot = law**0.25 / (law**0.25).sum()
    tokens = rng.choice(50, count * length, p=hot)
    position = np.arange(len(tokens)) % 3
    rows = score_many(
        np.tile(np.log(law), (len(tokens), 1)), tokens, position=position, bonus=position == 2
    )
    row = np.arange(count * length).reshape(count, length)
    nothing = np.zeros(row.shape)
    return Streams(rows, row, np.zeros_like(row), nothing, np.zeros_like(row), row, ())


def test_what_is_fitted_is_the_evidence_of_the_slowest_streams() -> None:
    """Parts at the token by which 90 % have alarmed are those of `eprocess`, in its order."""
    streams = hot_streams(20, 300)
    each = [evidence(streams.rows.take(row), FAMILY) for row in streams.row]
    alarms = np.array([found.alarm_at(1e-4) for found in each])
    tokens = int(np.sort(alarms)[17])
    slow = np.argsort(-alarms)[: int(SLOWEST * 20)]

    found = at_detection(streams, FAMILY)
    assert found is not None
    for logs, stream in zip(found, slow, strict=True):
        parts = evidence(streams.rows.take(streams.row[stream, :tokens]), FAMILY).parts
        assert logs == pytest.approx(parts)
