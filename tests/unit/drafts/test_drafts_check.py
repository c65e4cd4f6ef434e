"""Checking a head: what a folder holds, how it is served, and the verdict on a next version."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from draftgate.cli import Exit, main
from draftgate.drafts.check import Draft, DraftCheck, judged, read_draft, served
from draftgate.errors import SpecError
from draftgate.records import TrafficAcceptance, TrafficSetting
from draftgate.specfile import load_profile
from draftgate.verdict import Outcome

HEAD = Path(__file__).parents[3] / "models" / "smollm2-eagle3"
CONFIG = {
    "speculators_model_type": "peagle",
    "speculators_config": {
        "proposal_methods": [{"speculative_tokens": 5}],
        "verifier": {"name_or_path": "smollm2-135m-instruct"},
    },
}


def head(folder: Path, config: Any = CONFIG, *, weights: bool = True) -> Path:
    """Write a folder that looks like a head."""
    (folder / "config.json").write_text(json.dumps(config))
    if weights:
        (folder / "model.safetensors").write_bytes(b"")
    return folder


def measured(kind: str, values: list[float], target: str) -> TrafficAcceptance:
    """Return a measurement with these tokens per step."""
    setting = TrafficSetting(
        target=target,
        dtype="auto",
        quantization=None,
        options=(),
        max_tokens=64,
        temperature=0.0,
        concurrency=8,
        prompts="p",
    )
    steps = tuple((f"{kind}-{number:02d}", value) for number, value in enumerate(values))
    return TrafficAcceptance("eagle3", "eagle3", 3, kind, setting, steps, None)


@pytest.mark.parametrize(("method", "tokens"), [("eagle3", 3), ("peagle", 5)])
def test_heads_in_the_repository_are_read(method: str, tokens: int) -> None:
    """A shipped head says its method, its K and its target by name."""
    folder = HEAD.with_name(f"smollm2-{method}")

    assert read_draft(folder) == Draft(folder, method, tokens, "smollm2-135m-instruct")
    assert (folder / "model.safetensors").stat().st_size < 25_000_000


def test_tokens_given_go_before_those_of_the_head(tmp_path: Path) -> None:
    """K is the caller's where one is given, else what the head proposes."""
    assert read_draft(head(tmp_path)).tokens == 5
    assert read_draft(head(tmp_path), tokens=2).tokens == 2


@pytest.mark.parametrize(
    ("config", "weights", "told"),
    [
        ({}, True, "no head in Speculators' format"),
        (CONFIG | {"speculators_model_type": "mtp"}, True, "expected eagle3 or peagle"),
        (CONFIG, False, "no model.safetensors"),
    ],
)
def test_folder_that_is_no_head_is_refused(
    tmp_path: Path, config: Any, *, weights: bool, told: str
) -> None:
    """What is missing is named."""
    with pytest.raises(SpecError, match=told):
        read_draft(head(tmp_path, config, weights=weights))


def test_head_is_served_as_the_reference_is(tmp_path: Path) -> None:
    """Only target and drafts differ from the profile's reference."""
    profile = load_profile("cpu-smollm2")
    arm = served(read_draft(head(tmp_path)), "NEXT", profile)

    assert arm.engine.speculative is not None
    assert arm.engine.speculative.model == str(tmp_path)
    plain = replace(arm.engine, target=profile.arm("none").engine.target, speculative=None)
    assert plain == profile.arm("none").engine


def test_next_version_that_accepts_as_much_passes_and_one_that_does_not_is_found() -> None:
    """Equal acceptance passes although the target differs; a third less in one is found."""
    before = [2.0 + 0.05 * (number % 9) for number in range(40)]
    less = [1 + 0.6 * (value - 1) for value in before]
    own = [measured("chat", before, "A"), measured("code", before, "A")]

    same = judged(own, [measured("chat", before, "B"), measured("code", before, "B")])
    worse = judged(own, [measured("chat", before, "B"), measured("code", less, "B")])

    assert [verdict.outcome for verdict in same] == [Outcome.PASS, Outcome.PASS]
    assert [verdict.outcome for verdict in worse] == [Outcome.PASS, Outcome.REGRESSION]
    assert DraftCheck(tuple(own), tuple(own), worse).outcome is Outcome.REGRESSION
    assert DraftCheck(tuple(own), (), ()).outcome is Outcome.PASS


def test_command_tells_a_wrong_folder_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A folder without a head, or a K of 0, ends with one clear error."""
    assert main(["drafts", "check", "--draft", str(tmp_path)]) == Exit.BAD_SPEC
    assert capsys.readouterr().err.count("\n") == 1
    assert main(["drafts", "check", "--draft", str(tmp_path), "--tokens", "0"]) == Exit.BAD_SPEC
    assert "--tokens got 0" in capsys.readouterr().err


def test_file_that_cannot_be_written_is_told_before_anything_is_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`--json` with a folder for a file ends at once, with no server started."""
    given = ["--draft", str(head(tmp_path)), "--json", str(tmp_path)]

    assert main(["drafts", "check", *given]) == Exit.BAD_SPEC
    assert "cannot be written there" in capsys.readouterr().err
