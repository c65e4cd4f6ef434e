"""The null engine's answers as bytes: right in form, and wrong only where a fault says so."""

import io
import json
import socket
import zlib
from collections.abc import Iterable
from http.client import HTTPException, HTTPResponse
from itertools import pairwise
from typing import Any, cast

import pytest

from draftgate.null_engine.answers import answer
from draftgate.null_engine.faults import hitting
from draftgate.null_engine.http import BadRequest, RequestReader, read_ask
from draftgate.null_engine.pace import Pace
from draftgate.null_engine.script import IdStyle, Script, TokenCycle, parse_fault
from draftgate.null_engine.writes import (
    KIND_MASK,
    KIND_SHIFT,
    TOKENS_MASK,
    EventKind,
    Route,
    Work,
    Write,
)

MS = 1_000_000
CHAT = {"messages": [{"role": "user", "content": "a b c"}]}
COMPLETION = {"prompt": "a b c"}
NATIVE = {"text": "a b c"}
BODIES = {Route.CHAT: CHAT, Route.COMPLETIONS: COMPLETION, Route.GENERATE: NATIVE}


class _Wire(io.BytesIO):
    """Bytes as a socket that `http.client` can read."""

    def makefile(self, _mode: str) -> io.BytesIO:
        return self


def _writes(
    *faults: str, route: Route = Route.CHAT, script: Script | None = None, **fields: Any
) -> list[Write]:
    """Return the writes of request 1, of 10 tokens unless asked otherwise."""
    base = script or Script(tokens_per_step=TokenCycle((1, 2, 3)))
    script = Script(
        **{name: getattr(base, name) for name in Script.__dataclass_fields__ if name != "faults"},
        faults=tuple(map(parse_fault, faults)),
    )
    given = {"stream": True, "stream_options": {"include_usage": True}, "max_tokens": 10}
    body = {**BODIES[route], **given, **fields}
    ask = read_ask(route, json.dumps(body).encode(), script.model)
    kinds = hitting(script, 1, stream=ask.stream)
    work = Work(ask, number=1, key="k", arrived_ns=0, created_s=1_700_000_000, faults=kinds)
    return list(answer(work, script, Pace(script, 0)))


def _kinds(writes: Iterable[Write]) -> list[str]:
    return [EventKind(note >> KIND_SHIFT & KIND_MASK).name for _, _, note in writes]


def _bytes(writes: Iterable[Write]) -> bytes:
    return b"".join(data for _, data, _ in writes)


def _read(data: bytes) -> tuple[HTTPResponse, bytes]:
    response = HTTPResponse(cast("socket.socket", _Wire(data)))
    response.begin()
    return response, response.read()


def _events(body: bytes) -> list[str]:
    assert body.endswith(b"\n\n")
    return [event.removeprefix("data: ") for event in body.decode().split("\n\n")[:-1]]


def _documents(writes: Iterable[Write]) -> list[Any]:
    *documents, done = _events(_read(_bytes(writes))[1])
    assert done == "[DONE]"
    return [json.loads(document) for document in documents]


def test_a_chat_streams_as_vllm_does() -> None:
    """Role, one event per step with its ids, a reason in the last, usage, [DONE]."""
    role, *steps, usage = _documents(_writes(return_token_ids=True))

    assert role["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert [step["choices"][0]["token_ids"] for step in steps] == [
        [100],
        [101],
        [102, 103],
        [104, 105, 106],
        [107],
        [108, 109],
    ]
    assert steps[2]["choices"][0]["delta"] == {"content": " w102 w103"}
    assert [step["choices"][0]["finish_reason"] for step in steps] == [None] * 5 + ["length"]
    assert usage["choices"] == []
    assert usage["usage"] == {"prompt_tokens": 3, "completion_tokens": 10, "total_tokens": 13}
    assert {(d["id"], d["object"], d["model"], d["created"]) for d in (role, *steps, usage)} == {
        ("null-1", "chat.completion.chunk", "null", 1_700_000_000)
    }


def test_a_completion_streams_text() -> None:
    """No role event, text in the choice, and ids only if they were asked for."""
    *steps, usage = _documents(_writes(route=Route.COMPLETIONS, model="mine"))

    assert [step["choices"][0]["text"] for step in steps][:3] == [" w100", " w101", " w102 w103"]
    assert all("token_ids" not in step["choices"][0] for step in steps)
    assert {step["object"] for step in steps} == {"text_completion"}
    assert usage["model"] == "mine"


