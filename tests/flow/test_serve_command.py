"""`draftgate serve` as whole processes before the scripted engine, and OpenAI's own client."""

import http.client
import json
import re
import signal
import threading
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from draftgate.cli import Exit
from draftgate.engines.counters import parse_samples
from draftgate.engines.fake_model import greedy_tokens
from draftgate.engines.fake_server import FakeConfig, FakeServer
from draftgate.engines.fake_wire import output_text
from tests.support.fake import fake_server
from tests.support.flow import NGRAM, Ended, assert_clean, write_profile
from tests.support.serve import (
    CHAT,
    COMPLETIONS,
    TEXT,
    Served,
    ask,
    assert_passed_at_once,
    behind,
    connected,
    headers,
    request,
    serving,
    streaming,
    wait_until,
)

KEY = "sk-planted-4711"
ENGINE_KEY = "sk-engine-0815"

PACE = FakeConfig(step_s=0.05, ttft_s=0.01, tokens_per_step=2.5)
"""20 tokens take about half a second: time to look at an answer that is not whole yet."""

SLOW: dict[str, object] = {"step_s": 0.05, "ttft_s": 0.01}

MOST_TOKENS = 4_000
MOST_BYTES = 20_000


@pytest.fixture(name="server", scope="module")
def _server() -> Iterator[FakeServer]:
    """The scripted engine behind the front that most tests share."""
    with fake_server(PACE) as server:
        yield server


