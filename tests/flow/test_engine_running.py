"""A live server: found, waited for, asked, refused; and every way in which it can be missing."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from draftgate.clock import ManualClock
from draftgate.engines.fake_model import FakeConfig
from draftgate.engines.running import RunningEngine, free_port, launch
from draftgate.errors import EngineError, SpecError
from draftgate.specs import Arm, EngineSpec, ProcessLaunch, UrlLaunch
from tests.support.fake import fake_server, raw_server

KEY = "sk-very-secret"


def nothing(_line: str) -> None:
    """Take a line of progress."""


def by_url(
    url: str, *, model: str | None = None, key: str | None = None, engine: str = "fake"
) -> RunningEngine:
    """Return a server that runs at `url`, not yet asked anything."""
    arm = Arm("none", EngineSpec(engine, "target", launch=UrlLaunch(url, model, key)))
    return launch(arm, Path("unused.log"), nothing)


def own_arm(script: dict[str, object], *, timeout_s: float = 20.0, name: str = "none") -> Arm:
    """Return an arm whose server draftgate starts itself."""
    env = (("DRAFTGATE_FAKE_CONFIG", json.dumps(script)),)
    spec = EngineSpec("fake", "t", ProcessLaunch(), env=env, startup_timeout_s=timeout_s)
    return Arm(name, spec)


@pytest.fixture
def own(tmp_path: Path) -> Iterator[RunningEngine]:
    """A server of our own, ready; stopped after the test."""
    engine = launch(own_arm({}), tmp_path / "none.log", nothing)
    try:
        engine.wait_ready(nothing)
        yield engine
    finally:
        engine.stop()


def test_own_server_is_started_asked_and_stopped(own: RunningEngine) -> None:
    """From the command to the version, and nothing left in the end."""
    assert own.model == "fake"
    assert own.version() == "fake fake-1"
    assert own.command is not None
    assert own.pid is not None
    assert own.log_path is not None
    own.check_alive()
    page = own.scrape()
    assert page is not None
    assert own.parse_counters(page).generation_tokens == 0

    own.stop()
    own.stop()

    assert own.child is not None
    assert own.child.exit_code() == 0
    with pytest.raises(EngineError, match="none: the server process ended with exit code 0"):
        own.check_alive()


def test_post_returns_what_the_server_decoded(own: RunningEngine) -> None:
    """A POST brings the decoded JSON; an error status is an error with what was said."""
    body = {"model": "fake", "prompt": "a", "max_tokens": 3, "temperature": 0}
    answer = own.post("/v1/completions", body)

    assert answer["usage"]["completion_tokens"] == 3
    with pytest.raises(EngineError, match=r"/v1/completions answered 400: .*max_tokens"):
        own.post("/v1/completions", body | {"max_tokens": 0})


def test_url_server_is_taken_up_and_left_alone() -> None:
    """A server that runs elsewhere has no pid, no log and no command, and survives `stop`."""
    with fake_server(FakeConfig(model="theirs")) as server:
        engine = by_url(server.url + "/")
        engine.wait_ready(nothing)
        engine.stop()
        engine.check_alive()

        assert engine.model == "theirs"
        assert (engine.pid, engine.log_path, engine.command) == (None, None, None)


def test_unreachable_url_is_one_error_without_waiting() -> None:
    """Nothing listens: the error names arm and address, and no time limit is waited for."""
    clock = ManualClock()  # it stands still, so a loop up to a limit would never end
    arm = Arm("none", EngineSpec("fake", "t", launch=UrlLaunch(f"http://127.0.0.1:{free_port()}")))

    with pytest.raises(EngineError, match=r"^none: no answer from http://127.0.0.1:\d+/health: "):
        launch(arm, Path("unused.log"), nothing, clock).wait_ready(nothing)


@pytest.mark.parametrize("url", ["ftp://127.0.0.1", "file:///etc/passwd", "127.0.0.1:8000"])
def test_other_schemes_are_refused(url: str) -> None:
    """Only http and https are addresses of a server."""
    with pytest.raises(SpecError, match="url must start with http"):
        by_url(url)


def test_wrong_model_name_lists_what_is_served() -> None:
    """A model that the server does not have is an error that lists those it has."""
    with fake_server(FakeConfig(model="theirs")) as server:
        engine = by_url(server.url, model="mine")

        with pytest.raises(EngineError, match=r"does not serve model 'mine'; it serves theirs"):
            engine.wait_ready(nothing)


def test_death_while_starting_shows_exit_code_and_log(tmp_path: Path) -> None:
    """A server that dies before it is ready: its exit code and its last words."""
    engine = launch(own_arm({"step_s": "fast"}), tmp_path / "none.log", nothing)

    with pytest.raises(EngineError) as caught:
        engine.wait_ready(nothing)

    assert "none: the server process ended with exit code 2" in str(caught.value)
    assert "step_s has the wrong type, got 'fast'" in str(caught.value)


def test_server_that_is_not_ready_in_time_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After startup_timeout_s the error names the key and shows the log."""
    engine = launch(own_arm({}, timeout_s=0.3), tmp_path / "none.log", nothing)
    try:
        monkeypatch.setattr(engine, "base_url", f"http://127.0.0.1:{free_port()}")

        with pytest.raises(EngineError, match=r"not ready after \d+ s .*startup_timeout_s = 0\.3"):
            engine.wait_ready(nothing)
    finally:
        engine.stop()