def test_a_stream_without_usage_has_none() -> None:
    """Usage comes if it was asked for."""
    assert "USAGE" not in _kinds(_writes(stream_options=None))


@pytest.mark.parametrize("style", IdStyle)
def test_the_native_route_repeats_or_adds(style: IdStyle) -> None:
    """Events hold everything so far, or what is new; counts are always of everything."""
    script = Script(tokens_per_step=TokenCycle((2,)), sglang_ids=style)
    writes = _writes(
        route=Route.GENERATE, script=script, sampling_params={"max_new_tokens": 4}, max_tokens=None
    )
    documents = _documents(writes)
    ids = {
        IdStyle.CUMULATIVE: [[100], [100, 101, 102], [100, 101, 102, 103]],
        IdStyle.INCREMENTAL: [[100], [101, 102], [103]],
    }[style]

    assert [document["output_ids"] for document in documents] == ids
    assert [document["text"] for document in documents] == [
        "".join(f" w{token}" for token in step) for step in ids
    ]
    assert [document["meta_info"]["completion_tokens"] for document in documents] == [1, 3, 4]
    reasons = [document["meta_info"]["finish_reason"] for document in documents]
    assert reasons == [None, None, {"type": "length", "length": 4}]


def test_ids_and_lengths_hold_beyond_the_period() -> None:
    """Token i has id 100 + i mod 128, however long the answer and its steps are."""
    script = Script(tokens_per_step=TokenCycle((100, 28, 7)))
    documents = _documents(_writes(script=script, max_tokens=1000, return_token_ids=True))[1:-1]
    ids = [token for document in documents for token in document["choices"][0]["token_ids"]]

    assert ids == [100 + i % 128 for i in range(1000)]


@pytest.mark.parametrize("route", Route)
def test_every_event_has_a_chunk_of_its_own(route: Route) -> None:
    """Each write after the head is one chunk, as uvicorn sends what a server yields."""
    head, *events, end = _writes(route=route)

    assert head[1].endswith(b"\r\n\r\n")
    assert end[1] == b"0\r\n\r\n"
    assert all(
        int(data[: data.index(b"\r\n")], 16) == len(data) - data.index(b"\r\n") - 4
        for _, data, _ in events
    )


@pytest.mark.parametrize(
    ("route", "text"),
    [
        (Route.CHAT, lambda d: d["choices"][0]["message"]["content"]),
        (Route.COMPLETIONS, lambda d: d["choices"][0]["text"]),
        (Route.GENERATE, lambda d: d["text"]),
    ],
)
def test_a_whole_answer_comes_when_its_last_step_is_due(route: Route, text: Any) -> None:
    """Without a stream the same tokens come in one write."""
    script = Script(ttft_s=0.05, gap_s=0.01)
    (write,) = _writes(route=route, script=script, stream=False, max_tokens=3)
    response, body = _read(write[1])

    assert write[0] == 70 * MS
    assert write[2] & TOKENS_MASK == 3
    assert response.status == 200
    assert text(json.loads(body)) == " w100 w101 w102"


@pytest.mark.parametrize(("head_s", "due_ms"), [(0.0, 0), (0.03, 30), (None, 50)])
def test_the_head_has_its_own_time(head_s: float | None, due_ms: int) -> None:
    """At once as vLLM sends it, at a set time, or with the first token."""
    script = Script(ttft_s=0.05, gap_s=0.01, head_s=head_s)
    head, role, first, *_ = _writes(script=script)

    assert [head[0], role[0], first[0]] == [due_ms * MS, 50 * MS, 50 * MS]


def test_an_error_takes_the_place_of_the_next_step() -> None:
    """After the tokens named, the next step's time brings an error, and the body ends well."""
    plain, writes = _writes(), _writes("in_band_error=1/1@4")
    *steps, error = _documents(writes)

    assert _kinds(writes)[2:] == ["TOKENS"] * 3 + ["ERROR", "DONE", "END"]
    assert len(steps) == 4
    assert error["error"]["code"] == 500
    assert writes[5][0] == plain[5][0]


