"""Closing items: a reviewable file per item, found again, refused when wrong."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from draftgate.clock import ManualClock
from draftgate.errors import BaselineError, MeasurementError, SpecError
from draftgate.history.closing import Word, close, closure_path, find_item, load_closures
from draftgate.history.findings import Findings, document, load_findings
from draftgate.history.items import judge_series
from draftgate.history.records import Item
from tests.support.history import fill, levels, series_of

WORD = Word("vLLM 0.33 batches differently", "mira")


@pytest.fixture(name="item", scope="module")
def _item() -> Item:
    """Return an open item."""
    (item,) = judge_series(series_of(levels(1, 120, {60: 0.95}))).items
    return item


def test_closing_writes_a_file_that_reads_well_in_a_diff(tmp_path: Path, item: Item) -> None:
    """One key a line: who, when, why, and what it was about."""
    path = close(tmp_path, item, WORD, ManualClock())
    (closure,) = load_closures(tmp_path)

    assert path == tmp_path / "_closed" / f"{item.id}.json"
    assert path.read_text().count("\n") == 11
    assert json.loads(path.read_text())["series"]["metric"] == "output_tokens_per_s"
    assert (closure.id, closure.series, closure.run) == (
        item.id,
        item.series.key,
        item.after.run_id,
    )
    assert (closure.reason, closure.by, closure.at) == (
        WORD.reason,
        "mira",
        "2026-01-01T00:00:00+00:00",
    )
    assert closure.is_real
    assert closure.change == f"{item.level_before:.6g} -> {item.level_after:.6g} tokens/s"


def test_false_alarm_is_remembered_as_one(tmp_path: Path, item: Item) -> None:
    """What people close as no change is what the settings are to be judged by."""
    close(tmp_path, item, Word("noise", "mira", is_real=False), ManualClock())

    assert [closure.is_real for closure in load_closures(tmp_path)] == [False]


def test_closed_item_is_found_closed(tmp_path: Path) -> None:
    """From files to files: append, look, close, look again."""
    fill(tmp_path, levels(2, 20, {10: 0.8}))
    before = load_findings(tmp_path)
    (item,) = before.open_items
    close(tmp_path, item, WORD, ManualClock())
    after = load_findings(tmp_path)

    assert after.open_items == ()
    (closed,) = after.items
    assert closed.closure is not None
    assert closed.closure.reason == WORD.reason
    assert after.stray == ()


def test_closing_twice_is_refused(tmp_path: Path, item: Item) -> None:
    """A reason that is there is changed in its file, where a review sees it."""
    path = close(tmp_path, item, WORD, ManualClock())

    with pytest.raises(SpecError, match="closed already") as caught:
        close(tmp_path, item, Word("another", "jo"), ManualClock())

    assert str(path) in str(caught.value)
    assert load_closures(tmp_path)[0].reason == WORD.reason


@pytest.mark.parametrize(("word", "name"), [(Word(" ", "mira"), "reason"), (Word("x", ""), "by")])
def test_reason_and_name_are_asked_for(tmp_path: Path, item: Item, word: Word, name: str) -> None:
    """An item without a reason or a person behind it is not closed."""
    with pytest.raises(SpecError, match=f"--{name} is empty"):
        close(tmp_path, item, word, ManualClock())

    assert load_closures(tmp_path) == ()


def test_folder_that_cannot_be_written_is_named(tmp_path: Path, item: Item) -> None:
    """Nothing is closed, and the message says where it failed."""
    (tmp_path / "_closed").write_text("in the way")

    with pytest.raises(MeasurementError, match="cannot be written"):
        close(tmp_path, item, WORD, ManualClock())


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda text: text[:50], "can't be read"),
        (lambda _: "[]", "schema None, expected 1"),
        (lambda text: text.replace('"schema": 1', '"schema": 9'), "schema 9, expected 1"),
        (lambda text: text.replace('"by"', '"from"'), "unknown keys ['from']"),
        (lambda text: text.replace('"id": "', '"id": "0'), "expected '"),
        (lambda _: "<<<<<<< ours", "can't be read"),
    ],
    ids=["cut", "no object", "newer", "unknown key", "other id", "conflict"],
)
def test_damaged_closure_is_named(
    tmp_path: Path, item: Item, damage: Callable[[str], str], words: str
) -> None:
    """A file cut, of another schema or with a conflict in it neither closes nor opens anything."""
    path = close(tmp_path, item, WORD, ManualClock())
    path.write_text(damage(path.read_text()))

    with pytest.raises(BaselineError) as caught:
        load_closures(tmp_path)

    assert str(path) in str(caught.value)
    assert words in str(caught.value)


def test_item_is_found_by_id_first_digits_or_former_id(item: Item) -> None:
    """What a comment of last week said still finds it."""
    former = item.aliases[3]

    assert former != item.id
    assert find_item([item], item.id) is item
    assert find_item([item], item.id[:5]) is item
    assert find_item([item], former) is item


@pytest.mark.parametrize("given", ["0000", ""])
def test_unknown_item_is_an_error(item: Item, given: str) -> None:
    """The message says how to list those that there are."""
    with pytest.raises(SpecError, match="no such item") as caught:
        find_item([item], given)

    assert "draftgate history show" in str(caught.value)


def test_first_digits_of_several_items_are_refused(item: Item) -> None:
    """Closing the wrong one would hide a change."""
    with pytest.raises(SpecError, match="2 items begin like that"):
        find_item([item, item], item.id[:3])


def test_change_that_is_not_seen_any_more_leaves_its_closure(tmp_path: Path, item: Item) -> None:
    """A closure without its change is told, not forgotten."""
    fill(tmp_path, [100.0] * 12)
    close(tmp_path, item, WORD, ManualClock())
    found = load_findings(tmp_path)

    assert [closure.id for closure in found.stray] == [item.id]
    assert document(found)["closed_but_not_seen"][0]["reason"] == WORD.reason


def test_nothing_closed_is_no_error(tmp_path: Path) -> None:
    """A history whose items were never closed has no folder for it."""
    assert load_closures(tmp_path) == ()
    assert closure_path(tmp_path, "x") == tmp_path / "_closed" / "x.json"


def test_document_holds_items_and_series(tmp_path: Path) -> None:
    """Programs get every item with its place, size and state."""
    fill(tmp_path, levels(2, 20, {10: 0.8}))
    found = load_findings(tmp_path)
    told: dict[str, Any] = json.loads(json.dumps(document(found), allow_nan=False))
    (item,) = told["items"]
    (series,) = told["series"]

    assert (told["schema"], told["nights"], told["notes"]) == (1, 20, [])
    assert (item["status"], item["direction"], item["is_relative"]) == ("open", "worse", True)
    assert item["low"] < item["change"] < item["high"] < 0
    assert item["after"]["run"] == found.items[0].after.run_id
    assert item["series"]["arm"] == series["series"]["arm"] == "ngram"
    assert (series["nights"], series["gaps"]) == (20, [])


def test_findings_of_one_profile_leave_out_the_others(tmp_path: Path) -> None:
    """A report shows what is about its own profile."""
    fill(tmp_path, levels(2, 20, {10: 0.8}))
    found: Findings = load_findings(tmp_path)

    assert found.only(lambda key: key.profile == "example").open_items == found.open_items
    assert found.only(lambda key: key.profile == "other").items == ()
