"""HTTP/1.1 framing: the same response however it is cut, and no response where there is none."""

from dataclasses import dataclass, replace

import httptools
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from draftgate.load.http1 import (
    HttpError,
    ResponseDecoder,
    ResponseHead,
    ResponseScanner,
    parse_head,
)
from tests.support.fragments import damaged, fragments

CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
HEAD_LIMIT = 64 * 1024

_FIELDS = (
    b"date: Sat, 01 Feb 2025 10:00:00 GMT",
    b"Server: uvicorn",
    b"content-type:text/event-stream; charset=utf-8",
    b"X-Empty:",
    b"x-latin: caf\xe9",
    b"Connection: keep-alive",
    b"CONNECTION: x, Close",
)
_DATA = st.sampled_from(
    [
        b"data: {}\n\n",
        b"data: [DONE]\n\n",
        "data: \u00fc\U0001f600\n\n".encode(),
        b"\r\n0\r\n\r\n",  # looks like the end
        b"\r\n",
        b"0",
        b"5\r\nabcde\r\n",
        b"HTTP/1.1 200 OK\r\n\r\n",
        b"x" * 300,
    ]
) | st.binary(min_size=1, max_size=20)
_DAMAGE = (
    b"\r",
    b"\n",
    b"\r\n",
    b"0",
    b"0\r\n\r\n",
    b"f",
    b" ",
    b";",
    b":",
    b"x",
    b"-",
    b"_",
    b"+",
)


@dataclass(frozen=True, slots=True)
class Drawn:
    """A response and what must be read from it.

    Attributes:
        stream: Its bytes.
        body: Its body.
        marks: Where its chunks end.
        ends_itself: Whether its end can be told from its bytes.
    """

    stream: bytes
    body: bytes
    marks: tuple[int, ...]
    ends_itself: bool


@st.composite
def _chunked(draw: st.DrawFn, head: bytes) -> Drawn:
    stream, body, marks = head, b"", []
    for data in draw(st.lists(_DATA, max_size=6)):
        size = draw(st.sampled_from([b"%x", b"%X", b"%04x"])) % len(data)
        extension = draw(st.sampled_from([b"", b"", b"", b";a", b";a=b;c", b';a="b"']))
        marks.append(len(stream))
        stream += size + extension + b"\r\n" + data + b"\r\n"
        body += data
    marks.append(len(stream))
    trailers = draw(st.lists(st.sampled_from([b"Expires: 0", b"x-trace:1"]), max_size=2))
    last = draw(st.sampled_from([b"0", b"0", b"000", b"0;last"]))
    stream += last + b"\r\n" + b"".join(line + b"\r\n" for line in trailers) + b"\r\n"
    return Drawn(stream, body, tuple(marks), ends_itself=True)


@st.composite
def responses(draw: st.DrawFn) -> Drawn:
    """Draw a valid response of any framing, perhaps behind an interim one."""
    framing = draw(st.sampled_from(["chunked", "chunked", "length", "close", "none"]))
    fields = draw(st.lists(st.sampled_from(_FIELDS), max_size=4, unique=True))
    status = draw(st.sampled_from([b"200 OK", b"404 Not Found", b"503 ", b"200"]))
    body = b"" if framing == "none" else b"".join(draw(st.lists(_DATA, max_size=4)))
    if framing == "none":
        status = draw(st.sampled_from([b"204 No Content", b"304 Not Modified"]))
    elif framing == "length":
        fields.append(b"Content-length:  %d " % len(body))
    elif framing == "chunked":
        fields.append(b"transfer-ENCODING: Chunked")
    interim = draw(st.sampled_from([b"", b"", b"HTTP/1.1 100 Continue\r\n\r\n"]))
    head = interim + b"HTTP/1.1 " + status + b"\r\n"
    head += b"".join(field + b"\r\n" for field in draw(st.permutations(fields))) + b"\r\n"
    if framing == "chunked":
        return draw(_chunked(head))
    return Drawn(head + body, body, (len(head),), ends_itself=framing != "close")


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a parser made of a stream, the connection's end included."""

    head: ResponseHead | None
    body: bytes
    done: bool
    done_at_eof: bool
    extra: int


def decode(pieces: list[bytes]) -> Outcome | None:
    """Return what the decoder makes of `pieces`; None if it refuses them."""
    decoder = ResponseDecoder()
    try:
        body = b"".join([decoder.feed(piece) for piece in pieces])
    except HttpError:
        return None
    assert decoder.body_started == bool(body)
    done = decoder.done
    return Outcome(decoder.head, body, done, decoder.eof(), decoder.extra)


