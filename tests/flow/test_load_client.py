"""One exchange and its record: what is sent, what is kept, every kind of failure."""

import asyncio
import re
import socket
from collections.abc import Awaitable, Callable
from itertools import pairwise

import pytest

from draftgate.clock import SYSTEM_CLOCK
from draftgate.engines.fake_model import greedy_tokens
from draftgate.engines.fake_server import FakeConfig
from draftgate.load.client import StreamConnection
from draftgate.load.parse import SentRequest, parse_exchange
from draftgate.load.requests import Endpoint, PreparedRequest
from draftgate.load.wire import WireExchange, settle
from draftgate.records import FailureKind, RequestRecord
from tests.support.exchanges import DONE, OPEN_HEAD, event, ids, usage
from tests.support.fake import chat, endpoint, fake_server, raw_server
from tests.support.tls import CERTIFICATE, tls_front

FAST = {"step_s": 0.001, "ttft_s": 0.001}


def _with_connection(
    target: Endpoint,
    use: Callable[[StreamConnection], Awaitable[list[WireExchange]]],
    stall_timeout_s: float = 5.0,
) -> list[WireExchange]:
    async def body() -> list[WireExchange]:
        connection = StreamConnection(target, SYSTEM_CLOCK, stall_timeout_s=stall_timeout_s)
        try:
            return await use(connection)
        finally:
            await connection.close()

    return asyncio.run(body())


def _exchange(
    target: Endpoint,
    request: PreparedRequest | None = None,
    *,
    stall_timeout_s: float = 5.0,
    deadline_s: float | None = None,
) -> WireExchange:
    request = request or chat()

    async def once(connection: StreamConnection) -> list[WireExchange]:
        deadline_ns = None
        if deadline_s is not None:
            deadline_ns = SYSTEM_CLOCK.now_ns() + round(deadline_s * 1e9)
        return [await connection.exchange(request, deadline_ns=deadline_ns)]

    return _with_connection(target, once, stall_timeout_s)[0]


def _record(
    exchange: WireExchange, request: PreparedRequest | None = None, secret: str | None = None
) -> RequestRecord:
    sent = SentRequest(0, 0, 1, request or chat(), settle(exchange)[0])
    return parse_exchange(sent, secret=secret)


def test_key_is_sent_and_never_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The right key opens the door; a wrong one that the server echoes is struck out."""
    monkeypatch.setenv("DRAFTGATE_TEST_KEY", "sk-right")
    with fake_server(FakeConfig(api_key="sk-right", **FAST)) as server:
        target = Endpoint(server.url, "fake", "DRAFTGATE_TEST_KEY")
        good = _record(_exchange(target), secret="sk-right")
        monkeypatch.setenv("DRAFTGATE_TEST_KEY", "sk-wrong-key")
        bad = _record(_exchange(target), secret="sk-wrong-key")

    assert good.failure is None
    assert bad.failure is not None
    assert bad.failure.kind is FailureKind.HTTP_ERROR
    assert "incorrect API key" in bad.failure.message
    assert "sk-wrong" not in repr(bad)


def test_whole_answer_becomes_a_record() -> None:
    """Token ids, text, usage and finish reason arrive as the server meant them."""
    config = FakeConfig(tokens_per_step=2.5, **FAST)
    with fake_server(config) as server:
        record = _record(_exchange(endpoint(server), chat(max_tokens=8)))
        headers = dict(server.headers)

    tokens = greedy_tokens("user: hello there", 8, config.vocab_size)
    assert record.failure is None
    assert [len(chunk.token_ids) for chunk in record.chunks] == [1, 2, 3, 2]
    assert tuple(t for chunk in record.chunks for t in chunk.token_ids) == tokens
    assert record.text == "".join(f" w{token}" for token in tokens)
    assert (record.prompt_tokens, record.completion_tokens) == (3, 8)
    assert record.finish_reason == "length"
    assert headers["accept-encoding"] == "identity"
    assert "authorization" not in headers


def test_stamps_are_in_order_and_no_shorter_than_the_server_waited() -> None:
    """Times rise from sending to the end, and hold the server's own waits."""
    with fake_server(FakeConfig(ttft_s=0.05, step_s=0.01)) as server:
        record = _record(_exchange(endpoint(server), chat(max_tokens=8)))

    stamps = [record.sent_ns, *(chunk.t_ns for chunk in record.chunks), record.ended_ns]
    assert all(before <= after for before, after in pairwise(stamps))
    assert stamps[1] - stamps[0] >= 0.048e9
    assert stamps[-2] - stamps[1] >= 0.055e9  # 7 steps of 10 ms, one of them caught up at most


