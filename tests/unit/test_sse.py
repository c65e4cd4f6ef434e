"""Server-sent events: the result must not depend on how the bytes were cut."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from draftgate.load.sse import SseEvent, SseParser
from tests.support.fragments import damaged, fragments

_LINE_ENDS = st.sampled_from([b"\n", b"\r\n", b"\r"])
_PLAIN = st.text(st.characters(exclude_characters="\r\n", exclude_categories=["Cs"]), max_size=12)
_NOISE = st.sampled_from([b": keep-alive", b":", b"event: x", b"id: 7", b"retry: 5", b"unknown"])
_TOKENS = st.sampled_from(
    [
        b"data: a\n\n",
        b'data: {"b": 1}\r\n\r\n',
        b"data: [DONE]\n\n",
        "data: \u00fc\n\n".encode(),
        b"data: c\n",
        b"data: d\r",
        b"data: e\rdata: f\n\n",
        b": comment\n",
        b"data",
        b"data: ",
        b"\n",
        b"\r",
        b"\n\n",
        b":",
        b"\xef\xbb\xbf",
        b"\xc3",
        b"\xbc",
    ]
)


@st.composite
def _streams(draw: st.DrawFn) -> tuple[list[tuple[bytes, int]], bytes]:
    """Draw a stream and its events as (data, offset of the byte that completes them)."""
    events: list[tuple[bytes, int]] = []
    stream = draw(st.sampled_from([b"", b"\xef\xbb\xbf"]))
    for lines in draw(st.lists(st.lists(_PLAIN, min_size=1, max_size=3), max_size=5)):
        for line in lines:
            if draw(st.booleans()):
                stream += draw(_NOISE) + draw(_LINE_ENDS)
            stream += b"data: " + line.encode() + draw(_LINE_ENDS)
        if stream.endswith(b"\r"):  # else CR, LF would read as one line end
            stream += draw(st.sampled_from([b"\r\n", b"\r"]))
        else:
            stream += draw(_LINE_ENDS)
        events.append(("\n".join(lines).encode(), len(stream) - 1 - stream.endswith(b"\r\n")))
        if stream.endswith(b"\r"):
            stream += b": separates CR from what follows\n"
    return events, stream


def _parse(pieces: list[bytes]) -> list[bytes] | None:
    """Return the data of the events in `pieces`; None if they are refused."""
    parser = SseParser()
    try:
        return [event.data for piece in pieces for event in parser.feed(piece, 0)]
    except ValueError:
        return None


def _parse_literally(stream: bytes) -> list[bytes] | None:
    """Return what `_parse` is to return, by the standard's own steps and no others."""
    *lines, _incomplete = re.split(rb"\r\n|\r|\n", stream.removeprefix(b"\xef\xbb\xbf"))
    events, buffer = [], []
    for line in lines:
        name, _, value = line.partition(b":")
        if name == b"data":
            buffer.append(value[1:] if value[:1] == b" " else value)
        if not line and buffer:
            events.append(b"\n".join(buffer))
            buffer = []
    try:
        b"\n".join(events + buffer).decode()
    except UnicodeDecodeError:
        return None
    return events


@settings(deadline=None)  # a busy machine is no failure
@given(_streams(), st.data())
def test_events_and_stamps_do_not_depend_on_fragments(
    drawn: tuple[list[tuple[bytes, int]], bytes], data: st.DataObject
) -> None:
    """Any cut gives the events that were written, stamped by the read that completes them."""
    events, stream = drawn
    pieces = data.draw(fragments(stream, [offset + 1 for _, offset in events]))
    read_of = [t_ns for t_ns, piece in enumerate(pieces) for _ in piece]
    parser = SseParser()

    got = [event for t_ns, piece in enumerate(pieces) for event in parser.feed(piece, t_ns)]

    assert got == [SseEvent(read_of[offset], value) for value, offset in events]


