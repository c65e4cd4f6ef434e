"""What a person sees when something is wrong: one clear error, an exit code, nothing left."""

import json
import re
import shutil
import signal
import sys
from pathlib import Path

import pytest

from draftgate.baselines import baseline_path
from draftgate.engines.fake_server import FakeConfig
from draftgate.environment import describe
from draftgate.specfile import load_profile
from tests.support.fake import fake_server
from tests.support.flow import (
    GATES,
    NGRAM,
    NONE,
    Ended,
    Started,
    assert_clean,
    main_job,
    newest,
    pytest_argv,
    write_profile,
)

BY_URL = """
schema = 1
name = "by-url"
description = "A server that runs elsewhere."

[engine]
name = "fake"
launch = "url"
model = "mine"

[target]
model = "fake"

[[arm]]
name = "none"
method = "none"
url = "{dead}"

[[arm]]
name = "ngram"
method = "ngram"
num_speculative_tokens = 3
url = "{other}"

[workload]
dataset = "mixed"
concurrencies = [1]
repeats = 2

[workload.sampling]
max_tokens = 8
"""


def failures(ended: Ended) -> list[str]:
    """Return the names of the failed tests."""
    return re.findall(r"^FAILED \S+::(\S+)", ended.output, flags=re.MULTILINE)


def test_each_failure_is_told_once_and_the_rest_goes_on(tmp_path: Path) -> None:
    """A server that dies while starting, one that dies in a run, one with a silent stream.

    Dead servers fail one test each, with their log, and skip the rest of their
    arm; the silent stream ends by the watchdog and spoils its run alone.
    """
    arms = {
        "none": NONE,
        "mortal": {**NGRAM, "die_after_requests": 3},
        "stillborn": {"colour": "red"},
        "silent": {**NGRAM, "stall_every": 4},
    }
    profile = write_profile(tmp_path / "fake.toml", arms, repeats=2)

    ended = main_job(tmp_path, profile, "--set", "workload.stall_timeout_s=0.5")

    assert ended.code == 1
    runs = [re.sub(r".*-|\]", "", n) for n in failures(ended) if n.startswith("test_run")]
    assert [runs.count(name) for name in arms] == [0, 1, 1, 2], ended.output
    assert ended.output.count("Last lines of ") == 2
    assert "\nINVALID_RUN: mortal: the server process ended with exit code 1 " in ended.output
    assert "\nstillborn: the server process ended with exit code 2." in ended.output
    assert "fake server: unknown key 'colour'" in ended.output
    assert re.search(r"\nINVALID_RUN: .*requests failed \(stalled\)", ended.output)
    usable = [s.arm for s in newest(tmp_path).samples if not s.invalid]
    assert usable.count("none") == 2
    assert (newest(tmp_path).path / "report.html").exists()
    assert_clean(ended, tmp_path)


def test_wrong_addresses_are_one_error_each_at_once(tmp_path: Path) -> None:
    """Nothing listens at one url, the other serves another model: one failure each, then skips."""
    profile = tmp_path / "url.toml"
    with fake_server(FakeConfig(model="theirs")) as server:
        profile.write_text(BY_URL.format(dead="http://127.0.0.1:9", other=server.url))

        ended = main_job(tmp_path, profile)

    assert ended.code == 1
    assert len(failures(ended)) == 2
    assert "none: no answer from http://127.0.0.1:9/health" in ended.output
    assert f"ngram: {server.url} does not serve model 'mine'; it serves theirs." in ended.output
    assert "2 failed, 4 skipped" in ended.output
    assert_clean(ended, tmp_path)


def test_damaged_baseline_is_no_missing_one(tmp_path: Path) -> None:
    """A baseline that cannot be read stops measuring before the first run, and stays as it is."""
    profile = write_profile(tmp_path / "fake.toml", {"none": NONE}, repeats=3, gates=GATES)
    path = baseline_path(
        tmp_path / "baselines", describe("fake fake-1"), load_profile(str(profile))
    )
    path.parent.mkdir(parents=True)
    path.write_text('{"schema": 1, "runs": [')

    ended = main_job(tmp_path, profile)

    assert ended.code == 1
    assert len(failures(ended)) == 1
    assert re.search(rf"^baseline {re.escape(str(path))}: ", ended.output, flags=re.MULTILINE)
    assert newest(tmp_path).samples == ()
    assert path.read_text() == '{"schema": 1, "runs": ['
    assert_clean(ended, tmp_path)


def test_unknown_key_stops_before_anything_starts(tmp_path: Path) -> None:
    """A misspelt key is a usage error that names it and the near one; no folder is made."""
    profile = write_profile(tmp_path / "fake.toml", {"none": NONE})
    profile.write_text(profile.read_text().replace("repeats =", "repaets ="))

    ended = main_job(tmp_path, profile)

    assert ended.code == 4
    assert "repaets" in ended.output
    assert "repeats" in ended.output
    assert len(ended.output.strip().splitlines()) <= 3, ended.output
    assert not (tmp_path / "runs").exists()
    assert_clean(ended, tmp_path)