@pytest.fixture(name="served", scope="module")
def _served(server: FakeServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A front with a key, limits and metrics, told to end after the last test."""
    folder = tmp_path_factory.mktemp("served")
    words = ["--api-key-env", "MY_KEY", "--metrics", "--max-in-flight", "4"]
    words += ["--max-output-tokens", str(MOST_TOKENS), "--max-body-bytes", str(MOST_BYTES)]
    with serving(folder, behind(folder, server.url), *words, MY_KEY=KEY) as served:
        yield served
    assert_ended_well(served.end(), folder)


def assert_ended_well(ended: Ended, folder: Path) -> None:
    """Assert that it drained, and that nothing is left."""
    assert ended.code == Exit.OK, ended.output
    assert "[serve] drained, 0 cut off" in ended.output
    assert_clean(ended, folder)


def without_number(body: bytes) -> bytes:
    """Return an answer without the running number that the scripted engine puts into it."""
    return re.sub(rb"fake-\d+", b"fake-N", body)


def samples(served: Served, name: str, key: str | None = KEY) -> float:
    """Return a metric of the front, summed over its labels."""
    page = ask(served.url, path="/metrics", key=key).body.decode()
    return sum(value for _, value in parse_samples(page).get(f"draftgate_serve_{name}", []))


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
def test_answer_is_the_engines_byte_for_byte(
    server: FakeServer, served: Served, path: str, *, stream: bool
) -> None:
    """Status, type and body are those of a direct request, usage and [DONE] included."""
    options = {"stream": True, "stream_options": {"include_usage": True}} if stream else {}
    body = request(12, path=path, return_token_ids=True, **options)

    direct = ask(server.url, body, path=path)
    passed = ask(served.url, body, path=path, key=KEY)

    assert direct.status == passed.status == 200
    assert without_number(passed.body) == without_number(direct.body)
    assert passed.headers["content-type"] == direct.headers["content-type"]
    assert float(passed.headers["x-queue-wait-ms"]) == 0.0


def test_stream_passes_at_once(server: FakeServer, served: Served) -> None:
    """The first event is here before the engine has made the last."""
    assert_passed_at_once(served.url, server, KEY)


def test_engines_own_error_passes(served: Served) -> None:
    """What the engine refuses is its answer, status and all."""
    answer = ask(served.url, request(0), key=KEY)

    assert answer.status == 400
    assert "max_tokens must be >= 1" in answer.document["error"]["message"]


@contextmanager
def buffering_front(upstream: str) -> Iterator[str]:
    """Yield the address of a front with a planted fault: it holds an answer back until its end."""

    class Handler(BaseHTTPRequestHandler):
        """Reads an answer whole, then sends it."""

        def do_POST(self) -> None:
            """Answer late."""
            body = self.rfile.read(int(self.headers["Content-Length"]))
            sent = urllib.request.Request(upstream + self.path, body, headers(None))
            with urllib.request.urlopen(sent, timeout=30) as answer:
                whole = answer.read()
            self.send_response(200)
            self.send_header("Content-Length", str(len(whole)))
            self.end_headers()
            self.wfile.write(whole)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as buffering:
        thread = threading.Thread(target=buffering.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{buffering.server_port}"
        finally:
            buffering.shutdown()
            thread.join()


def test_planted_front_that_buffers_is_found() -> None:
    """Its bytes are right; that they come late is what the test of the first event finds."""
    with fake_server(PACE) as server, buffering_front(server.url) as url:
        direct, passed = (ask(where, request(12, stream=True)) for where in (server.url, url))

        assert without_number(passed.body) == without_number(direct.body)
        with pytest.raises(AssertionError, match="held back"):
            assert_passed_at_once(url, server)


def test_client_that_leaves_cancels_the_engine(server: FakeServer, served: Served) -> None:
    """The engine's connection is closed, and the slot is free for others."""
    before = server.counters.generation_tokens
    with streaming(served.url, MOST_TOKENS, key=KEY) as answer:
        answer.readline()

        assert samples(served, "in_flight") == 1
    wait_until(lambda: server.counters.running == 0)
    wait_until(lambda: samples(served, "in_flight") == 0)
    assert server.counters.generation_tokens - before < MOST_TOKENS / 2
    assert samples(served, "cut_total") >= 1


@pytest.mark.parametrize(
    "given", [None, "Bearer wrong", f"Bearer {KEY}x", f"Bearer {KEY[:-1]}", f"Basic {KEY}", KEY]
)
@pytest.mark.parametrize("path", [COMPLETIONS, CHAT, "/v1/models", "/metrics"])
def test_request_without_the_key_gets_nothing(
    server: FakeServer, served: Served, path: str, given: str | None
) -> None:
    """Missing, wrong, longer, shorter or under another scheme: a 401, and the engine sees none."""
    before = server.requests
    body = request(path=path) if path in (CHAT, COMPLETIONS) else None
    with connected(served.url) as connection:
        sent = {} if given is None else {"Authorization": given}
        connection.request("POST" if body else "GET", path, body, sent)
        answer = connection.getresponse()
        told = json.loads(answer.read())

    assert (answer.status, answer.headers["www-authenticate"]) == (401, "Bearer")
    assert told["error"]["code"] == "invalid_api_key"
    assert server.requests == before


@pytest.mark.parametrize("length", ["announced", "chunked"])
def test_too_large_body_is_refused(server: FakeServer, served: Served, length: str) -> None:
    """A 413, whether the client says how long it will be or not."""
    before = server.requests
    body = request(prompt="x" * MOST_BYTES)
    with connected(served.url) as connection:
        if length == "announced":
            connection.request("POST", COMPLETIONS, body, headers(KEY))
        else:
            chunked = {**headers(KEY), "Transfer-Encoding": "chunked"}
            connection.request("POST", COMPLETIONS, iter([body]), chunked, encode_chunked=True)
        answer = connection.getresponse()
        told = json.loads(answer.read())

    assert (answer.status, told["error"]["code"]) == (413, "body_too_large")
    assert str(MOST_BYTES) in told["error"]["message"]
    assert server.requests == before


@pytest.mark.parametrize(
    ("body", "param"),
    [
        (request(MOST_TOKENS + 1), "max_tokens"),
        (request(8, n=2), "n"),
        (request(8, prompt=["a", "b"]), "n"),
        (b'{"model": ', None),
    ],
    ids=["tokens", "n", "prompts", "json"],
)
def test_request_over_a_limit_is_refused(
    server: FakeServer, served: Served, body: bytes, param: str | None
) -> None:
    """A 400 that names the field, and the engine sees nothing of it."""
    before = server.requests

    answer = ask(served.url, body, key=KEY)

    assert (answer.status, answer.document["error"]["param"]) == (400, param)
    assert server.requests == before


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/tokenize", 404),
        ("POST", "/v1/load_lora_adapter", 404),
        ("GET", "/v1/completions", 405),
        ("POST", "/v1/models", 405),
        ("GET", "/v1/models/", 404),
        ("GET", "/v1/models/../../metrics", 404),
    ],
)
def test_nothing_else_of_the_engine_can_be_reached(
    served: Served, method: str, path: str, status: int
) -> None:
    """Other paths and methods are no routes, whoever asks."""
    with connected(served.url) as connection:
        connection.request(method, path, b"{}", headers(KEY))
        answer = connection.getresponse()
        told = json.loads(answer.read())

    assert answer.status == status
    assert "This server has POST /v1/chat/completions" in told["error"]["message"]