def test_connection_is_reused() -> None:
    """Several requests of a stream travel on one connection."""

    async def three(connection: StreamConnection) -> list[WireExchange]:
        exchanges = [await connection.exchange(chat()) for _ in range(3)]
        assert connection.connects == 1
        assert connection.body_bytes == sum(len(b) for e in exchanges for *_, b in e.reads)
        return exchanges

    with fake_server(FakeConfig(**FAST)) as server:
        exchanges = _with_connection(endpoint(server), three)

    assert all(exchange.answered for exchange in exchanges)
    assert server.connections == 1


def test_failed_exchange_takes_a_new_connection_next_time() -> None:
    """After a stall the old connection, still owing an answer, is not used again."""

    async def two(connection: StreamConnection) -> list[WireExchange]:
        return [await connection.exchange(chat()) for _ in range(3)]

    with fake_server(FakeConfig(stall_every=2, **FAST)) as server:
        exchanges = _with_connection(endpoint(server), two, stall_timeout_s=0.2)

    assert [exchange.answered for exchange in exchanges] == [True, False, True]
    assert server.connections == 2


@pytest.mark.parametrize(
    ("faults", "kind", "words"),
    [
        ({"error_every": 1}, FailureKind.HTTP_ERROR, "500: .*planted error on request 1"),
        ({"in_band_error_every": 1}, FailureKind.IN_BAND_ERROR, "planted error in the stream"),
        ({"early_close_every": 1}, FailureKind.EARLY_END, "inside the response"),
        ({"missing_usage_every": 1}, FailureKind.MISSING_USAGE, "usage.completion_tokens"),
        ({"wrong_length_every": 1}, FailureKind.WRONG_LENGTH, "7 token ids, but usage says 8"),
        ({"garbage_every": 1}, FailureKind.MALFORMED, "not JSON"),
        ({"stall_every": 1}, FailureKind.STALLED, "no byte for 0.2 s"),
    ],
)
def test_planted_fault_is_classified(faults: dict[str, int], kind: FailureKind, words: str) -> None:
    """Each fault of the server gives its own kind of failure, in the server's words."""
    with fake_server(FakeConfig(**FAST, **faults)) as server:
        record = _record(_exchange(endpoint(server), stall_timeout_s=0.2))

    assert record.failure is not None
    assert record.failure.kind is kind
    assert re.search(words, record.failure.message)


def test_what_arrived_before_a_stall_is_kept() -> None:
    """A stalled request keeps its chunks, and ends when the silence was noticed."""
    with fake_server(FakeConfig(stall_every=1, **FAST)) as server:
        record = _record(_exchange(endpoint(server), stall_timeout_s=0.2))

    assert len(record.chunks) == 1
    assert record.ended_ns - record.chunks[0].t_ns >= 0.2e9


def test_deadline_ends_an_open_request() -> None:
    """A request that is open at the deadline fails as such, before the stall limit."""
    with fake_server(FakeConfig(stall_every=1, **FAST)) as server:
        record = _record(_exchange(endpoint(server), deadline_s=0.1))

    assert record.failure is not None
    assert record.failure.kind is FailureKind.DEADLINE


