"""The null engine on real sockets: its log is the truth, and its faults come as announced."""

import json
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families

from draftgate.clock import SYSTEM_CLOCK
from draftgate.errors import EngineError, MeasurementError
from draftgate.null_engine.engine import NullEngine
from draftgate.null_engine.script import Script, TokenCycle, parse_fault
from draftgate.null_engine.sendlog import SentStream, fetch_log, read_log
from draftgate.null_engine.writes import Ending, EventKind

FAST = Script(ttft_s=0.004, gap_s=0.002, tokens_per_step=TokenCycle((1, 2, 3, 4)))
CHAT = "/v1/chat/completions"
SECONDS = 1e9


@contextmanager
def _engine(script: Script, log: Path | None = None) -> Iterator[NullEngine]:
    engine = NullEngine(script, log_path=log)
    engine.start()
    try:
        yield engine
    finally:
        engine.stop()


@contextmanager
def _process(*options: str) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """Run the engine as a process; yield it and its port."""
    argv = (sys.executable, "-m", "draftgate.null_engine", *options)
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        try:
            said = re.fullmatch(r"listening on 127\.0\.0\.1:(\d+)\n", child.stdout.readline())
            assert said is not None
            yield child, int(said[1])
        finally:
            child.kill()


def _body(max_tokens: int = 20, **fields: Any) -> bytes:
    body = {
        "messages": [{"role": "user", "content": "hello there"}],
        "max_tokens": max_tokens,
        "stream": True,
        "return_token_ids": True,
        "stream_options": {"include_usage": True},
    }
    return json.dumps({**body, **fields}).encode()


def _request(body: bytes, *headers: bytes) -> bytes:
    lines = (b"POST %b HTTP/1.1" % CHAT.encode(), b"Content-Length: %d" % len(body), *headers)
    return b"\r\n".join((*lines, b"", body))


@dataclass(frozen=True)
class _Seen:
    """One answer as a plain client saw it."""

    status: int
    lines: list[tuple[int, bytes]] = field(default_factory=list)
    error: str = ""

    @property
    def documents(self) -> list[tuple[int, Any]]:
        """Return when each event that holds JSON was read, and what it holds."""
        found = []
        for t_ns, line in self.lines:
            if line.startswith(b"data: {") and line.endswith(b"}\n"):
                found.append((t_ns, json.loads(line[6:])))
        return found

    @property
    def steps(self) -> list[tuple[int, int]]:
        """Return when each event with tokens was read, and how many it holds."""
        choices = [(t, d["choices"][0]) for t, d in self.documents if d.get("choices")]
        return [(t, len(c["token_ids"])) for t, c in choices if c.get("token_ids")]


def _ask(connection: HTTPConnection, body: bytes, path: str = CHAT, **headers: str) -> _Seen:
    """Send one request and read its answer line by line, to the end or to what breaks it."""
    connection.request("POST", path, body, headers)
    response = connection.getresponse()
    seen = _Seen(response.status)
    try:
        while line := response.readline():
            seen.lines.append((SYSTEM_CLOCK.now_ns(), line))
    except TimeoutError as error:
        return _Seen(seen.status, seen.lines, repr(error))
    response.read()  # nothing is left, but only this frees the connection
    return seen


def _get(connection: HTTPConnection, path: str, method: str = "GET") -> tuple[int, str]:
    connection.request(method, path)
    response = connection.getresponse()
    return response.status, response.read().decode()


def _client(port: int, timeout_s: float = 10.0) -> HTTPConnection:
    return HTTPConnection("127.0.0.1", port, timeout=timeout_s)


