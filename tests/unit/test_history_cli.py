"""`draftgate history`: append, show and close as a person or a CI job types them."""

import argparse
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from draftgate.cli.commands import CommandParser
from draftgate.cli.exits import Exit
from draftgate.cli.history import add_history, commit_of, person, run_folder
from draftgate.clock import ManualClock
from draftgate.compare.store import ComparisonFolder
from draftgate.errors import BaselineError, MeasurementError, SpecError
from draftgate.history.findings import load_findings
from draftgate.history.store import read_nights
from draftgate.runstore import RunDirectory
from tests.support.comparisons import stored_comparison
from tests.support.history import fill, levels
from tests.support.report_runs import SMALL
from tests.support.samples import make_environment, make_profile, make_runs

Captured = pytest.CaptureFixture[str]

STEP = levels(2, 20, {10: 0.8})


@pytest.fixture(name="here")
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an empty working folder, outside any CI job."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GITHUB_SHA", raising=False)
    monkeypatch.delenv("GITHUB_ACTOR", raising=False)
    return tmp_path


def history(*words: str) -> int:
    """Run `draftgate history` with these words."""
    parser = CommandParser(prog="draftgate")
    add_history(parser.add_subparsers(required=True))
    args: argparse.Namespace = parser.parse_args(["history", *words])
    return int(args.run(args))


def take_run(root: Path = Path("runs")) -> Path:
    """Write a run folder with one repeat of each arm."""
    profile = make_profile(concurrencies=(1,), repeats=1)
    folder = RunDirectory.create(root, profile, ("pytest",), ManualClock())
    folder.write_environment(make_environment())
    for run in make_runs(profile, **SMALL):
        folder.add(run)
    return folder.path


