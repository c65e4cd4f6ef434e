"""`draftgate load` as whole processes: several workers, faults, Ctrl-C, a full disk."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from draftgate.cli import Exit
from draftgate.engines.fake_server import FakeConfig
from draftgate.loadtest.columns import read_requests
from tests.support.fake import fake_server
from tests.support.flow import Started, assert_clean

FAST = {"step_s": 0.002, "ttft_s": 0.004}
KEY = "sk-planted-4711"


@pytest.fixture
def temporary(tmp_path: Path) -> Path:
    """A folder for temporary files."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    return folder


def start(folder: Path, url: str, *words: str, model: str = "fake", **env: str) -> Started:
    """Start a load in a folder, with temporary files in `temporary` below it."""
    argv = [sys.executable, "-m", "draftgate.cli", "load", "--url", url, "--model", model]
    env = {"TMPDIR": str(folder / "temporary"), **env}
    return Started([*argv, "--prompts", "mixed", *words], cwd=folder, **env)


@pytest.fixture
def null_engine(tmp_path: Path) -> Iterator[Callable[..., str]]:
    """Starts a null engine with options and returns its address; stopped in the end."""
    started: list[Started] = []

    def run(*words: str) -> str:
        engine = Started(
            [sys.executable, "-m", "draftgate.cli", "null-engine", *words], cwd=tmp_path
        )
        started.append(engine)
        return "http://" + engine.read_until("listening on ").split("listening on ")[1].split()[0]

    yield run
    for engine in started:
        engine.send(signal.SIGTERM)
        engine.end()


@pytest.mark.usefixtures("temporary")
@pytest.mark.parametrize("load", ["--concurrency 6 --stagger 0", "--rate 200"])
def test_two_workers_are_merged_without_loss(tmp_path: Path, load: str) -> None:
    """Every request is in the records once, whichever process sent it; nothing else is left."""
    words = f"{load} --requests 60 --max-tokens 5 --workers 2 --json out.json --records kept"
    with fake_server(FakeConfig(**FAST)) as server:
        ended = start(tmp_path, server.url, *words.split()).end()

        assert server.requests == 60
    assert ended.code == Exit.OK, ended.output
    told = json.loads((tmp_path / "out.json").read_text())
    assert told["requests"]["served"] == 60
    assert (told["client"]["processes"], told["client"]["output_tokens"]) == (2, 300)
    batches = list(read_requests(tuple((tmp_path / "kept").iterdir())))
    assert sum(int(batch.tokens.sum()) for batch in batches) == 300
    assert_nothing_left(tmp_path, "kept", "out.json")
    assert_clean(ended, tmp_path)


@pytest.mark.usefixtures("temporary")
def test_dying_streams_are_classified_and_the_run_ends(
    tmp_path: Path, null_engine: Callable[..., str]
) -> None:
    """Of 64 streams 16 end by an error in the stream, 8 by a close, 4 stall: each in its class."""
    faults = ("in_band_error=1-16/64@8", "early_close=17-24/64@8", "stall=25-28/64@8")
    options = [word for fault in faults for word in ("--fault", fault)]
    url = null_engine("--ttft", "0.02", "--gap", "0.005", *options)
    words = "--concurrency 64 --requests 128 --max-tokens 16 --stall-timeout 1 --json out.json"

    ended = start(tmp_path, url, *words.split(), model="null").end()

    assert ended.code == Exit.OK, ended.output
    told = json.loads((tmp_path / "out.json").read_text())
    counts = {failure["kind"]: failure["count"] for failure in told["requests"]["failures"]}
    assert counts == {"in_band_error": 32, "early_end": 16, "stalled": 8}
    assert told["requests"]["served"] == 128 - 56
    assert told["notes"] == []
    assert "16 early_end" in ended.output
    assert_clean(ended, tmp_path)


@pytest.mark.usefixtures("temporary")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["ctrl-c", "sigterm"])
@pytest.mark.parametrize("workers", ["1", "2"])
def test_stopped_load_leaves_nothing(tmp_path: Path, workers: str, number: signal.Signals) -> None:
    """Ctrl-C in a run that is parsed meanwhile: its own code, no process, no file, no record."""
    words = f"--concurrency 4 --duration 90 --max-tokens 8 --workers {workers} --json out.json"
    with fake_server(FakeConfig(**FAST)) as server:
        started = start(tmp_path, server.url, *words.split(), "--records", "kept")
        wait_until(lambda: server.requests > 40)
        started.send(number)
        ended = started.end()

        wait_until(lambda: server.open_connections == 0)
    assert ended.code == Exit.INTERRUPTED, ended.output
    assert ended.output.endswith("draftgate: interrupted\n")
    assert list((tmp_path / "kept").iterdir()) == []
    assert_nothing_left(tmp_path, "kept")
    assert_clean(ended, tmp_path)


@pytest.mark.usefixtures("temporary")
@pytest.mark.parametrize("workers", ["1", "2"])
def test_key_is_nowhere(tmp_path: Path, workers: str) -> None:
    """A server that repeats a wrong key: neither output nor files hold it."""
    words = f"--concurrency 4 --requests 40 --max-tokens 8 --workers {workers} --json out.json"
    with fake_server(FakeConfig(**FAST, api_key="another")) as server:
        more = ("--records", "kept", "--keep-text", "--api-key-env", "MY_KEY")
        ended = start(tmp_path, server.url, *words.split(), *more, MY_KEY=KEY).end()

        assert server.headers["authorization"] == f"Bearer {KEY}"
    assert ended.code == Exit.UNUSABLE_RUN
    assert "incorrect API key provided: Bearer ***" in ended.output
    assert KEY not in ended.output
    written = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
    assert len(written) >= 2
    assert not any(KEY.encode() in data for data in written)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 256 KiB; only root may mount one."""
    folder = tmp_path / "small"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(folder)]
    if os.geteuid() != 0:
        pytest.skip("needs root, to mount a small tmpfs")
    if subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("a small tmpfs cannot be mounted here")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


@pytest.mark.usefixtures("temporary")
@pytest.mark.parametrize("workers", ["1", "2"])
def test_full_disk_ends_the_run_and_is_told(tmp_path: Path, small_disk: Path, workers: str) -> None:
    """A disk that fills up is one line and a code; what was written is gone again."""
    words = f"--concurrency 4 --requests 4000 --max-tokens 64 --workers {workers} --json out.json"
    with fake_server(FakeConfig(step_s=0.0, ttft_s=0.0)) as server:
        kept = small_disk / "kept"
        ended = start(tmp_path, server.url, *words.split(), "--records", str(kept)).end()

    assert ended.code == Exit.UNUSABLE_RUN, ended.output
    assert "cannot be written (No space left on device). Free some space" in ended.output
    assert list(kept.iterdir()) == []
    assert not (tmp_path / "out.json").exists()
    assert_clean(ended, tmp_path)


def wait_until(holds: Callable[[], bool]) -> None:
    """Wait until something holds; fail after 30 seconds."""
    last = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < last, "waited for 30 s"
        time.sleep(0.02)


def assert_nothing_left(folder: Path, *names: str) -> None:
    """Assert that a folder holds these and an empty `temporary`."""
    assert sorted(path.name for path in folder.iterdir()) == sorted([*names, "temporary"])
    assert list((folder / "temporary").iterdir()) == []
