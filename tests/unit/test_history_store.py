"""Nights on disk: added whole or not at all, never twice, and damage is named."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from draftgate.errors import BaselineError, MeasurementError
from draftgate.history.store import append, columns, night_files, night_path, read_nights
from tests.support.history import at, fill, night, night_of, run_id


def test_night_is_read_back_as_written(tmp_path: Path) -> None:
    """One file in the folder of its hardware, engine and profile, with a row per run."""
    done = append(tmp_path, night(0, (100.0, 101.5), commit="c0ffee"))
    rows = read_nights(tmp_path).to_pylist()

    assert done.path == tmp_path / "cpu-example-2c" / "vllm" / "example" / f"{run_id(0)}.parquet"
    assert done.is_new
    assert done.notes == ()
    assert night_files(tmp_path) == (done.path,)
    assert [row["value"] for row in rows] == [100.0, 101.5]
    assert [row["repeat"] for row in rows] == [0, 1]
    assert rows[0] == {
        "run_id": run_id(0),
        "session_time": at(0),
        "sequence": 1,
        "hardware": "cpu-example-2c",
        "profile": "example",
        "draftgate": "0.1.0",
        "definitions": 1,
        "time": at(0),
        "repeat": 0,
        "engine": "vllm",
        "engine_version": "0.32.0",
        "arm": "ngram",
        "role": "run",
        "concurrency": 8,
        "metric": "output_tokens_per_s",
        "value": 100.0,
        "unit": "tokens/s",
        "better": "higher",
        "commit": "c0ffee",
        "workload": "0123456789abcdef",
        "requests": 40,
        "invalid": "",
    }


def test_later_night_leaves_the_files_before_alone(tmp_path: Path) -> None:
    """Appending writes one file; no byte of another changes."""
    first = append(tmp_path, night(0)).path
    before = first.read_bytes(), first.stat().st_mtime_ns
    append(tmp_path, night(1))

    assert (first.read_bytes(), first.stat().st_mtime_ns) == before
    assert [row["sequence"] for row in read_nights(tmp_path).to_pylist()] == [1, 2]


def test_pandas_reads_the_folder_although_items_lie_there(tmp_path: Path) -> None:
    """`pandas.read_parquet("history")` works, with closed items in it."""
    fill(tmp_path, (100.0, 101.0))
    (tmp_path / "_closed").mkdir()
    (tmp_path / "_closed" / "0123.json").write_text("{}")
    table = pd.read_parquet(tmp_path)

    assert sorted(table["value"]) == [100.0, 101.0]
    assert list(table.columns) == columns().names


def test_same_run_twice_is_refused(tmp_path: Path) -> None:
    """Counting runs twice is an error that names the file and the way out for CI."""
    path = append(tmp_path, night(0)).path

    with pytest.raises(BaselineError, match="must not count twice") as caught:
        append(tmp_path, night(0))

    assert str(path) in str(caught.value)
    assert "--again" in str(caught.value)
    assert len(night_files(tmp_path)) == 1


def test_repeated_job_passes_with_again(tmp_path: Path) -> None:
    """The very same numbers, NaN included, are no error then, and nothing is written."""
    same = night(0, (100.0, float("nan")))
    path = append(tmp_path, same).path
    before = path.stat().st_mtime_ns
    done = append(tmp_path, same, again=True)

    assert (done.path, done.is_new) == (path, False)
    assert path.stat().st_mtime_ns == before


def test_again_does_not_let_other_numbers_pass(tmp_path: Path) -> None:
    """What is there is never rewritten, not even by the same run with other values."""
    append(tmp_path, night(0, (100.0,)))

    with pytest.raises(BaselineError, match="with other numbers"):
        append(tmp_path, night(0, (100.1,)), again=True)

    assert read_nights(tmp_path).to_pylist()[0]["value"] == 100.0


def test_same_run_of_another_profile_is_refused(tmp_path: Path) -> None:
    """A run id stands for one run in the whole history, whatever its folder."""
    append(tmp_path, night(0))

    with pytest.raises(BaselineError, match="there already"):
        append(tmp_path, replace(night(0), profile="renamed"))


def test_copied_file_is_named(tmp_path: Path) -> None:
    """A file copied by hand to another folder would count twice; reading names both."""
    path = append(tmp_path, night(0)).path
    copy = tmp_path / "other" / "vllm" / "example" / path.name
    copy.parent.mkdir(parents=True)
    copy.write_bytes(path.read_bytes())

    with pytest.raises(BaselineError, match="the same run twice") as caught:
        read_nights(tmp_path)

    assert "other/vllm/example" in str(caught.value)


def test_earlier_night_appended_later_is_noted(tmp_path: Path) -> None:
    """A session that is older than what was appended before is kept, and said."""
    append(tmp_path, night(5))
    done = append(tmp_path, night(3))

    (note,) = done.notes
    assert run_id(3) in note
    assert run_id(5) in note
    assert "clock went backwards" in note


def test_notes_of_the_night_are_handed_on(tmp_path: Path) -> None:
    """What was odd about the session itself is said on appending."""
    assert append(tmp_path, replace(night(0), notes=("odd",))).notes == ("odd",)


def test_empty_history_is_no_answer(tmp_path: Path) -> None:
    """A folder without nights is an error that says how to add one."""
    with pytest.raises(BaselineError, match="holds no night") as caught:
        read_nights(tmp_path / "none")

    assert "draftgate history append" in str(caught.value)


def cut(path: Path) -> None:
    """Keep the first half of a file."""
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def flip(path: Path) -> None:
    """Change one byte of the data, which only a checksum can notice."""
    data = bytearray(path.read_bytes())
    data[60] ^= 0xFF
    path.write_bytes(bytes(data))


def empty(path: Path) -> None:
    """Leave nothing."""
    path.write_bytes(b"")


def foreign(path: Path) -> None:
    """Put a Parquet file of somebody else there."""
    pq.write_table(pa.table({"value": [1.0]}), path)


def newer(path: Path) -> None:
    """Claim another schema."""
    table = pq.read_table(path, partitioning=None)
    mark = table.schema.metadata[b"draftgate_history"].replace(b'"schema": 1', b'"schema": 99')
    pq.write_table(table.replace_schema_metadata({b"draftgate_history": mark}), path)


def narrower(path: Path) -> None:
    """Leave a column out."""
    table = pq.read_table(path, partitioning=None)
    pq.write_table(table.drop_columns(["unit"]), path)


def renamed(path: Path) -> None:
    """Give a night the name of another."""
    path.rename(path.with_name(f"{run_id(9)}.parquet"))


def without_rows(path: Path) -> None:
    """Keep columns and metadata only."""
    pq.write_table(pq.read_table(path, partitioning=None).slice(0, 0), path)


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (cut, ""),
        (flip, ""),
        (empty, ""),
        (foreign, "schema None, expected 1"),
        (newer, "schema 99, expected 1"),
        (narrower, "expected those of schema 1"),
        (renamed, f"holds run {run_id(1)}, expected {run_id(9)}"),
        (without_rows, "no row"),
    ],
)
def test_damaged_night_is_named(tmp_path: Path, damage: Callable[[Path], None], words: str) -> None:
    """No damage is skipped: the message names the file, what is wrong and what to do."""
    fill(tmp_path, (100.0, 101.0, 102.0))
    path = night_files(tmp_path)[1]
    damage(path)
    bad = next(p for p in night_files(tmp_path) if p.stem not in (run_id(0), run_id(2)))

    with pytest.raises(BaselineError, match="1 of 3 files can't be read") as caught:
        read_nights(tmp_path)

    assert bad.name in str(caught.value)
    assert words in str(caught.value)
    assert "version control" in str(caught.value)


def test_every_damaged_night_is_named(tmp_path: Path) -> None:
    """Two damaged files are named at once."""
    fill(tmp_path, (100.0, 101.0, 102.0))
    for path in night_files(tmp_path)[:2]:
        cut(path)

    with pytest.raises(BaselineError, match="2 of 3 files") as caught:
        read_nights(tmp_path)

    assert run_id(0) in str(caught.value)
    assert run_id(1) in str(caught.value)


@pytest.mark.parametrize("again", [False, True])
def test_appending_beside_a_damaged_night_names_it(tmp_path: Path, *, again: bool) -> None:
    """The order of appending is unknown then, and a damaged copy can't be compared."""
    path = append(tmp_path, night(0)).path
    cut(path)

    with pytest.raises(BaselineError) as caught:
        append(tmp_path, night(0 if again else 1), again=again)

    assert path.name in str(caught.value)


def test_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    """A file in the place of the folder: nothing is left, and the message says where."""
    (tmp_path / "history").write_text("in the way")

    with pytest.raises(MeasurementError, match="cannot be written") as caught:
        append(tmp_path / "history", night(0))

    assert "--history" in str(caught.value)


def test_write_that_fails_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that fills up half way through leaves no file, whole or in part."""

    def fails(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("draftgate.history.store.pq.write_table", fails)

    with pytest.raises(MeasurementError, match="No space left"):
        append(tmp_path, night(0))

    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_names_become_safe_folders(tmp_path: Path) -> None:
    """A profile's name can't leave the history's folder."""
    path = night_path(tmp_path, replace(night_of(0, ()), profile="../a b/c", engines="sglang+vllm"))

    assert path.parent == tmp_path / "cpu-example-2c" / "sglang+vllm" / ".._a_b_c"


def test_time_zone_does_not_matter(tmp_path: Path) -> None:
    """Times are stored as UTC, whatever zone they were given in."""
    from datetime import timezone

    east = at(0).astimezone(timezone(timedelta(hours=9)))
    append(tmp_path, replace(night(0), session_time=east))

    assert read_nights(tmp_path).to_pylist()[0]["session_time"].isoformat() == at(0).isoformat()
