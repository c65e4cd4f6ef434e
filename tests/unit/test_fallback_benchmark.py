"""The stored run of the fallback's benchmark: its page, and what the page claims."""

import pytest

from benchmarks.fallback import page
from benchmarks.fallback.traffic import HARD, USUAL, bodies

RESULTS = page.HERE / "results.json"

stored = pytest.mark.skipif(
    not RESULTS.exists(), reason="no run is stored: python -m benchmarks.fallback.run"
)


@stored
def test_page_holds_the_stored_results() -> None:
    """Every table of RESULTS.md is that of results.json."""
    text = (page.HERE / "RESULTS.md").read_text(encoding="utf-8")

    assert page.filled(text, page.load()) == text


@stored
def test_no_request_was_lost_or_altered() -> None:
    """No answer failed in any phase, and every compared one has the text without drafts."""
    results = page.load()

    assert [
        one["failed"] for run in results["runs"] for one in run["phases"] if one["failed"]
    ] == []
    assert {name: found["other"] for name, found in results["texts"].items()} == dict.fromkeys(
        page.NAMES, 0
    )
    assert results["texts"]["fallback"]["compared"] > 0


@stored
def test_controller_went_down_and_came_back() -> None:
    """In each round: the hard phase moved it, and the usual one after it brought it back."""
    runs = [run for run in page.load()["runs"] if run["server"] == "fallback"]

    for run in runs:
        told = [line for line in run["lines"] if "[fallback]" in line]
        assert "eagle3 -> none" in told[0]
        assert "none -> eagle3" in told[-1]


@pytest.mark.parametrize("kind", [USUAL, HARD])
def test_prompts_are_many_and_all_different(kind: str) -> None:
    """And the same each time they are made."""
    made = bodies(kind, "m")

    assert len(set(made)) == len(made) >= 72
    assert made == bodies(kind, "m")
