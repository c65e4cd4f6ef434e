"""The fallback of `draftgate serve` and its restarts: whole processes before scripted engines."""

import json
import re
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from draftgate.cli import Exit
from draftgate.engines.counters import parse_samples
from draftgate.engines.fake_model import greedy_tokens
from draftgate.engines.fake_server import FakeConfig, FakeServer
from draftgate.engines.fake_wire import output_text
from tests.support.fake import fake_server
from tests.support.flow import NGRAM, NONE, assert_clean, write_profile
from tests.support.serve import (
    COMPLETIONS,
    TEXT,
    Answer,
    Served,
    ask,
    connected,
    headers,
    ladder_behind,
    request,
    serving,
    step_times,
    streaming,
    wait_until,
)

TOKENS = 100

PLAIN = FakeConfig(step_s=0.002, ttft_s=0.002)
DRAFTS = replace(PLAIN, method="ngram", k=3, tokens_per_step=2.5)

TIMES = {"none": {1: 0.002, 8: 0.002}, "ngram": {1: 0.003, 8: 0.003}}
"""Break-even is 1.5 tokens per step at any load."""

QUICK = [
    "--window-steps",
    "40",
    "--dwell",
    "0",
    "--probe-share",
    "0.2",
    "--interval",
    "0.1",
    "--max-in-flight",
    "8",
]


@dataclass(slots=True)
class Load:
    """Answers of streams that ask one after the other until told to end."""

    url: str
    answers: list[Answer] = field(default_factory=list)
    over: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        """Ask until told to end."""
        while not self.over.is_set():
            self.answers.append(ask(self.url, request(TOKENS)))


@contextmanager
def loaded(url: str, streams: int = 3) -> Iterator[Load]:
    """Yield a load that runs; ended afterwards."""
    load = Load(url)
    threads = [threading.Thread(target=load.run) for _ in range(streams)]
    for thread in threads:
        thread.start()
    try:
        yield load
    finally:
        load.over.set()
        for thread in threads:
            thread.join(30)


def metrics(served: Served, name: str) -> dict[tuple[str, ...], float]:
    """Return a metric of the front by the values of its labels, in order of their names."""
    page = ask(served.url, path="/metrics").body.decode()
    found = parse_samples(page).get(f"draftgate_serve_{name}", [])
    return {tuple(labels.values()): value for labels, value in found}


def words(folder: Path, *more: str) -> list[str]:
    """Return the options of a ladder of ngram and none."""
    path = step_times(folder, TIMES)
    ladder = ["--arm", "ngram", "--fallback", "none", "--break-even", str(path), "--metrics"]
    return [*ladder, *QUICK, *more]


@contextmanager
def laddered(
    folder: Path, *more: str, drafts: FakeConfig = DRAFTS
) -> Iterator[tuple[FakeServer, FakeServer, Served]]:
    """Yield two scripted engines, with drafts that pay and without, and a front before them."""
    with (
        fake_server(drafts) as drafting,
        fake_server(PLAIN) as plain,
        serving(
            folder,
            ladder_behind(folder, {"ngram": drafting.url, "none": plain.url}),
            *words(folder, *more),
        ) as served,
    ):
        yield drafting, plain, served


def test_acceptance_that_falls_and_returns_moves_the_traffic(tmp_path: Path) -> None:
    """Down when drafts stop to pay, back by probes; every answer is whole and the same text."""
    with laddered(tmp_path) as (drafting, plain, served):
        with loaded(served.url) as load:
            wait_until(lambda: len(load.answers) > 150)
            before = plain.requests
            steady = metrics(served, "mode")
            drafting.config = replace(DRAFTS, tokens_per_step=1.0)
            down = served.started.read_until("[fallback] ngram -> none")
            low = metrics(served, "mode")
            drafting.config = DRAFTS
            up = served.started.read_until("[fallback] none -> ngram")
            high = metrics(served, "mode")
        switches, probes = metrics(served, "switches_total"), metrics(served, "probes_total")
        steps = metrics(served, "tokens_per_step")

    assert before == 0
    assert steady == high == {("ngram", ""): 1.0, ("none", ""): 0.0}
    assert low == {("ngram", ""): 0.0, ("none", ""): 1.0}
    assert re.search(
        r"ngram gave 1\.\d\d tokens per step, below the 1\.50 from which it pays", down
    )
    assert re.search(r"probes of ngram gave 2\.\d\d tokens per step, above the 1\.50 from", up)
    assert switches == {("", "below_break_even"): 1.0, ("", "probes_above_break_even"): 1.0}
    assert probes[("ngram", "")] >= 1
    assert steps[("ngram", "")] > 2
    expected = output_text(greedy_tokens(TEXT, TOKENS, DRAFTS.vocab_size))
    assert {answer.status for answer in load.answers} == {200}
    assert {answer.document["choices"][0]["text"] for answer in load.answers} == {expected}
    assert served.end().code == Exit.OK


def test_unchanged_acceptance_moves_nothing(tmp_path: Path) -> None:
    """Over more windows than the fall takes, with the spread learned; the planted other half."""
    with (
        laddered(tmp_path) as (_, plain, served),
        loaded(served.url) as load,
    ):
        wait_until(lambda: len(load.answers) > 400)

        assert metrics(served, "switches_total") == {}
        assert plain.requests == 0


