"""How a cell is laid out from the time it gets; nothing is measured here."""

import pytest

from draftgate.calibration.cell import CellPlan, Cores, streams_for
from draftgate.calibration.job import calibrate
from draftgate.errors import SpecError

CORES = Cores(0, 1)


@pytest.mark.parametrize(
    ("seconds", "tokens", "sending_s"),
    [(4.0, 128, 2.67), (60.0, 128, 58.67), (0.9, 25, 0.6), (0.01, 4, 0.18)],
)
def test_answers_fit_three_times_into_a_cell(seconds: float, tokens: int, sending_s: float) -> None:
    """Short cells get short answers; sending stops one answer before the end."""
    plan = CellPlan(8, seconds, CORES)

    assert plan.answer_tokens == tokens
    assert plan.sending_s == pytest.approx(sending_s, abs=1e-9)


def test_streams_follow_from_the_load() -> None:
    """Answers of 128 tokens take 1.33 s, so 1,000 tokens/s are 10 streams; fewer than 1 is 1."""
    plan = CellPlan(1, 4.0, CORES)

    assert streams_for(1_000.0, plan) == 10
    assert streams_for(0.1, plan) == 1


@pytest.mark.parametrize("seconds", [2.9, 3601.0, float("nan")])
def test_time_out_of_range_is_refused(seconds: float) -> None:
    """Before anything is started."""
    with pytest.raises(SpecError, match="seconds must be from 3 to 3600"):
        calibrate(seconds=seconds)
