"""Calibrations on disk: read back as written, refused when damaged or of other hardware."""

from collections.abc import Callable
from pathlib import Path

import pytest

from draftgate.calibration.store import calibration_path, load_calibration, store_calibration
from draftgate.errors import BaselineError, SpecError
from draftgate.targets import CACHE_VARIABLE
from tests.support.calibrations import make_calibration, make_cell

HARDWARE = "cpu-test-2c"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache folder of the test's own, which does not exist yet."""
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_calibration_is_read_back_as_written(cache: Path) -> None:
    """Every number survives, the file is named by the hardware, and nothing lies beside it."""
    calibration = make_calibration(make_cell(late_us=7))
    path = store_calibration(calibration)

    assert path == cache / "calibration" / f"{HARDWARE}.json"
    assert load_calibration(HARDWARE) == calibration
    assert list(path.parent.iterdir()) == [path]


def test_last_calibration_stands() -> None:
    """A second one of the same hardware replaces the first."""
    store_calibration(make_calibration())
    newer = make_calibration(make_cell())
    store_calibration(newer)

    assert load_calibration(HARDWARE) == newer


def test_other_hardware_has_none() -> None:
    """A calibration says nothing about another machine."""
    store_calibration(make_calibration())

    assert load_calibration("cpu-other-64c") is None


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda text: text[: len(text) // 2], "cannot be used"),
        (lambda _: "[]", "schema None, expected 1"),
        (lambda text: text.replace('"schema": 1', '"schema": 99'), "schema 99, expected 1"),
        (lambda text: text.replace('"streams": 8', '"streams": "8"'), "streams: expected int"),
        (lambda text: text.replace('"lag_p99_s"', '"lag"'), "unknown keys ['lag']"),
        (lambda text: text.replace(HARDWARE, "cpu-other-64c"), "of hardware 'cpu-other-64c'"),
        (lambda _: "\udcff", "can't decode byte 0xff"),
    ],
)
def test_damaged_calibration_is_refused(damage: Callable[[str], str], words: str) -> None:
    """The message names the file, what is wrong with it and what to do."""
    path = store_calibration(make_calibration())
    damaged = damage(path.read_text(encoding="utf-8"))
    path.write_bytes(damaged.encode(errors="surrogateescape"))

    with pytest.raises(BaselineError) as caught:
        load_calibration(HARDWARE)

    assert str(path) in str(caught.value)
    assert words in str(caught.value)
    assert "draftgate calibrate" in str(caught.value)


def test_cache_that_cannot_be_written_is_the_users_to_change(cache: Path) -> None:
    """A file in the place of the folder is a SpecError that names the variable."""
    cache.write_text("in the way")

    with pytest.raises(SpecError, match=CACHE_VARIABLE):
        store_calibration(make_calibration())


def test_path_is_known_before_there_is_a_file(cache: Path) -> None:
    """Asking where a calibration would be makes nothing."""
    assert calibration_path("x").parent == cache / "calibration"
    assert not cache.exists()