def test_classes_fall_back_apart(tmp_path: Path) -> None:
    """The class whose answers accept nothing moves; another one stays where it was."""
    easy, hard = (request(TOKENS, prompt=text) for text in ("a plain text", "a hard text"))
    told = replace(DRAFTS, hard_word="hard", tell_accepted=True)

    def send(served: Served, body: bytes, kind: str) -> None:
        with connected(served.url) as connection:
            connection.request("POST", COMPLETIONS, body, {**headers(None), "X-Class": kind})
            assert connection.getresponse().read()

    with laddered(tmp_path, "--class-header", "X-Class", drafts=told) as (_, _, served):
        for _ in range(40):
            send(served, easy, "chat")
            send(served, hard, "poems")
        mode, switches = metrics(served, "mode"), metrics(served, "switches_total")
        ended = served.started
        said = ended.read_until("[fallback] ngram -> none")

    assert said.rstrip().endswith("; class poems")
    assert switches == {("poems", "below_break_even"): 1.0}
    assert mode[("none", "poems")] == mode[("ngram", "chat")] == 1.0
    assert "class chat" in said


def test_killed_engine_is_started_again(tmp_path: Path) -> None:
    """Meanwhile a 503 with a reason and Retry-After; then answers as before, and exit code 0."""
    profile = write_profile(tmp_path / "p.toml", {"none": {"step_s": 0.05, "ttft_s": 0.01}})
    with serving(tmp_path, profile, "--metrics") as served:
        first = ask(served.url, request(2))
        served.engine().kill()
        said = served.started.read_until("ENGINE GONE")
        late, health = ask(served.url, request(2)), ask(served.url, path="/health")
        down = metrics(served, "engine_up")
        said += served.started.read_until("is ready again")
        again = ask(served.url, request(2))
        up, restarts = metrics(served, "engine_up"), metrics(served, "engine_restarts_total")
    ended = served.end()

    assert "its process ended with exit code -9; it is started again in 1 s" in said
    assert (late.status, late.code) == (503, "engine_gone")
    assert 1 <= int(late.headers["retry-after"]) <= 60
    assert "exit code -9; it is started again. Try again in" in late.document["error"]["message"]
    assert (health.status, health.document["status"]) == (503, "engine_gone")
    assert (first.status, again.status) == (200, 200)
    assert again.document["choices"] == first.document["choices"]
    assert (down, up, restarts) == ({("none",): 0.0}, {("none",): 1.0}, {("none",): 1.0})
    assert ended.code == Exit.OK, ended.output
    assert_clean(ended, tmp_path)


def test_end_while_an_engine_starts_again_leaves_nothing(tmp_path: Path) -> None:
    """Told to end within the wait for the restart, it ends at once; the code says what it was."""
    profile = write_profile(tmp_path / "p.toml", {"none": NONE})
    with serving(tmp_path, profile) as served:
        served.engine().kill()
        served.started.read_until("ENGINE GONE")
        served.started.send(signal.SIGTERM)
        ended = served.end()

    assert ended.code == Exit.ENGINE, ended.output
    assert_clean(ended, tmp_path)


def test_other_arm_answers_while_an_engine_is_gone(tmp_path: Path) -> None:
    """No request is refused: the arm below takes them, and gives them back after the restart."""
    profile = write_profile(tmp_path / "p.toml", {"ngram": NGRAM, "none": NONE})
    with serving(tmp_path, profile, *words(tmp_path)) as served:
        with loaded(served.url) as load:
            wait_until(lambda: len(load.answers) > 5)
            served.engine_with('"ngram"').kill()
            said = served.started.read_until("[fallback] ngram -> none")
            gone = len(load.answers)
            said += served.started.read_until("[fallback] none -> ngram")
            wait_until(lambda: len(load.answers) > gone + 5)
        switches, resent = metrics(served, "switches_total"), metrics(served, "resent_total")
    ended = served.end()

    broken = [answer for answer in load.answers if answer.status != 200]
    assert [answer.code for answer in broken] == []
    assert "the engine of ngram is gone" in said
    assert "the engine of ngram is ready again" in said
    assert switches == {("", "engine_gone"): 1.0, ("", "engine_back"): 1.0}
    assert resent[("none",)] >= 1
    assert ended.code == Exit.OK, ended.output
    assert_clean(ended, tmp_path)


def test_running_stream_stays_where_it_is(tmp_path: Path) -> None:
    """A stream that began at the arm above comes to its end there, past the switch, unaltered."""
    count = 10_000
    with (
        laddered(tmp_path) as (drafting, _, served),
        loaded(served.url) as load,
    ):
        wait_until(lambda: len(load.answers) > 150)
        with streaming(served.url, count) as answer:
            events = answer.readline()
            drafting.config = replace(DRAFTS, tokens_per_step=1.0)
            served.started.read_until("[fallback] ngram -> none")
            load.over.set()
            running = drafting.counters.running
            events += answer.read()

    texts = [
        json.loads(line.removeprefix(b"data: "))["choices"][0]["text"]
        for line in events.splitlines()
        if line.startswith(b"data: {")
    ]
    assert running >= 1
    assert "".join(texts) == output_text(greedy_tokens(TEXT, count, DRAFTS.vocab_size))