@settings(deadline=None, max_examples=300)  # a busy machine is no failure
@given(st.lists(_TOKENS, max_size=14), st.data())
def test_any_tokens_parse_as_the_standard_says_however_cut(
    tokens: list[bytes], data: st.DataObject
) -> None:
    """Streams in any disorder give what a literal reading gives, also cut between the tokens."""
    stream, marks = b"", []
    for token in tokens:
        stream += token
        marks.append(len(stream))

    expected = _parse_literally(stream)
    assert _parse([stream]) == expected
    assert _parse(data.draw(fragments(stream, marks))) == expected
    assert _parse(tokens) == expected


@settings(deadline=None)  # a busy machine is no failure
@given(_streams(), st.data())
def test_damaged_streams_parse_alike_however_cut(
    drawn: tuple[list[tuple[bytes, int]], bytes], data: st.DataObject
) -> None:
    """Broken streams give the same events, or the same refusal, however they arrive."""
    stream = data.draw(damaged(drawn[1], [b"\n", b"\r", b":", b" ", b"data", b"\xc3"]))

    expected = _parse_literally(stream)
    assert _parse([stream]) == expected
    assert _parse(data.draw(fragments(stream))) == expected


@pytest.mark.parametrize(
    ("stream", "expected"),
    [
        (b"data: a\n\n", [b"a"]),
        (b"data:a\n\n", [b"a"]),
        (b"data:  a\n\n", [b" a"]),
        (b"data:  a\r\n\r\n", [b" a"]),
        (b"data\n\n", [b""]),
        (b"data: a\ndata: b\n\n", [b"a\nb"]),
        (b": comment\n\ndata: a\n\n", [b"a"]),
        (b"datax: a\n\n", []),
        (b"data: a\n", []),
        (b"data: a\r\n\r\ndata: b\r\n\r\n", [b"a", b"b"]),
        (b"data: a:b\n\n", [b"a:b"]),
        (b"\n\n\n", []),
        (b"data: [DONE]\n\n", [b"[DONE]"]),
        (b"data: a\n\ndata: b\n\ndata: [DONE]\n\n", [b"a", b"b", b"[DONE]"]),
        (b"data: a\n\n: ping\n\ndata: b\n\n", [b"a", b"b"]),
        (b"data: a\rb\n\n", [b"a"]),
        (b"data: \n\n", [b""]),
        (b"data: a\x00\x0b\x0c\n\n", [b"a\x00\x0b\x0c"]),
        ("data: \u2028\u0085\n\n".encode(), ["\u2028\u0085".encode()]),
        (b"data: a\n\ndata: cut off\n", [b"a"]),
    ],
)
def test_single_cases_follow_the_standard(stream: bytes, expected: list[bytes]) -> None:
    """Each case of the HTML standard's event stream is read as it says."""
    assert [event.data for event in SseParser().feed(stream, 1)] == expected


@pytest.mark.parametrize("end", [b"\n\n", b"\r\n\r\n", b"\r\r"])
@pytest.mark.parametrize("value", [b"\xff", b"\xc3", b"a\xed\xa0\x80", b"\xc0\xaf"])
def test_bytes_that_are_not_utf8_are_refused(value: bytes, end: bytes) -> None:
    """A broken character raises instead of being replaced."""
    with pytest.raises(ValueError, match="utf-8"):
        SseParser().feed(b"data: " + value + end, 1)


def test_bytes_that_are_not_utf8_outside_of_data_are_passed_over() -> None:
    """What is not data may hold anything."""
    assert SseParser().feed(b": \xff\nid: \xff\ndata: a\n\n", 1) == [SseEvent(1, b"a")]


def test_byte_order_mark_is_one_only_at_the_start() -> None:
    """Later it makes the field an unknown one, also where whole events came before."""
    assert _parse([b"data: a\n\n", b"\xef\xbb\xbfdata: b\n\n"]) == [b"a"]