def test_refused_connection_is_classified() -> None:
    """A port that nobody listens on gives CONNECT and names the address."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
        record = _record(_exchange(Endpoint(f"http://127.0.0.1:{port}", "fake")))

    assert record.failure is not None
    assert record.failure.kind is FailureKind.CONNECT
    assert f"127.0.0.1:{port}" in record.failure.message


def test_answer_comes_through_tls_of_a_named_authority() -> None:
    """With the server's authority named, requests on one TLS connection are served in full."""

    async def two(connection: StreamConnection) -> list[WireExchange]:
        exchanges = [await connection.exchange(chat()) for _ in range(2)]
        assert connection.connects == 1
        return exchanges

    with fake_server(FakeConfig(**FAST)) as server, tls_front(server.port) as url:
        target = Endpoint(url, "fake", ca_file=str(CERTIFICATE))
        exchanges = _with_connection(target, two)

    records = [_record(exchange) for exchange in exchanges]
    assert [record.failure for record in records] == [None, None]
    assert [record.completion_tokens for record in records] == [8, 8]
    assert [stamp for exchange in exchanges for _, stamp, _ in exchange.reads if stamp] == []


def test_unknown_authority_is_refused_unless_verification_is_off() -> None:
    """A certificate that nobody vouches for is a connect failure; verify_tls=False takes it."""
    with fake_server(FakeConfig(**FAST)) as server, tls_front(server.port) as url:
        refused = _record(_exchange(Endpoint(url, "fake")))
        taken = _record(_exchange(Endpoint(url, "fake", verify_tls=False)))

    assert refused.failure is not None
    assert refused.failure.kind is FailureKind.CONNECT
    assert "certificate" in refused.failure.message
    assert taken.failure is None


def test_tls_failure_is_a_connect_failure() -> None:
    """TLS to a server that speaks no TLS is CONNECT, not a crash."""
    with raw_server(b"HTTP/1.1 400 Bad Request\r\n\r\n") as url:
        record = _record(_exchange(Endpoint(url.replace("http", "https"), "fake")))

    assert record.failure is not None
    assert record.failure.kind is FailureKind.CONNECT


def test_wrong_model_is_an_http_error() -> None:
    """A model the server does not know gives HTTP_ERROR with the server's words."""
    with fake_server(FakeConfig(model="other")) as server:
        record = _record(_exchange(Endpoint(server.url, "other"), chat()))

    assert record.failure is not None
    assert record.failure.kind is FailureKind.HTTP_ERROR
    assert "404" in record.failure.message
    assert "does not exist" in record.failure.message


_OK = b"HTTP/1.1 200 OK\r\n"


@pytest.mark.parametrize(
    ("answer", "kind", "words"),
    [
        (b"SSH-2.0-OpenSSH\r\n", FailureKind.MALFORMED, "not an HTTP/1.1 response"),
        (b"", FailureKind.EARLY_END, "before it answered"),
        (_OK + b"Content-Length: 99\r\n\r\ndata: {}", FailureKind.EARLY_END, "inside"),
        (_OK + b"Content-Length: 5\r\n\r\nhello", FailureKind.MALFORMED, "server-sent event"),
        (_OK + b"Content-Length: 0\r\n\r\n", FailureKind.EARLY_END, "after 0 tokens"),
        (_OK + b"Content-Encoding: gzip\r\n\r\n", FailureKind.MALFORMED, "'gzip'"),
        (_OK + b"\r\ndata: \xff\n\n", FailureKind.MALFORMED, "UTF-8"),
        (_OK + b'\r\ndata: {"error": "boom"}\n\n', FailureKind.IN_BAND_ERROR, "boom"),
    ],
)
def test_broken_response_is_classified(answer: bytes, kind: FailureKind, words: str) -> None:
    """Whatever a server sends instead of an event stream gives a failure that says so."""
    with raw_server(answer) as url:
        record = _record(_exchange(Endpoint(url, "fake")))

    assert record.failure is not None
    assert record.failure.kind is kind
    assert words in record.failure.message


def test_response_that_ends_with_the_connection_is_whole() -> None:
    """Without length or chunking the close is the end, as HTTP says, not a failure."""
    with raw_server(OPEN_HEAD + event(ids(1, 2)) + event(usage(2)) + DONE) as url:
        record = _record(_exchange(Endpoint(url, "fake")), chat(max_tokens=2))

    assert record.failure is None
    assert record.completion_tokens == 2
