"""A side that is a git ref: the profile's file as it was, read from a real repository."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from draftgate.compare.sides import check_sides, resolve_side
from draftgate.errors import SpecError
from draftgate.specs import SpeculativeConfig
from tests.support.sides import changed, side, write_profile

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="needs git")

THREE, FIVE = "num_speculative_tokens = 3", "num_speculative_tokens = 5"
PROMPTS = ('dataset = "mixed"', 'dataset = "./prompts.jsonl"')


def _git(folder: Path, *arguments: str) -> str:
    author = {f"GIT_{who}_{what}": "t@x" for who in ("AUTHOR", "COMMITTER") for what in WHO}
    alone = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    done = subprocess.run(
        ["git", "-C", str(folder), *arguments],
        env=os.environ | author | alone,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


WHO = ("NAME", "EMAIL")


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Return a repository whose profile drafts 3 tokens at tag `old`, and 5 now, uncommitted."""
    root = tmp_path / "repository"
    write_profile(root / "profiles", PROMPTS)
    (root / "profiles" / "prompts.jsonl").write_text('{"prompt": "Hi"}\n', encoding="utf-8")
    (root / "blob.toml").write_bytes(b"\xff")
    (root / "wrong.toml").write_text("schema = \n", encoding="utf-8")
    _git(root, "init", "--quiet")
    _git(root, "add", "--all")
    _git(root, "commit", "--quiet", "--message", "First")
    _git(root, "tag", "--annotate", "old", "--message", "Old")
    write_profile(root / "profiles", PROMPTS, (THREE, FIVE))
    return root


def _drafts(text: str, profile: Path) -> int:
    config = side(text, profile).arms[1].engine.speculative
    assert isinstance(config, SpeculativeConfig)
    return config.num_speculative_tokens


def test_the_profiles_own_file_as_of_a_ref(repository: Path) -> None:
    """Branches, tags and commits give the file as it was; the working tree is not touched."""
    profile = repository / "profiles" / "small.toml"
    commit = _git(repository, "rev-parse", "HEAD")

    found, of_side = resolve_side("git:old", str(profile))

    assert (found.kind, found.label, found.restarts) == ("git", "git:old", True)
    assert {_drafts(f"git:{ref}", profile) for ref in ("old", "HEAD", commit, commit[:9])} == {3}
    assert _drafts("profile", profile) == 5
    assert of_side.source == profile
    assert of_side.text.endswith(f"\n# side: git:old (commit {commit})")
    assert of_side.workload.dataset == str(profile.parent / "prompts.jsonl")


def test_a_ref_against_the_working_tree(repository: Path) -> None:
    """The usual comparison: the recipe as committed against the one that lies there."""
    profile = str(repository / "profiles" / "small.toml")
    base, base_profile = resolve_side("git:HEAD", profile)
    candidate, candidate_profile = resolve_side("profile", profile)

    check_sides(base_profile, candidate_profile, base, candidate)

    assert base.arms[0] == candidate.arms[0]
    assert base.arms[1] != candidate.arms[1]


def test_another_file_as_of_a_ref(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A path starts at the root, or where the caller stands with `./`; it may be gone by now."""
    profile = repository / "profiles" / "small.toml"
    profile.rename(profile.with_name("new.toml"))
    monkeypatch.chdir(repository / "profiles")
    new = profile.with_name("new.toml")

    assert _drafts("git:old:profiles/small.toml", new) == 3
    assert _drafts("git:old:./small.toml", new) == 3
    assert changed("git:old:../profiles/small.toml", new).workload.dataset == str(
        profile.parent / "prompts.jsonl"
    )


def test_overrides_complete_a_committed_file(repository: Path) -> None:
    """A file that is right only with `--set` may come from a ref as well."""
    profile = repository / "profiles" / "small.toml"
    text = profile.read_text(encoding="utf-8")
    profile.write_text(text.replace('"--enforce-eager"', "3"), encoding="utf-8")
    _git(repository, "commit", "--quiet", "--all", "--message", "Leave the arguments open")

    with pytest.raises(SpecError, match=r"engine\.args: got \[3\]"):
        side("git:HEAD", profile)
    found = side("git:HEAD", profile, (), 'engine.args=["--foo"]')
    assert found.arms[0].engine.args == ("--foo",)


def test_assignments_after_a_ref(repository: Path) -> None:
    """They change the file as it was then."""
    profile = repository / "profiles" / "small.toml"

    assert _drafts("git:old;arm.ngram.num_speculative_tokens=8", profile) == 8


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("git:gone", r"side 'git:gone': git ref 'gone': .* has no such branch, tag or commit"),
        ("git:old^{tree}", r"git ref 'old\^\{tree\}': .* has no such branch, tag or commit"),
        ("git:^old", r"git ref '\^old': .* has no such branch, tag or commit"),
        ("git:old..HEAD", r"git ref 'old\.\.HEAD': .* has no such branch"),
        ("git:old:gone.toml", r"git ref 'old': it has no file 'gone\.toml' in .*\(git: path 'gone"),
        ("git:old:profiles", r"git ref 'old': it has no file 'profiles' in "),
        ("git:old:/etc/passwd", r"git ref 'old': it has no file '/etc/passwd' in "),
        ("git:old:blob.toml", r"git ref 'old': blob\.toml: got 'utf-8' codec .* UTF-8 file"),
        ("git:old:wrong.toml", r"side 'git:old:wrong\.toml': .*got text that is not TOML"),
    ],
)
def test_each_wrong_ref_is_told_why(
    repository: Path, text: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No such ref, no such file in it, and a file that is no profile are told apart."""
    monkeypatch.chdir(repository)

    with pytest.raises(SpecError, match=message):
        side(text, repository / "profiles" / "small.toml")


def test_a_profile_outside_any_repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A ref means nothing where there is no repository; git's own words are shown."""
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path))
    lone = write_profile(tmp_path / "lone")

    with pytest.raises(SpecError, match=r"lone is in no repository .*\(git: not a git repository"):
        side("git:main", lone)


def test_a_file_that_was_not_there_yet(repository: Path) -> None:
    """A profile that the ref does not hold is refused, although it lies there now."""
    new = write_profile(repository / "profiles", name="new.toml")

    with pytest.raises(SpecError, match=r"git ref 'old': it has no file '\./new\.toml' in "):
        side("git:old", new)