def test_client_can_not_choose_where_a_request_goes(served: Served) -> None:
    """A whole address in the request line and another Host header change nothing."""
    with connected(served.url) as connection:
        elsewhere = {**headers(KEY), "Host": "127.0.0.1:9"}
        connection.request("GET", "http://127.0.0.1:9/v1/models", headers=elsewhere)
        answer = connection.getresponse()
        told = json.loads(answer.read())

    assert answer.status == 200
    assert [model["id"] for model in told["data"]] == ["fake"]


def test_metrics_count_what_happened(served: Served) -> None:
    """A whole answer, a refusal and a wait are in the page."""
    whole, refused = (samples(served, name) for name in ("queue_wait_ms_count", "rejected_total"))
    ask(served.url, request(2), key=KEY)
    ask(served.url, request(2), key="wrong")

    assert samples(served, "queue_wait_ms_count") == whole + 1
    assert samples(served, "rejected_total") == refused + 1
    assert samples(served, "queue_wait_ms_p95") == 0.0


def test_health_needs_no_key(served: Served) -> None:
    """A load balancer has none."""
    answer = ask(served.url, path="/health")

    assert (answer.status, answer.document["status"]) == (200, "ok")


def test_openai_client_streams(served: Served) -> None:
    """OpenAI's own client reads the text, and the usage in the last event."""
    import openai

    messages = [{"role": "user", "content": TEXT}]
    with openai.OpenAI(base_url=f"{served.url}/v1", api_key=KEY, max_retries=0) as client:
        stream = client.chat.completions.create(
            model="fake",
            messages=messages,  # type: ignore[arg-type]
            max_tokens=9,
            temperature=0,
            stream=True,
            stream_options={"include_usage": True},
        )
        events = list(stream)

    texts = [event.choices[0].delta.content for event in events if event.choices]
    expected = output_text(greedy_tokens(f"user: {TEXT}", 9, PACE.vocab_size))
    assert "".join(text for text in texts if text) == expected
    assert events[-1].usage is not None
    assert events[-1].usage.completion_tokens == 9


def test_openai_client_understands_refusals(served: Served) -> None:
    """Each becomes the error that the client has for it, with code and field."""
    import openai

    with openai.OpenAI(base_url=f"{served.url}/v1", api_key=KEY, max_retries=0) as client:
        with pytest.raises(openai.BadRequestError) as too_many:
            client.completions.create(model="fake", prompt=TEXT, max_tokens=MOST_TOKENS + 1)
        with pytest.raises(openai.AuthenticationError) as unknown:
            client.with_options(api_key="wrong").models.list()

        assert [model.id for model in client.models.list()] == ["fake"]
    assert (too_many.value.code, too_many.value.param) == ("over_limit", "max_tokens")
    assert unknown.value.code == "invalid_api_key"


def test_openai_client_cancels(server: FakeServer, served: Served) -> None:
    """A stream that is closed early ends at the engine."""
    import openai

    with openai.OpenAI(base_url=f"{served.url}/v1", api_key=KEY, max_retries=0) as client:
        stream = client.completions.create(
            model="fake", prompt=TEXT, max_tokens=MOST_TOKENS, stream=True
        )
        next(iter(stream))
        stream.close()

        wait_until(lambda: server.counters.running == 0)


def test_full_queue_turns_away_with_a_time_to_try_again(tmp_path: Path) -> None:
    """One runs, one waits, the third gets a 429; the second is served when the first has ended."""
    words = ["--max-in-flight", "1", "--max-queue", "1", "--metrics"]
    with (
        fake_server(PACE) as server,
        serving(tmp_path, behind(tmp_path, server.url), *words) as served,
        ThreadPoolExecutor(1) as threads,
    ):
        with streaming(served.url, MOST_TOKENS) as first:
            first.readline()
            waiting = threads.submit(ask, served.url, request(3))
            wait_until(lambda: samples(served, "queued", None) == 1)
            third = ask(served.url, request(3))

            assert server.requests == 1
        second = waiting.result(30)
    assert (third.status, third.code, third.headers["retry-after"]) == (429, "queue_full", "1")
    assert second.status == 200
    assert float(second.headers["x-queue-wait-ms"]) > 0.0
    assert_ended_well(served.end(), tmp_path)
    assert re.search(r"request 3 /v1/completions 429 queue_full in", served.end().output)


