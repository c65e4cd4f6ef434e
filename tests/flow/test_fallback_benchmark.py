"""The benchmark of the fallback, as a process of its own, with scripted engines in vLLM's place."""

import json
import sys
from pathlib import Path

from benchmarks.fallback import page
from tests.support.flow import Started, assert_clean, write_profile
from tests.support.serve import step_times

PLAIN: dict[str, object] = {"step_s": 0.004, "ttft_s": 0.002}
DRAFTS: dict[str, object] = {**PLAIN, "tokens_per_step": 2.0, "hard_word": "о"}  # noqa: RUF001 - Cyrillic, of half the hard prompts

TIMES = {"none": {1: 0.004, 8: 0.004}, "eagle3": {1: 0.006, 8: 0.006}}
"""Break-even is 1.5 tokens per step; hard prompts give 1.33, half of them 1."""


def test_benchmark_finds_the_switches_and_loses_nothing(tmp_path: Path) -> None:
    """Down in the hard phase and up after it, every answer whole, and the page holds it."""
    profile = write_profile(tmp_path / "p.toml", {"none": PLAIN, "eagle3": DRAFTS})
    profile.write_text(
        profile.read_text(encoding="utf-8").replace("[target]", "max_num_seqs = 8\n\n[target]", 1),
        encoding="utf-8",
    )
    out = tmp_path / "results.json"
    argv = [sys.executable, "-m", "benchmarks.fallback.run", "--profile", str(profile)]
    argv += ["--usual", "8", "--hard", "8", "--after", "8", "--window-steps", "40"]
    argv += ["--dwell", "1", "--probe-share", "0.2", "--interval", "0.1", "--out", str(out)]
    argv += ["--break-even", str(step_times(tmp_path, TIMES))]

    ended = Started(argv).end(timeout_s=240)

    assert ended.code == 0, ended.output
    results = json.loads(out.read_text(encoding="utf-8"))
    (run,) = (run for run in results["runs"] if run["server"] == "fallback")
    told = [line.split("[fallback] ")[1].split(":")[0] for line in run["lines"]]
    assert told[:2] == ["eagle3 -> none", "none -> eagle3"]
    assert [one["failed"] for run in results["runs"] for one in run["phases"]] == [0] * 9
    assert {name: found["other"] for name, found in results["texts"].items()} == dict.fromkeys(
        page.NAMES, 0
    )
    assert results["texts"]["fallback"]["compared"] > 50
    filled = page.filled((page.HERE / "RESULTS.md").read_text(encoding="utf-8"), results)
    assert run["lines"][0] in filled
    assert_clean(ended, tmp_path)
