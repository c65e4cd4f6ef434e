"""`draftgate serve` as a process of its own, and clients that ask it."""

import http.client
import json
import re
import signal
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from email.message import Message
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psutil

from draftgate.engines.fake_server import FakeServer
from tests.support.flow import Ended, Started, orphans

CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"

TEXT = "planted text of a request"

BASELINE = (
    Path(__file__).parents[2]
    / "baselines"
    / "cpu-amd-epyc-family-25-model-17-2c"
    / "vllm"
    / "cpu-smollm2.json"
)

_BEHIND = """
schema = 1
name = "served"
description = "A scripted server that runs already."

[engine]
name = "fake"
launch = "url"
{key}

[target]
model = "fake"

[[arm]]
name = "none"
method = "none"
url = "{url}"

[workload]
dataset = "mixed"
concurrencies = [1]

[workload.sampling]
max_tokens = 8
"""


def behind(folder: Path, url: str, api_key_env: str | None = None) -> Path:
    """Write a profile of a server that runs already."""
    key = "" if api_key_env is None else f'api_key_env = "{api_key_env}"'
    path = folder / "served.toml"
    path.write_text(_BEHIND.format(url=url, key=key), encoding="utf-8")
    return path


_ARM = """
[[arm]]
name = "{name}"
method = "{method}"
{k}
url = "{url}"
"""


def ladder_behind(folder: Path, urls: Mapping[str, str]) -> Path:
    """Write a profile of servers that run already, by arm; all but `none` are n-gram lookup."""
    head, _, tail = _BEHIND.format(key="", url="").partition("[[arm]]")
    tables = "".join(
        _ARM.format(
            name=name,
            method="none" if name == "none" else "ngram",
            k="" if name == "none" else "num_speculative_tokens = 3",
            url=url,
        )
        for name, url in urls.items()
    )
    path = folder / "ladder.toml"
    workload = tail[tail.index("[workload]") :]
    path.write_text(head + tables + "\n" + workload, encoding="utf-8")
    return path


def step_times(folder: Path, seconds: Mapping[str, Mapping[int, float]]) -> Path:
    """Write a baseline with these step times by arm and streams, in a store below `folder`."""
    document = json.loads(BASELINE.read_text(encoding="utf-8"))
    document["profile"] = "ladder"
    document["cells"] = [
        {"arm": arm, "concurrency": c, "runs": ["made#0"], "values": {"step_time_s": [value]}}
        for arm, cells in seconds.items()
        for c, value in cells.items()
    ]
    path = folder / document["environment"]["hardware"] / "fake" / "ladder.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(document), encoding="utf-8")
    return path


@dataclass(slots=True)
class Served:
    """A front that listens.

    Attributes:
        started: Its process.
        url: Its address, without `/v1`.
        said: What it said until it listened.
        ended: How it ended; None before.
    """

    started: Started
    url: str
    said: str
    ended: Ended | None = None

    def end(self) -> Ended:
        """Wait for its end; after the first time, return how that was."""
        if self.ended is None:
            self.ended = self.started.end()
        return self.ended

    def engine(self) -> psutil.Process:
        """Return the process of its scripted engine."""
        found = self.engines()
        assert len(found) == 1, found
        return found[0]

    def engine_with(self, text: str) -> psutil.Process:
        """Return the process of the one scripted engine whose settings hold a text."""
        found = [one for one in self.engines() if text in " ".join(one.cmdline())]
        assert len(found) == 1, found
        return found[0]

    def engines(self) -> list[psutil.Process]:
        """Return the processes of its scripted engines."""
        return [
            process
            for process in orphans(self.started.mark, grace_s=0.0)
            if "draftgate.engines.fake_server" in process.cmdline()
        ]


@contextmanager
def serving(folder: Path, profile: Path, *words: str, **env: str) -> Iterator[Served]:
    """Yield a front on a free port; told to end afterwards, unless it has ended by then."""
    argv = [sys.executable, "-m", "draftgate.cli", "serve", "--profile", str(profile)]
    started = Started(
        [*argv, "--listen", "127.0.0.1:0", *words], cwd=folder, TMPDIR=str(folder), **env
    )
    said = started.read_until("listening on ")
    address = re.search(r"listening on (http://\S+)/v1,", said)
    assert address is not None, said
    served = Served(started, address[1], said)
    try:
        yield served
    finally:
        if served.ended is None:
            started.send(signal.SIGTERM)
            served.end()


def request(max_tokens: int | None = 8, *, path: str = COMPLETIONS, **fields: object) -> bytes:
    """Return the body of a greedy request."""
    asks = {"messages": [{"role": "user", "content": TEXT}]} if path == CHAT else {"prompt": TEXT}
    limit = {} if max_tokens is None else {"max_tokens": max_tokens}
    return json.dumps({"model": "fake", "temperature": 0, **asks, **limit, **fields}).encode()


@dataclass(frozen=True, slots=True)
class Answer:
    """A whole answer."""

    status: int
    headers: Message
    body: bytes

    @property
    def document(self) -> Any:
        """The body, read as JSON."""
        return json.loads(self.body)

    @property
    def code(self) -> str:
        """OpenAI's code of an error."""
        return str(self.document["error"]["code"])


def ask(
    url: str, body: bytes | None = None, *, path: str = COMPLETIONS, key: str | None = None
) -> Answer:
    """Return what is answered: to a POST with a body, to a GET without."""
    sent = urllib.request.Request(url + path, body, headers(key))
    try:
        with urllib.request.urlopen(sent, timeout=30) as answer:
            return Answer(answer.status, answer.headers, answer.read())
    except urllib.error.HTTPError as error:
        with error:
            return Answer(error.code, error.headers, error.read())


def headers(key: str | None) -> dict[str, str]:
    """Return the headers of a request with this key."""
    found = {"Content-Type": "application/json"}
    return found if key is None else {**found, "Authorization": f"Bearer {key}"}


@contextmanager
def connected(url: str) -> Iterator[http.client.HTTPConnection]:
    """Yield a connection; closed afterwards, whatever is still to come on it."""
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=30)
    try:
        yield connection
    finally:
        connection.close()


@contextmanager
def streaming(
    url: str, max_tokens: int, *, path: str = COMPLETIONS, key: str | None = None
) -> Iterator[http.client.HTTPResponse]:
    """Yield a stream whose head has come; its connection is closed afterwards."""
    with connected(url) as connection:
        body = request(max_tokens, path=path, stream=True)
        connection.request("POST", path, body, headers(key))
        with connection.getresponse() as answer:
            yield answer


def assert_passed_at_once(url: str, server: FakeServer, key: str | None = None) -> None:
    """Assert that a stream's first event is here while the engine still works on the answer."""
    with streaming(url, 20, key=key) as answer:
        answer.readline()

        assert server.counters.running == 1, "the answer was held back until it was whole"
        assert answer.read().endswith(b"data: [DONE]\n\n")


def wait_until(holds: Callable[[], bool]) -> None:
    """Wait until something holds; fail after 30 seconds."""
    last = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < last, "waited for 30 s"
        time.sleep(0.02)