def scan(pieces: list[bytes]) -> Outcome | None:
    """Return what the scanner makes of `pieces`, without a body; None if it refuses them."""
    scanner = ResponseScanner()
    done = False
    try:
        for piece in pieces:
            done = scanner.feed(piece)
    except HttpError:
        return None
    assert done == scanner.done
    return Outcome(scanner.head, b"", done, scanner.eof(), scanner.extra)


class Oracle:
    """What httptools (llhttp) makes of one response; attributes as in `Outcome`."""

    def __init__(self, stream: bytes) -> None:
        self.body = b""
        self.done = False
        self.status = 0
        self.keep_alive = False
        self._parser = httptools.HttpResponseParser(self)
        self._parser.feed_data(stream)

    def on_message_begin(self) -> None:
        """Forget an interim response."""
        self.body, self.done = b"", False

    def on_headers_complete(self) -> None:
        """Note what the head says."""
        self.status = self._parser.get_status_code()
        self.keep_alive = self._parser.should_keep_alive()

    def on_body(self, body: bytes) -> None:
        """Collect the body."""
        self.body += body

    def on_message_complete(self) -> None:
        """Note the end, of a final response only."""
        self.done = self.status >= 200
        self.keep_alive = self._parser.should_keep_alive()


@settings(deadline=None)  # a busy machine is no failure
@given(responses(), st.data(), st.binary(max_size=5))
def test_any_cut_gives_the_response_that_was_written(
    drawn: Drawn, data: st.DataObject, extra: bytes
) -> None:
    """Body, end and surplus bytes come out as written, wherever the reads fall."""
    if not drawn.ends_itself:
        extra = b""
    stream = drawn.stream + extra
    pieces = data.draw(fragments(stream, drawn.marks))

    got = decode(pieces)
    assert got is not None
    assert (got.body, got.done, got.done_at_eof) == (drawn.body, drawn.ends_itself, True)
    assert got.extra == len(extra)
    assert got == decode([stream])
    assert scan(pieces) == replace(got, body=b"")


@settings(deadline=None)  # a busy machine is no failure
@given(responses())
def test_valid_responses_read_as_httptools_reads_them(drawn: Drawn) -> None:
    """An independent parser sees the same status, body, end and persistence."""
    oracle = Oracle(drawn.stream)

    got = decode([drawn.stream])
    assert got is not None
    assert got.head is not None
    assert (got.head.status, got.body, got.done) == (oracle.status, oracle.body, oracle.done)
    assert got.head.keep_alive == oracle.keep_alive


@settings(deadline=None)  # a busy machine is no failure
@given(responses(), st.data())
def test_done_comes_with_the_last_byte_and_no_sooner(drawn: Drawn, data: st.DataObject) -> None:
    """No part of a response passes for the whole, except where only the connection's end tells."""
    end = data.draw(st.integers(0, len(drawn.stream) - 1))
    got = decode([drawn.stream[:end]])

    assert got is not None
    assert not got.done
    assert got.done_at_eof == (not drawn.ends_itself and got.head is not None)


@settings(deadline=None, max_examples=300)  # a busy machine is no failure
@given(responses(), st.data())
def test_damaged_responses_read_alike_however_cut(drawn: Drawn, data: st.DataObject) -> None:
    """Any bytes give one outcome, refusal included, whatever the cuts and whoever reads."""
    stream = data.draw(damaged(drawn.stream, _DAMAGE))
    pieces = data.draw(fragments(stream, drawn.marks))

    whole = decode([stream])
    assert decode(pieces) == whole
    assert scan(pieces) == (None if whole is None else replace(whole, body=b""))
    assert scan([stream]) == scan(pieces)


@settings(deadline=None, max_examples=300)  # a busy machine is no failure
@given(responses(), st.data())
def test_scanner_and_decoder_agree_after_every_read(drawn: Drawn, data: st.DataObject) -> None:
    """Head, start, end and surplus are the same after each piece of a damaged stream."""
    stream = data.draw(damaged(drawn.stream, _DAMAGE))
    scanner, decoder = ResponseScanner(), ResponseDecoder()
    for piece in data.draw(fragments(stream, drawn.marks)):
        refused = []
        for feed in (scanner.feed, decoder.feed):
            try:
                feed(piece)
            except HttpError as error:
                refused.append(str(error))
        states = [(p.head, p.body_started, p.done, p.extra) for p in (scanner, decoder)]

        assert states[0] == states[1]
        assert len(refused) in {0, 2}


