"""The comment is one, and what a stranger left for it does no harm."""

import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

from tests.support.ci_host import SHA, Ended, Host, settings


@pytest.fixture
def host(tmp_path: Path) -> Host:
    """A host with stand-ins to be put on it."""
    return Host(tmp_path)


MARKER = "<!-- draftgate:compare:p -->"
COMMENTS = "issues/7/comments"


def conversation(host: Host, *comments: dict[str, Any]) -> None:
    """Let GitHub know these comments, in two pages, and take new ones."""
    pages = json.dumps(comments[:1]) + json.dumps(comments[1:])
    host.stand_in(
        "gh",
        ("--method", {}),
        (f"--paginate repos/we/engine/{COMMENTS}", {"out": pages}),
    )


def a_comment(number: int, login: str, body: str) -> dict[str, Any]:
    """Return a comment as GitHub tells it."""
    return {"id": number, "user": {"login": login}, "body": body}


def written(host: Host) -> tuple[str, str, str]:
    """Return method, path and text of the one comment that was written."""
    calls = [call for call in host.calls("gh") if "--method" in call["argv"]]
    assert len(calls) == 1
    argv = calls[0]["argv"]
    return argv[2], argv[3], json.loads(calls[0]["stdin"])["body"]


def say(host: Host, text: str) -> str:
    """Comment with a text and return what was written."""
    path = host.folder / "comment.md"
    path.write_text(text)
    ended = host.run("comment", "7", "p", str(path))
    assert ended.code == 0, ended.err
    return written(host)[2]


def test_first_comment_is_made(host: Host) -> None:
    """Others that carry the mark are a stranger's or of another profile."""
    conversation(
        host,
        a_comment(1, "stranger", f"{MARKER}\nhello"),
        a_comment(2, "github-actions[bot]", "<!-- draftgate:compare:other -->\n"),
        a_comment(3, "github-actions[bot]", f"quoted {MARKER}"),
    )

    body = say(host, "**PASS**\n")

    assert body == f"{MARKER}\n**PASS**\n"
    assert written(host)[:2] == ("POST", f"repos/we/engine/{COMMENTS}")


def test_own_comment_is_brought_up_to_date(host: Host) -> None:
    """Found on a later page; nothing new is posted."""
    conversation(
        host,
        a_comment(1, "someone", "hi"),
        a_comment(2, "github-actions[bot]", f"{MARKER}\nold"),
    )

    say(host, "new\n")

    assert written(host)[:2] == ("PATCH", "repos/we/engine/issues/comments/2")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("ask @maintainer now", "ask @\u200bmaintainer now"),
        ("@org/team", "@\u200borg/team"),
        ("engine@sha256:1234", "engine@sha256:1234"),
        ("<!-- draftgate:compare:q -->\nhi", "hi"),
        ("<!-- a\nb -->hi", "hi"),
        ("<!-- open", "&lt;!-- open"),
        ("![x](https://e.example/y)", "!\\[x](https://e.example/y)"),
        ('<IMG src="https://e.example">', '&lt;IMG src="https://e.example">'),
        ("a\x00\x1bb\tc", "ab\tc"),
        ("<details>ok</details>", "<details>ok</details>"),
    ],
)
def test_strange_text_loses_its_effect(host: Host, text: str, shown: str) -> None:
    """No one is called, nothing is loaded, no mark is forged; commands can still be copied."""
    conversation(host)

    assert say(host, text) == f"{MARKER}\n{shown}"


def test_long_text_is_cut(host: Host) -> None:
    """GitHub refuses more than 65,536 characters."""
    conversation(host)

    body = say(host, "é" * 70_000)

    assert len(body) < 61_000
    assert body.endswith("artifact)")


@pytest.mark.parametrize("args", [("7x", "p"), ("0", "p"), ("7", "P q"), ("7", "a-->")])
def test_malformed_number_or_key_is_refused(host: Host, args: tuple[str, str]) -> None:
    """Before GitHub is asked."""
    conversation(host)
    path = host.folder / "comment.md"
    path.write_text("hi")

    ended = host.run("comment", *args, str(path))

    assert ended.code == 1
    assert host.calls("gh") == []


def artifact(host: Host, number: str = "7", text: str = "found\n") -> Path:
    """Write what a run of the gate left for its comment."""
    path = host.folder / "left.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("number", number)
        archive.writestr("comment.md", text)
    return path


