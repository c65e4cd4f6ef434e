"""The fit of prior weights: each fault's weight goes to the part that sees it."""

import numpy as np
import pytest

from benchmarks.correctness.fit import COUNTS, fitted, grouped
from draftgate.stats.directions import FAMILIES, SCOPES, directions

FAMILY = directions(50, 3)


def seen_by(direction: int, scope: int) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    """Return the logs of four streams in which one part alone has grown."""
    logs = np.zeros((4, len(FAMILY), len(SCOPES)))
    logs[:, direction, scope] = 60.0
    return logs


def test_weights_go_to_the_parts_that_see_faults() -> None:
    """Of four faults three are seen by one direction: its family has 3 of 4, and the counts."""
    own, group = grouped(FAMILY)
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
    own, _ = grouped(FAMILY)

    found = fitted([seen_by(2, 3)], FAMILY)
    assert np.bincount(own, found.directions) == pytest.approx(np.ones(len(FAMILIES)))
    assert found.scopes.sum(axis=1) == pytest.approx(np.ones(3))