def test_the_log_is_what_a_client_sees(tmp_path: Path) -> None:
    """Steps, tokens and order agree, and nothing was read before it was sent."""
    with _process("--log", str(tmp_path / "log"), "--ttft", "0.02", "--gap", "0.01") as (
        child,
        port,
    ):
        with closing(_client(port)) as connection:
            before_ns = SYSTEM_CLOCK.now_ns()
            seen = [_ask(connection, _body(9), **{"X-Request-Id": f"mine-{n}"}) for n in range(3)]
        child.send_signal(signal.SIGTERM)
        assert child.wait(10) == 0
    log = read_log(tmp_path / "log")

    assert [s.key for s in log] == ["mine-0", "mine-1", "mine-2"]
    assert [s.number for s in log] == [1, 2, 3]
    for stream, answer in zip(log, seen, strict=True):
        read_ns = np.array([t for t, _ in answer.steps])
        assert [n for _, n in answer.steps] == stream.step_tokens.tolist() == [1] * 9
        assert np.all(read_ns >= stream.step_ns)
        assert before_ns < stream.arrived_ns < stream.sent_ns[0]
        assert stream.prompt == "hello there"
        assert (stream.ending, stream.faults, stream.route) == (Ending.COMPLETE, (), CHAT)
        assert {d["id"] for _, d in answer.documents} == {f"null-{stream.number}"}


def test_writes_go_out_when_they_are_due(tmp_path: Path) -> None:
    """Never early, on the script's exact times, and late by less than 2 ms in the median."""
    script = Script(ttft_s=0.02, gap_s=0.005, tokens_per_step=TokenCycle((1, 2, 3, 4)))
    log = tmp_path / "log"
    with _engine(script, log) as engine, closing(_client(engine.port)) as connection:
        _ask(connection, _body(40))
    (stream,) = read_log(log)
    late_ns = stream.sent_ns - stream.due_ns
    steps_due = stream.due_ns[stream.kinds == EventKind.TOKENS]

    assert np.all(late_ns >= 0)
    assert np.median(late_ns) < 2_000_000
    assert steps_due[0] - stream.arrived_ns == 20_000_000
    assert set(np.diff(steps_due)) == {5_000_000}
    assert stream.step_tokens.tolist() == [1, *[1, 2, 3, 4] * 3, 1, 2, 3, 3]