def test_missing_promise_in_the_log_is_an_error(tmp_path: Path) -> None:
    """A server that is ready without the line its command promised is refused."""
    engine = launch(own_arm({}), tmp_path / "none.log", nothing)
    try:
        assert engine.command is not None
        object.__setattr__(engine.command, "expect_in_log", (("plugin is on", "no plugin!"),))

        with pytest.raises(EngineError, match=r"^none: no plugin!$"):
            engine.wait_ready(nothing)
    finally:
        engine.stop()


def test_key_is_sent_and_stays_out_of_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    """The key of the named variable is sent; a server that repeats it is not quoted with it."""
    monkeypatch.setenv("STAGING_KEY", KEY)
    body = {"model": "fake", "prompt": "a", "max_tokens": 1}
    with fake_server(FakeConfig(api_key=KEY)) as server:
        by_url(server.url, key="STAGING_KEY").post("/v1/completions", body)
    with fake_server(FakeConfig(api_key="sk-another")) as server:
        engine = by_url(server.url, key="STAGING_KEY")

        with pytest.raises(EngineError, match=r"401: .*\*\*\*") as caught:
            engine.post("/v1/completions", body)

    assert KEY not in str(caught.value)
    assert KEY not in repr(engine.arm)


def test_unset_key_names_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    """A key variable that is not set is the user's mistake and named."""
    monkeypatch.delenv("STAGING_KEY", raising=False)

    with pytest.raises(SpecError, match="environment variable STAGING_KEY is empty"):
        by_url("http://127.0.0.1:9", key="STAGING_KEY").wait_ready(nothing)


def answer(body: bytes, status: str = "200 OK", length: int | None = None) -> bytes:
    """Return a whole HTTP answer."""
    size = len(body) if length is None else length
    head = f"HTTP/1.1 {status}\r\nContent-Length: {size}\r\nConnection: close\r\n\r\n"
    return head.encode() + body


@pytest.mark.parametrize(
    ("raw", "told"),
    [
        (answer(b"<html>a login page</html>"), r"/v1/models answered no JSON .*<html>a login page"),
        (answer(b'{"detail": "hello"}'), r"/v1/models lists no models, got"),
        (answer(b"[1, 2]"), r"/v1/models lists no models, got"),
        (answer(b"gateway", "502 Bad Gateway"), r"/health answered 502: gateway"),
        (answer(b"short", length=99), r"no answer from \S+/health"),
        (b"SSH-2.0-OpenSSH_9.6\r\n", r"no answer from \S+/health"),
        (b"", r"no answer from \S+/health"),
    ],
    ids=["html", "no-data", "list", "status", "cut-off", "no-http", "hang-up"],
)
def test_foreign_answers_are_told(raw: bytes, told: str) -> None:
    """Whatever is no engine is refused in one line that shows what it said."""
    with raw_server(raw) as url, pytest.raises(EngineError, match=told) as caught:
        by_url(url).wait_ready(nothing)

    assert "\n" not in str(caught.value)


def test_free_ports_are_free_and_differ() -> None:
    """Ports come from the system, so that two sessions do not meet."""
    ports = {free_port() for _ in range(20)}

    assert len(ports) > 1
    assert min(ports) > 1023
