"""Steps: made once, found again, never half there, and made by one of several that ask."""

import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from draftgate.clock import ManualClock
from draftgate.drafts.steps import STAMP, Facts, Step, facts, made
from draftgate.errors import SpecError


def step(
    build: Callable[[Path], Facts], about: Mapping[str, Any] | None = None, *, resumes: bool = False
) -> Step:
    """Return a step called `words`."""
    return Step("words", about or {"seed": 1}, build, resumes)


def write_one(folder: Path) -> Facts:
    """Write a file and tell how many."""
    (folder / "word.txt").write_text("oak", encoding="utf-8")
    return {"words": 1}


def never(folder: Path) -> Facts:
    """Refuse to be built."""
    raise AssertionError(folder)


def unplugged(folder: Path) -> Facts:
    """Write half and break off."""
    (folder / "half.txt").write_text("o", encoding="utf-8")
    raise RuntimeError("unplugged")


def test_step_is_made_once_and_found_again(tmp_path: Path) -> None:
    """The second call builds nothing and returns the same folder."""
    said: list[str] = []
    first = made(step(write_one), tmp_path, said.append)
    second = made(step(never), tmp_path, said.append)

    assert first == second
    assert (first / "word.txt").read_text(encoding="utf-8") == "oak"
    assert said[0] == f"words: begins ({first.name})"
    assert said[-1] == f"words: there ({first.name})"


def test_stamp_tells_facts_and_seconds(tmp_path: Path) -> None:
    """A finished step knows what it found and how long it took."""
    clock = ManualClock()

    def build(folder: Path) -> Facts:
        clock.advance(2.5)
        return write_one(folder)

    folder = made(step(build), tmp_path, print, clock)

    assert facts(folder) == {"words": 1}
    assert '"seconds": 2.5' in (folder / STAMP).read_text(encoding="utf-8")


def test_other_about_is_another_folder(tmp_path: Path) -> None:
    """What decides the content decides the name; the order of its keys does not."""
    folders = {
        made(step(write_one, about), tmp_path, print)
        for about in ({"a": 1, "b": 2}, {"b": 2, "a": 1}, {"a": 1, "b": 3})
    }

    assert len(folders) == 2


def test_failed_build_leaves_nothing_finished(tmp_path: Path) -> None:
    """After a failure there is no folder under the step's name, and the next try is clean."""
    with pytest.raises(RuntimeError, match="unplugged"):
        made(step(unplugged), tmp_path, print)
    assert not step(never).folder(tmp_path).exists()

    folder = made(step(write_one), tmp_path, print)

    assert sorted(path.name for path in folder.iterdir()) == [STAMP, "word.txt"]


def test_step_that_resumes_finds_its_half(tmp_path: Path) -> None:
    """An unfinished folder is kept for a step that can go on, and the line says so."""
    said: list[str] = []
    with pytest.raises(RuntimeError, match="unplugged"):
        made(step(unplugged, resumes=True), tmp_path, print)

    folder = made(step(write_one, resumes=True), tmp_path, said.append)

    assert (folder / "half.txt").exists()
    assert said[0] == f"words: goes on ({folder.name})"


def test_folder_without_stamp_is_made_anew(tmp_path: Path) -> None:
    """A folder that somebody left under the name, without a stamp, is not taken for finished."""
    step(never).folder(tmp_path).mkdir()

    folder = made(step(write_one), tmp_path, print)

    assert facts(folder) == {"words": 1}


def test_two_that_ask_at_once_build_once(tmp_path: Path) -> None:
    """While one builds, the other waits, and then finds the step."""
    begun, go_on = threading.Event(), threading.Event()
    built: list[Path] = []
    found: list[Path] = []

    def slow(folder: Path) -> Facts:
        built.append(folder)
        begun.set()
        assert go_on.wait(10)
        return write_one(folder)

    def ask() -> None:
        found.append(made(step(slow), tmp_path, lambda _line: None))

    threads = [threading.Thread(target=ask) for _ in range(2)]
    threads[0].start()
    assert begun.wait(10)
    threads[1].start()
    go_on.set()
    for thread in threads:
        thread.join(10)

    assert len(built) == 1
    assert found == [step(never).folder(tmp_path)] * 2


@pytest.mark.parametrize("stamp", [None, "", "{", "[]", "{}", '{"facts": 3}', '{"facts": null}'])
def test_damaged_folder_is_refused(tmp_path: Path, stamp: str | None) -> None:
    """Facts of a folder without a whole stamp are an error that names the folder."""
    if stamp is not None:
        (tmp_path / STAMP).write_text(stamp, encoding="utf-8")

    with pytest.raises(SpecError, match="got no finished step") as raised:
        facts(tmp_path)

    assert str(tmp_path) in str(raised.value)


def test_root_that_is_a_file_is_refused(tmp_path: Path) -> None:
    """A place where no folder can be is an error that names the option."""
    root = tmp_path / "taken"
    root.write_text("", encoding="utf-8")

    with pytest.raises(SpecError, match=r"step words: .* cannot be written.*--folder"):
        made(step(never), root, print)
