"""The paired gate: `pytest -m perf --against SIDE` compares two builds in pairs of starts."""

import pytest

from draftgate.compare.records import Gate
from draftgate.plugin.outcomes import settle_gate, told_once
from draftgate.plugin.paired import PairedSession
from draftgate.plugin.session import GateSession

pytestmark = pytest.mark.perf


def test_gate(
    paired_gate: Gate, paired_session: PairedSession, draftgate_session: GateSession
) -> None:
    """The candidate loses no more of a metric than is tolerated against the base."""
    result = told_once(lambda: paired_session.verdict(paired_gate))

    settle_gate(result, draftgate_session.options)
