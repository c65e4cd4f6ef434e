"""`draftgate compare` as a person runs it, on the scripted engine: started, judged, resumed."""

import json
import signal
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from draftgate.compare.run import load_comparison
from draftgate.compare.store import newest
from draftgate.hidden import HIDDEN
from draftgate.verdict import Outcome
from tests.support.flow import NONE, Started, assert_clean, draftgate, write_profile

COMPARE = """
[compare]
looks = [4, 6]
confirm_pairs = 6

[[compare.gate]]
metric = "output_tokens_per_s"
margin = 0.05
limit = 0.5
"""
SLOWER = json.dumps({**NONE, "step_s": 0.012})
"""Steps twice as long: a loss that noise on a busy machine does not bring."""


@pytest.fixture
def profile(tmp_path: Path) -> Path:
    """A profile of one scripted server, with a gate for few pairs."""
    return write_profile(tmp_path / "fake.toml", {"none": NONE}, gates=COMPARE)


def slower() -> str:
    """Return the side whose server is twice as slow."""
    return f"arm.none.env.DRAFTGATE_FAKE_CONFIG='{SLOWER}'"


def begin(folder: Path, profile: Path) -> Started:
    """Start the profile against itself in a process of its own."""
    argv = [sys.executable, "-m", "draftgate.cli", "compare", "profile", "profile"]
    return Started([*argv, "--profile", str(profile)], cwd=folder)


def compared(folder: Path) -> Path:
    """Return the folder of the newest comparison under `folder`."""
    found = newest(folder / "runs")
    assert found is not None
    return found


def test_same_against_same_passes(tmp_path: Path, profile: Path) -> None:
    """The profile against itself ends green with every form of the result beside the pairs."""
    done = draftgate(tmp_path, "compare", "profile", "profile", "--profile", str(profile))

    assert done.code == 0, done.output
    made = compared(tmp_path)
    assert json.loads((made / "result.json").read_text())["outcome"] == "pass"
    assert (made / "comment.md").read_text().startswith("<!-- draftgate:compare:fake-flow -->")
    assert ET.parse(made / "junit.xml").getroot().tag == "testsuites"
    assert "<html" in (made / "report.html").read_text()
    assert len(load_comparison(made).pairs) in (4, 6)
    assert_clean(done, tmp_path)
    (made / "report.html").unlink()
    again = draftgate(tmp_path, "report", str(made))
    assert again.code == 0, again.output
    assert (made / "report.html").exists()


def test_slower_build_is_a_regression_with_its_cause(tmp_path: Path, profile: Path) -> None:
    """Planted steps are found, confirmed on fresh pairs, and named."""
    done = draftgate(tmp_path, "compare", "profile", slower(), "--profile", str(profile))

    assert done.code == 1, done.output
    (result,) = load_comparison(compared(tmp_path)).result.gates
    assert result.outcome is Outcome.REGRESSION
    assert result.confirm is not None
    assert result.confirm.pairs == 6
    assert result.cause is not None
    assert result.cause.named == ("step time",)
    assert "step time" in done.output
    assert_clean(done, tmp_path)


def test_no_file_and_no_line_holds_a_secret(tmp_path: Path) -> None:
    """Planted in the profile, in `--set` and in a side: in no file, record or line of the job."""
    env = '\n[engine.env]\nHF_TOKEN = "hf_planted-0"\n'
    profile = write_profile(tmp_path / "fake.toml", {"none": NONE}, gates=COMPARE + env)
    side = "profile;arm.none.env.DB_PASSWORD='planted-2 x'"
    call = ["compare", "profile", side, "--set", "arm.none.env.A_SECRET=planted-1"]

    done = draftgate(tmp_path, *call, "--profile", str(profile))

    assert done.code == 0, done.output
    files = [path for path in (tmp_path / "runs").rglob("*") if path.is_file()]
    held = {path.name: path.read_bytes() for path in files}
    assert {"comparison.json", "report.html", "comment.md", "result.json"} <= held.keys()
    assert [name for name, data in held.items() if b"planted" in data] == []
    assert "planted" not in done.output
    env_of = dict(load_comparison(compared(tmp_path)).header.candidate.arms[0].engine.env)
    assert {env_of[name] for name in ("HF_TOKEN", "A_SECRET", "DB_PASSWORD")} == {HIDDEN}


