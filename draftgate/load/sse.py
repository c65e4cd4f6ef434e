"""Server-sent events from stamped bytes; no I/O, no JSON, no clock.

The stream may be cut anywhere, also inside a character or between the two
bytes of CRLF: events and stamps do not depend on where. Runs after the
measurement, between `draftgate.load.http1` and `draftgate.load.parse`.
"""

from dataclasses import dataclass

_BOM = b"\xef\xbb\xbf"
_LF, _CR = 10, 13
"""Line ends as numbers, which `bytes` finds faster than a `bytes` of length 1."""


@dataclass(frozen=True, slots=True)
class SseEvent:
    """One event that carried data.

    Attributes:
        t_ns: Stamp of the read in which its last byte arrived.
        data: Its data lines, joined by a line feed; valid UTF-8.
    """

    t_ns: int
    data: bytes


class SseParser:
    """Cuts a byte stream into events.

    Lines end in LF, CRLF or CR. Comments and fields other than `data` are
    passed over, and an event that the stream's end cuts off is never returned.

    Source:
        HTML Living Standard, section "Interpreting an event stream". One
        departure: data that is not UTF-8 is an error here, since a replaced
        character would hide a broken server.
    """

    __slots__ = ("_after_cr", "_at_start", "_data", "_rest")

    def __init__(self) -> None:
        self._rest = b""
        self._data: list[bytes] = []
        self._after_cr = False
        self._at_start = True

    def feed(self, data: bytes, t_ns: int) -> list[SseEvent]:
        """Return the events that `data` completes, all stamped `t_ns`.

        An event whose blank line is CRLF is complete with the CR. After an
        error the parser is of no further use.

        Args:
            data: The next bytes of the stream, of any length.
            t_ns: Monotonic time at which they were read, nanoseconds.

        Raises:
            ValueError: If a data line is not UTF-8.
        """
        # Most pieces are one frame, `data: ...` LF LF, and nothing stands open before them.
        if (
            data.startswith(b"data: ")
            and data.endswith(b"\n\n")
            and data.find(_LF) == len(data) - 2
            and _CR not in data
            and not self._rest
            and not self._data
        ):
            self._after_cr = self._at_start = False
            value = data[6:-2]
            return [SseEvent(t_ns, value if value.isascii() else _checked(value))]
        return self._feed_lines(data, t_ns)

    def _feed_lines(self, data: bytes, t_ns: int) -> list[SseEvent]:
        if not data:
            return []
        if self._after_cr and data.startswith(b"\n"):
            data = data[1:]
        self._after_cr = data.endswith(b"\r")
        lines = (self._rest + data).splitlines(keepends=True)
        self._rest = b""
        if lines and not lines[-1].endswith((b"\n", b"\r")):
            self._rest = lines.pop()
        return [event for line in lines if (event := self._take(line, t_ns)) is not None]

    def _take(self, line: bytes, t_ns: int) -> SseEvent | None:
        content = line.rstrip(b"\r\n")
        if self._at_start:
            content = content.removeprefix(_BOM)
            self._at_start = False
        if not content:
            return self._dispatch(t_ns)
        name, _, value = content.partition(b":")
        if name == b"data":
            self._data.append(_checked(value.removeprefix(b" ")))
        return None

    def _dispatch(self, t_ns: int) -> SseEvent | None:
        if not self._data:
            return None
        event = SseEvent(t_ns, b"\n".join(self._data))
        self._data = []
        return event


def _checked(value: bytes) -> bytes:
    """Return `value` as it is; raise ValueError unless it is UTF-8."""
    if not value.isascii():
        value.decode()
    return value