def test_ctrl_c_reports_what_was_measured(tmp_path: Path) -> None:
    """SIGINT in the middle of a run: exit code 2, no server left, finished runs are reported."""
    arms = {"none": NONE, "ngram": NGRAM}
    profile = write_profile(tmp_path / "fake.toml", arms, repeats=20)
    started = Started(pytest_argv(tmp_path, profile))
    before = started.read_until("run 1 of 20: ") + started.read_until("run 2 of 20: measuring")

    started.send(signal.SIGINT)
    ended = started.end()

    assert ended.code == 2, ended.output
    assert "KeyboardInterrupt" in ended.output
    assert 1 <= len(newest(tmp_path).samples) < 40
    assert "2 runs" in ended.output or "1 run" in ended.output, before
    assert (newest(tmp_path).path / "report.html").exists()
    assert_clean(ended, tmp_path)


def test_killed_session_leaves_no_server(tmp_path: Path) -> None:
    """Even SIGKILL to pytest, which nothing can catch, takes its servers along."""
    profile = write_profile(tmp_path / "fake.toml", {"none": NONE}, repeats=50)
    started = Started(pytest_argv(tmp_path, profile))
    started.read_until("run 1 of 50: measuring")

    started.send(signal.SIGKILL)
    ended = started.end()  # returns once every holder of the pipe is gone

    assert ended.code == -signal.SIGKILL
    assert_clean(ended, tmp_path)


def test_full_disk_is_one_error_and_no_half_written_file(tmp_path: Path) -> None:
    """On a small full tmpfs the session says so once; files there are whole or absent."""
    if shutil.which("unshare") is None:
        pytest.skip("needs unshare(1) to mount a small tmpfs")
    profile = write_profile(tmp_path / "fake.toml", {"none": NONE}, repeats=8)
    (tmp_path / "runs").mkdir()
    script = (
        'mount -t tmpfs -o size=48k none "$0" || exit 77; "$@"; code=$?; '
        'find "$0" -name "*.part" -o -name "*.json" -size 0 -o -name "*.parquet" -size 0; '
        "exit $code"
    )
    inner = ["sh", "-c", script, str(tmp_path / "runs"), *pytest_argv(tmp_path, profile)]

    ended = Started(["unshare", "--user", "--map-root-user", "--mount", *inner]).end()

    if ended.code == 77 or "unshare:" in ended.output:
        pytest.skip(f"this machine lets no user mount a tmpfs: {ended.output.strip()}")
    assert ended.code in (1, 3), ended.output
    assert len(failures(ended)) == 1, ended.output
    assert ended.output.count("No space left") <= 4, ended.output
    assert ".part" not in ended.output
    assert_clean(ended, tmp_path)


def test_session_without_our_fixtures_does_nothing(tmp_path: Path) -> None:
    """Where draftgate is installed, other people's tests start nothing and read no profile."""
    (tmp_path / "test_own.py").write_text("def test_own():\n    assert True\n")
    argv = [sys.executable, "-X", "importtime", "-m", "pytest", "-p", "no:cacheprovider", "-q"]

    ended = Started(argv, cwd=tmp_path).end()

    assert ended.code == 0, ended.output
    assert "1 passed" in ended.output
    assert {path.name for path in tmp_path.iterdir()} <= {
        "test_own.py",
        "__pycache__",
        ".benchmarks",  # pytest-benchmark's
    }
    slow = ("matplotlib", "scipy", "scipy.stats", "torch", "vllm")
    assert not re.search(rf"\| +({'|'.join(slow)})$", ended.output, flags=re.MULTILINE)
    assert_clean(ended, tmp_path)


def test_two_sessions_of_a_foreign_repository_at_once(tmp_path: Path) -> None:
    """Another repository uses the installed fixtures; two sessions share no port and no folder."""
    write_profile(tmp_path / "own.toml", {"none": NONE})
    (tmp_path / "test_speed.py").write_text(
        "def test_speed(measure, perf_run, profile):\n"
        "    assert measure(perf_run).arm == profile.arms[0].name\n"
    )
    argv = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--profile", "own.toml"]

    sessions = [Started(argv, cwd=tmp_path) for _ in range(2)]
    ends = [session.end() for session in sessions]

    for ended in ends:
        assert ended.code == 0, ended.output
        assert "1 passed" in ended.output
        assert_clean(ended, tmp_path)
    headers = [json.loads(p.read_text()) for p in (tmp_path / "runs").glob("*/run.json")]
    assert [len(header["samples"]) for header in headers] == [1, 1]
