"""A real Prometheus scrapes a real watch of a scripted server; alerts fire and resolve."""

import json
import re
import signal
import sys
import threading
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from draftgate.cli import Exit
from draftgate.engines.fake_server import FakeConfig, FakeServer
from draftgate.engines.running import free_port
from tests.support.fake import fake_server
from tests.support.flow import Started, assert_clean
from tests.support.prometheus import firing, prometheus, require, short_rules, wait_for

SCRIPT = FakeConfig(method="ngram", k=4, tokens_per_step=2.5, ttft_s=0.002, step_s=0.001)

CONFIG = """
global: {{scrape_interval: 200ms, scrape_timeout: 200ms, evaluation_interval: 200ms}}
rule_files: [rules.yml]
scrape_configs:
  - job_name: draftgate-watch
    static_configs: [{{targets: ["127.0.0.1:{port}"]}}]
"""

PATIENCE_S = 60.0
CLIENTS = 4


@contextmanager
def traffic(server: FakeServer) -> Iterator[dict[str, int]]:
    """Keep a server busy from some threads; yield the length of answers, which may be changed."""
    asked = {"max_tokens": 40}
    done = threading.Event()

    def client(number: int) -> None:
        while not done.is_set():
            body = {"model": "fake", "prompt": f"p{number}", **asked}
            request = urllib.request.Request(
                f"{server.url}/v1/completions",
                json.dumps(body).encode(),
                {"Content-Type": "application/json"},
            )
            with urllib.request.urlopen(request, timeout=20) as answer:
                answer.read()
            done.wait(0.01)

    with ThreadPoolExecutor(CLIENTS) as pool:
        clients = [pool.submit(client, number) for number in range(CLIENTS)]
        try:
            yield asked
        finally:
            done.set()
    for one in clients:
        one.result()


def watch(folder: Path, server: FakeServer, *args: str) -> Started:
    """Start a watch with short windows and readings."""
    options = ["--url", server.url, "--window", "20", "--interval", "0.2", *args]
    return Started([sys.executable, "-m", "draftgate.cli", "watch", *options], cwd=folder)


@dataclass(slots=True)
class Scene:
    """All that runs.

    Attributes:
        server: Scripted engine; its `config` may be replaced.
        asked: What clients ask for; may be changed.
        watch: The watch.
        url: Address of Prometheus.
        folder: Where the watch runs.
    """

    server: FakeServer
    asked: dict[str, int]
    watch: Started
    url: str
    folder: Path

    def firing(self) -> set[str]:
        """Return the names of alerts that fire now."""
        return firing(self.url)

    def fires_and_resolves(self, name: str, **changes: object) -> None:
        """Change the script until the alert fires, change it back until it is resolved."""
        self.server.config = replace(self.server.config, **changes)  # type: ignore[arg-type]
        wait_for(f"{name} fires", lambda: name in self.firing(), PATIENCE_S)
        self.server.config = SCRIPT
        wait_for(f"{name} resolves", lambda: name not in self.firing(), PATIENCE_S)


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """Yield a watch that has learned its level, under Prometheus."""
    require("prometheus")
    folder = tmp_path_factory.mktemp("watch")
    (folder / "rules.yml").write_text(short_rules("500ms"), encoding="utf-8")
    port = free_port()
    with fake_server(SCRIPT) as server, traffic(server) as asked:
        started = watch(
            folder,
            server,
            "--learn",
            "20",
            "--state",
            "state.json",
            "--still-after",
            "2",
            "--listen",
            f"127.0.0.1:{port}",
            "--reference",
            "reference.json",
        )
        started.read_until("reference length")
        with prometheus(folder, CONFIG.format(port=port)) as url:
            found = Scene(server, asked, started, url, folder)
            wait_for("the watch is seen", lambda: seen(found), PATIENCE_S)
            yield found


def seen(scene: Scene) -> bool:
    """Return whether Prometheus has read the watch, and no alert is up."""
    query = f"{scene.url}/api/v1/query?query=draftgate_watch_up"
    with urllib.request.urlopen(query, timeout=10) as answer:
        return bool(json.load(answer)["data"]["result"]) and not scene.firing()


def test_drop_fires_and_resolves(scene: Scene) -> None:
    """A tenth less acceptance of the scripted server fires; restored, it resolves."""
    scene.fires_and_resolves("DraftAcceptanceDropped", tokens_per_step=2.35)


def test_rise_fires_and_resolves(scene: Scene) -> None:
    """More acceptance is told as well."""
    scene.fires_and_resolves("DraftAcceptanceRose", tokens_per_step=2.8)


def test_small_lasting_change_fires_as_a_slide(scene: Scene) -> None:
    """What is too small for a drop and lasts is a slide, once no drop stands beside it."""
    scene.fires_and_resolves("DraftAcceptanceSliding", tokens_per_step=2.44)


def test_counters_that_stand_still_fire_and_resolve(scene: Scene) -> None:
    """Answers of one token need no verify step; with longer ones it resolves."""
    scene.asked["max_tokens"] = 1
    wait_for("it fires", lambda: "DraftCountersStandStill" in scene.firing(), PATIENCE_S)
    scene.asked["max_tokens"] = 40
    wait_for("it resolves", lambda: "DraftCountersStandStill" not in scene.firing(), PATIENCE_S)


def test_metric_that_vanished_fires_and_resolves(scene: Scene) -> None:
    """A page without speculation fires; the counters come back and it resolves."""
    scene.fires_and_resolves("DraftMetricVanished", method=None)


def test_ended_watch_fires(scene: Scene) -> None:
    """Ctrl-C ends the watch with 0 and leaves a whole state; Prometheus tells that it is gone."""
    scene.watch.send(signal.SIGINT)
    ended = scene.watch.end()

    assert ended.code == Exit.OK, ended.output
    assert "watch ended by Ctrl-C" in ended.output
    assert_clean(ended, scene.folder)
    assert json.loads((scene.folder / "state.json").read_text())["schema"] == 1
    wait_for("it fires", lambda: "DraftWatchGone" in scene.firing(), PATIENCE_S)


def test_watch_goes_on_from_its_state_and_fails_on_an_alarm(tmp_path: Path) -> None:
    """Learned, stopped, started again on a worse server: it alarms, and the code says so."""
    files = ("--state", "state.json", "--reference", "reference.json", "--listen", "off")
    with fake_server(SCRIPT) as server, traffic(server):
        first = watch(tmp_path, server, *files, "--learn", "20", "--learn-only").end()
        assert first.code == Exit.OK, first.output
        (tmp_path / "state.json").unlink()  # its settings were those of learning
        calm = watch(tmp_path, server, *files, "--for", "3", "--fail-on-alarm").end()
        assert calm.code == Exit.OK, calm.output
        server.config = replace(SCRIPT, tokens_per_step=2.2)
        worse = watch(tmp_path, server, *files, "--for", "6", "--fail-on-alarm").end()

    assert worse.code == Exit.ALARM, worse.output
    assert "ALARM drop" in worse.output
    windows = [int(number) for number in re.findall(r"window (\d+):", calm.output + worse.output)]
    assert windows == list(range(1, len(windows) + 1))
    assert_clean(worse, tmp_path)


def test_server_that_dies_is_not_the_end_of_the_watch(tmp_path: Path) -> None:
    """Readings that fail are told once, and tried again until the time is over."""
    with fake_server(SCRIPT) as server:
        started = watch(tmp_path, server, "--listen", "off", "--for", "4")
        started.read_until("watching")
    ended = started.end()

    assert ended.code == Exit.OK, ended.output
    assert ended.output.count("no answer from") == 1