@settings(deadline=None, max_examples=300)  # a busy machine is no failure
@given(responses(), st.data())
def test_what_is_read_to_its_end_is_no_other_response_to_httptools(
    drawn: Drawn, data: st.DataObject
) -> None:
    """A damaged response that still passes has the body that an independent parser sees.

    One thing passes that httptools refuses: blanks in chunk extensions, which
    RFC 9112, section 7.1.1, tells a recipient to accept.
    """
    stream = data.draw(damaged(drawn.stream, _DAMAGE))
    got = decode([stream])
    if got is None or not got.done:
        return
    try:
        oracle = Oracle(stream[: len(stream) - got.extra])
    except httptools.HttpParserError:
        assert b";" in stream
        return

    assert got.head is not None
    assert (oracle.done, oracle.status, oracle.body) == (True, got.head.status, got.body)


@settings(deadline=None)  # a busy machine is no failure
@given(st.lists(_DATA, min_size=1, max_size=6), st.sampled_from([b"%x", b"%X"]))
def test_one_chunk_a_read_keeps_the_body_and_waits_for_the_end(
    body: list[bytes], size: bytes
) -> None:
    """Whole chunks, one a read, come out one by one, and only the last chunk ends it."""
    scanner, decoder = ResponseScanner(), ResponseDecoder()
    chunks = [size % len(data) + b"\r\n" + data + b"\r\n" for data in body]

    assert [scanner.feed(read) for read in [CHUNKED, *chunks]] == [False] * (len(chunks) + 1)
    assert [decoder.feed(read) for read in [CHUNKED, *chunks]] == [b"", *body]
    assert scanner.feed(b"0\r\n\r\n")
    assert decoder.feed(b"0\r\n\r\n") == b""
    assert decoder.done
    assert scanner.body_started
    assert decoder.body_started


def test_a_read_that_looks_like_a_chunk_inside_a_size_line_is_none() -> None:
    """What began with an earlier read goes on, though the rest alone would be a whole chunk."""
    pieces = [CHUNKED + b"1\r\nz\r\n1", b"5\r\nabcde\r\n", b"y" * 14 + b"\r\n0\r\n\r\n"]

    got = decode(pieces)
    assert got is not None
    assert (got.body, got.done) == (b"zabcde\r\n" + b"y" * 14, True)
    assert scan(pieces) == replace(got, body=b"")


PLAIN = ResponseHead(
    status=200, chunked=False, content_length=7, encoding="identity", keep_alive=True
)
UNTIL_CLOSE = replace(PLAIN, content_length=None, keep_alive=False)


@pytest.mark.parametrize(
    ("head", "expected"),
    [
        (
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n",
            replace(PLAIN, chunked=True, content_length=None),
        ),
        (
            b"HTTP/1.1 200 OK\r\nCONTENT-LENGTH: 7\r\n",
            PLAIN,
        ),
        (b"HTTP/1.1 500\r\ncontent-length:0\t\r\n", replace(PLAIN, status=500, content_length=0)),
        (b"HTTP/1.1 200 OK\r\n", UNTIL_CLOSE),
        (
            b"HTTP/1.0 200 OK\r\nContent-Length: 7\r\n",
            replace(PLAIN, keep_alive=False),
        ),
        (
            b"HTTP/1.1 200 OK\r\nConnection: a\r\nConnection: b, CLOSE\r\nContent-Length: 7\r\n",
            replace(PLAIN, keep_alive=False),
        ),
        (
            b"HTTP/1.1 200 OK\r\nContent-Encoding: GZip\r\nContent-Length: 7\r\n",
            replace(PLAIN, encoding="gzip"),
        ),
        (b"HTTP/1.1 204 No Content\r\n", replace(PLAIN, status=204, content_length=0)),
        (
            b"HTTP/1.1 304 Not Modified\r\nContent-Length: 7\r\n",
            replace(PLAIN, status=304, content_length=0),
        ),
        (
            b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n%s"
            % b"HTTP/1.1 200 OK\r\nContent-Length: 7\r\n",
            PLAIN,
        ),
    ],
)
def test_heads_say_how_the_body_ends(head: bytes, expected: ResponseHead) -> None:
    """Each kind of head is read as RFC 9112 says, up to the body's first byte."""
    assert parse_head(head + b"\r\nbody") == (expected, len(head) + 2)
    assert parse_head(head) is None


