"""`draftgate drafts train --tiny` and `drafts check`, every step on the real target and engine."""

import json
import sys
from pathlib import Path

import pytest
from safetensors import safe_open

from draftgate.cli import Exit
from draftgate.datasets.builtin import KINDS
from tests.support.flow import Ended, Started, assert_clean

pytestmark = [pytest.mark.drift, pytest.mark.slow]

METHODS = {"smollm2-eagle3": "eagle3", "smollm2-peagle": "peagle"}


def drafts(folder: Path, *words: str) -> Ended:
    """Run a subcommand of `draftgate drafts` in a folder."""
    argv = [sys.executable, "-m", "draftgate.cli", "drafts", *words]
    return Started(argv, cwd=folder).end(timeout_s=1200.0)


@pytest.mark.parametrize("recipe", METHODS)
def test_head_goes_from_prompts_to_served_drafts(tmp_path: Path, recipe: str) -> None:
    """Every step is made once and says how it goes; vLLM loads the head and verifies its drafts."""
    made = drafts(tmp_path, "train", recipe, "--tiny")
    again = drafts(tmp_path, "train", recipe, "--tiny")

    assert made.code == Exit.OK, made.output
    assert "training: step 6 of 6: loss" in made.output
    assert "held out: loss" in made.output
    assert again.code == Exit.OK, again.output
    assert "training: step" not in again.output
    assert again.output.splitlines()[-1] == made.output.splitlines()[-1]
    head = tmp_path / made.output.splitlines()[-1]
    config = json.loads((head / "config.json").read_text(encoding="utf-8"))
    assert config["speculators_model_type"] == METHODS[recipe]
    with safe_open(str(head / "model.safetensors"), framework="pt") as weights:
        assert weights.get_tensor("lm_head.weight").shape[0] == 1024

    words = ("--draft", str(head), "--tokens", "3", "--prompts", "4", "--json", "found.json")
    checked = drafts(tmp_path, "check", *words)

    assert checked.code == Exit.OK, checked.output
    found = json.loads((tmp_path / "found.json").read_text(encoding="utf-8"))
    assert [kind["kind"] for kind in found["own"]] == list(KINDS)
    for kind in found["own"]:
        assert kind["counters"]["num_drafts"] > 0, kind
        assert kind["counters"]["num_draft_tokens"] > 2 * kind["counters"]["num_drafts"], kind
    assert_clean(checked, tmp_path)