def test_client_that_leaves_the_queue_makes_room(tmp_path: Path) -> None:
    """A request that is given up while it waits never reaches the engine."""
    words = ["--max-in-flight", "1", "--max-queue", "1", "--metrics"]
    with (
        fake_server(PACE) as server,
        serving(tmp_path, behind(tmp_path, server.url), *words) as served,
        streaming(served.url, MOST_TOKENS) as first,
    ):
        first.readline()
        with connected(served.url) as connection:
            connection.request("POST", COMPLETIONS, request(3), headers(None))
            wait_until(lambda: samples(served, "queued", None) == 1)
        wait_until(lambda: samples(served, "queued", None) == 0)

        assert server.requests == 1


def test_plain_front_has_no_metrics_and_tells_no_text(tmp_path: Path) -> None:
    """Without --metrics there is no such route; lines hold neither prompt nor answer."""
    with (
        fake_server(PACE) as server,
        serving(tmp_path, behind(tmp_path, server.url)) as served,
    ):
        page = ask(served.url, path="/metrics")
        answer = ask(served.url, request(4))
        broken = ask(served.url, b'{"prompt": "' + TEXT.encode())
    ended = served.end()

    assert (page.status, answer.status, broken.status) == (404, 200, 400)
    assert "API key none, /metrics off" in served.said
    assert re.search(
        r"request 1 /v1/completions 200 in \d+\.\d{3} s, queue_wait_ms 0\.0", ended.output
    )
    assert ", 4 tokens, " in ended.output
    assert TEXT not in ended.output
    assert answer.document["choices"][0]["text"] not in ended.output
    assert_ended_well(ended, tmp_path)


def test_keys_of_client_and_engine_are_kept_apart(tmp_path: Path) -> None:
    """The engine gets its own key, not the client's; neither is in a line."""
    words = ["--api-key-env", "MY_KEY"]
    with (
        fake_server(FakeConfig(api_key=ENGINE_KEY)) as server,
        serving(
            tmp_path,
            behind(tmp_path, server.url, "ITS_KEY"),
            *words,
            MY_KEY=KEY,
            ITS_KEY=ENGINE_KEY,
        ) as served,
    ):
        answer = ask(served.url, request(2), key=KEY)

        assert server.headers["authorization"] == f"Bearer {ENGINE_KEY}"
    assert answer.status == 200
    assert KEY not in served.said + served.end().output
    assert ENGINE_KEY not in served.said + served.end().output


def test_engine_that_refuses_our_key_does_not_tell_it_to_clients(tmp_path: Path) -> None:
    """Its refusal, which repeats the key, stays here; the client gets a 503."""
    with (
        fake_server(FakeConfig(api_key="another")) as server,
        serving(tmp_path, behind(tmp_path, server.url, "ITS_KEY"), ITS_KEY=ENGINE_KEY) as served,
    ):
        answer = ask(served.url, request(2))

    assert (answer.status, answer.code) == (503, "engine_gone")
    assert "refuses the key" in answer.document["error"]["message"]
    assert ENGINE_KEY.encode() not in answer.body
    assert ENGINE_KEY not in served.end().output


def test_sigterm_ends_what_runs_and_takes_nothing_new(tmp_path: Path) -> None:
    """A running stream comes to its end, a new request gets a 503, and no process is left."""
    profile = write_profile(tmp_path / "p.toml", {"none": SLOW})
    with serving(tmp_path, profile) as served, streaming(served.url, 60) as answer:
        answer.readline()
        served.started.send(signal.SIGTERM)
        said = served.started.read_until("draining")
        late, health = ask(served.url, request(2)), ask(served.url, path="/health")
        rest = answer.read()
        ended = served.end()

    assert "draining: 1 in flight get up to 30 s, 0 queued are turned away" in said
    assert (late.status, late.code, late.headers["retry-after"]) == (503, "draining", "30")
    assert (health.status, health.document["status"]) == (503, "draining")
    assert rest.endswith(b"data: [DONE]\n\n")
    assert_ended_well(ended, tmp_path)


