"""HTTP/1.1 responses from bytes: where one ends, and what its body is.

Knows bytes; no sockets, no clock, no events. The stream may be cut anywhere.
`ResponseScanner` runs in the receive path and only finds the end;
`ResponseDecoder` runs after the measurement and gives the body. Both walk the
same steps, so they agree on the end. Strict on purpose: what two readers could
frame in two ways is an error, since a wrong frame would be a wrong time stamp.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass

_HEAD_LIMIT = 64 * 1024
"""Longest head and longest trailer section, bytes: four times what h11 takes by default."""

_CRLF = b"\r\n"
_TEXT = rb"[\t\x20-\x7e\x80-\xff]"
_HEX_DIGITS = b"0123456789abcdefABCDEF"
_STATUS_LINE = re.compile(rb"HTTP/1\.([01]) ([1-9][0-9]{2})(?: %s*)?" % _TEXT)
_FIELD_LINE = re.compile(rb"([!#$%%&'*+\-.^_`|~0-9A-Za-z]+):(%s*)" % _TEXT)
_WHOLE_LINES = re.compile(rb"(?:[^\r\n]*\r\n)*[^\r\n]*\r?")
# 15 digits keep any size below 2**60; the extension's length is bounded like the head's.
_EXTENSION = rb"(?:[ \t]{0,16};%s{0,65535})?" % _TEXT
_SIZE_LINE = re.compile(rb"([0-9A-Fa-f]{1,15})%s\r\n" % _EXTENSION)
_SIZE_START = re.compile(rb"[0-9A-Fa-f]{1,15}(?:[ \t]{0,16}|%s\r?)" % _EXTENSION)


class HttpError(ValueError):
    """The bytes are no HTTP/1.1 response that can be framed in just one way."""


@dataclass(frozen=True, slots=True)
class ResponseHead:
    """What a response's head says about the rest of it.

    Attributes:
        status: Status code, 200 to 999.
        chunked: Whether the body comes in chunks.
        content_length: Body length, bytes; 0 where the status allows no body;
            None if it comes in chunks or ends with the connection.
        encoding: Content coding, lower case; `identity` if none was named.
        keep_alive: Whether the connection can carry another exchange.
    """

    status: int
    chunked: bool
    content_length: int | None
    encoding: str
    keep_alive: bool


def parse_head(data: bytes) -> tuple[ResponseHead, int] | None:
    """Return the head that `data` begins with and the offset of its body.

    Interim responses (1xx) before it are passed over. The request is taken to
    be one that may have a body in its response: not HEAD, not CONNECT.

    Args:
        data: The connection's bytes from the response's first one on.

    Returns:
        Head and offset; None while the head is incomplete.

    Raises:
        HttpError: If it is no HTTP/1.1 or HTTP/1.0 head, is longer than
            64 KiB with its interim responses, or frames the body in two ways.

    Source:
        RFC 9112, sections 2.2 (line ends), 4 (status line), 5 (fields, folding
        refused), 6.1 to 6.3 (body length) and 9.3 (persistence).
    """
    start = 0
    while (end := data.find(b"\r\n\r\n", start)) >= 0:
        if end + 4 > _HEAD_LIMIT:
            raise _too_long("head")
        status_line, _, rest = data[start:end].partition(_CRLF)
        match = _STATUS_LINE.fullmatch(status_line)
        if match is None:
            raise _unlike("status line", status_line, "HTTP/1.1 and a status code")
        fields = _fields(rest)
        status = int(match[2])
        start = end + 4
        if status >= 200:
            return _head(status, match[1], fields), start
        if status == 101:
            raise _unlike("status", match[2], "no change of protocol, as none was asked for")
    _check_open_head(data, start)
    return None


def _check_open_head(data: bytes, start: int) -> None:
    """Refuse what can't become a head, so that nobody waits for the rest of it."""
    if len(data) >= _HEAD_LIMIT:
        raise _too_long("head")
    if not b"HTTP/1.".startswith(data[start : start + 7]):
        raise _unlike("response", data[start:], "HTTP/1.1 and a status code")
    _check_open_lines(data[start:], "head")


def _check_open_lines(part: bytes, what: str) -> None:
    if len(part) >= _HEAD_LIMIT:
        raise _too_long(what)
    if _WHOLE_LINES.fullmatch(part) is None:
        raise HttpError("a header line ends in CR or LF alone, expected CR LF")


