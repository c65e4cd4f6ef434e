"""A comparison in a terminal."""

import io
import os
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from draftgate.compare.records import StoredComparison
from draftgate.report.comparison import headline, print_comparison
from draftgate.verdict import Outcome
from tests.support.comparisons import (
    gate_of,
    not_started,
    one_of_each,
    only,
    stored_comparison,
    with_gates,
)

FILE = Path(__file__).parent / "expected" / "comparison_whole.txt"

REWRITE = "DRAFTGATE_WRITE_EXPECTED"
"""Set to 1 to write the expected file anew; look at its diff before committing it."""

COMPARISON = stored_comparison()

SITUATIONS = {
    "whole": COMPARISON,
    "each": one_of_each(COMPARISON),
    "green": only(COMPARISON, Outcome.PASS, Outcome.IMPROVEMENT),
    "not_started": not_started(COMPARISON),
    "no_gates": with_gates(COMPARISON, []),
}


def _printed(comparison: StoredComparison, width: int = 80, *, colour: bool = False) -> str:
    out = io.StringIO()
    console = Console(
        file=out,
        width=width,
        color_system="standard" if colour else None,
        force_terminal=colour,
        legacy_windows=False,
    )
    print_comparison(comparison, console)
    return out.getvalue()


def test_print_is_the_expected_file() -> None:
    """The whole comparison at 80 columns is the committed file, byte for byte."""
    text = _printed(COMPARISON)

    if os.environ.get(REWRITE) == "1":
        FILE.write_text(text, encoding="utf-8")
    assert text == FILE.read_text(encoding="utf-8"), f"{REWRITE}=1 writes the expected file anew"


@pytest.mark.parametrize("name", SITUATIONS)
def test_answer_comes_last(name: str) -> None:
    """The last line is the headline, where the eye is when a command ends."""
    last = _printed(SITUATIONS[name]).splitlines()[-1]

    assert last.split(" ", 1)[1] == headline(SITUATIONS[name])


def test_table_has_one_line_per_gate_at_80_columns() -> None:
    """No gate needs a second line, none is cut."""
    lines = _printed(COMPARISON).splitlines()
    table = lines[: 2 + len(COMPARISON.result.gates)]

    assert all(len(line.rstrip()) <= 80 for line in table)
    assert {line[0] for line in table[2:]} == set("✕!?▲✓")
    assert not any("…" in line for line in table)


def test_narrow_terminal_and_long_names_lose_nothing_but_the_shape() -> None:
    """An arm's long name is folded, not cut."""
    gate = gate_of(COMPARISON, Outcome.PASS)
    name = "an-arm-with-a-name-of-many-words-and-one-more"
    found = with_gates(COMPARISON, [replace(gate, gate=replace(gate.gate, arm=name))])

    head, _, *rows = _printed(found).split("Note:")[0].splitlines()

    width = head.index("Metric")
    assert "".join(row[:width].strip() for row in rows).startswith(f"✓{name}")


def test_gates_that_are_not_green_are_said_in_full() -> None:
    """Reason, cause, positions and next step are whole lines; what is green has none."""
    lines = _printed(one_of_each(COMPARISON)).splitlines()

    assert "✕ REGRESSION: none at 8 streams, output tokens/s" in lines
    assert "  reason: worse by more than 1 % in both stages" in lines
    assert any(line.startswith("  cause: step time +8.1 %") for line in lines)
    assert "  next: Take about 24 more pairs: resume with a larger --max-minutes." in lines
    assert "  reason: the base has no arm 'none'" in lines
    assert not any(line.startswith(("✓ PASS:", "▲ IMPROVEMENT:")) for line in lines)


def test_long_lines_stay_whole_in_a_log() -> None:
    """A log without a terminal gets each reason as one line, whatever its length."""
    reason = "word " * 60
    gate = replace(gate_of(COMPARISON, Outcome.INCONCLUSIVE), reason=reason)

    text = _printed(with_gates(COMPARISON, [gate]))

    assert f"  reason: {reason.strip()}\n" in text


def test_acceptance_is_told_by_position() -> None:
    """Where acceptance moved, each position has its shares and the interval of the change."""
    text = _printed(COMPARISON)

    assert text.count("  position: 0: 62.0 % to 57.0 % accepted, ") == 3


def test_outside_text_can_not_steer_the_terminal() -> None:
    """Escapes and rich markup from outside are printed as text."""
    nasty = "[red]x[/red]\x1b[2J\r\x07"
    gate = gate_of(COMPARISON, Outcome.INCONCLUSIVE)
    gate = replace(gate, gate=replace(gate.gate, arm=nasty), reason=nasty, next_step=nasty)
    found = with_gates(
        stored_comparison(labels=(nasty, nasty), engines=(nasty, nasty), notes=(nasty,)), [gate]
    )

    text = _printed(found, 160)

    assert not any(sign in text for sign in "\x1b\r\x07")
    assert text.count("[red]x[/red]") == 9


def test_colour_only_repeats_what_the_text_says() -> None:
    """Without its colours the print is the same."""
    coloured = _printed(COMPARISON, colour=True)

    assert "\x1b[" in coloured
    assert "".join(part.split("m", 1)[-1] for part in coloured.split("\x1b[")) == _printed(
        COMPARISON
    )