def test_streams_share_the_grid_of_steps() -> None:
    """Aligned streams that arrive at different times are due at common times."""
    with _process("--align", "steps", "--gap", "0.004", "--ttft", "0.01") as (_, port):
        threads = [threading.Thread(target=_exchange, args=(port, _body(30))) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        log = fetch_log(f"http://127.0.0.1:{port}")
    steps = [s.due_ns[s.kinds == EventKind.TOKENS] for s in log]

    assert len(steps) == 4
    assert len({int(due % 4_000_000) for stream in steps for due in stream}) == 1
    assert all(set(np.diff(stream)) == {4_000_000} for stream in steps)


def test_one_connection_serves_many_requests() -> None:
    """Keep-alive holds over streams, whole answers, errors and pages."""
    with _engine(FAST) as engine, closing(_client(engine.port)) as connection:
        connection.connect()
        address = connection.sock.getsockname()
        assert _ask(connection, _body()).status == 200
        assert _ask(connection, b"{").status == 400
        assert _ask(connection, _body(), "/v1/nope").status == 404
        assert _ask(connection, _body(stream=False)).status == 200
        assert _get(connection, "/health") == (200, "")
        assert json.loads(_get(connection, "/v1/models")[1])["data"][0]["id"] == "null"

        assert connection.sock.getsockname() == address


def test_a_connection_closes_if_asked() -> None:
    """`Connection: close` ends the connection after the answer, and not before."""
    with _engine(FAST) as engine, closing(_client(engine.port)) as connection:
        connection.connect()
        sock = connection.sock
        seen = _ask(connection, _body(), Connection="close")

        assert seen.lines[-2][1] == b"data: [DONE]\n"
        assert sock.recv(1) == b""


def test_requests_in_a_row_are_answered_in_order() -> None:
    """A request sent before the answer to the one before it waits its turn."""
    request = _request(_body(3))
    health = b"GET /health HTTP/1.1\r\n\r\n"
    with _engine(FAST) as engine, socket.create_connection(("127.0.0.1", engine.port)) as sock:
        sock.settimeout(10)
        sock.sendall(request + health + request + health)
        data = b""
        while data.count(b"content-length: 0") < 2:
            data += sock.recv(65_536)

    ids = [re.search(rb"null-\d+", part) for part in data.split(b"[DONE]")]
    assert [found and found[0] for found in ids] == [b"null-1", b"null-2", None]
    assert data.index(b"content-length: 0") > data.index(b"[DONE]")


FAULTS = {
    "in_band_error": 3,
    "early_close": 2,
    "reset": 1,
    "bad_chunk": 1,
    "malformed": 2,
    "http_error": 1,
    "missing_usage": 1,
    "missing_done": 1,
    "wrong_length": 1,
    "gzip": 1,
}


def _exchange(port: int, body: bytes) -> tuple[bytes, str]:
    """Return all bytes of one answer, and how the connection ended if the answer did not."""
    data = b""
    with socket.create_connection(("127.0.0.1", port), timeout=10) as sock:
        sock.sendall(_request(body))
        while not data.endswith(b"\r\n0\r\n\r\n"):
            try:
                read = sock.recv(65_536)
            except ConnectionResetError:
                return data, "reset"
            data += read
            if not read or data.endswith(b"}}"):  # the end of an answer that is no stream
                return data, "" if read else "closed"
    return data, ""


def _classify(data: bytes, ended: str) -> str:
    """Name the fault that an answer shows, from its bytes alone."""
    signs = {
        "http_error": data.startswith(b"HTTP/1.1 500 "),
        "gzip": b"content-encoding: gzip\r\n" in data,
        "reset": ended == "reset",
        "bad_chunk": ended == "closed" and data.endswith(b"\r\nzz\r\n"),
        "early_close": ended == "closed",
        "in_band_error": b'data: {"error":' in data,
        "malformed": b'data: {"id":"null-\n' in data,
        "missing_usage": b'"usage":' not in data,
        "missing_done": b"data: [DONE]\n" not in data,
        "wrong_length": b'"completion_tokens":20}' not in data,
    }
    return next((name for name, found in signs.items() if found), "none")


def test_every_fault_comes_as_often_as_announced() -> None:
    """In two rounds of 20 requests each fault is seen in its exact count, where the log has it."""
    rules, first = [], 1
    for name, count in FAULTS.items():
        rules.append(parse_fault(f"{name}={first}-{first + count - 1}/20"))
        first += count
    script = Script(ttft_s=0.001, gap_s=0.0005, faults=tuple(rules))
    with _engine(script) as engine:
        seen = [_classify(*_exchange(engine.port, _body())) for _ in range(40)]
        log = {stream.number: stream for stream in fetch_log(engine.url)}

    assert Counter(seen) == {"none": 12, **{name: 2 * n for name, n in FAULTS.items()}}
    assert [(log[n].faults or ("none",))[0] for n in range(1, 41)] == seen
    closed = {n for n in log if log[n].ending is Ending.CLOSED}
    assert closed == {n for n in log if set(log[n].faults) & {"early_close", "reset", "bad_chunk"}}


def test_a_stall_stays_open_and_says_so() -> None:
    """Nothing further comes over a connection that is not closed, while others go on."""
    script = Script(ttft_s=0.001, gap_s=0.001, faults=(parse_fault("stall=1/2@5"),))
    with _engine(script) as engine, closing(_client(engine.port, 0.2)) as stalled:
        seen = _ask(stalled, _body())
        with closing(_client(engine.port)) as other:
            assert sum(n for _, n in _ask(other, _body()).steps) == 20
        one, two = sorted(fetch_log(engine.url), key=lambda s: s.number)

    assert "TimeoutError" in seen.error
    assert sum(n for _, n in seen.steps) == 5
    assert (one.ending, two.ending) == (Ending.STALLED, Ending.COMPLETE)
    assert one.kinds[-1] == EventKind.STALL
    assert one.step_tokens.sum() == 5


def test_a_client_that_leaves_is_noted() -> None:
    """The stream of a client that closed its connection ends, and the engine serves on."""
    with _engine(Script(ttft_s=0.01, gap_s=0.01)) as engine:
        sock = socket.create_connection(("127.0.0.1", engine.port))
        body = _body(1000)
        sock.sendall(_request(body))
        assert sock.recv(10)
        sock.close()
        with closing(_client(engine.port)) as connection:
            _ask(connection, _body(2))
        one, _ = sorted(fetch_log(engine.url), key=lambda s: s.number)

    assert one.ending is Ending.LEFT
    assert one.step_tokens.sum() < 1000


def test_a_slow_client_gets_everything_and_is_noted() -> None:
    """Bytes that the socket does not take are kept; other streams do not wait."""
    script = Script(ttft_s=0, gap_s=0, tokens_per_step=TokenCycle((100,)))
    request = _request(_body(1_000_000), b"Connection: close")
    with _engine(script) as engine, socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sock.connect(("127.0.0.1", engine.port))
        sock.sendall(request)
        with closing(_client(engine.port)) as connection:
            for _ in range(100):
                _ask(connection, _body(2))  # is answered although the other is not read
                if _first_stream(engine).blocked.any():
                    break
        data = b"".join(iter(lambda: sock.recv(1 << 20), b""))
        slow = _first_stream(engine)

    assert len(_chunks(data)) == 1 + 10_001 + 2  # role, steps, usage and [DONE]
    assert slow.blocked.any()
    assert slow.step_tokens.sum() == 1_000_000


def test_a_large_answer_arrives_whole() -> None:
    """What the socket takes in many parts, to a client that reads slowly, loses nothing."""
    script = Script(ttft_s=0, gap_s=0, tokens_per_step=TokenCycle((100,)))
    with _engine(script) as engine, socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sock.connect(("127.0.0.1", engine.port))
        sock.sendall(_request(_body(1_000_000, stream=False), b"Connection: close"))
        time.sleep(0.5)  # in which the buffers of both sides fill up
        data = b"".join(iter(lambda: sock.recv(1 << 20), b""))
        blocked = _first_stream(engine).blocked
    ids = json.loads(data[data.index(b"\r\n\r\n") :])["choices"][0]["token_ids"]

    assert ids == [100 + i % 128 for i in range(1_000_000)]
    assert blocked.tolist() == [True]


def _chunks(data: bytes) -> list[bytes]:
    """Return the chunks of a whole response, whose framing must be sound to the last byte."""
    chunks, at = [], data.index(b"\r\n\r\n") + 4
    while True:
        begin = data.index(b"\r\n", at) + 2
        end = begin + int(data[at : begin - 2], 16)
        assert data[end : end + 2] == b"\r\n"
        at = end + 2
        if begin == end:
            assert at == len(data)
            return chunks
        chunks.append(data[begin:end])


def _first_stream(engine: NullEngine) -> SentStream:
    """Return what was sent for the first request."""
    return min(fetch_log(engine.url), key=lambda s: s.number)


def test_the_log_is_read_back_as_it_was(tmp_path: Path) -> None:
    """A file and `GET /log` hold the same; `DELETE /log` empties either."""
    logs: list[tuple[SentStream, ...]] = []
    for path in (None, tmp_path / "log"):
        with _engine(FAST, path) as engine, closing(_client(engine.port)) as connection:
            _ask(connection, _body(200))
            assert _get(connection, "/log", "DELETE")[0] == 200
            _ask(connection, _body(20, messages=[{"content": "b" * 99}]))
            status, text = _get(connection, "/log")
            logs.append(fetch_log(engine.url) if path is None else read_log(path))
    memory, file = (log[0] for log in logs)

    assert [len(log) for log in logs] == [1, 1]
    assert (status, "log is in" in text) == (409, True)
    assert memory.prompt == file.prompt == "b" * 64
    assert (memory.number, memory.key, memory.max_tokens) == (2, "2", 20)
    assert memory.kinds.tolist() == file.kinds.tolist()
    assert memory.tokens.tolist() == file.tokens.tolist()
    assert (memory.due_ns - memory.arrived_ns).tolist() == (file.due_ns - file.arrived_ns).tolist()


def test_streams_that_are_open_at_the_end_are_in_the_log(tmp_path: Path) -> None:
    """A stop in the middle loses nothing that was sent."""
    log = tmp_path / "log"
    with _engine(Script(ttft_s=0, gap_s=60), log) as engine:
        sock = socket.create_connection(("127.0.0.1", engine.port))
        body = _body(9)
        sock.sendall(_request(body))
        while b"token_ids" not in sock.recv(65_536):
            pass
    sock.close()
    (stream,) = read_log(log)

    assert stream.ending is Ending.OPEN
    assert stream.step_tokens.tolist() == [1]


@pytest.mark.parametrize(
    ("keep", "said"),
    [(0, "cannot be read"), (10, "begins with"), (-7, "breaks off"), (32, "breaks")],
)
def test_a_damaged_log_is_refused(tmp_path: Path, keep: int, said: str) -> None:
    """A log that is not whole is no truth."""
    log = tmp_path / "log"
    with _engine(FAST, log) as engine, closing(_client(engine.port)) as connection:
        _ask(connection, _body())
    log.write_bytes(log.read_bytes()[:keep])

    with pytest.raises(MeasurementError, match=said):
        read_log(log)


def test_a_log_that_cannot_be_had_is_an_error(tmp_path: Path) -> None:
    """An engine that is gone, or that writes a file, has no log to fetch."""
    with _engine(FAST, tmp_path / "log") as engine, pytest.raises(EngineError, match="status 409"):
        fetch_log(engine.url)
    with pytest.raises(EngineError, match="GET /log failed"):
        fetch_log(engine.url)


def test_metrics_count_what_was_sent() -> None:
    """Totals grow by what answers held, and a stalled stream is still running."""
    script = Script(ttft_s=0, gap_s=0, faults=(parse_fault("stall=2/2@5"),))
    with _engine(script) as engine, closing(_client(engine.port)) as connection:
        _ask(connection, _body(20))
        stalled = _client(engine.port, 0.1)
        _ask(stalled, _body(20))
        page = _get(connection, "/metrics")[1]
        stalled.close()
    values = {s.name: s.value for f in text_string_to_metric_families(page) for s in f.samples}

    assert values["vllm:generation_tokens_total"] == 25
    assert values["vllm:prompt_tokens_total"] == 4
    assert values["vllm:num_requests_running"] == 1


def test_fragments_arrive_one_by_one() -> None:
    """A reader that is awake sees many more reads than writes, none longer than a fragment."""
    script = Script(
        ttft_s=0,
        gap_s=0,
        fragment_bytes=40,
        fragment_pause_s=0.001,
        faults=(parse_fault("fragment"),),
    )
    body = _body(2)
    with _engine(script) as engine, socket.create_connection(("127.0.0.1", engine.port)) as sock:
        sock.sendall(_request(body))
        reads = [sock.recv(65_536)]
        while not reads[-1].endswith(b"0\r\n\r\n"):
            reads.append(sock.recv(65_536))

    assert len(reads) > len(b"".join(reads)) / 40 / 2
    assert np.median([len(read) for read in reads]) == 40


@pytest.mark.parametrize("gap_s", ["0", "0.3"])
def test_an_idle_engine_sleeps(gap_s: str) -> None:
    """Between due writes, and without any, the process uses less than 1 % of a core."""
    options = ("--ttft", "0", "--gap", gap_s)
    with _process(*options) as (child, port), closing(_client(port)) as connection:
        connection.request("POST", CHAT, _body(2))
        assert connection.getresponse().status == 200
        begin_s = _cpu_s(child.pid)
        threading.Event().wait(0.6)
        used_s = _cpu_s(child.pid) - begin_s

    assert used_s < 0.006


def _cpu_s(pid: int) -> float:
    """Return the CPU time of a process by its scheduler's account, seconds."""
    ran_ns = Path(f"/proc/{pid}/schedstat").read_text(encoding="ascii").split()[0]
    return int(ran_ns) / SECONDS


def test_a_taken_port_is_an_error() -> None:
    """The message says which address, and how to get a free one."""
    with (
        _engine(FAST) as engine,
        pytest.raises(EngineError, match=f"cannot listen on 127.0.0.1:{engine.port}"),
    ):
        NullEngine(FAST).start(port=engine.port)


def test_a_wrong_option_ends_the_process_with_a_line() -> None:
    """The process says what is wrong on stderr and ends with status 2."""
    argv = (sys.executable, "-m", "draftgate.null_engine", "--fault", "melt=1-2/3")
    ended = subprocess.run(argv, capture_output=True, text=True, timeout=30, check=False)

    assert ended.returncode == 2
    assert ended.stderr.startswith("draftgate: null engine: fault 'melt=1-2/3' is not")
    assert ended.stdout == ""