def _fields(block: bytes) -> dict[bytes, bytes]:
    """Return fields by lower-case name, repeated ones joined by a comma."""
    fields: dict[bytes, bytes] = {}
    for line in block.split(_CRLF) if block else ():
        match = _FIELD_LINE.fullmatch(line)
        if match is None:
            raise _unlike("header line", line, "name, colon and value, not folded")
        name, value = match[1].lower(), match[2].strip(b" \t")
        fields[name] = fields[name] + b", " + value if name in fields else value
    return fields


def _head(status: int, minor: bytes, fields: dict[bytes, bytes]) -> ResponseHead:
    coding, length = fields.get(b"transfer-encoding"), fields.get(b"content-length")
    if coding is not None and length is not None:
        raise HttpError("both Transfer-Encoding and Content-Length, expected one of them")
    if coding is not None and not (minor == b"1" and coding.lower() == b"chunked"):
        raise _unlike("Transfer-Encoding", coding, "chunked, in HTTP/1.1")
    if length is not None and not (length.isdigit() and len(length) <= 18):
        raise _unlike("Content-Length", length, "one decimal number of bytes")
    chunked, size = coding is not None, None if length is None else int(length)
    if status in {204, 304}:
        chunked, size = False, 0
    options = {option.strip() for option in fields.get(b"connection", b"").lower().split(b",")}
    return ResponseHead(
        status=status,
        chunked=chunked,
        content_length=size,
        encoding=fields.get(b"content-encoding", b"").decode("latin-1").lower() or "identity",
        keep_alive=minor == b"1" and b"close" not in options and (chunked or size is not None),
    )


def _unlike(what: str, got: bytes, expected: str) -> HttpError:
    return HttpError(f"{what}: got {got[:80]!r}, expected {expected}")


def _too_long(what: str) -> HttpError:
    return HttpError(f"{what}: longer than {_HEAD_LIMIT} bytes, expected less")


class _Response:
    """What is known of one response: the part that scanner and decoder share.

    `_step` is the method that takes the next bytes: given those, a position in
    them and a list for body bytes, it returns the position up to which it took
    them. It is kept unbound; bound it would be a cycle, and no garbage is
    collected during a run.
    """

    __slots__ = ("_at_chunk", "_left", "_rest", "_step", "body_started", "done", "extra", "head")

    def __init__(self) -> None:
        self.head: ResponseHead | None = None
        self.body_started = False
        self.done = False
        self.extra = 0
        self._at_chunk = False
        self._left = 0
        self._rest = b""
        self._step: _Step = _Response._take_head

    def eof(self) -> bool:
        """Say that the connection has ended, and return whether the response is whole.

        It is if its end had been found, or if the end of the connection is
        what ends it. `done` says the same afterwards.
        """
        if self._step is _Response._take_until_close:
            self._finish(0)
        return self.done

    def _take(self, data: bytes, body: list[bytes] | None) -> None:
        """Take any bytes; put those of the body into `body`, if it is a list."""
        self._at_chunk = False
        if self._rest:
            data, self._rest = self._rest + data, b""
        position, end = 0, len(data)
        try:
            while position < end:
                position = self._step(self, data, position, body)
        except HttpError:
            self._step = _Response._take_nothing
            raise
        at_size = self._step is _Response._take_chunks and not self._rest
        self._at_chunk = at_size and self.body_started

    def _take_head(self, data: bytes, position: int, _body: list[bytes] | None) -> int:
        found = parse_head(data)
        if found is None:
            return self._keep(data, position)
        self.head, position = found
        if self.head.chunked:
            self._step = _Response._take_chunks
        elif self.head.content_length is None:
            self._step = _Response._take_until_close
        else:
            self._step = _Response._take_fixed
            self._left = self.head.content_length
            if not self._left:
                self._finish(position)
        return position

    def _take_chunks(self, data: bytes, position: int, body: list[bytes] | None) -> int:
        """Take whole chunks, from the first byte of one on; stop inside one or at the last."""
        total = len(data)
        while position < total:
            line = _SIZE_LINE.match(data, position)
            if line is None:
                if _SIZE_START.fullmatch(data, position) is None:
                    raise _unlike("chunk size", data[position:], "hexadecimal digits, then CR LF")
                return self._keep(data, position)
            start, size = line.end(), int(line[1], 16)
            end = start + size
            if not size:
                self._step = _Response._take_trailer
                return start
            if not data.startswith(_CRLF, end):
                self._left = size + 2
                self._step = _Response._take_chunk_rest
                return start
            self.body_started = True
            if body is not None:
                body.append(data[start:end])
            position = end + 2
        return position

    def _take_chunk_rest(self, data: bytes, position: int, body: list[bytes] | None) -> int:
        """Take what is left of one chunk: `_left` bytes, the last two of them CR LF."""
        if self._left > 2:
            end = min(position + self._left - 2, len(data))
            self.body_started = True
            if body is not None:
                body.append(data[position:end])
            self._left -= end - position
            position = end
        if self._left <= 2:
            got = data[position : position + self._left]
            if not _CRLF[2 - self._left :].startswith(got):
                raise _unlike("end of a chunk", got, "CR LF after as many bytes as its size says")
            self._left -= len(got)
            position += len(got)
        if not self._left:
            self._step = _Response._take_chunks
        return position

    def _take_trailer(self, data: bytes, position: int, _body: list[bytes] | None) -> int:
        if data.startswith(_CRLF, position):
            return self._finish(position + 2)
        end = data.find(b"\r\n\r\n", position)
        if end < 0:
            _check_open_lines(data[position:], "trailer")
            return self._keep(data, position)
        if end + 4 - position > _HEAD_LIMIT:
            raise _too_long("trailer")
        _fields(data[position:end])
        return self._finish(end + 4)

    def _take_fixed(self, data: bytes, position: int, body: list[bytes] | None) -> int:
        end = min(position + self._left, len(data))
        self.body_started = True
        if body is not None:
            body.append(data[position:end])
        self._left -= end - position
        return end if self._left else self._finish(end)

    def _take_until_close(self, data: bytes, position: int, body: list[bytes] | None) -> int:
        self.body_started = True
        if body is not None:
            body.append(data[position:])
        return len(data)

    def _take_extra(self, data: bytes, position: int, _body: list[bytes] | None) -> int:
        self.extra += len(data) - position
        return len(data)

    def _take_nothing(self, _data: bytes, _position: int, _body: list[bytes] | None) -> int:
        raise HttpError("bytes after a fault in the framing, expected an end to the connection")

    def _keep(self, data: bytes, position: int) -> int:
        """Put an incomplete line aside until more of it is there."""
        self._rest = data[position:]
        return len(data)

    def _finish(self, position: int) -> int:
        self.done = True
        self._step = _Response._take_extra
        return position