@pytest.mark.parametrize(
    ("head", "reason"),
    [
        (b"HTTP/2 200 OK\r\n", "status line|response"),
        (b"HTTP/1.2 200 OK\r\n", "status line"),
        (b"HTTP/1.1 20 OK\r\n", "status line"),
        (b"HTTP/1.1 2000\r\n", "status line"),
        (b"HTTP/1.1  200 OK\r\n", "status line"),
        (b"http/1.1 200 OK\r\n", "response|status line"),
        (b"\r\nHTTP/1.1 200 OK\r\n", "response|status line"),
        (b"HTTP/1.1 101 Switching Protocols\r\n", "no change of protocol"),
        (b"HTTP/1.1 200 OK\r\nno colon\r\n", "header line"),
        (b"HTTP/1.1 200 OK\r\nname : value\r\n", "header line"),
        (b"HTTP/1.1 200 OK\r\nname: folded\r\n value\r\n", "not folded"),
        (b"HTTP/1.1 200 OK\r\n: value\r\n", "header line"),
        (b"HTTP/1.1 200 OK\r\nname: a\x00b\r\n", "header line"),
        (b"HTTP/1.1 200 OK\r\nname: a\nb: c\r\n", "header line"),
        (b"HTTP/1.1 200 OK\r\nname: a\rb: c\r\n", "header line"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n", "both"),
        (b"HTTP/1.1 204 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n", "both"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n", "Transfer-Encoding"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: identity\r\n", "Transfer-Encoding"),
        (
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
            "Transfer-Encoding",
        ),
        (b"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n", "in HTTP/1.1"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n", "Content-Length"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n", "Content-Length"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: +5\r\n", "Content-Length"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 0x5\r\n", "Content-Length"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 5_0\r\n", "Content-Length"),
        (b"HTTP/1.1 200 OK\r\nContent-Length:\r\n", "Content-Length"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9999999999999999999\r\n", "Content-Length"),
    ],
)
def test_heads_that_frame_nothing_for_sure_are_refused(head: bytes, reason: str) -> None:
    """Each head that two readers might frame in two ways is an error that names the cause."""
    with pytest.raises(HttpError, match=reason):
        parse_head(head + b"\r\n")


@pytest.mark.parametrize(
    "data",
    [b"\x15\x03\x01\x00\x02", b"SSH-2.0-x\r\n", b"HTTP/2", b"HTTP/1.1 200 OK\n\n", b"\n"],
)
def test_what_cannot_become_a_head_is_refused_at_once(data: bytes) -> None:
    """Bytes of another protocol raise with the first of them, not after a time-out."""
    with pytest.raises(HttpError):
        parse_head(data)


@pytest.mark.parametrize("before", [b"", b"HTTP/1.1 100 Continue\r\n\r\n"], ids=["sole", "second"])
@pytest.mark.parametrize("surplus", [0, 1, 1000])
def test_a_head_may_be_64_kib_long_and_no_longer(before: bytes, surplus: int) -> None:
    """The limit counts every byte up to the body, interim responses included."""
    start = before + b"HTTP/1.1 200 OK\r\nx: "
    head = start + b"y" * (HEAD_LIMIT - len(start) - 4 + surplus) + b"\r\n\r\n"

    if surplus:
        with pytest.raises(HttpError, match="65536"):
            parse_head(head)
        with pytest.raises(HttpError, match="65536"):
            parse_head(head[:HEAD_LIMIT])
    else:
        assert parse_head(head) == (UNTIL_CLOSE, HEAD_LIMIT)
        assert parse_head(head[:-1]) is None


@pytest.mark.parametrize(
    "body",
    [
        b"g\r\n",
        b"\r\n",
        b"-5\r\nabcde\r\n",
        b"+5\r\nabcde\r\n",
        b"0x5\r\nabcde\r\n",
        b" 5\r\nabcde\r\n",
        b"5 \r\nabcde\r\n",
        b"1_0\r\n" + b"x" * 16 + b"\r\n",
        b"5\nabcde\r\n",
        b"5\r\nabcde\n",
        b"5\r\nabcdef\r\n",
        b"5\r\nabcdeXX",
        b"5\r\nabcdeXX0\r\n\r\n",
        b"5\r\nabcd\r\n0\r\n\r\n",
        b"5;a\nb\r\nabcde\r\n",
        b"5;a\x00\r\nabcde\r\n",
        b"0000000000000005\r\nabcde\r\n",
        b"ffffffffffffffff\r\n",
        b"5;" + b"a" * 70_000 + b"\r\nabcde\r\n",
        b"0\r\n\n",
        b"0\r\nno colon\r\n\r\n",
        b"0\r\nx: folded\r\n more\r\n\r\n",
        b"0\r\nx: " + b"y" * 70_000 + b"\r\n\r\n",
        b"0\r\nx: " + b"y" * 70_000,
    ],
    ids=lambda body: f"{body[:24]!r}:{len(body)}",
)
@pytest.mark.parametrize("before", [b"", b"3\r\nabc\r\n"], ids=["first", "second"])
@pytest.mark.parametrize("parser", [ResponseScanner, ResponseDecoder])
def test_broken_chunks_are_refused_whole_or_in_pieces(
    parser: type[ResponseScanner | ResponseDecoder], before: bytes, body: bytes
) -> None:
    """A chunk that is none raises in a read of its own and in reads of any length, for good."""
    whole, pieces = parser(), parser()
    whole.feed(CHUNKED + before)

    with pytest.raises(HttpError):
        whole.feed(body)
    with pytest.raises(HttpError):
        whole.feed(b"3\r\nabc\r\n")
    with pytest.raises(HttpError):
        feed_in_small_pieces(pieces, CHUNKED + before + body)
    assert not whole.done
    assert not whole.eof()
    assert not pieces.done


def feed_in_small_pieces(parser: ResponseScanner | ResponseDecoder, stream: bytes) -> None:
    """Feed single bytes, or larger pieces if that would take long."""
    size = 1 if len(stream) < 1000 else 4000
    for start in range(0, len(stream), size):
        parser.feed(stream[start : start + size])


@pytest.mark.parametrize(
    "size_line", [b"5 ;a", b"5\t; a = b", b'5;a="b;c"', b"5;\xe9", b"05", b"000000000000005"]
)
def test_chunk_extensions_are_passed_over(size_line: bytes) -> None:
    """Whatever RFC 9112, section 7.1.1, allows after the size leaves the data alone."""
    stream = CHUNKED + size_line + b"\r\nabcde\r\n0\r\n\r\n"

    got = decode([stream])
    assert got is not None
    assert (got.body, got.done) == (b"abcde", True)


@pytest.mark.parametrize("parser", [ResponseScanner, ResponseDecoder])
def test_no_more_than_an_open_line_is_kept(
    parser: type[ResponseScanner | ResponseDecoder],
) -> None:
    """Body bytes are let go with their read; the start of a size line waits for its end."""
    reader = parser()
    reader.feed(CHUNKED + b"ffff\r\n" + b"x" * 60_000)
    inside = reader._rest
    reader.feed(b"x" * 5535 + b"\r\n12")

    assert inside == b""
    assert reader._rest == b"12"


def test_body_starts_with_its_first_byte() -> None:
    """Neither the head nor a size line counts as the body's start."""
    scanner = ResponseScanner()
    started = []
    for read in (CHUNKED, b"5\r\n", b"a"):
        scanner.feed(read)
        started.append(scanner.body_started)

    assert started == [False, False, True]


@pytest.mark.parametrize(
    ("stream", "legal"),
    [
        (b"", False),
        (b"HTTP/1.1 200 OK\r\n", False),
        (b"HTTP/1.1 200 OK\r\n\r\n", True),
        (b"HTTP/1.1 200 OK\r\n\r\nab", True),
        (b"HTTP/1.0 200 OK\r\n\r\nab", True),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nab", False),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nab", True),
        (CHUNKED, False),
        (CHUNKED + b"2\r\nab\r\n", False),
        (CHUNKED + b"2\r\nab\r\n0\r\n", False),
        (CHUNKED + b"2\r\nab\r\n0\r\n\r\n", True),
    ],
)
def test_end_of_connection_ends_only_what_has_no_other_end(stream: bytes, legal: bool) -> None:  # noqa: FBT001 - parametrised
    """A close is legal after the end, or where neither length nor chunks tell it."""
    scanner = ResponseScanner()
    scanner.feed(stream)

    assert scanner.eof() == legal
    assert scanner.done == legal


def test_scanners_leave_no_garbage_to_collect() -> None:
    """A response's parser goes with its last reference, since nothing is collected in a run."""
    import gc
    import weakref

    class Watched(ResponseScanner):
        __slots__ = ("__weakref__",)

    gc.disable()
    try:
        scanner = Watched()
        scanner.feed(CHUNKED + b"2\r\nab\r\n")
        gone = weakref.ref(scanner)
        del scanner
        assert gone() is None
    finally:
        gc.enable()
