"""Ways to spoil an answer: each takes the writes of an answer and yields others.

Pure, and applied in the order of `_SPOILERS`: what is said, then how it is
coded, then how it breaks off, then how it is cut into writes. A fault that
strikes in the middle does so when the write after `after_tokens` tokens is due.
"""

import zlib
from collections.abc import Callable, Generator, Iterator

from draftgate.null_engine import documents
from draftgate.null_engine.script import FaultKind, FaultRule, Script
from draftgate.null_engine.writes import (
    KIND_MASK,
    KIND_SHIFT,
    TOKENS_MASK,
    EventKind,
    Work,
    Write,
    note,
)

_GZIP_WBITS = 31
"""zlib's number for a gzip wrapper around its largest window."""
_PIECE = note(EventKind.PIECE)
_COMMANDS = frozenset({EventKind.STALL, EventKind.CLOSE, EventKind.RESET})


class Spoiler:
    """What a fault may know: the script, the request, and where it strikes."""

    def __init__(self, rule: FaultRule, work: Work, script: Script) -> None:
        self.script = script
        self.work = work
        half = max(1, work.num_tokens // 2)
        self.after_tokens = half if rule.after_tokens is None else rule.after_tokens


Spoil = Callable[[Iterator[Write], Spoiler], Iterator[Write]]


def hitting(script: Script, number: int, *, stream: bool) -> tuple[FaultKind, ...]:
    """Return the faults that hit a request, by its running number from 1.

    An answer that is no stream has neither events nor chunks; faults of these
    pass it by.
    """
    known = frozenset(_SPOILERS) if stream else _FOR_WHOLE
    known |= {FaultKind.HTTP_ERROR, FaultKind.WRONG_LENGTH}
    return tuple(rule.kind for rule in script.faults if rule.hits(number) and rule.kind in known)


def apply(writes: Iterator[Write], work: Work, script: Script) -> Iterator[Write]:
    """Return `writes` as the faults of `work` leave them."""
    if not work.faults:
        return writes
    rules = {rule.kind: rule for rule in script.faults if rule.hits(work.number)}
    for kind, spoil in _SPOILERS.items():
        if kind in work.faults:
            writes = spoil(writes, Spoiler(rules[kind], work, script))
    return writes


def _kind(write_note: int) -> int:
    return write_note >> KIND_SHIFT & KIND_MASK


def _until(
    writes: Iterator[Write], after_tokens: int
) -> Generator[Write, None, tuple[int, Write | None]]:
    """Yield the writes before the strike; return its due time and the write it met, if any."""
    given, due_ns = 0, 0
    for write in writes:
        due_ns = write[0]
        if given >= after_tokens or _kind(write[2]) == EventKind.WHOLE:
            return due_ns, write
        yield write
        given += write[2] & TOKENS_MASK
    return due_ns, None


def _in_band_error(writes: Iterator[Write], spoiler: Spoiler) -> Iterator[Write]:
    due_ns, _ = yield from _until(writes, spoiler.after_tokens)
    said = documents.error_document("scripted error in the stream", 500)
    yield due_ns, documents.event(said), note(EventKind.ERROR)
    # vLLM and SGLang end a stream that failed as they end one that did not.
    yield due_ns, documents.DONE, note(EventKind.DONE)
    yield due_ns, documents.END, note(EventKind.END)


def _malformed(writes: Iterator[Write], spoiler: Spoiler) -> Iterator[Write]:
    due_ns, met = yield from _until(writes, spoiler.after_tokens)
    yield due_ns, documents.event(b'{"id":"null-'), note(EventKind.MALFORMED)
    if met is not None:
        yield met
    yield from writes


def _without(left_out: EventKind) -> Spoil:
    def spoil(writes: Iterator[Write], _: Spoiler) -> Iterator[Write]:
        return (write for write in writes if _kind(write[2]) != left_out)

    return spoil


def _gzip(writes: Iterator[Write], _: Spoiler) -> Iterator[Write]:
    squeeze = zlib.compressobj(wbits=_GZIP_WBITS)
    for due_ns, data, write_note in writes:
        kind = _kind(write_note)
        if kind == EventKind.HEAD:
            sent = data.removesuffix(b"\r\n") + b"content-encoding: gzip\r\n\r\n"
        elif kind == EventKind.END:
            sent = documents.chunk(squeeze.flush()) + data
        else:
            body = squeeze.compress(documents.unchunk(data)) + squeeze.flush(zlib.Z_SYNC_FLUSH)
            sent = documents.chunk(body)
        yield due_ns, sent, write_note


def _break_off(command: EventKind, last_words: bytes = b"") -> Spoil:
    def spoil(writes: Iterator[Write], spoiler: Spoiler) -> Iterator[Write]:
        due_ns, _ = yield from _until(writes, spoiler.after_tokens)
        if last_words:
            yield due_ns, last_words, note(EventKind.MALFORMED)
        yield due_ns, b"", note(command)

    return spoil


def _slow_head(writes: Iterator[Write], spoiler: Spoiler) -> Iterator[Write]:
    free_ns, pause_ns = 0, round(spoiler.script.head_pause_s * 1e9)
    for due_ns, data, write_note in writes:
        if _kind(write_note) == EventKind.HEAD:
            half = len(data) // 2
            yield due_ns, data[:half], _PIECE
            free_ns = due_ns + pause_ns
            yield free_ns, data[half:], write_note
        else:
            yield max(due_ns, free_ns), data, write_note


def _coalesce(writes: Iterator[Write], spoiler: Spoiler) -> Iterator[Write]:
    held: list[Write] = []
    for write in writes:
        kind = _kind(write[2])
        alone = kind == EventKind.HEAD or kind in _COMMANDS
        if alone or len(held) == spoiler.script.events_per_write:
            yield from _joined(held)
            held = []
        if alone:
            yield write
        else:
            held.append(write)
    yield from _joined(held)


def _joined(held: list[Write]) -> Iterator[Write]:
    """Yield one write with all bytes, due with the last; then the others without bytes."""
    data = b"".join(write[1] for write in held)
    for write in held:
        yield held[-1][0], data, write[2]
        data = b""


def _fragment(writes: Iterator[Write], spoiler: Spoiler) -> Iterator[Write]:
    size, free_ns, at_ns = spoiler.script.fragment_bytes, 0, 0
    pause_ns = round(spoiler.script.fragment_pause_s * 1e9)
    for due_ns, data, write_note in writes:
        begin = 0
        at_ns = max(due_ns, free_ns) if data else max(due_ns, at_ns)
        while len(data) - begin > size:
            yield at_ns, data[begin : begin + size], _PIECE
            begin += size
            at_ns += pause_ns
        yield at_ns, data[begin:], write_note
        free_ns = at_ns + pause_ns


_SPOILERS: dict[FaultKind, Spoil] = {
    FaultKind.IN_BAND_ERROR: _in_band_error,
    FaultKind.MALFORMED: _malformed,
    FaultKind.MISSING_USAGE: _without(EventKind.USAGE),
    FaultKind.MISSING_DONE: _without(EventKind.DONE),
    FaultKind.GZIP: _gzip,
    FaultKind.STALL: _break_off(EventKind.STALL),
    FaultKind.EARLY_CLOSE: _break_off(EventKind.CLOSE),
    FaultKind.RESET: _break_off(EventKind.RESET),
    FaultKind.BAD_CHUNK: _break_off(EventKind.CLOSE, b"zz\r\n"),
    FaultKind.SLOW_HEAD: _slow_head,
    FaultKind.COALESCE: _coalesce,
    FaultKind.FRAGMENT: _fragment,
}
_FOR_WHOLE = frozenset(
    {FaultKind.STALL, FaultKind.EARLY_CLOSE, FaultKind.RESET, FaultKind.FRAGMENT}
)