_Step = Callable[[_Response, bytes, int, list[bytes] | None], int]


def _whole_chunk(data: bytes) -> int:
    """Return where the size line of `data` ends if it is exactly one chunk, else 0.

    It is one if the size, in plain hexadecimal digits, is just the length that
    the size line and two line ends leave for the data.
    """
    cut = data.find(_CRLF)
    digits = data[:cut]
    if not 0 < cut < 16 or digits.strip(_HEX_DIGITS) or not data.endswith(_CRLF):
        return 0
    return cut if 0 < int(digits, 16) == len(data) - cut - 4 else 0


class ResponseScanner(_Response):
    """Finds the end of one response and keeps nothing of it; for the receive path.

    Attributes:
        head: The head; None while incomplete.
        body_started: Whether a byte of the body has arrived.
        done: Whether the whole response has arrived.
        extra: Bytes that came after its end; a fault unless 0.
    """

    __slots__ = ()

    def feed(self, data: bytes) -> bool:
        """Return whether the response is whole, now that `data` has arrived.

        Args:
            data: What one read brought, cut anywhere.

        Raises:
            HttpError: If it is no response; at every later call too.
        """
        if self._at_chunk and _whole_chunk(data):  # nearly every read
            return False
        self._take(data, None)
        return self.done


class ResponseDecoder(_Response):
    """Gives the body of one response, in the pieces in which it arrived.

    Attributes:
        head: The head; None while incomplete.
        body_started: Whether a byte of the body has arrived.
        done: Whether the whole response has arrived.
        extra: Bytes that came after its end; a fault unless 0.
    """

    __slots__ = ()

    def feed(self, data: bytes) -> bytes:
        """Return the body bytes in `data`, without the framing of chunks.

        Args:
            data: What one read brought, cut anywhere.

        Raises:
            HttpError: If it is no response; at every later call too.
        """
        if self._at_chunk and (cut := _whole_chunk(data)):
            return data[cut + 2 : -2]
        body: list[bytes] = []
        self._take(data, body)
        return b"".join(body)