def test_drain_timeout_cuts_off(tmp_path: Path) -> None:
    """What takes longer is cut, so that the client knows; the end comes all the same."""
    profile = write_profile(tmp_path / "p.toml", {"none": SLOW})
    with (
        serving(tmp_path, profile, "--drain-timeout", "0.3") as served,
        streaming(served.url, 4_000) as answer,
    ):
        answer.readline()
        served.started.send(signal.SIGINT)
        with pytest.raises(http.client.IncompleteRead):
            answer.read()
        ended = served.end()

    assert ended.code == Exit.OK, ended.output
    assert "200 cut by drain" in ended.output
    assert "[serve] drained, 1 cut off" in ended.output
    assert_clean(ended, tmp_path)


def test_second_signal_does_not_wait(tmp_path: Path) -> None:
    """Ctrl-C twice ends at once what would have had half a minute."""
    profile = write_profile(tmp_path / "p.toml", {"none": SLOW})
    with serving(tmp_path, profile) as served, streaming(served.url, 4_000) as answer:
        answer.readline()
        served.started.send(signal.SIGINT)
        served.started.read_until("draining")
        served.started.send(signal.SIGINT)
        ended = served.end()

    assert ended.code == Exit.OK, ended.output
    assert "[serve] drained, 1 cut off" in ended.output
    assert_clean(ended, tmp_path)


def test_killed_engine_is_a_503_with_a_reason(tmp_path: Path) -> None:
    """A running stream breaks off, new requests are told why, nothing hangs; the code says it."""
    profile = write_profile(tmp_path / "p.toml", {"none": SLOW})
    with serving(tmp_path, profile, "--no-restart") as served:
        with streaming(served.url, 4_000) as answer:
            answer.readline()
            served.engine().kill()
            with pytest.raises(http.client.IncompleteRead):
                answer.read()
        said = served.started.read_until("ENGINE GONE")
        late, health = ask(served.url, request(2)), ask(served.url, path="/health")
    ended = served.end()

    assert "arm none: its process ended with exit code -9" in said
    assert (late.status, late.code) == (503, "engine_gone")
    assert "its process ended with exit code -9" in late.document["error"]["message"]
    assert (health.status, health.document["status"]) == (503, "engine_gone")
    assert ended.code == Exit.ENGINE, ended.output
    assert "200 cut by engine" in said + ended.output
    assert_clean(ended, tmp_path)


def test_engine_behind_a_url_that_is_gone_is_a_503(tmp_path: Path) -> None:
    """Nobody accepts connections there: told so at once, without the address."""
    with ExitStack() as front:
        with fake_server(PACE) as server:
            served = front.enter_context(serving(tmp_path, behind(tmp_path, server.url)))
        answer = ask(served.url, request(2))

    assert (answer.status, answer.code) == (503, "engine_gone")
    assert "it accepts no connection" in answer.document["error"]["message"]
    assert str(server.port) not in answer.body.decode()
    assert served.end().code == Exit.OK


def test_interval_lines_tell_decoding_latency_and_cost(tmp_path: Path) -> None:
    """From the engine's counters, with K = 3 and 2.5 tokens a step; the metrics have the tokens."""
    profile = write_profile(tmp_path / "p.toml", {"none": {}, "ngram": NGRAM})
    words = ["--arm", "ngram", "--interval", "0.4", "--usd-per-hour", "2.88", "--metrics"]
    with serving(tmp_path, profile, *words) as served:
        ask(served.url, request(81, stream=True))
        said = served.started.read_until("[cost] $")
        tokens = samples(served, "output_tokens_total", None)

    assert "arm ngram" in served.said
    assert re.search(r"\[serve\] last \d+ s: \d+ whole, 0 refused, 0 failed, 0 cut; now ", said)
    assert re.search(
        r"\[decode\] bs \d+\.\d, accepted tokens per step 1\.\d\d, acceptance rate 0\.\d{3}, ", said
    )
    assert re.search(r"\[cost\] \$[\d,.]+ per 1M output tokens at [\d,]+ tokens/s and \$2.88", said)
    assert 0 < tokens <= 81
    assert_ended_well(served.end(), tmp_path)
