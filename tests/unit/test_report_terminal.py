"""The report in a terminal."""

import io
from pathlib import Path

import pytest
from rich.console import Console

from draftgate.report import print_report
from tests.support.report_runs import SITUATIONS, complete


def _printed(path: Path, situation: str, width: int = 150) -> str:
    out = io.StringIO()
    print_report(SITUATIONS[situation](path), Console(file=out, width=width, color_system=None))
    return out.getvalue()


@pytest.mark.parametrize("situation", SITUATIONS)
def test_every_situation_ends_with_the_outcome(tmp_path: Path, situation: str) -> None:
    """The last lines hold the answer, without colour."""
    last = " ".join(_printed(tmp_path, situation).splitlines()[-2:])

    labels = ("Regression", "Invalid run", "No baseline", "Not judged")
    assert any(label in last for label in labels)


def test_tables_hold_every_arm_and_concurrency(tmp_path: Path) -> None:
    """Speed and its factors are there for each arm."""
    text = _printed(tmp_path, "complete")

    for words in ("1 stream", "8 streams", "none", "ngram", "draft_model", "Tokens per step"):
        assert words in text


def test_verdicts_that_are_not_green_give_reason_and_next_step(tmp_path: Path) -> None:
    """Cause, reason and next step of a regression are printed; a pass is not listed."""
    text = _printed(tmp_path, "complete")

    assert "cause: step time +25 % [22, 28]" in text
    assert "next: Read the server log." in text
    assert "✓ Pass" not in text.split("Factors", 1)[1]


def test_acceptance_by_traffic_stands_beside_speed(tmp_path: Path) -> None:
    """The table of traffic comes with that of speed where both were measured, else alone."""
    mixed, alone = _printed(tmp_path, "mixed"), _printed(tmp_path, "traffic_only")

    for text in (mixed, alone):
        assert "Acceptance by traffic" in text
        assert "52 / 38 / 24" in text
    assert "Speed-up" in mixed
    assert "Speed" not in alone
    assert "Best at" not in alone


def test_markup_in_names_is_printed_as_it_is(tmp_path: Path) -> None:
    """Brackets from outside are not rich markup."""
    out = io.StringIO()
    run = complete(tmp_path)

    print_report(run, Console(file=out, width=150, color_system=None))

    assert "[22, 28]" in out.getvalue()
