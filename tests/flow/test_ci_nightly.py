"""Nights are kept however they end, in a history that only grows, and shown on a page."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.ci_host import ROOT, SHA, Host, settings


@pytest.fixture
def host(tmp_path: Path) -> Host:
    """A host with stand-ins to be put on it."""
    return Host(tmp_path)


_PYTHON = f"""#!/bin/bash
[[ "$2" == pytest ]] || exec {sys.executable} "$@"
printf '%s\\n' "$*" >"$CI_HOST/pytest.argv"
while [[ $# -gt 0 ]]; do [[ "$1" == --runs ]] && runs="$2"; shift; done
[[ -z "$TAKEN" ]] || mkdir -p "$runs/20260101-000000-night"
exit "$CODE"
"""


@pytest.fixture
def night(host: Host) -> Host:
    """A host on which pytest leaves a run if TAKEN and ends with CODE."""
    for name in ("install", "clean-host"):
        host.replace_script(name)
    venv = host.folder / "venv" / "bin"
    host.program("python", _PYTHON, folder=venv)
    host.stand_in("draftgate", ("report", {}), ("history append", {}))
    (host.bin / "draftgate").rename(venv / "draftgate")
    host.env |= {"OUT": str(host.folder / "out"), "TAKEN": "yes"}
    return host


@pytest.mark.parametrize("code", [0, 1])
def test_night_is_kept_however_it_ends(night: Host, code: int) -> None:
    """Report and history are made of a failed night too, and the tests' code is the script's."""
    ended = night.run("nightly", "p", CODE=str(code), GITHUB_SHA=SHA)

    run = night.folder / "out" / "runs" / "20260101-000000-night"
    history = str(night.folder / "out" / "history")
    assert ended.code == code, ended.err
    assert [call["argv"] for call in night.calls("draftgate")] == [
        ["report", str(run)],
        ["history", "append", str(run), "--history", history, "--commit", SHA],
    ]
    argv = (night.folder / "pytest.argv").read_text()
    assert "-m perf or drift or correctness" in argv
    assert "--profile p" in argv
    assert (night.folder / "clean-host.calls").read_text() == "--before\n"


def test_night_that_adds_nothing_to_the_history_is_told(night: Host) -> None:
    """It warns, and the verdict of the tests stands."""
    night.stand_in("draftgate", ("report", {}), ("history append", {"code": 3}))

    ended = night.run("nightly", "p", CODE="0")

    assert ended.code == 0
    assert "warning: the night of p adds nothing" in ended.out


def test_night_without_a_run_is_an_error(night: Host) -> None:
    """Even where pytest says that all went well."""
    ended = night.run("nightly", "p", CODE="0", TAKEN="")

    assert ended.code == 1
    assert "left no run" in ended.err


def test_profiles_are_listed(host: Host) -> None:
    """Those that are committed where the settings name none, or those that they name."""
    settings(host, nightly_profiles=[])
    shutil.copytree(ROOT / "fixtures" / "profiles", host.folder / "repo" / "fixtures" / "profiles")
    committed = sorted(path.stem for path in (ROOT / "fixtures" / "profiles").glob("*.toml"))

    host.run("nightly", "--list")
    found = host.outputs()
    settings(host, nightly_profiles=["a", "b.c"], runner=["self-hosted", "b200"])
    host.run("nightly", "--list")

    assert json.loads(found["profiles"]) == committed
    assert json.loads(host.outputs()["profiles"]) == ["a", "b.c"]
    assert json.loads(host.outputs()["runner"]) == ["self-hosted", "b200"]


@pytest.mark.parametrize("names", ["a", ["a b"], ["../a"], {"a": 1}, [1]])
def test_strange_profiles_are_refused(host: Host, names: object) -> None:
    """They become names of jobs, artifacts and folders."""
    settings(host, nightly_profiles=names)

    ended = host.run("nightly", "--list")

    assert ended.code == 1
    assert "gate.json: 'nightly_profiles' is" in ended.err


def git(folder: Path, *args: str) -> str:
    """Return what git said."""
    return subprocess.run(
        ["git", "-c", "user.name=t", "-c", "user.email=t@example.org", *args],
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
    ).stdout


@pytest.fixture
def clone(host: Host) -> Host:
    """A host whose checkout is a clone with an origin of its own."""
    origin, repo = host.folder / "origin", host.folder / "repo"
    git(host.folder, "init", "--quiet", "--bare", "--initial-branch=main", str(origin))
    git(repo, "init", "--quiet", "--initial-branch=main")
    git(repo, "add", "--all")
    git(repo, "commit", "--quiet", "--message", "scripts")
    git(repo, "remote", "add", "origin", str(origin))
    git(repo, "push", "--quiet", "origin", "main")
    del host.env["GH_TOKEN"]
    host.env |= {"HISTORY_PAUSE_S": "0"}
    return host


NIGHT = "nightly-p/history/1x-h100/vllm/p/20260101-000000-ab.parquet"


def nights(host: Host, name: str = NIGHT, numbers: bytes = b"one") -> str:
    """Write a night as an artifact holds it and return the folder of all."""
    path = host.folder / "nights" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(numbers)
    return str(host.folder / "nights")


def kept(host: Host) -> list[str]:
    """Return the files on the history's branch."""
    listed = git(host.folder / "origin", "ls-tree", "-r", "--name-only", "draftgate-history")
    return listed.split()


def test_history_begins_and_grows(clone: Host) -> None:
    """The branch holds nights alone; a night that is there is not added twice."""
    first = clone.run("history", "push", nights(clone))
    again = clone.run("history", "push", nights(clone))
    later = NIGHT.replace("20260101", "20260102")
    second = clone.run("history", "push", nights(clone, later))

    assert [first.code, again.code, second.code] == [0, 0, 0], first.err + second.err
    inside = [name.removeprefix("nightly-p/history/") for name in (NIGHT, later)]
    assert kept(clone) == inside
    count = git(clone.folder / "origin", "rev-list", "--count", "draftgate-history")
    assert int(count) == 2


def test_history_is_laid_out(clone: Host) -> None:
    """As it was pushed, for the page."""
    clone.run("history", "push", nights(clone))

    ended = clone.run("history", "pull", str(clone.folder / "laid"))

    assert ended.code == 0, ended.err
    path = clone.folder / "laid" / NIGHT.removeprefix("nightly-p/history/")
    assert path.read_bytes() == b"one"


def test_night_is_never_changed(clone: Host) -> None:
    """Other numbers under the name of a night that is kept are an error."""
    clone.run("history", "push", nights(clone))

    ended = clone.run("history", "push", nights(clone, numbers=b"two"))

    assert ended.code == 1
    assert "with other numbers" in ended.err
    path = f"draftgate-history:{NIGHT.removeprefix('nightly-p/history/')}"
    assert git(clone.folder / "origin", "show", path) == "one"


@pytest.mark.parametrize("name", ["a/history/x.parquet", "a/history/b/c/d e/f.parquet"])
def test_strange_place_of_a_night_is_refused(clone: Host, name: str) -> None:
    """What is no night of ours does not come onto the branch."""
    ended = clone.run("history", "push", nights(clone, name))

    assert ended.code == 1
    assert "no place of a night" in ended.err


def test_push_that_came_second_is_tried_again(clone: Host) -> None:
    """Refused once by origin, the night is there in the end."""
    hook = "#!/bin/sh\n[ -e refused ] && exit 0\ntouch refused\nexit 1\n"
    clone.program("pre-receive", hook, folder=clone.folder / "origin" / "hooks")

    ended = clone.run("history", "push", nights(clone))

    assert ended.code == 0, ended.err
    assert "try 1" in ended.out
    assert len(kept(clone)) == 1


def test_origin_that_does_not_answer_is_no_empty_history(clone: Host) -> None:
    """Nothing is begun anew where the branch cannot be read."""
    (clone.folder / "origin").rename(clone.folder / "elsewhere")

    ended = clone.run("history", "push", nights(clone))

    assert ended.code == 1
    assert "nothing was changed" in ended.err


def test_site_has_history_and_newest_reports(host: Host) -> None:
    """One page links what the nights left; a profile without a report is left out."""
    host.program(
        "draftgate",
        '#!/bin/bash\necho "$*" >>"$CI_HOST/draftgate.argv"\necho history >"${@: -1}"\n',
        folder=host.folder / "venv" / "bin",
    )
    found = host.folder / "nights"
    for path, text in (
        ("nightly-p/runs/20260101-a/report.html", "older"),
        ("nightly-p/runs/20260102-b/report.html", "newer"),
        ("nightly-q/junit.xml", ""),
    ):
        (found / path).parent.mkdir(parents=True)
        (found / path).write_text(text)
    out = host.folder / "site"

    ended = host.run("site", str(found), "laid", str(out))

    assert ended.code == 0, ended.err
    assert (out / "p" / "index.html").read_text() == "newer"
    assert (out / "history.html").read_text() == "history\n"
    page = (out / "index.html").read_text()
    assert '<a href="p/">p</a>' in page
    assert 'href="q/"' not in page
    argv = (host.folder / "draftgate.argv").read_text().split()
    assert argv[:4] == ["history", "show", "--history", "laid"]