@pytest.mark.usefixtures("here")
def test_append_takes_the_newest_run_and_the_commit_of_the_job(
    capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without words it does what a nightly job wants."""
    monkeypatch.setenv("GITHUB_SHA", "c0ffee")
    run = take_run()

    assert history("append") == Exit.OK

    table = read_nights(Path("history")).to_pylist()
    assert {row["run_id"] for row in table} == {run.name}
    assert {row["commit"] for row in table} == {"c0ffee"}
    assert {row["arm"] for row in table} == {"none", "ngram", "draft_model"}
    assert f"{run.name}.parquet" in capsys.readouterr().out


def test_append_takes_a_comparison(here: Path) -> None:
    """A comparison's folder is told by its header; each side has its role."""
    comparison = stored_comparison()
    folder = ComparisonFolder.create(here / "runs", comparison.header)
    for pair in comparison.pairs[:2]:
        folder.add(pair)

    assert history("append") == Exit.OK

    table = read_nights(here / "history").to_pylist()
    assert {row["run_id"] for row in table} == {comparison.header.id}
    assert {(row["role"], row["engine_version"]) for row in table} == {
        ("base", "0.31.0"),
        ("candidate", "0.32.0"),
    }


@pytest.mark.usefixtures("here")
def test_append_twice_is_refused_and_passes_with_again(capsys: Captured) -> None:
    """A repeated CI job says --again and ends well; nothing is counted twice."""
    run = take_run()
    history("append", str(run), "--history", "nights", "--commit", "abc")

    with pytest.raises(BaselineError, match="--again"):
        history("append", str(run), "--history", "nights", "--commit", "abc")

    before = read_nights(Path("nights")).num_rows
    assert history("append", str(run), "--history", "nights", "--commit", "abc", "--again") == 0
    assert read_nights(Path("nights")).num_rows == before
    assert "was there already" in capsys.readouterr().out


@pytest.mark.usefixtures("here")
def test_append_of_nothing_is_an_error() -> None:
    """No folder named and none there, or one that is no run."""
    with pytest.raises(SpecError, match="none under runs/"):
        history("append")
    with pytest.raises(BaselineError, match="cannot be read"):
        history("append", "nothing/here")


@pytest.mark.usefixtures("here")
def test_append_says_what_is_odd(capsys: Captured) -> None:
    """A run older than the newest one is appended, with a word to the person."""
    from draftgate.history.store import append
    from tests.support.history import night

    append(Path("history"), night(100))
    run = take_run()

    assert history("append", str(run)) == Exit.OK
    assert "earlier" in capsys.readouterr().err


def test_show_ends_well_whatever_has_changed(here: Path, capsys: Captured) -> None:
    """An open item fails nothing."""
    fill(here / "history", STEP)

    assert history("show") == Exit.OK
    assert "1 open item (1 worse)" in capsys.readouterr().out


def test_show_writes_page_list_and_document(here: Path, capsys: Captured) -> None:
    """Standard output is the document alone; where files went is said elsewhere."""
    fill(here / "history", STEP)

    assert history("show", "--json", "--html", "site/index.html", "--markdown", "items.md") == 0

    out, err = capsys.readouterr()
    (item,) = json.loads(out)["items"]
    assert item["id"] in (here / "site" / "index.html").read_text()
    assert item["id"] in (here / "items.md").read_text()
    assert "site/index.html" in err


def test_show_draws_every_series_with_all(here: Path) -> None:
    """A series without a change has a plot then."""
    fill(here / "history", [100.0] * 12)
    history("show", "--html", "some.html")
    history("show", "--html", "all.html", "--all")

    assert (here / "some.html").read_text().count("<svg") == 0
    assert (here / "all.html").read_text().count("<svg") == 1


def test_show_without_a_history_is_an_error(here: Path) -> None:
    """An empty folder is not a history in which nothing changed."""
    with pytest.raises(BaselineError, match="holds no night"):
        history("show", "--history", str(here))


def test_page_that_cannot_be_written_is_named(here: Path) -> None:
    """A folder in the place of the page."""
    fill(here / "history", [100.0] * 3)
    (here / "index.html").mkdir()

    with pytest.raises(MeasurementError, match=r"index\.html: cannot be written"):
        history("show", "--html", "index.html")


def test_close_closes_with_reason_and_name(here: Path, capsys: Captured) -> None:
    """The first digits of the id do; the file is named for `git add`."""
    fill(here / "history", STEP)
    (item,) = load_findings(here / "history").open_items

    assert history("close", item.id[:6], "--reason", "accepted", "--by", "mira") == Exit.OK

    (closed,) = load_findings(here / "history").items
    assert closed.closure is not None
    assert (closed.closure.by, closed.closure.reason) == ("mira", "accepted")
    assert f"history/_closed/{item.id}.json" in capsys.readouterr().out


def test_close_of_an_unknown_item_closes_none(here: Path) -> None:
    """One wrong id among several: nothing is written."""
    fill(here / "history", STEP)
    (item,) = load_findings(here / "history").open_items

    with pytest.raises(SpecError, match="no such item"):
        history("close", item.id, "ffffffffffff", "--reason", "x", "--by", "mira")

    assert not (here / "history" / "_closed").exists()


def test_close_needs_a_reason(here: Path, capsys: Captured) -> None:
    """Closing without one is a mistake of the command line."""
    fill(here / "history", [100.0])

    with pytest.raises(SystemExit) as caught:
        history("close", "abc")

    assert caught.value.code == 2
    assert "--reason" in capsys.readouterr().err


def test_newest_folder_is_taken_of_both_kinds(here: Path) -> None:
    """Sessions and comparisons are told by the file that each begins with."""
    for name, header in (("20260101T0-a", "run.json"), ("20260102T0-b", "comparison.json")):
        (here / "runs" / name).mkdir(parents=True)
        (here / "runs" / name / header).write_text("{}")

    assert run_folder(None) == Path("runs/20260102T0-b")
    assert run_folder("x") == Path("x")


def test_commit_is_the_one_named_or_that_of_the_job() -> None:
    """A named one stands, an empty one too."""
    job = {"GITHUB_SHA": "c0ffee"}

    assert commit_of("abc", job) == "abc"
    assert commit_of(None, job) == "c0ffee"
    assert commit_of("", job) == ""
    assert commit_of(None, {}) == ""


def _unknown() -> str:
    raise KeyError("getpwuid(): uid not found")


@pytest.mark.parametrize(
    ("job", "login", "name"),
    [({"GITHUB_ACTOR": "mira"}, _unknown, "mira"), ({}, lambda: "jo", "jo")],
    ids=["job", "login"],
)
def test_person_is_the_actor_or_the_login(
    job: dict[str, str], login: Callable[[], str], name: str
) -> None:
    """Who closed an item is known without typing it."""
    assert person(job, login) == name


def test_person_that_is_not_known_is_asked_for() -> None:
    """A container without a user has no name to put down."""
    with pytest.raises(SpecError, match="--by"):
        person({}, _unknown)