@pytest.mark.parametrize(
    ("fault", "kinds"),
    [
        ("stall", ["TOKENS"] * 4 + ["STALL"]),
        ("stall=1/1@1", ["TOKENS", "STALL"]),
        ("early_close", ["TOKENS"] * 4 + ["CLOSE"]),
        ("reset", ["TOKENS"] * 4 + ["RESET"]),
        ("bad_chunk", ["TOKENS"] * 4 + ["MALFORMED", "CLOSE"]),
        ("malformed", ["TOKENS"] * 4 + ["MALFORMED", "TOKENS", "TOKENS", "USAGE", "DONE", "END"]),
        ("missing_usage", ["TOKENS"] * 6 + ["DONE", "END"]),
        ("missing_done", ["TOKENS"] * 6 + ["USAGE", "END"]),
    ],
)
def test_a_fault_strikes_after_its_tokens_or_half(fault: str, kinds: list[str]) -> None:
    """What a fault leaves of an answer is known to the write."""
    assert _kinds(_writes(fault))[2:] == kinds


def test_a_fault_beyond_the_answer_strikes_before_its_end() -> None:
    """A strike that would come after the last token meets the write that follows it."""
    assert _kinds(_writes("early_close=1/1@10", stream_options=None))[-2:] == ["TOKENS", "CLOSE"]


@pytest.mark.parametrize(("asked", "given"), [(10, 9), (1, 2)])
def test_a_wrong_length_is_wrong_everywhere(asked: int, given: int) -> None:
    """Events, usage and the end agree on a length that nobody asked for."""
    *steps, usage = _documents(_writes("wrong_length", return_token_ids=True, max_tokens=asked))[1:]

    assert sum(len(step["choices"][0]["token_ids"]) for step in steps) == given
    assert usage["usage"]["completion_tokens"] == given


def test_a_malformed_event_is_no_json() -> None:
    """One event cannot be parsed; all others can."""
    body = _read(_bytes(_writes("malformed")))[1]
    broken = []
    for event in _events(body)[:-1]:
        try:
            json.loads(event)
        except json.JSONDecodeError:
            broken.append(event)

    assert broken == ['{"id":"null-']


def test_a_bad_chunk_breaks_http() -> None:
    """A chunk size that is no number follows well-formed events."""
    with pytest.raises(HTTPException):
        _read(_bytes(_writes("bad_chunk")))


def test_an_http_error_comes_at_once() -> None:
    """The status is the script's, and no token is sent."""
    (write,) = _writes("http_error", script=Script(http_status=503))
    response, body = _read(write[1])

    assert (write[0], response.status) == (0, 503)
    assert json.loads(body)["error"]["code"] == 503


def test_gzip_holds_the_same_events_one_by_one() -> None:
    """The head says gzip, and each event can be unpacked as soon as it is there."""
    writes = _writes("gzip")
    response, body = _read(_bytes(writes))
    unpack = zlib.decompressobj(wbits=31)
    seen = [unpack.decompress(data[data.index(b"\r\n") + 2 : -2]) for _, data, _ in writes[1:-1]]

    assert response.headers["content-encoding"] == "gzip"
    assert zlib.decompress(body, wbits=31) == _read(_bytes(_writes()))[1]
    assert all(event.endswith(b"\n\n") for event in seen)


