"""Server-sent events: the result must not depend on how the bytes were cut."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from draftgate.load.sse import SseEvent, SseParser

_LINE_ENDS = st.sampled_from([b"\n", b"\r\n", b"\r"])
_PLAIN = st.text(st.characters(exclude_characters="\r\n", exclude_categories=["Cs"]), max_size=12)
_NOISE = st.sampled_from([b": keep-alive", b":", b"event: x", b"id: 7", b"retry: 5", b"unknown"])


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


@settings(deadline=None)  # a busy machine is no failure
@given(_streams(), st.data())
def test_events_and_stamps_do_not_depend_on_fragments(
    drawn: tuple[list[tuple[bytes, int]], bytes], data: st.DataObject
) -> None:
    """Any cut gives the events that were written, stamped by the read that completes them."""
    events, stream = drawn
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=12)))
    bounds = [0, *cuts, len(stream)]
    parser = SseParser()

    got = [
        event
        for t_ns, (start, end) in enumerate(pairwise(bounds))
        for event in parser.feed(stream[start:end], t_ns)
    ]

    def read_of(offset: int) -> int:
        return next(i for i, end in enumerate(bounds[1:]) if offset < end)

    assert got == [SseEvent(read_of(offset), value) for value, offset in events]


@settings(deadline=None)  # a busy machine is no failure
@given(st.binary(max_size=60), st.data())
def test_any_bytes_parse_alike_in_one_piece_and_byte_by_byte(
    stream: bytes, data: st.DataObject
) -> None:
    """Arbitrary bytes give the same events, or the same refusal, however they arrive."""
    stream = data.draw(st.sampled_from([stream, b"data: " + stream + b"\r\n\r\n" + stream]))

    def events_of(pieces: list[bytes]) -> list[bytes] | None:
        parser = SseParser()
        try:
            return [event.data for piece in pieces for event in parser.feed(piece, 0)]
        except ValueError:
            return None

    whole = events_of([stream])
    single = events_of([stream[i : i + 1] for i in range(len(stream))])

    assert whole == single


@pytest.mark.parametrize(
    ("stream", "expected"),
    [
        (b"data: a\n\n", [b"a"]),
        (b"data:a\n\n", [b"a"]),
        (b"data:  a\n\n", [b" a"]),
        (b"data\n\n", [b""]),
        (b"data: a\ndata: b\n\n", [b"a\nb"]),
        (b": comment\n\ndata: a\n\n", [b"a"]),
        (b"datax: a\n\n", []),
        (b"data: a\n", []),
        (b"data: a\r\n\r\ndata: b\r\n\r\n", [b"a", b"b"]),
        (b"data: a:b\n\n", [b"a:b"]),
        (b"\n\n\n", []),
    ],
)
def test_single_cases_follow_the_standard(stream: bytes, expected: list[bytes]) -> None:
    """Each case of the HTML standard's event stream is read as it says."""
    assert [event.data for event in SseParser().feed(stream, 1)] == expected


def test_bytes_that_are_not_utf8_are_refused() -> None:
    """A broken character raises instead of being replaced."""
    with pytest.raises(ValueError, match="utf-8"):
        SseParser().feed(b"data: \xff\n\n", 1)
