"""Acceptance by position at several temperatures and the profile's K, with intervals."""

from collections.abc import Callable

import pytest

from draftgate.datasets.builtin import KINDS
from draftgate.drift.judge import by_position
from draftgate.plugin.outcomes import settle
from draftgate.plugin.session import GateSession
from draftgate.records import TrafficAcceptance

pytestmark = pytest.mark.drift

TEMPERATURES = (0.7, 1.0)
"""Beside greedy, which `test_acceptance_by_traffic.py` measures: a usual one and the plain law."""


@pytest.mark.parametrize("temperature", TEMPERATURES)
@pytest.mark.parametrize("kind", KINDS)
def test_acceptance_is_reported_at_temperature(
    draftgate_session: GateSession,
    measure_acceptance: Callable[..., TrafficAcceptance],
    speculative_arm: str,
    kind: str,
    temperature: float,
) -> None:
    """Sampled traffic has acceptance by position too; judged where the baseline holds it."""
    session = draftgate_session
    found = measure_acceptance(speculative_arm, kind, temperature)

    assert found.invalid == ()
    steps = by_position(found)
    assert steps is not None
    shares = [share.estimate for share in steps.by_position]
    assert len(shares) == found.num_speculative_tokens
    assert shares == sorted(shares, reverse=True)
    assert all(share.low <= share.estimate <= share.high for share in steps.by_position)
    assert steps.length.estimate == pytest.approx(1.0 + sum(shares))
    if session.has_base(found):
        settle([session.judge_acceptance(found)], session.options)