def test_a_slow_head_comes_in_two_parts() -> None:
    """The second part comes after the pause, and no event overtakes it."""
    script = Script(ttft_s=0.01, gap_s=0.01, head_pause_s=0.015)
    writes = _writes("slow_head", script=script)

    assert _kinds(writes)[:4] == ["PIECE", "HEAD", "ROLE", "TOKENS"]
    assert [due // MS for due, _, _ in writes[:5]] == [0, 15, 15, 15, 20]
    assert _bytes(writes) == _bytes(_writes(script=script))


def test_coalesced_events_share_a_write() -> None:
    """Two events go out together when the second is due; the log has both."""
    script = Script(ttft_s=0.05, gap_s=0.01)
    plain = _writes(script=script, max_tokens=4, stream_options=None)
    writes = _writes("coalesce", script=script, max_tokens=4, stream_options=None)

    assert _kinds(writes) == _kinds(plain)
    assert _bytes(writes) == _bytes(plain)
    assert [due // MS for due, data, _ in writes if data] == [0, 50, 70, 80, 80]
    assert [i for i, write in enumerate(writes) if not write[1]] == [2, 4, 6]


def test_fragments_are_pieces_with_pauses() -> None:
    """No write is longer than asked for, pieces keep their distance, the last completes."""
    script = Script(ttft_s=0, gap_s=1.0, fragment_bytes=50, fragment_pause_s=0.001)
    plain = _writes(script=script, max_tokens=2)
    writes = _writes("fragment", script=script, max_tokens=2)
    last = writes[-1]

    assert max(len(data) for _, data, _ in writes) == 50
    assert _bytes(writes) == _bytes(plain)
    assert [k for k in _kinds(writes) if k != "PIECE"] == _kinds(plain)
    assert last[1] == b"0\r\n\r\n"
    dues = [due for due, _, _ in writes]
    assert min(after - before for before, after in pairwise(dues)) == MS


def test_faults_combine() -> None:
    """An error inside a gzip body that comes in fragments is still that error."""
    body = _read(_bytes(_writes("in_band_error", "gzip", "fragment")))[1]

    assert '"error"' in _events(zlib.decompress(body, wbits=31))[-2]


@pytest.mark.parametrize(("fault", "applies"), [("stall", True), ("malformed", False)])
def test_faults_of_streams_pass_whole_answers_by(fault: str, *, applies: bool) -> None:
    """What concerns events does not hit an answer without any; what does is announced."""
    kinds = _kinds(_writes(fault, stream=False))

    assert kinds == (["STALL"] if applies else ["WHOLE"])


@pytest.mark.parametrize("cut", range(1, 60, 7))
def test_requests_are_read_however_they_are_cut(cut: int) -> None:
    """Two requests in a row come out whole, wherever reads end."""
    data = b"POST /a?b=c HTTP/1.1\r\nX-Request-ID: q1 \r\nContent-Length: 3\r\n\r\nabc"
    data += b"GET /d HTTP/1.1\r\nConnection: Close\r\n\r\n"
    reader, found = RequestReader(), []
    for begin in range(0, len(data), cut):
        reader.feed(data[begin : begin + cut])
        while (request := reader.take()) is not None:
            found.append(request)

    assert [(r.method, r.path, r.body, r.closes) for r in found] == [
        ("POST", "/a", b"abc", False),
        ("GET", "/d", b"", True),
    ]
    assert found[0].headers["x-request-id"] == "q1"


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"nonsense\r\n\r\n", 400),
        (b"GET / HTTP/2\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nContent-Length: x\r\n\r\n", 413),
        (b"GET / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n", 411),
        (b"x" * 70_000, 431),
    ],
)
def test_what_is_no_request_is_refused(data: bytes, status: int) -> None:
    """The error carries the status to answer with."""
    reader = RequestReader()
    reader.feed(data)
    with pytest.raises(BadRequest) as caught:
        reader.take()

    assert caught.value.status == status


@pytest.mark.parametrize(
    ("route", "body", "said"),
    [
        (Route.CHAT, {}, "needs messages"),
        (Route.COMPLETIONS, {}, "needs prompt"),
        (Route.GENERATE, {}, "needs text or input_ids"),
        (Route.COMPLETIONS, {**COMPLETION, "max_tokens": 0}, "got 0"),
        (Route.COMPLETIONS, {**COMPLETION, "max_tokens": 1 << 20}, "got 1048576"),
        (Route.COMPLETIONS, {**COMPLETION, "n": 2}, "n must be 1, got 2"),
        (Route.COMPLETIONS, {"prompt": 3}, "the body is no request"),
    ],
)
def test_what_cannot_be_answered_is_refused(route: Route, body: object, said: str) -> None:
    """A null engine never does something else than it was asked."""
    with pytest.raises(BadRequest, match=said):
        read_ask(route, json.dumps(body).encode(), "m")


@pytest.mark.parametrize(
    ("route", "body", "prompt", "tokens", "length"),
    [
        (Route.CHAT, {**CHAT, "max_completion_tokens": 7, "max_tokens": 9}, "a b c", 3, 7),
        (Route.COMPLETIONS, {"prompt": "x" * 99}, "x" * 64, 1, 16),
        (Route.COMPLETIONS, {"prompt": [5, 6, 7]}, "[5, 6, 7]", 3, 16),
        (Route.GENERATE, {"input_ids": [5, 6]}, "[5, 6]", 2, 128),
    ],
)
def test_prompts_and_lengths_are_taken_from_where_they_stand(
    route: Route, body: object, prompt: str, tokens: int, length: int
) -> None:
    """Each route has its own fields."""
    ask = read_ask(route, json.dumps(body).encode(), "m")

    assert (ask.prompt, ask.prompt_tokens, ask.max_tokens) == (prompt, tokens, length)