def listing(*names: str, size: int = 500) -> str:
    """Return GitHub's list of a run's artifacts, numbered from 1."""
    made = [
        {
            "id": number,
            "name": name,
            "size_in_bytes": size,
            "expired": False,
            "created_at": f"2026-01-01T00:00:0{number}Z",
        }
        for number, name in enumerate(names, start=1)
    ]
    return json.dumps({"artifacts": made})


def fetch(host: Host, archive: Path, *, artifacts: str, state: str = "open") -> Ended:
    """Run the script on a run of commit SHA."""
    pull = json.dumps({"state": state, "head": {"sha": SHA}})
    host.stand_in(
        "gh",
        ("--method", {}),
        ("actions/runs/99/artifacts", {"out": artifacts}),
        ("actions/artifacts/", {"file": str(archive)}),
        ("repos/we/engine/pulls/7", {"out": pull}),
        (COMMENTS, {"out": "[]"}),
    )
    settings(host, profile="p")
    return host.run("pr-comment", "99", SHA)


def posted(host: Host) -> bool:
    """Return whether anything was written."""
    return any("--method" in call["argv"] for call in host.calls("gh"))


def test_last_stage_is_put_on_the_pull_request(host: Host) -> None:
    """Stage two's word counts where there is one, however the list is ordered."""
    names = ("draftgate-comment-confirm", "draftgate-comment-search", "draftgate-search")

    ended = fetch(host, artifact(host), artifacts=listing(*names))

    assert ended.code == 0, ended.err
    assert written(host) == ("POST", f"repos/we/engine/{COMMENTS}", f"{MARKER}\nfound\n")
    assert any(call["argv"][-1].endswith("/artifacts/1/zip") for call in host.calls("gh"))


def test_run_that_says_nothing_gets_no_comment(host: Host) -> None:
    """A gate that nobody asked for leaves no artifact, and that is no error."""
    ended = fetch(host, artifact(host), artifacts=listing("draftgate-search"))

    assert ended.code == 0
    assert not posted(host)


def test_run_of_another_commit_gets_no_comment(host: Host) -> None:
    """The artifact claims a pull request; GitHub's word for its head decides."""
    path = artifact(host)
    pull = json.dumps({"state": "open", "head": {"sha": "b" * 40}})
    host.stand_in(
        "gh",
        ("--method", {}),
        ("actions/runs/99/artifacts", {"out": listing("draftgate-comment-search")}),
        ("actions/artifacts/", {"file": str(path)}),
        ("repos/we/engine/pulls/7", {"out": pull}),
    )

    settings(host)
    ended = host.run("pr-comment", "99", SHA)

    assert ended.code == 0
    assert "no comment" in ended.out
    assert not posted(host)


def test_closed_pull_request_gets_no_comment(host: Host) -> None:
    """It was closed while it was measured."""
    ended = fetch(
        host, artifact(host), artifacts=listing("draftgate-comment-search"), state="closed"
    )

    assert ended.code == 0
    assert not posted(host)


@pytest.mark.parametrize("number", ["8; id", "", "7\n8", "../1", "-1"])
def test_artifact_with_a_strange_number_is_refused(host: Host, number: str) -> None:
    """It never becomes part of a path that GitHub is asked."""
    ended = fetch(
        host, artifact(host, number=number), artifacts=listing("draftgate-comment-search")
    )

    assert ended.code == 1
    assert not any("/pulls/" in " ".join(call["argv"]) for call in host.calls("gh"))


def test_large_artifact_is_not_downloaded(host: Host) -> None:
    """Its size is asked first."""
    artifacts = listing("draftgate-comment-search", size=2_000_000)

    ended = fetch(host, artifact(host), artifacts=artifacts)

    assert ended.code == 1
    assert "2000000 bytes" in ended.err
    assert not any("/zip" in " ".join(call["argv"]) for call in host.calls("gh"))


def test_archive_that_swells_is_refused(host: Host) -> None:
    """A file that unpacks to more than the limit is read no further."""
    bomb = artifact(host, text="a" * 5_000_000)
    assert bomb.stat().st_size < 10_000

    ended = fetch(host, bomb, artifacts=listing("draftgate-comment-search"))

    assert ended.code == 1
    assert "larger than 1048576 bytes" in ended.err
    assert not posted(host)
