"""Scripts of the null engine: read from JSON, TOML and options, or refused with a reason."""

import argparse
import json
from pathlib import Path

import pytest

from draftgate.errors import SpecError
from draftgate.null_engine import command
from draftgate.null_engine.script import (
    Alignment,
    FaultKind,
    FaultRule,
    Script,
    TokenCycle,
    TokenUniform,
    load_script,
    parse_fault,
    parse_script,
    parse_tokens,
)

DOCUMENT = {
    "ttft_s": 0.02,
    "gap_s": 0.005,
    "slow_gap_share": 0.04,
    "slow_gap_s": 0.1,
    "tokens_per_step": [1, 2, 3, 4],
    "align": "steps",
    "head_s": None,
    "faults": ["stall=5/8", {"kind": "reset", "first": 1, "last": 2, "of": 8, "after_tokens": 3}],
}
SCRIPT = Script(
    ttft_s=0.02,
    gap_s=0.005,
    slow_gap_share=0.04,
    slow_gap_s=0.1,
    tokens_per_step=TokenCycle((1, 2, 3, 4)),
    align=Alignment.STEPS,
    head_s=None,
    faults=(FaultRule(FaultKind.STALL, 5, 5, 8), FaultRule(FaultKind.RESET, 1, 2, 8, 3)),
)


def _args(*argv: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    return parser.parse_args(argv)


def test_a_document_becomes_a_script() -> None:
    """Every form a document may use arrives in the record."""
    assert parse_script(DOCUMENT) == SCRIPT


def test_files_hold_json_or_toml(tmp_path: Path) -> None:
    """The ending of a file's name says how it is read."""
    (tmp_path / "a.json").write_text(json.dumps(DOCUMENT), encoding="utf-8")
    (tmp_path / "a.toml").write_text('gap_s = 0.25\nfaults = ["gzip"]\n', encoding="utf-8")

    assert load_script(f"@{tmp_path / 'a.json'}") == SCRIPT
    assert load_script(f"@{tmp_path / 'a.toml'}") == Script(
        gap_s=0.25, faults=(FaultRule(FaultKind.GZIP, 1, 1, 1),)
    )


def test_options_override_the_script() -> None:
    """What an option says replaces the script's value; its faults are added."""
    args = _args(
        *("--script", '{"ttft_s": 1, "gap_s": 0.5, "faults": ["gzip=1-2/3"], "head_s": 0.125}'),
        *("--ttft", "0.25", "--slow-gaps", "0.04:0.75", "--tokens-per-step", "1-4"),
        *("--burst", "3", "--align", "steps", "--model", "m", "--fault", "stall=3/3@2"),
    )

    assert command.script_of(args) == Script(
        model="m",
        ttft_s=0.25,
        gap_s=0.5,
        slow_gap_share=0.04,
        slow_gap_s=0.75,
        tokens_per_step=TokenUniform(1, 4),
        burst_steps=3,
        align=Alignment.STEPS,
        head_s=0.125,
        faults=(FaultRule(FaultKind.GZIP, 1, 2, 3), FaultRule(FaultKind.STALL, 3, 3, 3, 2)),
    )


@pytest.mark.parametrize(
    ("given", "pattern"),
    [
        (2, TokenCycle((2,))),
        ("2", TokenCycle((2,))),
        ("1,2,3", TokenCycle((1, 2, 3))),
        ([4, 1], TokenCycle((4, 1))),
        ("1-4", TokenUniform(1, 4)),
    ],
)
def test_tokens_per_step_have_three_forms(
    given: object, pattern: TokenCycle | TokenUniform
) -> None:
    """A count, a cycle and a range are told apart."""
    assert parse_tokens(given) == pattern


def test_a_rule_hits_the_same_places_of_every_round() -> None:
    """Requests 3 to 4 of every 5 are hit, and no others."""
    rule = parse_fault("stall=3-4/5")

    assert [number for number in range(1, 13) if rule.hits(number)] == [3, 4, 8, 9]


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ({"gap": 1}, r"\['gap'\].*Known: model, ttft_s, gap_s"),
        ([], r"got \[\]"),
        ({"gap_s": "x"}, r"script.gap_s: expected float, got 'x'"),
        ({"gap_s": -1}, "gap_s must be from 0 to 86400, got -1"),
        ({"tokens_per_step": 0}, "tokens_per_step must be from 1 to 128, got 0"),
        ({"tokens_per_step": "4-1"}, "no LOW above HIGH"),
        ({"tokens_per_step": "x"}, "tokens_per_step got 'x'"),
        ({"tokens_per_step": []}, r"tokens_per_step got \[\]"),
        ({"head_s": 0.2, "ttft_s": 0.1}, "head_s must be from 0 to 0.1, got 0.2"),
        ({"slow_gap_share": 0.1}, "slow_gap_s must be >= gap_s = 0.01, got 0.0"),
        ({"slow_gap_share": 0.00001, "slow_gap_s": 1}, "must be a multiple of 0.0001"),
        ({"align": "steps", "gap_s": 0}, "gap_s must be > 0"),
        ({"align": "grid"}, "'grid' is not a valid Alignment"),
        ({"faults": ["melt"]}, "Kinds: stall, in_band_error"),
        ({"faults": ["stall=5-9/8"]}, "got requests 5-9 of 8"),
        ({"faults": ["stall=0-1/8"]}, "got requests 0-1 of 8"),
        ({"faults": ["stall=1/8@0"]}, "after_tokens must be >= 1, got 0"),
        ({"faults": ["stall=1/x"]}, "is not KIND=FIRST-LAST/OF"),
        ({"faults": [3]}, "expected FaultRule|expected an object"),
    ],
)
def test_a_wrong_script_is_refused(document: object, said: str) -> None:
    """The message names the key and what was got."""
    with pytest.raises(SpecError, match=said):
        parse_script(document)


@pytest.mark.parametrize(
    "given", ["{", "@/nowhere/a.json", "@/nowhere/a.toml"], ids=["json", "file", "toml"]
)
def test_an_unreadable_script_is_refused(given: str) -> None:
    """What cannot be read is the user's to mend."""
    with pytest.raises(SpecError, match="cannot be read"):
        load_script(given)


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (("--slow-gaps", "0.04"), "expected SHARE:SECONDS"),
        (("--cpu", "999"), "--cpu got 999"),
        (("--log", "/nowhere/a.log"), "which cannot be written"),
    ],
)
def test_a_wrong_option_is_refused(argv: tuple[str, ...], said: str) -> None:
    """Options are checked before anything listens."""
    with pytest.raises(SpecError, match=said):
        command.run(_args(*argv))