def test_killed_comparison_leaves_nothing_half_written_and_resumes(
    tmp_path: Path, profile: Path
) -> None:
    """SIGKILL in the middle of a pair: its servers end, and --resume takes that pair again."""
    started = begin(tmp_path, profile)
    started.read_until("pair 3 of at most 6")
    started.send(signal.SIGKILL)
    assert_clean(started.end(), tmp_path)
    made = compared(tmp_path)
    before = load_comparison(made)
    assert before.result.ended == "running"
    assert len(before.pairs) == 2

    done = draftgate(tmp_path, "compare", "--resume", str(made))

    assert done.code == 0, done.output
    after = load_comparison(made)
    assert after.pairs[:2] == before.pairs
    assert any("search-03 was interrupted" in note for note in after.result.notes)
    assert_clean(done, tmp_path)


def test_interrupt_keeps_what_was_taken(tmp_path: Path, profile: Path) -> None:
    """Ctrl-C ends with 130, no server left, and a report of the pairs so far."""
    started = begin(tmp_path, profile)
    started.read_until("pair 3 of at most 6")
    started.send(signal.SIGINT)
    ended = started.end()

    assert ended.code == 130, ended.output
    result = json.loads((compared(tmp_path) / "result.json").read_text())
    assert result["outcome"] == "inconclusive"
    assert_clean(ended, tmp_path)


def test_side_that_does_not_start_is_invalid_and_says_why(tmp_path: Path, profile: Path) -> None:
    """Three tries, then exit code 3 with the server's own words."""
    broken = "arm.none.env.DRAFTGATE_FAKE_CONFIG='{\"no_such_setting\": 1}'"

    done = draftgate(tmp_path, "compare", "profile", broken, "--profile", str(profile))

    assert done.code == 3, done.output
    assert "did not start" in done.output
    assert_clean(done, tmp_path)


def test_budget_ends_inconclusive_with_the_pairs_needed(tmp_path: Path, profile: Path) -> None:
    """A budget of seconds leaves it open: exit code 6 and the number of pairs."""
    done = draftgate(
        tmp_path,
        "compare",
        "profile",
        "profile",
        "--profile",
        str(profile),
        "--max-minutes",
        "0.03",
    )

    assert done.code == 6, done.output
    assert load_comparison(compared(tmp_path)).result.ended == "budget"
    assert "more pair" in done.output
    assert_clean(done, tmp_path)


def test_suspect_is_confirmed_in_a_later_job(tmp_path: Path, profile: Path) -> None:
    """Stage one exits 6 and counts its suspects; --confirm takes fresh pairs and exits 1."""
    words = ["compare", "profile", slower(), "--profile", str(profile), "--stage", "search"]
    first = draftgate(tmp_path, *words)
    assert first.code == 6, first.output
    made = compared(tmp_path)
    assert json.loads((made / "result.json").read_text())["suspects"] == 1

    second = draftgate(tmp_path, "compare", "--confirm", str(made))

    assert second.code == 1, second.output
    assert load_comparison(compared(tmp_path)).header.confirms == made.name
    assert_clean(second, tmp_path)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("compare",), "expected one of BASE CANDIDATE, --resume RUN or --confirm RUN"),
        (("compare", "profile"), "expected BASE and CANDIDATE"),
        (("compare", "profile", "nowhere/python"), "side 'nowhere/python'"),
        (("compare", "--resume", "runs/none"), "cannot be read"),
        (("compare", "profile", "profile", "--arm", "eagle9"), "eagle9"),
    ],
)
def test_bad_input_is_one_clear_error(tmp_path: Path, words: tuple[str, ...], told: str) -> None:
    """Each mistake is told once, with a code that is not 0, and nothing is started."""
    done = draftgate(tmp_path, *words)

    assert done.code in (2, 4), done.output
    assert told in done.output
    assert "Traceback" not in done.output
    assert not (tmp_path / "runs").exists()
